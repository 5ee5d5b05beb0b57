"""*May it start?* One place with two answers (P3b): claimable binds every claim, dispatchable the dispatcher."""

from __future__ import annotations

from hermes_kanban.kernel import find, gate
from hermes_kanban.model import status as s
from hermes_kanban.model.reasons import Reason, Startable
from hermes_kanban.model.task import Task

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hermes_kanban.kernel.context import Context, Names
    from hermes_kanban.store.driver import Transaction

# Why it is not eligible yet; how much longer is told behind these words ("... waits for another 2 min").
_WAITS = {
    s.QUARANTINE: "the last worker's claim was ended from outside, and it may still run",
    s.COOL_DOWN: "the provider asked to wait",
    s.BACK_OFF: "the last attempt failed; the next one waits",
    s.WORKSPACE: "its workspace could not be prepared; the next try waits",
    s.TICKET: "the last claim could not be remembered for its claimer; the next one waits",
}


def claimable(tx: Transaction, card: Task) -> tuple[Reason, ...]:
    """Return why nobody may claim the card now; an empty tuple means that anybody may."""
    if card.status in (s.READY, s.REVIEW):
        return _parents(tx, card) + _eligibility(tx, card)
    if card.status == s.RUNNING:
        return _running(tx, card)
    if card.status == s.TODO or _due(tx, card):
        return _parents(tx, card)
    if card.status in (s.DONE, s.ARCHIVED):
        return (Reason("state", f"it is {card.status}"),)
    return (_held(card),)


def startable(ctx: Context, card: Task, names: Names) -> Startable:
    """Return both answers for a card."""
    reasons = claimable(ctx.tx, card)
    extra: tuple[Reason, ...] = ()
    if card.status in (s.READY, s.TODO, s.REVIEW):
        who = card.reviewer if card.phase == s.REVIEWING else card.assignee
        extra = _lane(who, card, names)
    return Startable(reasons, reasons + extra)


def _parents(tx: Transaction, card: Task) -> tuple[Reason, ...]:
    open_ones = gate.open_parents(tx, card.id)
    if not open_ones:
        return ()
    return (Reason("parents", f"waits for {', '.join(open_ones)}", None, s.BY_PARENTS, open_ones),)


def _eligibility(tx: Transaction, card: Task) -> tuple[Reason, ...]:
    if card.eligible_at is None or card.eligible_at <= tx.now:
        return ()
    code = card.eligible_reason or s.BACK_OFF
    return (Reason(code, _WAITS[code], card.eligible_at),)


def _running(tx: Transaction, card: Task) -> tuple[Reason, ...]:
    run = find.open_run(tx, card)
    assert run is not None, "a running card has an open run (P2)"
    if run.lease_over(tx.now):
        return ()
    text = f"run {run.id} of {run.profile or run.claimed_by} holds it"
    return (Reason(s.RUNNING, text, run.claim_expires if run.pull else None, "worker"),)


def _due(tx: Transaction, card: Task) -> bool:
    """Whether its time has come: the dispatcher's next pass, or the claim itself, releases it."""
    return card.status == s.SCHEDULED and card.scheduled_at is not None and card.scheduled_at <= tx.now


def _held(card: Task) -> Reason:
    until = card.scheduled_at if card.status == s.SCHEDULED else None
    actor = card.hold_release or s.BY_PERSON
    why = {s.TRIAGE: "it is an idea in triage", s.SCHEDULED: "it is parked"}.get(card.status, "it is blocked")
    asked = str((card.block_fields or {}).get("what") or card.hold_reason or "").strip()
    detail = f": {asked.splitlines()[0]}" if asked else ""
    return Reason("held", f"{why}{detail}", until, "nobody" if actor == s.BY_TIME else actor)


def _lane(who: str | None, card: Task, names: Names) -> tuple[Reason, ...]:
    if who is None and card.phase == s.REVIEWING:
        return (Reason("reviewer", "no reviewer is named: a person decides", None, s.BY_PERSON),)
    if who is None:
        return (Reason("assignee", "nobody is assigned: it waits for a pull claim", None, s.BY_PERSON),)
    if who in names.lanes() or who in names.profiles():
        return ()
    return (
        Reason("lane", f"no lane or profile answers for {who!r}: it waits for that bridge's claim", None, "worker"),
    )
