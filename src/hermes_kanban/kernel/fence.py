"""Fencing: a worker or bridge acts on a card only through its own open run (P12, P12c)."""

from __future__ import annotations

from hermes_kanban.base.errors import ClaimLost
from hermes_kanban.kernel import find
from hermes_kanban.model import status as s
from hermes_kanban.model.actors import BY_RUN
from hermes_kanban.model.run import Run
from hermes_kanban.model.task import Task

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hermes_kanban.kernel.context import Context

_FOR_PEOPLE = ("archive", "schedule")  # no verbs of a run: an old ticket neither helps nor hinders a person


def holder(ctx: Context, card: Task, verb: str, *, override: bool = False) -> tuple[Run | None, bool]:
    """Return the open run that the verb acts on, and whether the caller owns it.

    (run, True): the caller's own run. (run, False): somebody else's, ended by a person's override (P12c).
    (None, False): no run; the verb is a person's.

    Raises:
        ClaimLost: the caller's run does not hold the card; the refusal is logged by the facade.
    """
    run = find.open_run(ctx.tx, card)
    shown = ctx.fence
    if shown is not None and run is not None and (run.id, run.claim_lock) == (shown.run_id, shown.lock):
        return run, True
    ignorable = shown is None or (ctx.implicit and (ctx.actor.may_always_decide or verb in _FOR_PEOPLE))
    if ctx.actor.is_person and ignorable and (run is None or override):
        return run, False
    raise lost(ctx, card, run, verb)


def within_run(ctx: Context, card: Task, verb: str) -> None:
    """Let an orchestrator use its wider rights on its own card only while its run holds that card (P14b).

    Raises:
        ClaimLost: the run is over: it must not release or change the card that it closed.
    """
    if ctx.actor.kind != s.ORCHESTRATOR or ctx.actor.task_id != card.id or verb in BY_RUN:
        return
    run, shown = find.open_run(ctx.tx, card), ctx.fence
    if run is None or shown is None or (run.id, run.claim_lock) != (shown.run_id, shown.lock):
        raise lost(ctx, card, run, verb)


def repeated(ctx: Context, card: Task, verb: str) -> Run | None:
    """Return the ended run of the shown fence if this very verb closed it: agents repeat calls (P12)."""
    if ctx.fence is None or ctx.fence.run_id < 1:
        return None
    row = ctx.tx.one("runs.by_id", id=ctx.fence.run_id)
    if row is None:
        return None
    run = find.run(ctx.tx, ctx.fence.run_id)
    same = run.task_id == card.id and run.claim_lock == ctx.fence.lock and run.end_verb == verb
    if not same or run.outcome is None:
        return None
    return None if ctx.implicit and _moved_on(ctx, card, run) else run


def _moved_on(ctx: Context, card: Task, run: Run) -> bool:
    """Whether more happened to the card since this run closed it: then a call that names no run means something new."""
    last = find.last_run(ctx.tx, card.id)
    return card.status != (run.end_result or {}).get("to") or last is None or last.id != run.id


def lost(ctx: Context, card: Task, run: Run | None, verb: str) -> ClaimLost:
    """Build the refusal; the facade logs it as a `refused` event of this card and verb."""
    shown = (ctx.fence.run_id or None) if ctx.fence else None
    if run is None:
        state = f"{card.id} is {card.status} and no run holds it"
    else:
        state = f"{card.id} is held by run {run.id} ({run.profile or run.claimed_by})"
    mine = f"your run {shown} does not hold it" if shown else "this caller shows no claim of it"
    return ClaimLost(
        f"{state}; {mine}: {verb} is refused",
        hint="stop working on this card and claim another one; a claim in the same script or --run N shows whose it is",
        task_id=card.id,
        verb=verb,
        run_shown=shown,
        held_by=run.id if run else None,
    )
