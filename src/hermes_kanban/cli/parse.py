"""One verb's command line: options and words are split by name, the declaration says what they mean.

Options and words mix in any order; each option is given once unless the declaration says `many`; several words of a
text are joined by blanks. Everything after `--` is words.
"""

from __future__ import annotations

from hermes_kanban.base.errors import Usage
from hermes_kanban.base.lazy import module
from hermes_kanban.cli import scan
from hermes_kanban.cli.values import Reader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from hermes_kanban.kernel.verbs import Parameter, Verb

_TAKES_ALL = ("text", "line")
_COMMON = {
    "--board": scan.VALUE,
    "--json": scan.FLAG,
    "-q": scan.FLAG,
    "--quiet": scan.FLAG,
    "-h": scan.FLAG,
    "--help": scan.FLAG,
}


class Helped(Exception):
    """The help was asked for; it is the argument."""


def _kind(parameter: Parameter) -> str:
    return scan.FLAG if parameter.type == "flag" else scan.BARE if parameter.bare else scan.VALUE


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
    known = _COMMON | {f"--{p.name}": _kind(p) for p in verb.parameters if not p.positional}
    try:
        found = scan.scan(words, known)
    except scan.Malformed as error:
        if {"-h", "--help"} & set(words):
            raise _helped(verb) from error
        raise Usage(*module("hermes_kanban.cli.usage").malformed(verb, str(error), error.option)) from error
    given = found.options
    if "-h" in given or "--help" in given:
        raise _helped(verb)
    reader = Reader()
    values: dict[str, Any] = {}
    for parameter in verb.parameters:
        if not parameter.positional:
            values[parameter.name] = _option(reader, parameter, given.get(f"--{parameter.name}", []))
    values |= _positionals(reader, verb, found.words)
    board = one_board([name for name in given.get("--board", []) if name is not None])
    return Parsed(values, board, json="--json" in given, quiet="-q" in given or "--quiet" in given)


def _helped(verb: Verb) -> Helped:
    return Helped(module("hermes_kanban.cli.usage").verb_help(verb))


def one_board(given: list[str]) -> str | None:
    """Return the board that was named; naming two is a contradiction.

    Raises:
        Usage: two different ones.
    """
    if len(set(given)) > 1:
        raise Usage(f"two boards are named: {' and '.join(given)}", hint="leave one out")
    return given[0] if given else None


def _option(reader: Reader, parameter: Parameter, given: list[str | None]) -> Any:
    if parameter.type == "flag":
        return bool(given)
    texts = [parameter.bare if text is None else text for text in given]
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
    if parameter.type == "words":
        return tuple(reader.value(parameter, word) for word in taken)
    if parameter.many:
        return tuple(dict.fromkeys(reader.value(parameter, word) for word in taken))
    return reader.joined(parameter, taken) if taken else None
