"""What people do to a card besides working on it: edit, assign, archive, reopen, reclaim."""

from __future__ import annotations

from hermes_kanban.base.errors import InvalidValue, OpenChildren, WrongState
from hermes_kanban.base.record import Record, record
from hermes_kanban.kernel import failures, fence, find, gate, links, runs, values
from hermes_kanban.kernel.apply import NOT_HELD, change, move
from hermes_kanban.model import status as s
from hermes_kanban.model import transitions
from hermes_kanban.model.task import Task
from hermes_kanban.store import rows

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from hermes_kanban.kernel.context import Context, Names

CLOSED = (s.DONE, s.ARCHIVED)
RELEASE = "release"
CHILDREN = (RELEASE, "archive")  # what may happen to the open children of an archived card (P6)


@record
class Reopened(Record):
    """A card that is open again, and what that means for its children (P6)."""

    task: Task
    waiting: tuple[str, ...]
    started: tuple[str, ...]


def edit(ctx: Context, card: Task, changes: dict[str, Any], names: Names) -> Task:
    """Change fields that a person wrote: title, body, acceptance, priority, tenant, reviewer and the like.

    Raises:
        InvalidValue: nothing to change, or a value out of range.
        UnknownAssignee: nobody answers to the reviewer's name, and that is not to be let pass (P50b).
        WrongState: the card is archived.
    """
    if card.status == s.ARCHIVED:
        raise _not_from(card, "edit")
    clean = values.edited(changes)
    if not clean:
        raise InvalidValue("edit needs something to change", hint="give --title, --body, --priority …")
    values.known_name(ctx, names, "reviewer", clean.get("reviewer"))
    kind = "reprioritized" if set(clean) == {"priority"} else "edited"
    return change(ctx, card, kind, clean, {"fields": sorted(clean)})


def assign(ctx: Context, card: Task, who: str | None, names: Names) -> Task:
    """Give the card to somebody, or (None) to nobody.

    Raises:
        UnknownAssignee: nobody answers to the name, and that is not to be let pass (P50b).
        WrongState: somebody is at work on it, or it is closed.
    """
    if card.status == s.RUNNING or card.status in CLOSED:
        raise _not_from(card, "assign")
    values.known_name(ctx, names, "assignee", who)
    return change(ctx, card, "assigned", {"assignee": who}, {"assignee": who})


def _not_from(card: Task, verb: str) -> WrongState:
    works = [
        state for state in s.STATES if state != s.ARCHIVED and (verb == "edit" or state not in (*CLOSED, s.RUNNING))
    ]
    return WrongState(
        f"{card.id} is {card.status}: {verb} works from {', '.join(works)}",
        hint=f"look at it with `hermes kanban show {card.id}`",
        task_id=card.id,
        status=card.status,
        verb=verb,
        works_from=works,
    )


def archive(ctx: Context, card: Task, children: str | None, *, override: bool = False) -> Task:
    """Hide the card. An open run of somebody else needs a person's override (P12c).

    Args:
        children: what happens to open children of an unfinished card: `release` removes the links, `archive`
            hides them too (P6).

    Raises:
        OpenChildren: children would wait for ever and nothing was said about them.
        ClaimLost: somebody runs the card and there is no override.
    """
    if children not in (None, *CHILDREN):
        raise InvalidValue(
            f"unknown choice for the children: {children[:40]!r}", hint=" or ".join(CHILDREN), argument="children"
        )
    transitions.check(card, "archive")
    run, mine = fence.holder(ctx, card, "archive", override=override)
    if card.status != s.DONE:
        _settle_children(ctx, card, children, override=override)
    extra = failures.leave(ctx, card, run, "archive", mine=mine)
    if run and mine:
        runs.close(ctx, run, s.RECLAIMED, {"end_reason": s.ARCHIVED, "end_verb": "archive"}, by_owner=True)
    changes = {**NOT_HELD, "archived_done": card.status == s.DONE, **extra}
    return move(ctx, card, "archive", s.ARCHIVED, changes, run_id=run.id if run else None)


