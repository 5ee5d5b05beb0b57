"""Events for people: one line each, the same in `show`, `tail` and `events`.

What an event says besides the columns that it changed follows its kind in plain words, `name: value`; instants are
told as ages, and long texts are cut (ids never are).
"""

from __future__ import annotations

from hermes_kanban.present import documents
from hermes_kanban.present.ages import age
from hermes_kanban.present.text import cut, safe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from hermes_kanban.model.event import Event

_FOR_MACHINES = ("set", "changed", "texts", "from", "to", "sha256")
_INSTANTS = ("expires", "until", "at")
_TEXT_COLUMNS = 120
_MOST_OF_A_LIST = 12


def event(one: Event, now: int) -> str:
    """Return an event on one line."""
    run = f" run {one.run_id}" if one.run_id else ""
    said = ", ".join(_said(one.payload, now))
    return f"{one.id}  {age(one.created_at, now)}  {one.kind}  {safe(one.actor)}{run}{'  ' + said if said else ''}"


def events(found: Iterable[Event], now: int) -> str:
    """Return a piece of the log, an event on each line with its card in front."""
    return "\n".join(f"{one.task_id or '-'}  {event(one, now)}" for one in found) or "no events"


def _said(payload: Mapping[str, Any], now: int) -> Iterable[str]:
    moved = [safe(str(payload[name])) for name in ("from", "to") if payload.get(name)]
    if moved:
        yield " -> ".join(moved)
    for name, value in payload.items():
        if name in _FOR_MACHINES or value in (None, False, [], {}, ""):
            continue
        yield safe(name) if value is True else f"{safe(name)}: {_value(name, value, now)}"


def _value(name: str, value: Any, now: int) -> str:
    if name in _INSTANTS and isinstance(value, int):
        return age(value, now)
    if isinstance(value, list):
        more = len(value) - _MOST_OF_A_LIST
        shown = " ".join(safe(str(one)) for one in value[:_MOST_OF_A_LIST])
        return f"{shown} … and {more} more" if more > 0 else shown
    return cut(safe(value if isinstance(value, str) else documents.line(value)), _TEXT_COLUMNS)
