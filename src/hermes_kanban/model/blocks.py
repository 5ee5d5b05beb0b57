"""The block template: five parts, given as fields or as text, read leniently (P25)."""

from __future__ import annotations

from hermes_kanban.base.record import Record, record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

CAUSES = ("human decision needed", "test failure", "environment", "auth missing", "spec undecided")

TEMPLATE = """cause: human decision needed | test failure | environment | auth missing | spec undecided
what happened: the facts, in one paragraph
options: A / B / C
recommendation: which one, and why
next action needed: what exactly whoever releases it must do"""

_HEADS = {
    "cause": "cause",
    "what happened": "what",
    "what": "what",
    "options": "options",
    "option": "options",
    "recommendation": "recommendation",
    "recommend": "recommendation",
    "next action needed": "next_action",
    "next action": "next_action",
    "next": "next_action",
}
_DRESS = " \t*#>-0123456789.)"  # a head may be a list item, a heading, bold, numbered, quoted
_LABELS = {
    "cause": "cause",
    "what": "what happened",
    "options": "options",
    "recommendation": "recommendation",
    "next_action": "next action needed",
}


@record
class Reason(Record):
    """A block reason: its text as given, and what could be read of it."""

    text: str
    cause: str | None = None
    what: str | None = None
    options: tuple[str, ...] = ()
    recommendation: str | None = None
    next_action: str | None = None

    def fields(self) -> dict[str, Any] | None:
        """Return the parts that are there, or None when the text has none."""
        found = {n: getattr(self, n) for n in _LABELS if getattr(self, n)}
        return {n: list(v) if n == "options" else v for n, v in found.items()} or None


def from_text(text: str) -> Reason:
    """Read a reason: any order of parts, full-width colons, options split at ` / `, commas or lines."""
    parts: dict[str, list[str]] = {}
    current: str | None = None
    for line in text.replace("：", ":").splitlines():
        head, colon, rest = line.partition(":")
        name = _HEADS.get(head.strip(_DRESS).lower()) if colon else None
        if name:
            current = name
            parts.setdefault(name, [])
            line = rest.lstrip("*")  # noqa: PLW2901 - the head is read (bold or not), the rest belongs to the part
        if current and line.strip():
            parts[current].append(line.strip())
    joined = {name: "\n".join(lines) for name, lines in parts.items()}
    return Reason(
        text=text.strip(),
        cause=cause_of(joined.get("cause")),
        what=joined.get("what") or None,
        options=split_options(joined.get("options", "")),
        recommendation=joined.get("recommendation") or None,
        next_action=joined.get("next_action") or None,
    )


def from_fields(
    cause: str | None, what: str | None, options: tuple[str, ...], recommend: str | None, next_action: str | None
) -> Reason:
    """Make a reason from its parts; the text is the template filled in."""
    values = {
        "cause": cause_of(cause),
        "what": what,
        "options": " / ".join(options),
        "recommendation": recommend,
        "next_action": next_action,
    }
    text = "\n".join(f"{_LABELS[name]}: {value}" for name, value in values.items() if value)
    return Reason(text, values["cause"], what or None, options, recommend or None, next_action or None)


def cause_of(text: str | None) -> str | None:
    """Return the cause in the protocol's words, or the text as it is when it is none of them."""
    if not text or not text.strip():
        return None
    plain = " ".join(text.lower().replace("_", " ").replace("-", " ").strip("<>. ").split())
    return next((cause for cause in CAUSES if plain == cause), text.strip())


def split_options(text: str) -> tuple[str, ...]:
    """Split at lines, else at ` / `, else at commas."""
    for separator in ("\n", " / ", "、", ","):
        if separator in text:
            break
    else:
        separator = "\n"
    return tuple(part.strip().lstrip("-* ").strip() for part in text.split(separator) if part.strip())


def missing(reason: Reason, *, dependency: bool) -> tuple[str, ...]:
    """Return the labels of the parts that are not there; a dependency needs the first two only."""
    wanted = ("cause", "what") if dependency else tuple(_LABELS)
    gone = [_LABELS[name] for name in wanted if not getattr(reason, name)]
    if reason.cause and reason.cause not in CAUSES:
        gone.insert(0, f"cause (one of: {' | '.join(CAUSES)})")
    return tuple(gone)


def letters(fields: dict[str, Any] | None) -> tuple[str, ...]:
    """Return the letters by which the options of a block may be chosen."""
    return tuple(chr(ord("A") + index) for index in range(min(26, len((fields or {}).get("options", [])))))


def expand_answer(answer: str, fields: dict[str, Any] | None) -> str | None:
    """Turn an option's letter into the option: `B` becomes `B: the text of the second option`.

    Returns:
        The answer, or None for a letter that is not among the options that were offered.
    """
    letter = answer.strip().upper().rstrip(".:)")
    offered = letters(fields)
    if len(letter) != 1 or not "A" <= letter <= "Z" or not offered:
        return answer
    if letter not in offered:
        return None
    text = str((fields or {})["options"][offered.index(letter)])
    named = text.upper().startswith((f"{letter}:", f"{letter} ", f"{letter}.", f"{letter})", f"{letter} ("))
    return text if named or text.upper() == letter else f"{letter}: {text}"
