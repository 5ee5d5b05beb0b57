"""The handlers behind `Supervision`: runs under a shim come alive, are renewed, and end, each as a compare-and-set."""

from __future__ import annotations

from hermes_kanban.base.errors import ClaimLost, Refusal
from hermes_kanban.base.record import Record, record
from hermes_kanban.kernel import block, failures, find, finish, gate, release, starts
from hermes_kanban.kernel.apply import NOT_HELD, append_event, change, move
from hermes_kanban.kernel.finish import Handoff
from hermes_kanban.model import blocks, exits
from hermes_kanban.model import status as s
from hermes_kanban.model.actors import Actor
from hermes_kanban.model.claim import Fence
from hermes_kanban.model.exits import ExitRecord, Verdict
from hermes_kanban.model.reasons import Reason
from hermes_kanban.model.run import Run
from hermes_kanban.model.task import Task
from hermes_kanban.store import rows

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from hermes_kanban.kernel.context import Context

HEARTBEAT_SECONDS = 60  # a heartbeat is written for a worker at most this often (P13)
_PROBES_AT_ONCE = 100
_SUMMARY_LINES = 5


@record
class Process(Record):
    """A shim and its worker, as the system names them (D12)."""

    shim: tuple[int, str]
    worker: tuple[int, str]
    boot_id: str
    pid_namespace: str


@record
class Beat(Record):
    """How a run stands: `open`, or closed, by its own worker or by somebody else."""

    state: str
    by_owner: bool = False


def state_of(run: Run) -> Beat:
    """Return what a shim must know of its run."""
    return Beat("open") if run.open else Beat("closed", run.end_verb is not None)


def started(ctx: Context, run: Run, lock: str, process: Process) -> Beat:
    """Turn `starting` into `alive`, once, for the shim whose fence this is (D11).

    The same shim may ask again: whoever it asked first may have died before it could answer.

    Raises:
        ClaimLost: the run was ended meanwhile, or is another shim's: the late one must not start its worker.
    """
    asked_before = (run.claim_lock, (run.shim_pid, run.shim_started), (run.worker_pid, run.worker_started))
    if run.open and asked_before == (lock, process.shim, process.worker):
        return Beat("open")
    changed = ctx.tx.run(
        "runs.came_alive",
        id=run.id,
        lock=lock,
        now=ctx.now,
        shim_pid=process.shim[0],
        shim_started=process.shim[1],
        worker_pid=process.worker[0],
        worker_started=process.worker[1],
        boot_id=process.boot_id,
        pid_namespace=process.pid_namespace,
    )
    if changed != 1:
        raise ClaimLost(
            f"run {run.id} is not waiting for this shim",
            hint="the claim was given up meanwhile; nothing was started",
            task_id=run.task_id,
            run_shown=run.id,
        )
    payload = {"pid": process.worker[0], "shim": process.shim[0], "lane": run.lane}
    append_event(ctx, "spawned", run.task_id, payload, run_id=run.id)
    return Beat("open")


def renew(ctx: Context, run: Run, lock: str, *, active: bool, idle: int) -> Beat:
    """Extend the lease of a run whose shim lives; write a heartbeat if there was activity (P13).

    Args:
        active: output, or work of its processes, since the last beat that said so.
        idle: seconds since the log said anything new (C32).

    Raises:
        ClaimLost: the lock is another run's.
    """
    if run.claim_lock != lock:
        raise ClaimLost(f"the lock shown is not that of run {run.id}", hint="it is not this shim's", run_shown=run.id)
    if not run.open:
        _stays(ctx, run)
        return state_of(run)
    changes: dict[str, Any] = {"claim_expires": max(run.claim_expires, ctx.now + run.claim_ttl)}
    if active and ctx.now - (run.last_heartbeat_at or 0) >= HEARTBEAT_SECONDS:
        changes["last_heartbeat_at"] = ctx.now
        append_event(ctx, "heartbeat", run.task_id, {"by": "shim"}, run_id=run.id)
    changes |= _progress(ctx, run, idle)
    ctx.tx.assign("runs.update_open", rows.to_columns(changes), where_id=run.id)
    return Beat("open")


