"""Help and usage, written from the declarations and from the table of transitions. Loaded only when it is needed."""

from __future__ import annotations

import difflib

from hermes_kanban.base.limits import LIMITS
from hermes_kanban.cli import guide
from hermes_kanban.kernel.verbs import ALIASES, BY_NAME, GROUPS, VERBS
from hermes_kanban.model import status as s
from hermes_kanban.model import transitions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from hermes_kanban.kernel.verbs import Parameter, Verb

COMMON = (
    ("--board SLUG", "the board (also before the verb)"),
    ("--json", "answer with one JSON document"),
    ("-q, --quiet", "answer with ids alone"),
    ("-h, --help", "show this"),
)
_METAVARS = {
    "text": "TEXT",
    "line": "TEXT",
    "words": "WORD",
    "name": "NAME",
    "int": "N",
    "seconds": "SECONDS",
    "pause": "SECONDS",
    "when": "WHEN",
    "id": "ID",
    "json": "JSON",
    "path": "FILE",
    "choice": "WORD",
    "flag": "",
}
_GROUPS_OF_HERMES = (
    ("kanban", "the board: cards, claims, runs"),
    ("gateway", "the process that starts workers: start, status, stop"),
)
_TARGETS = {transitions.GATE: f"{s.READY}, or {s.TODO} while a parent is open"}  # P3
_COLUMN = 28
WIDTH = 100


def metavar(parameter: Parameter) -> str:
    """Return what stands for the value in usage lines."""
    return parameter.name.upper() if parameter.positional else _METAVARS[parameter.type]


def _shown(parameter: Parameter) -> str:
    value = metavar(parameter)
    many = "…" if parameter.many or (parameter.positional and parameter.type == "text") else ""
    if parameter.positional:
        return f"{value}{many}"
    if parameter.type == "flag":
        return f"--{parameter.name}"
    return f"--{parameter.name} [{value}]" if parameter.bare else f"--{parameter.name} {value}{many}"


def usage_line(verb: Verb) -> str:
    """Return the usage of a verb on one line: its words, and its options as far as they fit."""
    words = [_shown(p) if p.required else f"[{_shown(p)}]" for p in verb.parameters if p.positional]
    line = " ".join([f"usage: {verb.command}", *words])
    options = [f"[{_shown(p)}]" for p in verb.parameters if not p.positional]
    for option in options:
        if len(line) + len(option) > WIDTH:
            return f"{line} […]"
        line += f" {option}"
    return line


def explained(verb: Verb, message: str) -> tuple[str, str]:
    """Return message and hint for words that the declaration turned down."""
    return message, f"`{verb.command} --help` says more"


def malformed(verb: Verb, message: str, option: str) -> tuple[str, str]:
    """Return message and hint for options that make no call; `option` is an unknown one, or empty."""
    message, more = explained(verb, message)
    if not option:
        return message, more
    flags = [f"--{p.name}" for p in verb.parameters if not p.positional] + ["--board", "--json", "--quiet"]
    elsewhere = guide.OPTIONS_ELSEWHERE.get((verb.name, option))
    if elsewhere:
        return f"{verb.name} has {message}", f"{elsewhere}; {more}"
    near = difflib.get_close_matches(option, flags, 1)
    guess = f"did you mean {near[0]}? " if near else "" if option.startswith("--") else "a text goes behind `--`; "
    return f"{verb.name} has {message}", guess + more


def verb_help(verb: Verb) -> str:
    """Return the help of one verb."""
    lines = [usage_line(verb), "", f"{verb.summary[0].upper()}{verb.summary[1:]}."]
    lines += [f"Another word for it: {alias}." for alias, name in ALIASES.items() if name == verb.name]
    row = transitions.BY_VERB.get(verb.name)
    if row is not None and row.sources:
        targets = "; ".join(_TARGETS.get(target, target) for target in row.targets)
        lines += ["", f"works from: {', '.join(row.sources)}", f"leads to: {targets}"]
    for title, chosen in (
        ("words", [p for p in verb.parameters if p.positional]),
        ("options", [p for p in verb.parameters if not p.positional]),
    ):
        if chosen:
            lines += ["", f"{title}:", *_rows((_shown(p), _about(p)) for p in chosen)]
    return "\n".join([*lines, "", "always:", *_rows(COMMON), *guide.more(verb.name)])


_WRITTEN = {  # how a value is written, where the name of its type does not say it
    "seconds": "also 90s, 15m, 2h, 1d",
    "pause": "also 0.5, 90s, 15m, 2h",
    "when": "+30m, 2h, tomorrow 09:00, ISO 8601, epoch seconds",
}


def _about(parameter: Parameter) -> str:
    text, notes = parameter.help, []
    limit = LIMITS.get(parameter.limit)
    if limit and limit.highest < 2**53 and parameter.type != "when":
        notes.append(f"{limit.lowest} to {limit.highest} {limit.unit}")
    if parameter.type in _WRITTEN:
        notes.append(_WRITTEN[parameter.type])
    if parameter.type == "text" and not parameter.positional:
        notes.append("- = standard input, @file")
    text += f" ({'; '.join(notes)})" if notes else ""
    if parameter.choices and len(parameter.choices) < 12:
        text += f": {', '.join(parameter.choices)}"
    return text


def _rows(pairs: Iterable[tuple[str, str]]) -> list[str]:
    rows = []
    for left, right in pairs:
        gap = " " * max(2, _COLUMN - len(left))
        rows.append(f"  {left}{gap}{right}")
    return rows


def kanban_help() -> str:
    """Return the list of verbs by group."""
    lines = ["usage: hermes kanban [--board SLUG] VERB …", ""]
    for group, meaning in GROUPS.items():
        lines += [f"{meaning}:", *_rows((_named(v), v.summary) for v in VERBS if v.group == group), ""]
    lines += ["always:", *_rows(COMMON), "", "`hermes kanban VERB --help` says more."]
    return "\n".join(lines)


def _named(verb: Verb) -> str:
    return ", ".join([verb.name, *(alias for alias, name in ALIASES.items() if name == verb.name)])


def hermes_help() -> str:
    """Return the list of groups."""
    lines = ["usage: hermes GROUP …", "", "groups:", *_rows(_GROUPS_OF_HERMES)]
    return "\n".join([*lines, "", "`hermes GROUP --help` says more; `hermes --version` which release this is."])


def unknown(word: str) -> str:
    """Return a guess at the verb that was meant, or nothing."""
    guess = _guess(word)
    return f"did you mean {guess}? " if guess else ""


def unknown_group(word: str, groups: Iterable[str]) -> str:
    """Return a guess at the group that was meant; a verb without its group is recognised, or nothing."""
    if word in BY_NAME or word in ALIASES or word in guide.GUESSED:
        return f"did you mean `hermes kanban {guide.GUESSED.get(word, word)}`? "
    near = difflib.get_close_matches(word, [*groups], 1)
    return f"did you mean {near[0]}? " if near else ""


def _guess(word: str) -> str:
    near = difflib.get_close_matches(word, BY_NAME, 1)
    return guide.GUESSED.get(word) or (near[0] if near else "")
