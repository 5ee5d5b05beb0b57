"""Block: the card waits for a decision or for help, with a reason in five parts (P24, P25)."""

from __future__ import annotations

from hermes_kanban.base.errors import BlockTemplate, InvalidValue
from hermes_kanban.base.record import Record, record
from hermes_kanban.kernel import failures, fence, finish, gate, runs
from hermes_kanban.kernel.apply import first_line, move
from hermes_kanban.kernel.finish import Closed
from hermes_kanban.model import blocks, transitions
from hermes_kanban.model import status as s
from hermes_kanban.model.blocks import Reason
from hermes_kanban.model.task import Task

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from hermes_kanban.kernel.context import Context
    from hermes_kanban.model.run import Run


@record
class _Landing(Record):
    """Where a block leads: state, event, kind as recorded, counters."""

    to: str
    event: str
    kind: str | None
    changes: dict[str, Any]


def block(ctx: Context, card: Task, reason: Reason, kind: str | None, *, override: bool = False) -> Closed:
    """Park the card until somebody releases it (or, for a dependency, until the parent is done).

    Raises:
        BlockTemplate: an agent's reason lacks parts.
        ClaimLost: the caller's run does not hold the card.
        WrongState: it is in no state to be blocked.
    """
    stored = finish.already_closed(ctx, card, "block")
    if stored:
        return stored
    run, mine = fence.holder(ctx, card, "block", override=override)
    transitions.check(card, "block")
    check_template(ctx, reason, kind)
    landing = _landing(ctx, card, kind, reason)
    quarantine = failures.leave(ctx, card, run, "block", mine=mine)
    facts: dict[str, Any] = {"end_reason": reason.text}
    kept = run if run and mine else finish.by_hand(ctx, card, facts, s.OUT_BLOCKED)
    moved = _land(ctx, card, landing, reason, kept, quarantine)
    if run and mine:
        facts |= {"end_verb": "block", "end_result": {"to": landing.to}}
        kept = runs.close(ctx, run, s.OUT_BLOCKED, facts, by_owner=True)
    return Closed(moved, kept)


def check_template(ctx: Context, reason: Reason, kind: str | None) -> None:
    """Ask an agent for all parts; a person may leave some out (P25).

    Raises:
        InvalidValue: no reason at all, an unknown kind or cause.
        BlockTemplate: parts are missing; the error holds the template.
    """
    if kind is not None and kind not in s.BLOCK_KINDS:
        raise InvalidValue(
            f"unknown kind of block {kind!r}", hint=f"one of {', '.join(s.BLOCK_KINDS)}, or none", argument="kind"
        )
    if not reason.text.strip():
        raise InvalidValue("block needs a reason", hint=blocks.TEMPLATE, argument="reason")
    missing = blocks.missing(reason, dependency=kind == s.DEPENDENCY)
    policy = ctx.settings.text("block_template")
    if not missing or ctx.actor.is_person or policy == "off":
        return
    text = f"the block reason lacks: {', '.join(missing)}"
    if policy == "warn":
        ctx.warn(text)
        return
    raise BlockTemplate(
        text, hint=f"use this template:\n{blocks.TEMPLATE}", missing=list(missing), template=blocks.TEMPLATE
    )


def _landing(ctx: Context, card: Task, kind: str | None, reason: Reason) -> _Landing:
    held: dict[str, Any] = {
        "hold_reason": reason.text,
        "hold_release": s.BY_PERSON,
        "block_fields": reason.fields(),
        "answer_comment_id": None,
    }
    if kind == s.DEPENDENCY:
        if gate.open_parents(ctx.tx, card.id):
            return _Landing(s.TODO, "dependency_wait", kind, {"hold_reason": None, "hold_release": None})
        ctx.warn(f"{card.id} has no open parent to wait for, so the block is kept as {s.NEEDS_INPUT}")
        kind = s.NEEDS_INPUT
    held["block_kind"] = kind
    if ctx.actor.is_person or kind is None:
        return _Landing(s.BLOCKED, "blocked", kind, held)
    again = card.last_block_kind == kind
    count = card.block_recurrences + 1 if again else card.block_recurrences
    held |= {"last_block_kind": kind, "block_recurrences": count}
    if again and count >= ctx.settings.number("block_recurrence_limit"):
        held["escalated"] = True
        return _Landing(s.TRIAGE, "block_loop_detected", kind, held)
    return _Landing(s.BLOCKED, "blocked", kind, held)


def hold(ctx: Context, card: Task, reason: Reason) -> Task:
    """Block a card that was just made: creating it as blocked is the same as blocking it (P26b, C65)."""
    check_template(ctx, reason, None)
    landing = _landing(ctx, card, None, reason)
    run = finish.by_hand(ctx, card, {"end_reason": reason.text}, s.OUT_BLOCKED)
    return _land(ctx, card, landing, reason, run, {})


def _land(
    ctx: Context, card: Task, landing: _Landing, reason: Reason, run: Run | None, quarantine: dict[str, Any]
) -> Task:
    payload = {"reason": first_line(reason.what or reason.text), "kind": landing.kind, "cause": reason.cause}
    changes = landing.changes | quarantine
    number = run.id if run else None
    return move(ctx, card, "block", landing.to, changes, payload, kind=landing.event, run_id=number)