def _stays(ctx: Context, run: Run) -> None:
    """Keep the card of a closed run from others as long as its shim says that something of it lives (P14c, C4)."""
    card = find.task(ctx.tx, run.task_id)
    if card.eligible_reason == s.QUARANTINE and (card.eligible_at or 0) <= ctx.now + run.claim_ttl:
        failures.keep_off(ctx, run, "its worker has not ended yet")


def _progress(ctx: Context, run: Run, idle: int) -> dict[str, Any]:
    """Flag a run that lives and gets nowhere: alive and making progress are two clocks (C32)."""
    limit = ctx.settings.number("no_progress_seconds")
    still = _still(ctx, run) if limit and idle >= limit else 0
    if not limit or still < limit:
        return {"standing_still": False} if run.standing_still else {}
    if run.standing_still:
        return {}
    append_event(ctx, "worker_progress", run.task_id, {"standing_still": still}, run_id=run.id)
    return {"standing_still": True}


def _still(ctx: Context, run: Run) -> int:
    """Return for how many seconds the run did nothing on the board."""
    row = ctx.tx.one("runs.last_act", task_id=run.task_id, run_id=run.id)
    return ctx.now - max((row[0] if row else None) or 0, run.started_at)


def settle(ctx: Context, run: Run, found: ExitRecord | None) -> Task:
    """Book the end of a run's processes, from its exit record, or from the lack of one (P45).

    Harmless to repeat. A run that was closed already keeps its outcome and its card (P14b); only what is known of its
    end is written to its row, and its card's quarantine is over (P14c). Whose claim it was decides what an end that
    was no good one leads to (`conclude`), whoever notices it.
    """
    card = find.task(ctx.tx, run.task_id)
    if run.process_state == s.ENDED:
        return card
    verdict = exits.classify(found) if found else exits.vanished(run.worker_pid)
    if not run.open:
        facts = {"exit_code": verdict.exit_code, "exit_kind": verdict.exit_kind}
        ctx.tx.assign("runs.note", rows.to_columns(facts), where_id=run.id)
        return failures.proven_ended(ctx, run)
    if verdict.outcome is None:
        return _by_policy(ctx, card, run, verdict)
    return conclude(ctx, card, run, verdict)


def conclude(ctx: Context, card: Task, run: Run, verdict: Verdict) -> Task:
    """End an open run whose processes are gone.

    A dispatcher's goes onto the ledger (P40). A bridge's blocks its card with all that is known, for nobody else looks
    at what that program did; only what says "later" gives the card back: a rate limit, a stop from outside.
    """
    if run.pull and not _says_later(verdict):
        return _hand_over(ctx, card, run, verdict)
    return end(ctx, card, verdict)


def _says_later(verdict: Verdict) -> bool:
    stopped = verdict.reason == "signal" and verdict.exit_kind == "stopped"  # its shim was told: the system goes down
    return verdict.outcome in (s.RATE_LIMITED, s.RECLAIMED) or stopped


def end(ctx: Context, card: Task, verdict: Verdict, *, proven: bool = True) -> Task:
    """End the open run of a card with a verdict.

    Args:
        proven: no process of it is left.
    """
    assert verdict.outcome is not None
    retry_at = ctx.now + verdict.retry_after if verdict.retry_after is not None else None
    found = failures.End(
        verdict.outcome,
        verdict.reason,
        verdict.error,
        verdict.exit_code,
        verdict.exit_kind,
        retry_at,
        verdict.terminal,
        proven,
    )
    return failures.end(ctx, card, found)


