"""The one table of numbers: range, unit and meaning of every number that a caller may give (P50)."""

from __future__ import annotations

from hermes_kanban.base.errors import InvalidValue
from hermes_kanban.base.record import Record, record


@record
class Limit(Record):
    """The range of one number, both ends included."""

    lowest: int
    highest: int
    unit: str


YEAR_9999 = 253_402_300_799

LIMITS: dict[str, Limit] = {
    "priority": Limit(-1000, 1000, "steps"),
    "ttl": Limit(1, 86_400, "seconds"),
    "wait": Limit(0, 86_400, "seconds"),
    "max_runtime": Limit(1, 2_592_000, "seconds"),
    "max_retries": Limit(1, 1000, "failures"),
    "max_concurrency": Limit(0, 10_000, "workers"),
    "concurrency": Limit(1, 1000, "cards"),
    "goal_max_turns": Limit(1, 1000, "turns"),
    "limit": Limit(1, 100_000, "rows"),
    "since": Limit(0, 2**62, "event id"),
    "after": Limit(0, 2**62, "seq"),
    "run": Limit(1, 2**62, "run id"),
    "attachment": Limit(1, 2**62, "attachment id"),
    "interval": Limit(1, 3600, "seconds"),
    "at": Limit(0, YEAR_9999, "epoch seconds"),
    "title_length": Limit(1, 500, "characters"),
    "name_length": Limit(1, 100, "characters"),
    "text_bytes": Limit(0, 1_048_576, "bytes"),
}


def in_range(name: str, value: int, *, argument: str = "") -> int:
    """Return the value if it lies within the limit of this name.

    Raises:
        InvalidValue: it does not; the error prints the range (P50).
    """
    limit = LIMITS[name]
    if limit.lowest <= value <= limit.highest:
        return value
    shown = argument or name
    raise InvalidValue(
        f"{shown} must be from {limit.lowest} to {limit.highest} {limit.unit}, not {str(value)[:40]}",
        hint=f"give {shown} within {limit.lowest} to {limit.highest}",
        argument=shown,
        lowest=limit.lowest,
        highest=limit.highest,
    )


def checked_name(argument: str, text: str) -> str:
    """Return a name as written.

    Raises:
        InvalidValue: empty, with white space at an end, with control characters, or too long.
    """
    most = LIMITS["name_length"].highest
    if text and text == text.strip() and len(text) <= most and not any(ord(c) < 32 or ord(c) == 127 for c in text):
        return text
    raise InvalidValue(
        f"{argument} must be 1 to {most} visible characters without blanks at its ends",
        hint=f"give {argument} a plain name",
        argument=argument,
    )
