"""Instants as people write them: `+30m`, `2h`, `tomorrow 09:00`, `09:00`, ISO 8601, epoch seconds.

What has no zone is meant in the zone of this machine.
"""

from __future__ import annotations

from hermes_kanban.base.errors import InvalidValue
from hermes_kanban.base.lazy import module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_UNITS = {
    "s": 1,
    "sec": 1,
    "m": 60,
    "min": 60,
    "h": 3600,
    "d": 86_400,
    "w": 604_800,
}
_DAYS = {"today": 0, "tomorrow": 1}
_SMALLEST_EPOCH = 100_000_000  # 1973: a smaller number is a span whose unit was forgotten
_LONGEST = 18


def instant(text: str, now: int, label: str = "--at") -> int:
    """Return epoch seconds.

    Args:
        text: what was written.
        now: epoch seconds.
        label: the argument's name, for the error.

    Raises:
        InvalidValue: it is no instant.
    """
    plain = " ".join(text.split()).lower()
    found = _span(plain, now)
    if found is None:
        found = _epoch(plain)
    if found is None:
        found = _calendar(plain, now)
    if found is None:
        past = ": it lies in the past" if _is_past(plain) else ""
        raise InvalidValue(
            f"{label} cannot be {text[:60]!r}{past}",
            hint="for example +30m, 2h, tomorrow 09:00, 2030-01-31T09:00, 2030-01-31T09:00:00+02:00",
            argument=label,
        )
    return found


def span(text: str) -> int | None:
    """Return the seconds of a span like `90s`, `1h30m`, `2d`; None for anything else."""
    total, digits, left = 0, "", text.replace(" ", "")
    if not left:
        return None
    while left:
        digits = left[: len(left) - len(left.lstrip("0123456789"))]
        left = left[len(digits) :]
        unit = left[: len(left) - len(left.lstrip("abcdefghijklmnopqrstuvwxyz"))]
        left = left[len(unit) :]
        if not digits or unit not in _UNITS or len(digits) > _LONGEST:
            return None
        total += int(digits) * _UNITS[unit]
    return total


def _is_past(plain: str) -> bool:
    return plain.startswith("-") and span(plain[1:]) is not None


def _span(plain: str, now: int) -> int | None:
    found = span(plain.removeprefix("in ").removeprefix("+").strip())
    return None if found is None else now + found


def _epoch(plain: str) -> int | None:
    if not (plain.isascii() and plain.isdigit()):
        return None
    number = int(plain[:_LONGEST]) if len(plain) > _LONGEST else int(plain)
    return number if number >= _SMALLEST_EPOCH else None


def _calendar(plain: str, now: int) -> int | None:
    """Read a day and a time of day, or ISO 8601; `09:00` alone is the next such time."""
    datetime: Any = module("datetime")
    word, _, rest = plain.partition(" ")
    here = datetime.datetime.fromtimestamp(now).astimezone()
    try:
        if word in _DAYS:
            at = datetime.time.fromisoformat(rest.strip() or "00:00")
            day = here.date() + datetime.timedelta(days=_DAYS[word])
            return _seconds(datetime.datetime.combine(day, at))
        if ":" in plain and "-" not in plain and "t" not in plain and len(plain) <= len("00:00:00"):
            at = datetime.time.fromisoformat(plain)
            today = _seconds(datetime.datetime.combine(here.date(), at))
            tomorrow = datetime.datetime.combine(here.date() + datetime.timedelta(days=1), at)
            return today if today > now else _seconds(tomorrow)
        return _seconds(datetime.datetime.fromisoformat(plain.upper()))
    except (ValueError, OverflowError, OSError):
        return None


def _seconds(moment: Any) -> int:
    return int(moment.timestamp())