def _by_policy(ctx: Context, card: Task, run: Run, verdict: Verdict) -> Task:
    """Close the card for a program that cannot do it itself, as its run (success policies of lanes)."""
    acting = _as_run(ctx, card, run)
    lines = [line for line in (verdict.error or "").splitlines() if line.strip()]
    summary = "\n".join(lines[-_SUMMARY_LINES:]) or "it ended well (exit code 0) and said nothing"
    known = {"exit_code": 0, "exit_kind": "exit", "process_state": s.ENDED}
    ctx.tx.assign("runs.note", known, where_id=run.id)  # before the closing: nothing of it is left to wait for (P14c)
    try:
        return _closing(acting, card, run, verdict.policy, summary)
    except Refusal as error:  # the board's rules stand above a lane's policy
        violation = Verdict(s.PROTOCOL_VIOLATION, "policy", f"{verdict.policy} was refused: {error.message}", 0)
        return conclude(ctx, card, run, violation)


def _as_run(ctx: Context, card: Task, run: Run) -> Context:
    """Act on the card as whoever claimed it, with the fence of that claim."""
    kind = s.BRIDGE if run.pull else s.WORKER
    return ctx.evolve(actor=Actor(kind, run.profile or "", card.id), fence=Fence(run.id, run.claim_lock or ""))


def _closing(ctx: Context, card: Task, run: Run, policy: str, summary: str) -> Task:
    if policy == "complete" or (policy == "request_review" and run.role == s.REVIEWER):
        return finish.complete(ctx, card, Handoff(summary=summary)).task
    if policy == "request_review":
        return finish.request_review(ctx, card, Handoff(summary=summary), None).task
    fields = blocks.from_fields(
        "human decision needed",
        f"the program ended well; its last words: {summary}",
        ("A: the work is done", "B: it is not"),
        "look at the work",
        "complete the card, or unblock it with an answer",
    )
    return block.block(ctx, card, fields, s.NEEDS_INPUT).task


def _hand_over(ctx: Context, card: Task, run: Run, verdict: Verdict) -> Task:
    """Block the card of a bridge's run for a person, with the five parts (P25); what is known stays on the run."""
    known = {"exit_code": verdict.exit_code, "exit_kind": verdict.exit_kind, "error": verdict.error}
    ctx.tx.assign("runs.note", known | {"process_state": s.ENDED}, where_id=run.id)
    try:
        return block.block(_as_run(ctx, card, run), card, _stuck(card, run, verdict), None).task
    except Refusal:  # a card must never stay behind
        return end(ctx, card, verdict)


_REFUSED = "exit code 78: the provider refused credential, model or TLS"
_TRY_AGAIN = ("A: try again as it is", "B: change the card or the environment, then try again")


def _stuck(card: Task, run: Run, verdict: Verdict) -> blocks.Reason:
    """Say what became of a bridge's run. The program's words stay within one line: they are no parts of the reason."""
    said = (_REFUSED if verdict.terminal else "", *(verdict.error or "").splitlines())
    what = " | ".join(line.strip() for line in said if line.strip())
    return blocks.from_fields(
        "auth missing" if verdict.terminal else "environment",
        f"run {run.id} of {run.profile} ended as {verdict.outcome}: {what or 'it said nothing'}",
        _TRY_AGAIN,
        "B, since the same refusal would come again" if verdict.terminal else "B, unless it looks like a passing fault",
        f"mend what the last words name, then `hermes kanban unblock {card.id} --answer A` (or B: what was changed)",
    )


def extend(ctx: Context, run: Run) -> bool:
    """Extend the claim of a live worker whose time ran out; nobody takes it (D15)."""
    if not run.open or run.claim_expires > ctx.now:
        return False
    until = ctx.now + run.claim_ttl
    ctx.tx.assign("runs.update_open", {"claim_expires": until}, where_id=run.id)
    append_event(ctx, "claim_extended", run.task_id, {"until": until, "reason": "alive"}, run_id=run.id)
    return True


