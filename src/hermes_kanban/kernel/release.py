"""Held cards are released by a person, by time, or by hand: unblock, schedule, promote, due (P24, P26, P26b)."""

from __future__ import annotations

from hermes_kanban.base.errors import Gated, InvalidValue
from hermes_kanban.base.lazy import late
from hermes_kanban.base.limits import in_range
from hermes_kanban.kernel import failures, fence, gate, runs
from hermes_kanban.kernel.apply import NOT_HELD, first_line, move
from hermes_kanban.model import policy, transitions
from hermes_kanban.model import status as s
from hermes_kanban.model.task import Task
from hermes_kanban.store import rows

TYPE_CHECKING = False
if not TYPE_CHECKING:
    thread, blocks = late("hermes_kanban.kernel.thread", "hermes_kanban.model.blocks")
else:
    from typing import Any

    from hermes_kanban.kernel import thread
    from hermes_kanban.kernel.context import Context
    from hermes_kanban.model import blocks

_DUE_AT_ONCE = 100


def unblock(ctx: Context, card: Task, answer: str | None) -> Task:
    """Release a blocked or scheduled card, with an answer that the next worker reads first (P26).

    Resets the failure counters, not the recurrence counter. Clears the start time before the gate (P3).

    Raises:
        WrongState: it is neither blocked nor scheduled.
    """
    transitions.check(card, "unblock")
    changes = _released(card) | policy.FRESH | {"escalated": False}
    payload: dict[str, Any] = {}
    if answer is not None:
        text = _answer(card, answer)
        comment = thread.add(ctx, card, text, author=None, run=None)
        changes["answer_comment_id"] = comment.id
        payload = {"answer": first_line(text), "comment": comment.id}
    return move(ctx, card, "unblock", gate.target(ctx.tx, card), changes, payload)


def _answer(card: Task, answer: str) -> str:
    """Return the answer, an option's letter turned into the option.

    Raises:
        InvalidValue: a letter that none of the offered options has.
    """
    text = blocks.expand_answer(answer, card.block_fields)
    if text is not None:
        return text
    letters = ", ".join(blocks.letters(card.block_fields))
    raise InvalidValue(
        f"{card.id} offers no option {answer.strip()[:10]!r}",
        hint=f"one of {letters}, or an answer in words",
        argument="answer",
    )


def promote(ctx: Context, card: Task) -> Task:
    """Send a held card to ready by hand.

    Raises:
        Gated: a parent is open; the error names it and the remedy.
        WrongState: the card is not held.
    """
    transitions.check(card, "promote")
    parents = gate.open_parents(ctx.tx, card.id)
    if parents:
        raise Gated(
            f"{card.id} cannot be promoted: {', '.join(parents)} is not done",
            hint=f"finish it, or remove the link: `hermes kanban unlink {parents[0]} {card.id}`",
            task_id=card.id,
            open_parents=list(parents),
        )
    changes = _released(card) | {"escalated": False, "sticky": False}  # only `unblock` forgives failures (P40)
    return move(ctx, card, "promote", gate.target(ctx.tx, card), changes)


def schedule(ctx: Context, card: Task, at: int | None, reason: str | None, *, override: bool = False) -> Task:
    """Park the card until a time, or (without one) until somebody releases it.

    Args:
        at: epoch seconds in the future, or None.

    Raises:
        InvalidValue: the time is not in the future.
        ClaimLost: somebody else runs the card and there is no override.
    """
    if at is not None and in_range("at", at) <= ctx.now:
        raise InvalidValue("the start time lies in the past", hint="give a time to come, such as +30m", argument="at")
    run, mine = fence.holder(ctx, card, "schedule", override=override)
    transitions.check(card, "schedule")
    changes: dict[str, Any] = {
        **NOT_HELD,
        "scheduled_at": at,
        "hold_reason": reason or ("waits for its start time" if at else "parked"),
        "hold_release": s.BY_TIME if at else s.BY_PERSON,
    }
    changes |= failures.leave(ctx, card, run, "schedule", mine=mine)
    if run and mine:
        runs.close(ctx, run, s.OUT_SCHEDULED, {"end_verb": "schedule", "end_reason": reason}, by_owner=True)
    payload = {"at": at, "reason": reason}
    return move(ctx, card, "schedule", s.SCHEDULED, changes, payload, run_id=run.id if run else None)


def due(ctx: Context) -> tuple[str, ...]:
    """Release every scheduled card whose time has come (the dispatcher's and every claim's first step)."""
    found = [rows.task(row) for row in ctx.tx.all("claims.due", now=ctx.now, limit=_DUE_AT_ONCE)]
    return tuple(if_due(ctx, card).id for card in found)


def if_due(ctx: Context, card: Task) -> Task:
    """Release this card if it is scheduled and its time has come."""
    if card.status != s.SCHEDULED or card.scheduled_at is None or card.scheduled_at > ctx.now:
        return card
    return move(ctx, card, "release-due", gate.target(ctx.tx, card), NOT_HELD | {"scheduled_at": None})


def _released(card: Task) -> dict[str, Any]:
    """Return what a released card stops carrying; a quarantine stays, since it protects from a second worker."""
    changes: dict[str, Any] = NOT_HELD | {"scheduled_at": None}
    if card.eligible_reason != s.QUARANTINE:
        changes |= {"eligible_at": None, "eligible_reason": None}
    return changes
