"""The gate: ready if every parent is done, else todo; and what a parent's change does to its children (P3 to P6)."""

from __future__ import annotations

from hermes_kanban.kernel.apply import move
from hermes_kanban.model import status as s
from hermes_kanban.model.task import Task
from hermes_kanban.store import rows

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hermes_kanban.kernel.context import Context
    from hermes_kanban.store.driver import Transaction


def open_parents(tx: Transaction, task_id: str) -> tuple[str, ...]:
    """Return the parents that are not done (archived after having been done counts as done, P4)."""
    return tuple(row[0] for row in tx.all("links.open_parents", child_id=task_id))


def target(tx: Transaction, card: Task, *, phase: str | None = None) -> str:
    """Return where the gate sends the card: todo, ready, or review when its phase is review."""
    if open_parents(tx, card.id):
        return s.TODO
    return s.REVIEW if (phase or card.phase) == s.REVIEWING else s.READY


def promote_children(ctx: Context, parent_id: str) -> tuple[str, ...]:
    """Move every child in todo whose last open parent this was; return their ids in order (P4)."""
    promoted = []
    for row in ctx.tx.all("links.promotable_children", parent_id=parent_id):
        child = rows.task(row)
        move(ctx, child, "promote-child", target(ctx.tx, child), payload={"parent": parent_id})
        promoted.append(child.id)
    return tuple(promoted)


def regate(ctx: Context, card: Task, parent_id: str) -> Task:
    """Send a ready card back to todo when a parent of it is open (P5)."""
    if card.status == s.READY and open_parents(ctx.tx, card.id):
        return move(ctx, card, "regate", s.TODO, payload={"parent": parent_id})
    return card


def release(ctx: Context, card: Task, parent_id: str) -> Task:
    """Let a todo card go when no parent of it is open any more."""
    if card.status == s.TODO:
        to = target(ctx.tx, card)
        if to != s.TODO:
            return move(ctx, card, "promote-child", to, payload={"parent": parent_id})
    return card


def regate_children(ctx: Context, parent_id: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """After a parent opened again: ready children wait, started ones are left alone (P6).

    Returns:
        The ids sent back, and the ids that had started already.
    """
    waiting, started = [], []
    for row in ctx.tx.all("links.children", parent_id=parent_id):
        child = rows.task(row)
        if child.status == s.READY:
            regate(ctx, child, parent_id)
            waiting.append(child.id)
        elif child.status in (s.RUNNING, s.REVIEW, s.DONE) or (child.started_at and child.status in s.OPEN_STATES):
            started.append(child.id)
    return tuple(waiting), tuple(started)