def defer(ctx: Context, run: Run, reason: str) -> bool:
    """Keep the claim of a worker that survives its stop, and say so once (D14, C16).

    The card of a run that was closed already is kept from others as long as that goes on (P14c).
    """
    if run.process_state == s.ENDED:
        return False
    said = False
    if run.open:
        ctx.tx.assign("runs.update_open", {"claim_expires": ctx.now + run.claim_ttl}, where_id=run.id)
    else:
        said = failures.keep_off(ctx, run, reason)
    if run.deferred:
        return False
    ctx.tx.assign("runs.note", {"deferred": 1}, where_id=run.id)
    if not said:
        append_event(ctx, "reclaim_deferred", run.task_id, {"reason": reason}, run_id=run.id)
    return True


def never_came_alive(ctx: Context, run: Run, grace: int) -> bool:
    """End a claim whose worker did not come alive in its grace, counted from this attempt's start (D11, C8, C28)."""
    if not run.open or run.process_state != s.STARTING or ctx.now - run.started_at < grace:
        return False
    why = f"the worker did not come alive within {grace} s (kanban.spawn_grace_seconds)"
    end(ctx, find.task(ctx.tx, run.task_id), Verdict(s.SPAWN_FAILED, "never_alive", why, exit_kind="spawn"))
    return True


def fell_silent(ctx: Context, run: Run, here: starts.Here) -> bool:
    """End a run of another host that renews nothing any more, once lease and quarantine are over (P14c, D3)."""
    if run.process_state == s.ENDED or not starts.silent(run, ctx.now, here):
        return False
    if not run.open:
        failures.proven_ended(ctx, run)
        return True
    failures.end(ctx, find.task(ctx.tx, run.task_id), failures.silent(run))
    return True


def probe(ctx: Context) -> tuple[str, ...]:
    """Give every tripped card whose pause is over its one fresh attempt; its counters stay (P27, C52)."""
    found = [rows.task(row) for row in ctx.tx.all("dispatch.probes", now=ctx.now, limit=_PROBES_AT_ONCE)]
    for card in found:
        move(ctx, card, "probe", gate.target(ctx.tx, card), NOT_HELD | {"escalated": False}, {"probe": True})
    return tuple(card.id for card in found)


def due(ctx: Context) -> tuple[str, ...]:
    """Release every scheduled card whose time has come."""
    return release.due(ctx)


def guarded(ctx: Context, card: Task, reason: Reason) -> bool:
    """Record that the dispatcher leaves a card alone, once for each new reason (D7)."""
    if card.guard == reason.code:
        return False
    payload = {"reason": reason.code, "text": reason.text, "until": reason.until}
    change(ctx, card, "respawn_guarded", {"guard": reason.code}, payload)
    return True


def spawn_failed(ctx: Context, run: Run, message: str, hint: str) -> Task:
    """End a run whose worker could not be started, with words that say what to do (D11, C58)."""
    card = find.task(ctx.tx, run.task_id)
    current = find.run(ctx.tx, run.id)
    if not current.open:
        return failures.proven_ended(ctx, current)
    said = f"{message}; {hint}" if hint else message
    return conclude(ctx, card, current, Verdict(s.SPAWN_FAILED, "spawn", said, exit_kind="spawn"))


def handed_back(ctx: Context, run: Run) -> Task:
    """End a run whose dispatcher stops before it started the worker."""
    card = find.task(ctx.tx, run.task_id)
    if not run.open:
        return failures.proven_ended(ctx, run)
    return end(ctx, card, Verdict(s.RECLAIMED, "gateway_stop", "the dispatcher was stopped", exit_kind="spawn"))


def opened(ctx: Context, run: Run, facts: dict[str, Any]) -> Run:
    """Keep on a fresh run what its dispatcher knows of it."""
    ctx.tx.assign("runs.update_open", rows.to_columns(facts), where_id=run.id)
    return find.run(ctx.tx, run.id)
