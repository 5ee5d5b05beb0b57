"""Rows to records and back: the one place that knows which columns hold JSON or yes/no."""

from __future__ import annotations

import json

from hermes_kanban.base.errors import StoreRefused
from hermes_kanban.model.event import Event
from hermes_kanban.model.run import Run
from hermes_kanban.model.task import Task
from hermes_kanban.model.thread import Attachment, Comment, Link

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from hermes_kanban.store.driver import Row

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

_TASK_FLAGS = tuple(Task.FIELDS.index(n) for n in ("sticky", "escalated", "archived_done", "goal"))
_TASK_SKILLS = Task.FIELDS.index("skills")
_TASK_BLOCK = Task.FIELDS.index("block_fields")
_RUN_FLAGS = tuple(
    Run.FIELDS.index(n) for n in ("pull", "supervised", "orchestrates", "progressed", "standing_still", "deferred")
)
_RUN_JSON = tuple(Run.FIELDS.index(n) for n in ("end_result", "metadata"))
_EVENT_PAYLOAD = Event.FIELDS.index("payload")


def encode(value: Any) -> str:
    """Return compact JSON; not a number (NaN) is written as Python writes it and refused on the way in."""
    return _encode(value)


def _decoded(text: Any, kind: type) -> Any:
    """Return the value of a JSON column."""
    try:
        value = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        value = None
    if not isinstance(value, kind):
        raise StoreRefused(
            f"a row of the board is damaged: {str(text)[:60]!r} is no JSON {kind.__name__}",
            hint="`hermes kanban verify` says which; raw SQL must not write to a board",
            reason="damaged",
        )
    return value


def task(row: Row) -> Task:
    """Make a task from a row of the view `tasks`.

    Raises:
        StoreRefused: raw SQL left something in it that no verb writes.
    """
    values = list(row)
    for index in _TASK_FLAGS:
        values[index] = bool(values[index])
    values[_TASK_SKILLS] = tuple(_decoded(values[_TASK_SKILLS], list)) if values[_TASK_SKILLS] != "[]" else ()
    if values[_TASK_BLOCK] is not None:
        values[_TASK_BLOCK] = _decoded(values[_TASK_BLOCK], dict)
    return Task(*values)


def run(row: Row) -> Run:
    """Make a run from a row of `task_runs`."""
    values = list(row)
    for index in _RUN_FLAGS:
        values[index] = bool(values[index])
    for index in _RUN_JSON:
        if values[index] is not None:
            values[index] = _decoded(values[index], dict)
    return Run(*values)


def event(row: Row) -> Event:
    """Make an event from a row of `task_events`."""
    values = list(row)
    values[_EVENT_PAYLOAD] = _decoded(values[_EVENT_PAYLOAD], dict)
    return Event(*values)


def comment(row: Row) -> Comment:
    """Make a comment from a row."""
    return Comment(*row)


def attachment(row: Row) -> Attachment:
    """Make an attachment from a row."""
    return Attachment(*row)


def link(row: Row) -> Link:
    """Make a link from a row."""
    return Link(*row)


def to_columns(changes: dict[str, Any]) -> dict[str, Any]:
    """Return what the database stores for changed fields of a record."""
    stored = dict(changes)
    for name, value in changes.items():
        if isinstance(value, bool):
            stored[name] = int(value)
        elif isinstance(value, (dict, tuple, list)):
            stored[name] = _encode(value)
    return stored
