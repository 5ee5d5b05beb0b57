"""*May it start?* One place with two answers (P3b): claimable binds every claim, dispatchable the dispatcher."""

from __future__ import annotations

from hermes_kanban.base.lazy import late
from hermes_kanban.base.record import Record, record
from hermes_kanban.kernel import find, gate
from hermes_kanban.model import status as s
from hermes_kanban.model.reasons import Reason, Startable
from hermes_kanban.model.task import Task

TYPE_CHECKING = False
if not TYPE_CHECKING:
    planning, admission = late("hermes_kanban.kernel.planning", "hermes_kanban.model.admission")
else:
    from hermes_kanban.kernel import planning
    from hermes_kanban.kernel.context import Context
    from hermes_kanban.model import admission
    from hermes_kanban.model.admission import Host
    from hermes_kanban.model.run import Run
    from hermes_kanban.store.driver import Transaction


@record
class Here(Record):
    """Who asks whether another host fell silent: its own id, and how long silence is not enough (seconds)."""

    host: str
    quarantine: int


# Why it is not eligible yet; how much longer is told behind these words ("... waits for another 2 min").
_WAITS = {
    s.QUARANTINE: "the last worker's claim was ended from outside, and it may still run",
    s.COOL_DOWN: "the provider asked to wait",
    s.BACK_OFF: "the last attempt failed; the next one waits",
    s.WORKSPACE: "its workspace could not be prepared; the next try waits",
    s.TICKET: "the last claim could not be remembered for its claimer; the next one waits",
}


def claimable(tx: Transaction, card: Task, here: Here | None = None) -> tuple[Reason, ...]:
    """Return why nobody may claim the card now; an empty tuple means that anybody may.

    Args:
        here: who asks; without it no other host counts as silent.
    """
    if card.status in (s.READY, s.REVIEW):
        return _parents(tx, card) + _eligibility(tx, card)
    if card.status == s.RUNNING:
        return _running(tx, card, here)
    if card.status == s.TODO or _due(tx, card):
        return _parents(tx, card) + _eligibility(tx, card)
    if card.status in (s.DONE, s.ARCHIVED):
        return (Reason("state", f"it is {card.status}"),)
    return (_held(card),)


def silent(run: Run, now: int, here: Here) -> bool:
    """Whether a run under a shim of another host renews nothing any more, lease and quarantine over (P14c)."""
    return run.supervised and run.host != here.host and run.claim_expires + here.quarantine <= now


def startable(ctx: Context, card: Task, host: Host) -> Startable:
    """Return both answers for a card; the dispatcher's is the one that its own pass acts on (D7)."""
    reasons = claimable(ctx.tx, card)
    extra: tuple[Reason, ...] = ()
    if card.status in (s.READY, s.TODO, s.REVIEW):
        book = planning.ledger(ctx.tx, host, ctx.settings)
        refused = admission.admit(card, book, planning.implementers(ctx.tx, card))
        extra = (refused,) if refused else ()
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


def _running(tx: Transaction, card: Task, here: Here | None) -> tuple[Reason, ...]:
    run = find.open_run(tx, card)
    assert run is not None, "a running card has an open run (P2)"
    if run.lease_over(tx.now) or (here and silent(run, tx.now, here)):
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
