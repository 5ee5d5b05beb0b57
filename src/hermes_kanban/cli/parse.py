"""One verb's command line: argparse reads the options, the declaration says what the other words mean.

Only the chosen verb's parser is built. Options and words mix in any order; each option is given once unless the
declaration says `many`; several words of a text are joined by blanks. Everything after `--` is words.
"""

from __future__ import annotations

import argparse

from hermes_kanban.base.errors import Usage
from hermes_kanban.base.lazy import module
from hermes_kanban.cli.values import Reader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

    from hermes_kanban.kernel.verbs import Parameter, Verb

WIDTH = 100
_TAKES_ALL = ("text", "line")


class Helped(Exception):
    """The help was asked for; it is the argument."""


class _Parser(argparse.ArgumentParser):
    """A parser that refuses with our errors and lets the declaration write the help."""

    verb: Verb

    def error(self, message: str) -> NoReturn:
        raise Usage(*module("hermes_kanban.cli.usage").explained(self.verb, message))

    def print_help(self, _file: Any = None) -> NoReturn:
        raise Helped(module("hermes_kanban.cli.usage").verb_help(self.verb))


def _formatter(prog: str) -> argparse.HelpFormatter:
    """The width is given, since asking for it would load what only help needs."""
    return argparse.HelpFormatter(prog, width=WIDTH)


def parser_of(verb: Verb) -> argparse.ArgumentParser:
    """Build the parser of a verb from its declaration."""
    parser = _Parser(prog=f"hermes kanban {verb.name}", usage="-", allow_abbrev=False, formatter_class=_formatter)
    parser.verb = verb
    parser.add_argument("--board", action="append")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("-q", "--quiet", action="store_true")
    for parameter in verb.parameters:
        if not parameter.positional:
            _add_option(parser, parameter)
    parser.add_argument("words", nargs="*")
    return parser


def _add_option(parser: argparse.ArgumentParser, parameter: Parameter) -> None:
    flag, dest = f"--{parameter.name}", f"p_{parameter.name}"
    if parameter.type == "flag":
        parser.add_argument(flag, dest=dest, action="store_true")
    elif parameter.bare:
        parser.add_argument(flag, dest=dest, action="append", nargs="?", const=parameter.bare)
    else:
        parser.add_argument(flag, dest=dest, action="append")


class Parsed:
    """What a command line says: values by parameter, the board, the form of the answer."""

    def __init__(self, values: dict[str, Any], board: str | None, *, json: bool, quiet: bool) -> None:
        self.values = values
        self.board = board
        self.json = json
        self.quiet = quiet


def parse(verb: Verb, words: list[str]) -> Parsed:
    """Read the words behind a verb.

    Raises:
        Helped: `--help` is among them.
        InvalidValue, Usage: they make no call of this verb.
    """
    head, tail = _split(words)
    found = vars(parser_of(verb).parse_intermixed_args(head))
    reader = Reader()
    values: dict[str, Any] = {}
    for parameter in verb.parameters:
        if not parameter.positional:
            values[parameter.name] = _option(reader, parameter, found[f"p_{parameter.name}"])
    values |= _positionals(reader, verb, [*(found["words"] or []), *tail])
    return Parsed(
        values, one_board([str(name) for name in found["board"] or []]), json=found["json"], quiet=found["quiet"]
    )


def _split(words: list[str]) -> tuple[list[str], list[str]]:
    if "--" not in words:
        return words, []
    at = words.index("--")
    return words[:at], words[at + 1 :]


def one_board(given: list[str]) -> str | None:
    """Return the board that was named; naming two is a contradiction.

    Raises:
        Usage: two different ones.
    """
    if len(set(given)) > 1:
        raise Usage(f"two boards are named: {' and '.join(given)}", hint="leave one out")
    return given[0] if given else None


def _option(reader: Reader, parameter: Parameter, given: Any) -> Any:
    if parameter.type == "flag":
        return bool(given)
    # argparse takes `--` out of `--note=--` too, in some releases, and leaves an empty list.
    texts = [text if isinstance(text, str) else "--" for text in given or []]
    if parameter.many:
        return tuple(reader.value(parameter, part) for text in texts for part in _parts(parameter, text))
    if len(texts) > 1:
        raise Usage(f"--{parameter.name} is given {len(texts)} times", hint="give it once")
    return reader.value(parameter, texts[0]) if texts else None


def _parts(parameter: Parameter, text: str) -> list[str]:
    """Words and ids may be given as one list with commas; names and texts may hold commas themselves."""
    if parameter.type in ("choice", "id") and "," in text:
        return [part.strip() for part in text.split(",") if part.strip()]
    return [text]


def _positionals(reader: Reader, verb: Verb, words: list[str]) -> dict[str, Any]:
    """Deal the words out: one each, the last parameter takes the rest if it may."""
    declared = [p for p in verb.parameters if p.positional]
    values: dict[str, Any] = {}
    left = list(words)
    for parameter in declared:
        greedy = parameter is declared[-1] and (parameter.many or parameter.type in _TAKES_ALL)
        taken, left = (left, []) if greedy else (left[:1], left[1:])
        if not taken and parameter.required:
            raise Usage(*module("hermes_kanban.cli.usage").explained(verb, f"{parameter.name.upper()} is missing"))
        values[parameter.name] = _positional(reader, parameter, taken)
    if left:
        raise Usage(*module("hermes_kanban.cli.usage").explained(verb, f"one word too many: {left[0][:60]!r}"))
    return values


def _positional(reader: Reader, parameter: Parameter, taken: list[str]) -> Any:
    if parameter.many:
        return tuple(dict.fromkeys(reader.value(parameter, word) for word in taken))
    return reader.joined(parameter, taken) if taken else None