def _settle_children(ctx: Context, card: Task, choice: str | None, *, override: bool) -> None:
    waiting = [rows.task(row) for row in ctx.tx.all("links.open_children", parent_id=card.id)]
    if not waiting:
        return
    if choice is None:
        names = ", ".join(child.id for child in waiting)
        raise OpenChildren(
            f"{card.id} is not done and {names} would wait for ever",
            hint="say what happens to them: --release-children (they no longer wait) or --archive-children",
            task_id=card.id,
            children=[child.id for child in waiting],
        )
    if choice == RELEASE:
        for child in waiting:
            links.unlink(ctx, card, find.task(ctx.tx, child.id))
        return
    for child_id in reversed(_open_below(ctx, card)):  # the lowest first: none of them leaves a child waiting
        archive(ctx, find.task(ctx.tx, child_id), None, override=override)


def _open_below(ctx: Context, card: Task) -> list[str]:
    """Return every open card below this one, parents before their children."""
    order: dict[str, None] = {}
    queue = [card.id]
    for parent in queue:
        for row in ctx.tx.all("links.open_children", parent_id=parent):
            child = rows.task(row).id
            order.pop(child, None)  # behind the last of its parents
            order[child] = None
            queue.append(child)
    return list(order)


def unarchive(ctx: Context, card: Task) -> Task:
    """Bring the card back: done if it was, else through the gate (P3), or to wait for its start time again.

    Raises:
        InvalidValue: another card has its idempotency key by now (P51).
        WrongState: it is not archived.
    """
    transitions.check(card, "unarchive")
    other = ctx.tx.one("tasks.by_key", key=card.idempotency_key)
    if other:
        raise InvalidValue(
            f"{rows.task(other).id} was created with the idempotency key of {card.id} since",
            hint=f"look at `hermes kanban show {rows.task(other).id}`; one of the two stays archived",
            task_id=card.id,
        )
    changes: dict[str, Any] = {"archived_done": False}
    if card.archived_done:
        return move(ctx, card, "unarchive", s.DONE, changes)
    _drop_dead_parents(ctx, card)
    if card.scheduled_at is not None and card.scheduled_at > ctx.now:
        changes |= {"hold_reason": "waits for its start time", "hold_release": s.BY_TIME}
        return move(ctx, card, "unarchive", s.SCHEDULED, changes)
    return move(ctx, card, "unarchive", gate.target(ctx.tx, card), changes | {"scheduled_at": None})


def reopen(ctx: Context, card: Task) -> Reopened:
    """Open a done card again. Ready children wait; started ones are left alone and named (P6)."""
    transitions.check(card, "reopen")
    _drop_dead_parents(ctx, card)
    changes = {"completed_at": None, "phase": s.WORK, "review_rounds": 0}
    moved = move(ctx, card, "reopen", gate.target(ctx.tx, card, phase=s.WORK), changes)
    waiting, started = gate.regate_children(ctx, card.id)
    if started:
        ctx.warn(f"{', '.join(started)} started from the earlier result of {card.id} and goes on with it")
    return Reopened(moved, waiting, started)


def _drop_dead_parents(ctx: Context, card: Task) -> None:
    """A parent that was archived unfinished is never done: a card that comes back does not wait for it (P6)."""
    for row in ctx.tx.all("links.parents", child_id=card.id):
        parent = rows.task(row)
        if parent.status == s.ARCHIVED and not parent.archived_done:
            links.unlink(ctx, parent, card)
            ctx.warn(f"{card.id} no longer waits for {parent.id}, which was archived unfinished")


def reclaim(ctx: Context, card: Task) -> Task:
    """Take the card from its run by a person's decision; its worker's writes are refused from now on (P12c)."""
    transitions.check(card, "reclaim")
    run = find.open_run(ctx.tx, card)
    assert run is not None, "a running card has an open run (P2)"
    quarantine = failures.leave(ctx, card, run, "reclaim", mine=False)
    payload = {"reason": "human", "by": ctx.actor.label}
    return move(ctx, card, "reclaim", gate.target(ctx.tx, card), quarantine, payload, run_id=run.id)
