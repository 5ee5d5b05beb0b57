"""How an attempt that was not closed by its worker ends, and when the breaker trips (P40 to P45).

Every end passes through `end`: it books the outcome on one ledger, and either returns the card to where it was
claimed from or blocks it for a person.
"""

from __future__ import annotations

from hermes_kanban.base.record import Record, record
from hermes_kanban.kernel import find, gate, runs
from hermes_kanban.kernel.apply import move
from hermes_kanban.model import policy
from hermes_kanban.model import status as s
from hermes_kanban.model.run import Run
from hermes_kanban.model.task import Task

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from hermes_kanban.kernel.context import Context

DAY = 86_400


@record
class End(Record):
    """What is known of the end of an attempt.

    Args:
        outcome: one of the outcomes that no worker chooses (failed, crashed, timed_out, reclaimed …).
        reason: a word: lease, stale, exit, signal, vanished, human …
        error: the last words, redacted.
        exit_code, exit_kind: as the durable exit record has them.
        retry_at: when the provider said that one may try again, epoch seconds.
        terminal: the provider refused credential, model or TLS (exit 78).
    """

    outcome: str
    reason: str
    error: str | None = None
    exit_code: int | None = None
    exit_kind: str | None = None
    retry_at: int | None = None
    terminal: bool = False


def origin(ctx: Context, card: Task) -> str:
    """Return where the card goes when its run ends: where it was claimed from, through the gate (P3)."""
    return gate.target(ctx.tx, card)


def lapse(ctx: Context, card: Task) -> Task:
    """End a run whose pull lease is over, because somebody else wants the card (P10).

    Returns:
        The card, claimable again, or blocked when it lost too many leases without progress (P44).
    """
    return end(ctx, card, End(s.RECLAIMED, "lease"))


def end(ctx: Context, card: Task, found: End) -> Task:
    """Close the open run with this outcome, book it, and return or block the card."""
    run = find.open_run(ctx.tx, card)
    assert run is not None, "only a running card's run can end (P2)"
    starts = ctx.tx.one("runs.started_since", task_id=card.id, since=ctx.now - DAY)
    assert starts is not None
    ledger = policy.book(
        policy.Ledger(
            card.consecutive_failures,
            card.counted_failures,
            card.violation_streak,
            card.reclaim_streak,
            card.rate_limit_streak,
        ),
        found.outcome,
        terminal=found.terminal,
        progressed=run.progressed,
        max_retries=card.max_retries,
        starts_today=starts[0],
        limits=_limits(ctx),
    )
    if ledger.trips:
        return _trip(ctx, card, run, found, ledger)
    return _return(ctx, card, run, found, ledger)


def _return(ctx: Context, card: Task, run: Run, found: End, ledger: policy.Verdict) -> Task:
    runs.close(ctx, run, found.outcome, _facts(found), by_owner=False)
    changes = ledger.counters() | _wait(ctx, card, found, ledger)
    if found.error:
        changes["last_failure_error"] = found.error
    payload = _payload(found) | ({"until": changes["eligible_at"]} if changes.get("eligible_at") else {})
    kind = "stale" if found.reason == "stale" else found.outcome
    return move(ctx, card, "end-run", origin(ctx, card), changes, payload, kind=kind, run_id=run.id)


def _trip(ctx: Context, card: Task, run: Run, found: End, ledger: policy.Verdict) -> Task:
    outcome = s.CRASHED if found.terminal else s.GAVE_UP
    runs.close(ctx, run, outcome, _facts(found), by_owner=False)
    changes = ledger.counters() | {
        "sticky": ledger.sticky,
        "hold_reason": ledger.trips,
        "hold_release": s.BY_PERSON,
        "last_failure_error": found.error or card.last_failure_error or ledger.trips,
    }
    payload = _payload(found) | {"why": ledger.trips}
    if found.terminal:
        payload["terminal_provider"] = True
    return move(ctx, card, "trip", s.BLOCKED, changes, payload, run_id=run.id)


def _wait(ctx: Context, card: Task, found: End, ledger: policy.Verdict) -> dict[str, Any]:
    """Return until when the card may not be claimed again, and why: growing and spread (P42, P44)."""
    if found.outcome == s.RATE_LIMITED:
        pause = policy.doubled(ctx.settings.number("rate_limit_cooldown_seconds"), ledger.rate_limits, 3600)
        return {"eligible_at": found.retry_at or ctx.now + pause, "eligible_reason": s.COOL_DOWN}
    if ledger.failures > card.consecutive_failures:
        base = ctx.settings.number("retry_backoff_seconds")
        pause = policy.spread(policy.doubled(base, ledger.failures, 3600), card.id, ledger.failures)
        return {"eligible_at": ctx.now + pause, "eligible_reason": s.BACK_OFF} if pause else {}
    return {}


def quarantine(ctx: Context, card: Task, run: Run) -> dict[str, Any]:
    """Return the columns that keep others off a card whose run was ended from outside (P12c, P14c)."""
    until = runs.hold_until(run)
    if until is None or until <= ctx.now or until <= (card.eligible_at or 0):
        return {}
    return {"eligible_at": until, "eligible_reason": s.QUARANTINE}


def end_by_override(ctx: Context, card: Task, run: Run, verb: str) -> dict[str, Any]:
    """End somebody else's run because a person acts on the card; return the quarantine's columns (P12c)."""
    closed = runs.close(ctx, run, s.RECLAIMED, {"end_reason": f"override:{verb}"}, by_owner=False)
    ctx.warn(f"run {run.id} of {run.profile or run.claimed_by} was ended; its worker's writes are refused from now on")
    columns = quarantine(ctx, card, closed)
    if columns:
        left = columns["eligible_at"] - ctx.now
        ctx.warn(f"nobody can claim {card.id} for another {left} s: its last worker may still be at work")
    return columns


def _facts(found: End) -> dict[str, Any]:
    return {
        "end_reason": found.reason,
        "error": found.error,
        "exit_code": found.exit_code,
        "exit_kind": found.exit_kind,
    }


def _payload(found: End) -> dict[str, Any]:
    facts = {"reason": found.reason, "error": found.error, "exit_code": found.exit_code, "exit_kind": found.exit_kind}
    return {name: value for name, value in facts.items() if value is not None}


def _limits(ctx: Context) -> policy.Limits:
    number = ctx.settings.number
    return policy.Limits(
        number("failure_limit"), number("protocol_violation_limit"), number("reclaim_limit"), number("starts_per_day")
    )
