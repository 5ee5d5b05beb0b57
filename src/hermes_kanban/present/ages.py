"""Times and spans for people: `4 min ago`, `in 2 h`. Machines get epoch seconds."""

from __future__ import annotations

_UNITS = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))
_SEVERAL = 2  # from two of a unit on, that unit is used


def span(seconds: int) -> str:
    """Return a duration in its largest fitting unit."""
    size = abs(seconds)
    for unit, name in _UNITS:
        if size >= unit * (_SEVERAL if unit > 1 else 1):
            return f"{size // unit} {name}"
    return "0 s"


def age(then: int | None, now: int) -> str:
    """Return how long ago an instant was, or how far off it is; "" for none."""
    if then is None:
        return ""
    return f"in {span(then - now)}" if then > now else f"{span(now - then)} ago"
