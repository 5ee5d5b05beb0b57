"""The single path by which a task's row changes: check the table, update, close the run, append the event.

Each change leaves one event whose payload holds `set`: exactly the columns that were written (large texts by
a mark). `verify` folds these, so a change that bypassed this module shows as a disagreement (P81).
"""

from __future__ import annotations

import zlib

from hermes_kanban.base.errors import Unexpected
from hermes_kanban.model import status as s
from hermes_kanban.model import transitions
from hermes_kanban.model.task import OF_OPEN_RUN, TEXTS, UNFOLDED, Task
from hermes_kanban.store import rows

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from hermes_kanban.kernel.context import Context

SUMMARY_IN_EVENT = 400

# What a card stops carrying when it moves on (P26b): why it was held, and by whom it could be released.
NOT_HELD: dict[str, Any] = {
    "hold_reason": None,
    "hold_release": None,
    "block_kind": None,
    "block_fields": None,
    "probe_at": None,
}


def append_event(
    ctx: Context, kind: str, task_id: str | None, payload: dict[str, Any], *, run_id: int | None = None
) -> int:
    """Append one event in this transaction and return its id (P80)."""
    return ctx.tx.insert(
        "events.append",
        task_id=task_id,
        run_id=run_id,
        kind=kind,
        payload=rows.encode(payload),
        actor=ctx.actor.label,
        created_at=ctx.tx.now,
        at_ms=ctx.tx.now_ms,
    )


def change(
    ctx: Context,
    card: Task,
    kind: str,
    changes: dict[str, Any],
    payload: dict[str, Any] | None = None,
    *,
    run_id: int | None = None,
) -> Task:
    """Write changed columns of a task and the event that says so; return the task as it is now.

    The update is conditional on the state and the open run that the caller saw.
    """
    real = {name: value for name, value in changes.items() if getattr(card, name) != value}
    written = real | {"updated_at": ctx.now}
    count = ctx.tx.assign(
        "tasks.assign", rows.to_columns(written), where_id=card.id, was_status=card.status, was_run=card.current_run_id
    )
    if count != 1:
        raise Unexpected(f"{card.id} changed under a verb; nothing was done", hint="try again")
    folded = {n: v for n, v in real.items() if n not in UNFOLDED}
    body = dict(payload or {}) | texts(real)
    if "status" in real:
        body |= {"from": card.status, "to": real["status"]}
    if folded:
        body["set"] = folded
    append_event(ctx, kind, card.id, body, run_id=run_id)
    if real.get("current_run_id", 0) is None:
        written |= dict.fromkeys(OF_OPEN_RUN)  # the claim columns are the open run's (P2)
    return card.evolve(**written)


def texts(changes: dict[str, Any]) -> dict[str, Any]:
    """Return what an event keeps of large texts: a mark of each, which `verify` compares (P81)."""
    marks = {name: mark_of(changes[name]) for name in TEXTS if name in changes}
    return {"texts": marks} if marks else {}


def mark_of(text: str | None) -> str | None:
    """Return length and checksum of a text."""
    if text is None:
        return None
    stored = text.encode()
    return f"{len(stored)}:{zlib.crc32(stored):08x}"


def first_line(text: str | None, most: int = SUMMARY_IN_EVENT) -> str | None:
    """Return the first line, as events keep it (P22)."""
    if text is None:
        return None
    stripped = text.strip()
    return stripped.splitlines()[0][:most] if stripped else ""


def move(
    ctx: Context,
    card: Task,
    verb: str,
    to: str,
    changes: dict[str, Any] | None = None,
    payload: dict[str, Any] | None = None,
    *,
    kind: str | None = None,
    run_id: int | None = None,
    override: bool = False,
) -> Task:
    """Apply a row of the transition table. The open run, if any, must have been closed or opened by the caller.

    Raises:
        WrongState: the table does not allow the verb from here.
    """
    row = transitions.check(card, verb, override=override)
    event = kind or row.event
    assert event in row.events, f"{verb} does not leave {event}"
    assert _allowed(row, to), f"{verb} does not lead to {to}"
    written: dict[str, Any] = {"status": to, "status_since": ctx.now}
    if to != s.RUNNING:
        written["current_run_id"] = None
    return change(ctx, card, event, written | (changes or {}), payload, run_id=run_id)


def _allowed(row: transitions.Transition, to: str) -> bool:
    if transitions.GATE in row.targets and to in (s.READY, s.TODO):
        return True
    if transitions.ORIGIN in row.targets and to in (s.READY, s.TODO, s.REVIEW):
        return True
    return to in row.targets
