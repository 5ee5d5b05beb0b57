"""Links between cards: the child waits for the parent (P5)."""

from __future__ import annotations

from hermes_kanban.base.errors import ChildRunning, Cycle, InvalidValue, NotFound, WrongState
from hermes_kanban.base.record import Record, record
from hermes_kanban.kernel import find, gate
from hermes_kanban.kernel.apply import append_event
from hermes_kanban.model import status as s
from hermes_kanban.model.task import Task

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hermes_kanban.kernel.context import Context
    from hermes_kanban.store.driver import Transaction


@record
class Linked(Record):
    """The child as it is now; `gated` says that it waits, `gated_by` for whom, `created` whether the link is new."""

    task: Task
    gated: bool
    gated_by: tuple[str, ...]
    created: bool


def link(ctx: Context, parent: Task, child: Task) -> Linked:
    """Make the child wait for the parent; a ready child goes back to todo, with an event (P5, C88).

    Raises:
        Cycle: the parent waits for the child already, or they are the same card.
        ChildRunning: the child has started.
        WrongState: one of them is archived, or the child is done.
    """
    if parent.id == child.id:
        raise Cycle(f"{child.id} cannot wait for itself", hint="link two different cards", cycle=[child.id, child.id])
    if child.status == s.RUNNING:
        raise ChildRunning(
            f"child is already running: {child.id} was claimed before this link",
            hint="wait for its end, or create a new card that waits for the parent",
            task_id=child.id,
        )
    _linkable(parent, child)
    if ctx.tx.one("links.one", parent_id=parent.id, child_id=child.id):
        return _answer(ctx, child, created=False)
    circle = path(ctx.tx, child.id, parent.id)
    if circle:
        raise Cycle(
            f"this link would close a circle: {' -> '.join((parent.id, *circle))}",
            hint="remove one of these links first",
            cycle=[parent.id, *circle],
        )
    ctx.tx.run("links.add", parent_id=parent.id, child_id=child.id, created_at=ctx.now)
    append_event(ctx, "linked", child.id, {"parent": parent.id, "child": child.id})
    return _answer(ctx, gate.regate(ctx, child, parent.id), created=True)


def unlink(ctx: Context, parent: Task, child: Task) -> Linked:
    """Remove a link and let the child go if nothing else holds it (P5, C82).

    Raises:
        NotFound: there is no such link.
    """
    if not ctx.tx.run("links.remove", parent_id=parent.id, child_id=child.id):
        raise NotFound(
            f"{child.id} does not wait for {parent.id}", hint=f"`hermes kanban show {child.id}` lists its parents"
        )
    append_event(ctx, "unlinked", child.id, {"parent": parent.id, "child": child.id})
    return _answer(ctx, gate.release(ctx, child, parent.id), created=False)


def _linkable(parent: Task, child: Task) -> None:
    if child.status in (s.DONE, s.ARCHIVED):
        raise WrongState(
            f"{child.id} is {child.status} and waits for nothing", hint="link an open card", task_id=child.id
        )
    if parent.status == s.ARCHIVED and not parent.archived_done:
        raise InvalidValue(
            f"{parent.id} was archived unfinished: {child.id} would wait for ever", hint="name another parent"
        )


def _answer(ctx: Context, child: Task, *, created: bool) -> Linked:
    parents = gate.open_parents(ctx.tx, child.id)
    return Linked(child, bool(parents), parents, created)


def path(tx: Transaction, start: str, goal: str) -> tuple[str, ...]:
    """Return a way from a card down its children to another, or an empty tuple."""
    if not tx.one("links.reaches", start=start, goal=goal):
        return ()
    before: dict[str, str] = {}
    queue = [start]
    for node in queue:
        if node == goal:
            break
        for row in tx.all("links.child_ids", parent_id=node):
            if row[0] not in before and row[0] != start:
                before[row[0]] = node
                queue.append(row[0])
    way = [goal]
    while way[-1] != start:
        way.append(before[way[-1]])
    return tuple(reversed(way))


def parents_of(tx: Transaction, texts: tuple[str, ...]) -> tuple[Task, ...]:
    """Return the parents that were named, each once, in the given order.

    Raises:
        TaskNotFound: one is not there.
        InvalidValue: an empty name, or one that could never be done.
    """
    found: dict[str, Task] = {}
    for text in texts:
        if not text.strip():
            raise InvalidValue("a parent's id is empty", hint="leave --parent out, or give an id", argument="parent")
        parent = find.task(tx, text)
        if parent.status == s.ARCHIVED and not parent.archived_done:
            raise InvalidValue(
                f"{parent.id} was archived unfinished and will never be done", hint="name another parent"
            )
        found[parent.id] = parent
    return tuple(found.values())
