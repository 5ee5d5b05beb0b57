"""How an attempt that was not closed by its worker ends, and when the breaker trips (P40 to P45).

Every end passes through `end`: it books the outcome on one ledger, and either returns the card to where it was
claimed from or blocks it for a person.
"""

from __future__ import annotations

from hermes_kanban.base.record import Record, record
from hermes_kanban.kernel import find, gate, runs
from hermes_kanban.kernel.apply import change, move
from hermes_kanban.model import exits, policy
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
        taken_over: somebody claims the card at this very moment, so that no pause may come between.
        proven: no process of the run is left; False when a host fell silent (P14c).
    """

    outcome: str
    reason: str
    error: str | None = None
    exit_code: int | None = None
    exit_kind: str | None = None
    retry_at: int | None = None
    terminal: bool = False
    proven: bool = True
    taken_over: bool = False


def origin(ctx: Context, card: Task) -> str:
    """Return where the card goes when its run ends: where it was claimed from, through the gate (P3)."""
    return gate.target(ctx.tx, card)


def lapse(ctx: Context, card: Task) -> Task:
    """End a run whose lease is over, because somebody else wants the card (P10).

    Returns:
        The card, claimable again, or blocked when it lost too many leases without progress (P44).
    """
    run = find.open_run(ctx.tx, card)
    if run is not None and not run.pull:
        return end(ctx, card, silent(run).evolve(taken_over=True))
    watched = run is not None and run.supervised  # a shim of it may live: it is looked after until it ends
    return end(ctx, card, End(s.RECLAIMED, "lease", taken_over=True, proven=not watched))


def silent(run: Run) -> End:
    """Return the end of a run whose host renews nothing any more, whoever notices it (P14c, P45)."""
    return End(s.RECLAIMED, "host_silent", f"host {run.host} fell silent", exit_kind="unknown")


def end(ctx: Context, card: Task, found: End) -> Task:
    """Close the open run with this outcome, book it, and return or block the card."""
    run = find.open_run(ctx.tx, card)
    assert run is not None, "only a running card's run can end (P2)"
    ledger = policy.book(
        _before(card),
        policy.NOTHING if found.reason in exits.DECIDED else found.outcome,
        terminal=found.terminal,
        progressed=run.progressed,
        max_retries=card.max_retries,
        starts_today=starts_today(ctx, card),
        limits=_limits(ctx),
    )
    if ledger.trips:
        return _trip(ctx, card, run, found, ledger)
    return _return(ctx, card, run, found, ledger)


def give_up(ctx: Context, card: Task, run: Run, found: End, starts: int) -> Task:
    """Close the run and block the card because it was started too often in a day (P44)."""
    before = _before(card)
    counters = policy.Verdict(*(getattr(before, name) for name in before.FIELDS))
    return _trip(ctx, card, run, found, counters.evolve(trips=policy.too_many_starts(starts)))


def _before(card: Task) -> policy.Ledger:
    return policy.Ledger(
        card.consecutive_failures,
        card.counted_failures,
        card.violation_streak,
        card.reclaim_streak,
        card.rate_limit_streak,
    )


def starts_today(ctx: Context, card: Task) -> int:
    """Return how often the card was started within a day (P44)."""
    row = ctx.tx.one("runs.started_since", task_id=card.id, since=ctx.now - DAY)
    assert row is not None
    return int(row[0])


def _return(ctx: Context, card: Task, run: Run, found: End, ledger: policy.Verdict) -> Task:
    changes = ledger.counters() | _wait(ctx, card, run, found, ledger)
    changes |= _unproven(ctx, card.evolve(eligible_at=changes.get("eligible_at")), run, found)
    runs.close(ctx, run, found.outcome, _facts(found, run), by_owner=False)
    if found.error:
        changes["last_failure_error"] = found.error
    payload = _payload(found) | ({"until": changes["eligible_at"]} if changes.get("eligible_at") else {})
    kind = "stale" if found.reason == "stale" else found.outcome
    return move(ctx, card, "end-run", origin(ctx, card), changes, payload, kind=kind, run_id=run.id)


def _trip(ctx: Context, card: Task, run: Run, found: End, ledger: policy.Verdict) -> Task:
    outcome = s.CRASHED if found.terminal else s.GAVE_UP
    changes = ledger.counters() | _unproven(ctx, card, run, found)
    runs.close(ctx, run, outcome, _facts(found, run), by_owner=False)
    changes |= {
        "sticky": ledger.sticky,
        "probe_at": _probe_at(ctx, sticky=ledger.sticky),
        "hold_reason": ledger.trips,
        "hold_release": s.BY_PERSON,
        "last_failure_error": found.error or card.last_failure_error or ledger.trips,
    }
    payload = _payload(found) | {"why": ledger.trips}
    if found.terminal:
        payload["terminal_provider"] = True
    return move(ctx, card, "trip", s.BLOCKED, changes, payload, run_id=run.id)


def _probe_at(ctx: Context, *, sticky: bool) -> int | None:
    """Return when a tripped card gets one fresh attempt; sticky blocks never do (P27)."""
    pause = ctx.settings.number("failure_retry_seconds")
    return None if sticky or not pause else ctx.now + pause


def _wait(ctx: Context, card: Task, run: Run, found: End, ledger: policy.Verdict) -> dict[str, Any]:
    """Return until when the card may not be claimed again, and why: growing and spread (P42, P44)."""
    if found.outcome == s.RATE_LIMITED:
        pause = policy.doubled(ctx.settings.number("rate_limit_cooldown_seconds"), ledger.rate_limits, 3600)
        asked = found.retry_at if (found.retry_at or 0) > ctx.now else None  # "at once" is no pause (P44)
        return {"eligible_at": asked or ctx.now + pause, "eligible_reason": s.COOL_DOWN}
    decided = found.taken_over or found.reason in exits.DECIDED
    lost = found.outcome == s.RECLAIMED and not run.pull and not decided
    if lost or ledger.failures > card.consecutive_failures:
        base = ctx.settings.number("retry_backoff_seconds")
        times = ledger.reclaims if lost else ledger.failures
        pause = policy.spread(policy.doubled(base, times, 3600), card.id, times)
        return {"eligible_at": ctx.now + pause, "eligible_reason": s.BACK_OFF} if pause else {}
    return {}


def leave(ctx: Context, card: Task, run: Run | None, verb: str, *, mine: bool) -> dict[str, Any]:
    """Return the columns that keep others off a card while its last worker may still be at work (P14c).

    Called by every verb that closes a run, before it does. Somebody else's run is ended here at once, by a
    person's override (P12c); the caller's own is closed by the verb itself.
    """
    if run is None:
        return {}
    columns = _quarantine(ctx, card, run, by_owner=mine)
    if mine:
        return columns
    runs.close(ctx, run, s.RECLAIMED, {"end_reason": f"override:{verb}"}, by_owner=False)
    ctx.warn(f"run {run.id} of {run.profile or run.claimed_by} was ended; its worker's writes are refused from now on")
    if columns:
        left = columns["eligible_at"] - ctx.now
        ctx.warn(f"nobody can claim {card.id} for another {left} s: its last worker may still be at work")
    return columns


def _quarantine(ctx: Context, card: Task, run: Run, *, by_owner: bool) -> dict[str, Any]:
    number = ctx.settings.number("quarantine_seconds")
    until = runs.stays_until(run, by_owner=by_owner, quarantine_seconds=number)
    if until is None or until <= max(ctx.now, card.eligible_at or 0):
        return {}
    return {"eligible_at": until, "eligible_reason": s.QUARANTINE}


def keep_off(ctx: Context, run: Run, reason: str) -> bool:
    """Prolong the quarantine of a closed run whose processes are known to live (P14c, D14, C16).

    Returns:
        Whether that had to be done; it leaves an event.
    """
    card, last = find.task(ctx.tx, run.task_id), find.last_run(ctx.tx, run.task_id)
    number = ctx.settings.number
    pause = number("quarantine_seconds") + 2 * max(run.claim_ttl, number("dispatch_interval_seconds"))
    if last is None or last.id != run.id or (card.eligible_at or 0) > ctx.now + pause // 2:
        return False
    until = ctx.now + pause
    payload = {"reason": reason, "until": until}
    change(
        ctx,
        card,
        "reclaim_deferred",
        {"eligible_at": until, "eligible_reason": s.QUARANTINE},
        payload,
        run_id=run.id,
    )
    return True


def proven_ended(ctx: Context, run: Run) -> Task:
    """Note that no process of a closed run is left; the card's quarantine for it is over (P14c)."""
    card = find.task(ctx.tx, run.task_id)
    if not ctx.tx.run("runs.ended", id=run.id):
        return card
    last = find.last_run(ctx.tx, card.id)
    if card.eligible_reason != s.QUARANTINE or last is None or last.id != run.id:
        return card
    free = {"eligible_at": None, "eligible_reason": None}
    return change(ctx, card, "reconciled", free, {"process": s.ENDED}, run_id=run.id)


def _unproven(ctx: Context, card: Task, run: Run, found: End) -> dict[str, Any]:
    return {} if found.proven or run.lease_over(ctx.now) else _quarantine(ctx, card, run, by_owner=False)


def _facts(found: End, run: Run) -> dict[str, Any]:
    gone = {"process_state": s.ENDED} if found.proven and run.supervised else {}
    return gone | {
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
