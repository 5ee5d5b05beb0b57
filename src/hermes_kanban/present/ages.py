"""Times and spans for people: `4 min ago`, `in 2 h`. Machines get epoch seconds."""

from __future__ import annotations

from hermes_kanban.base.clock import span


def age(then: int | None, now: int) -> str:
    """Return how long ago an instant was, or how far off it is; "" for none."""
    if then is None:
        return ""
    return f"in {span(then - now)}" if then > now else f"{span(now - then)} ago"


def left(until: int | None, now: int) -> str:
    """Return how long something still lasts (` for another 14 min`), to stand behind what lasts; "" for no end."""
    return f" for another {span(until - now)}" if until is not None and until > now else ""
