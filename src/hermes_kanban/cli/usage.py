"""Help and usage, written from the declarations and from the table of transitions. Loaded only when it is needed."""

from __future__ import annotations

import difflib

from hermes_kanban.base.limits import LIMITS
from hermes_kanban.kernel.verbs import BY_NAME, GROUPS, VERBS
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
_GROUPS_OF_HERMES = (("kanban", "the board: cards, claims, runs"),)
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
    line = " ".join(["usage: hermes kanban", verb.name, *words])
    options = [f"[{_shown(p)}]" for p in verb.parameters if not p.positional]
    for option in options:
        if len(line) + len(option) > WIDTH:
            return f"{line} […]"
        line += f" {option}"
    return line


def explained(verb: Verb, message: str) -> tuple[str, str]:
    """Return message and hint for words that the declaration turned down."""
    return message, f"`hermes kanban {verb.name} --help` says more"


def malformed(verb: Verb, message: str, option: str) -> tuple[str, str]:
    """Return message and hint for options that make no call; `option` is an unknown one, or empty."""
    message, more = explained(verb, message)
    if not option:
        return message, more
    flags = [f"--{p.name}" for p in verb.parameters if not p.positional] + ["--board", "--json", "--quiet"]
    near = difflib.get_close_matches(option, flags, 1)
    guess = f"did you mean {near[0]}? " if near else "" if option.startswith("--") else "a text goes behind `--`; "
    return f"{verb.name} has {message}", guess + more


def verb_help(verb: Verb) -> str:
    """Return the help of one verb."""
    lines = [usage_line(verb), "", f"{verb.summary}.".capitalize() if verb.summary[0].islower() else verb.summary]
    row = transitions.BY_VERB.get(verb.name)
    if row is not None and row.sources:
        lines += ["", f"works from: {', '.join(row.sources)}; leads to: {', '.join(row.targets)}"]
    for title, chosen in (
        ("words", [p for p in verb.parameters if p.positional]),
        ("options", [p for p in verb.parameters if not p.positional]),
    ):
        if chosen:
            lines += ["", f"{title}:", *_rows((_shown(p), _about(p)) for p in chosen)]
    return "\n".join([*lines, "", "always:", *_rows(COMMON)])


def _about(parameter: Parameter) -> str:
    text = parameter.help
    if parameter.limit:
        limit = LIMITS[parameter.limit]
        text += f" ({limit.lowest} to {limit.highest} {limit.unit})" if limit.highest < 2**53 else ""
    if parameter.type == "when":
        text += " (+30m, 2h, tomorrow 09:00, ISO 8601, epoch)"
    if parameter.type == "text":
        text += " (- = standard input, @file)" if not parameter.positional else ""
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
        lines += [f"{meaning}:", *_rows((v.name, v.summary) for v in VERBS if v.group == group), ""]
    lines += ["always:", *_rows(COMMON), "", "`hermes kanban VERB --help` says more."]
    return "\n".join(lines)


def hermes_help() -> str:
    """Return the list of groups."""
    lines = ["usage: hermes GROUP …", "", "groups:", *_rows(_GROUPS_OF_HERMES)]
    return "\n".join([*lines, "", "`hermes GROUP --help` says more; `hermes --version` which release this is."])


def unknown(word: str, *, known: Iterable[str] = tuple(BY_NAME)) -> str:
    """Return a guess at what was meant, or nothing."""
    near = difflib.get_close_matches(word, [*known], 1)
    return f"did you mean {near[0]}? " if near else ""
