"""Opening and closing runs: a run is closed exactly once, and a closed run never changes its task (P14)."""

from __future__ import annotations

from hermes_kanban.base.errors import Unexpected
from hermes_kanban.kernel import find
from hermes_kanban.model import status as s
from hermes_kanban.model.run import Run
from hermes_kanban.store import rows

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from hermes_kanban.kernel.context import Context


def close(ctx: Context, run: Run, outcome: str, facts: dict[str, Any] | None = None, *, by_owner: bool) -> Run:
    """End a run.

    Args:
        outcome: how it ended.
        facts: summary, metadata, error, end_verb, end_result, end_reason, exit code …
        by_owner: the run's own worker closed it. Without a shim the process is nobody's to prove: closing by its
            owner ends it, closing from outside leaves it `closing` until its lease is over (P14c).
    """
    if run.supervised:
        process = s.ENDED if run.process_state == s.ENDED else s.CLOSING
    else:
        process = s.ENDED if by_owner or run.lease_over(ctx.now) else s.CLOSING
    changes = {"outcome": outcome, "ended_at": ctx.tx.now, "ended_ms": ctx.tx.now_ms, "process_state": process}
    changes |= facts or {}
    if ctx.tx.assign("runs.close", rows.to_columns(changes), where_id=run.id) != 1:
        raise Unexpected(f"run {run.id} is closed already", hint="look at it with `hermes kanban runs ID`")
    return run.evolve(**changes)


def stays_until(run: Run, *, by_owner: bool, quarantine_seconds: int) -> int | None:
    """Return until when nobody else may claim the card of an open run that is about to be closed (P14c).

    Without a shim the process is nobody's to prove: its owner's own close ends it, else the lease decides. A supervised
    run's card waits until its processes are proven gone, or, where nobody can tell, lease and quarantine are over.
    """
    if not run.supervised:
        return None if by_owner else run.claim_expires
    return None if run.process_state == s.ENDED else run.claim_expires + quarantine_seconds


def manual(ctx: Context, task_id: str, claimed_from: str, outcome: str, facts: dict[str, Any]) -> Run:
    """Keep what a person said on a run of no length, which no reader counts as an attempt (P21)."""
    number = ctx.tx.insert(
        "runs.open",
        **_columns(
            ctx,
            task_id=task_id,
            role=s.MANUAL,
            profile=ctx.actor.name,
            claimed_from=claimed_from,
            process_state=s.ENDED,
        ),
    )
    changes = {"outcome": outcome, "ended_at": ctx.tx.now, "ended_ms": ctx.tx.now_ms} | facts
    ctx.tx.assign("runs.close", rows.to_columns(changes), where_id=number)
    return find.run(ctx.tx, number)


def opened(ctx: Context, **facts: Any) -> Run:
    """Open a run and return it."""
    return find.run(ctx.tx, ctx.tx.insert("runs.open", **_columns(ctx, **facts)))


def touch(ctx: Context, run: Run, *, note: str | None = None, progress: bool = False) -> Run:
    """Extend the claim to now + its TTL: the run gave a sign of life (P13)."""
    changes: dict[str, object] = {"claim_expires": ctx.now + run.claim_ttl, "last_heartbeat_at": ctx.now}
    if note:
        changes["heartbeat_note"] = note
    if progress or note:
        changes["progressed"] = 1
    ctx.tx.assign("runs.update_open", changes, where_id=run.id)
    return find.run(ctx.tx, run.id)


def _columns(ctx: Context, **facts: Any) -> dict[str, Any]:
    """Return the values of a new run: the given facts over the plain ones."""
    plain: dict[str, Any] = {
        "profile": None,
        "lane": None,
        "claimed_by": ctx.actor.label,
        "pull": 1,
        "supervised": 0,
        "orchestrates": 0,
        "host": None,
        "boot_id": None,
        "pid_namespace": None,
        "process_state": s.STARTING,
        "claim_lock": None,
        "claim_ttl": 0,
        "claim_expires": ctx.now,
        "workspace": None,
        "started_at": ctx.tx.now,
        "started_ms": ctx.tx.now_ms,
        "last_heartbeat_at": None,
        "notice_cursor": 0,
        "model": None,
        "provider": None,
        "log_path": None,
    }
    return plain | facts
