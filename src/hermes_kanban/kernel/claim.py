"""Claim, heartbeat: the exclusive, time-limited right to work on a card (P10 to P16)."""

from __future__ import annotations

from hermes_kanban.base import ids
from hermes_kanban.base.clock import span
from hermes_kanban.base.errors import AtCapacity, Gated, NotClaimable, Refusal, SelfReview
from hermes_kanban.base.record import Record, record
from hermes_kanban.kernel import failures, fence, find, release, runs, starts
from hermes_kanban.kernel.apply import append_event, move
from hermes_kanban.model import status as s
from hermes_kanban.model import transitions
from hermes_kanban.model.claim import Caps, Fence
from hermes_kanban.model.run import Run
from hermes_kanban.model.task import Task
from hermes_kanban.model.thread import Comment
from hermes_kanban.store import rows

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from hermes_kanban.kernel.context import Context
    from hermes_kanban.model.reasons import Reason


_TIP = "tip_scratch_workspace"  # the event, and the mark in `board_meta` that it was left


@record
class ClaimRequest(Record):
    """What a claimer says of itself.

    Args:
        ttl: seconds without a sign of life after which the claim is over.
        name: the profile under which the run is kept; None: the card's assignee, else the actor's name.
        host: the claimer's host, with `pid` for the lock's text.
        place: computes the workspace's path of a card (no I/O).
        pull: a claim from outside; False for the dispatcher's own.
        lane: the lane of a dispatcher's claim.
        caps: bounds on running attempts, for the dispatcher's claims (P15).
    """

    ttl: int
    host: str
    pid: int
    place: Callable[[Task], str]
    name: str | None = None
    pull: bool = True
    lane: str | None = None
    caps: Caps | None = None


def take(ctx: Context, card: Task, request: ClaimRequest) -> tuple[Task, Run] | Refusal:
    """Claim this card, or say why not.

    A refusal that is *returned* comes with changes that must be committed (a breaker tripped on the way); one
    that is raised changes nothing.

    Raises:
        NotClaimable: somebody holds it, or it must wait; the error says who or until when.
        Gated: a parent is open; parents are checked again here, inside the claim (P10).
        WrongState: it is in no state to be claimed.
        SelfReview: the claimer did the work that is to be reviewed.
    """
    card = release.if_due(ctx, card)
    if card.status == s.RUNNING:
        reasons = starts.claimable(ctx.tx, card, _here(ctx, request.host))
        if reasons:
            raise _not_claimable(ctx, card, reasons)
        card = failures.lapse(ctx, card)
        if card.status not in (s.READY, s.REVIEW):
            return _not_claimable(ctx, card, starts.claimable(ctx.tx, card))
    transitions.check(card, "claim")
    reasons = starts.claimable(ctx.tx, card)
    if reasons:
        raise _not_claimable(ctx, card, reasons)
    return _open(ctx, card, request)


def _here(ctx: Context, host: str) -> starts.Here:
    return starts.Here(host, ctx.settings.number("quarantine_seconds"))


def next_card(ctx: Context, host: str, *, review: bool, assignee: str | None, name: str | None) -> Task | None:
    """Release what is due, then return the first card that fits (see `candidate`)."""
    release.due(ctx)
    return candidate(ctx, host, review=review, assignee=assignee, name=name)


def candidate(ctx: Context, host: str, *, review: bool, assignee: str | None, name: str | None) -> Task | None:
    """Return the first card that fits: priority high to low, then seq; lapsed claims count as ready (P10, P16).

    Args:
        host: the claimer's; runs of others that fell silent count as lapsed (P14c).
        assignee: only cards of this name ("none": of nobody); None for any.
        name: the claimer, whose own work is left out of reviews.
    """
    queue = s.REVIEW if review else s.READY
    which = "any" if assignee is None else "nobody" if assignee == "none" else "of"
    role = s.REVIEWER if review else s.IMPLEMENTER
    mine = None if ctx.settings.flag("allow_self_review") or ctx.actor.may_always_decide else name
    values = {"now": ctx.now, "assignee": assignee}
    own = {"mine": mine} if review else {}
    found = [ctx.tx.one(f"claims.next_{queue}_{which}", **values, **own)]
    lapsed = values | {"role": role, "mine": mine if review else None}
    found.append(ctx.tx.one("claims.next_lapsed", **lapsed))
    found.append(ctx.tx.one("claims.next_silent", **lapsed, **_here(ctx, host).as_dict()))
    cards = [rows.task(row) for row in found if row]
    return min(cards, key=lambda card: (-card.priority, card.seq)) if cards else None


def _open(ctx: Context, card: Task, request: ClaimRequest) -> tuple[Task, Run]:
    role = s.REVIEWER if card.status == s.REVIEW else s.IMPLEMENTER
    name = request.name or (card.reviewer if role == s.REVIEWER else card.assignee) or ctx.actor.name
    if role == s.REVIEWER:
        refuse_self_review(ctx, card, name)
    _within_caps(ctx, request, name)
    run = runs.opened(
        ctx,
        task_id=card.id,
        role=role,
        profile=name,
        lane=request.lane,
        claimed_from=card.status,
        pull=int(request.pull),
        supervised=int(not request.pull),
        host=request.host,
        claim_lock=f"{request.host}:{request.pid}:{ids.token()}",
        claim_ttl=request.ttl,
        claim_expires=ctx.now + request.ttl,
        workspace=request.place(card),
        last_heartbeat_at=ctx.now,
        notice_cursor=ctx.tx.one("comments.last_id", task_id=card.id)[0] or 0,  # type: ignore[index]
        model=card.model_override,
        provider=card.provider_override,
    )
    _tell_of_scratch(ctx, card, run)
    changes: dict[str, object] = {"current_run_id": run.id, "eligible_at": None, "eligible_reason": None, "guard": None}
    if role == s.IMPLEMENTER:
        changes["implementer"] = name
    payload = {"role": role, "profile": name, "expires": run.claim_expires, "pull": request.pull}
    return move(ctx, card, "claim", s.RUNNING, changes, payload, run_id=run.id), run


def _tell_of_scratch(ctx: Context, card: Task, run: Run) -> None:
    """Say with a board's first scratch folder where it is and how long it stays after its card is done (D20)."""
    if card.workspace_kind != s.SCRATCH or ctx.tx.one("schema.meta", key=_TIP):
        return
    ctx.tx.run("schema.set_meta", key=_TIP, value=str(run.id))
    payload = {"workspace": run.workspace, "stays_seconds": ctx.settings.number("scratch_retention_seconds")}
    append_event(ctx, _TIP, None, payload, run_id=run.id)


def refuse_self_review(ctx: Context, card: Task, name: str) -> None:
    """Whoever did work of this round may not judge it, save a person at a terminal (P30, P30b, C73).

    Raises:
        SelfReview: the name is an implementer's.
    """
    if ctx.actor.may_always_decide or ctx.settings.flag("allow_self_review"):
        return
    if card.implementer != name and not ctx.tx.one("runs.implemented", task_id=card.id, profile=name):
        return
    raise SelfReview(
        f"{name} did the work on {card.id} and may not review it",
        hint="another reviewer or a person decides (kanban.allow_self_review changes that)",
        task_id=card.id,
        implementer=name,
    )


def _within_caps(ctx: Context, request: ClaimRequest, name: str) -> None:
    caps = request.caps or Caps()
    bounds = (("board", caps.board, None), ("profile", caps.profile, name), ("lane", caps.lane, request.lane))
    for what, most, value in bounds:
        if most is None:
            continue
        row = ctx.tx.one(f"runs.running_of_{what}", value=value)
        assert row is not None
        if row[0] >= most:
            raise AtCapacity(
                f"{row[0]} attempts run on this {what}; the cap is {most}",
                hint="wait for one to end",
                cap=most,
                scope=what,
            )


def _not_claimable(ctx: Context, card: Task, reasons: tuple[Reason, ...]) -> Refusal:
    first = reasons[0]
    if first.code == "parents":
        return Gated(
            f"{card.id} {first.text}",
            hint="it becomes ready by itself when they are done",
            task_id=card.id,
            open_parents=list(first.task_ids),
        )
    left = f" for another {span(first.until - ctx.now)}" if first.until and first.until > ctx.now else ""
    return NotClaimable(
        f"{card.id} cannot be claimed: {first.text}{left}",
        hint="take another card (`claim --next`), or try again later",
        task_id=card.id,
        reason=first.code,
        until=first.until,
    )


def prepared(ctx: Context, run: Run) -> None:
    """Note that the claimer got its workspace; of a pull claim's process nothing more is known (P14c).

    Raises:
        ClaimLost: the run was ended while its workspace was made: nobody may be sent to work by it (P14b).
    """
    if ctx.tx.assign("runs.update_open", {"process_state": s.UNKNOWN}, where_id=run.id) != 1:
        card = find.task(ctx.tx, run.task_id)
        shown = ctx.evolve(fence=Fence(run.id, run.claim_lock or ""))
        raise fence.lost(shown, card, find.open_run(ctx.tx, card), "claim")


def unprepared(ctx: Context, run: Run, error: Refusal, reason: str = s.WORKSPACE) -> None:
    """End a claim that its claimer cannot use: nothing is left running, no failure is counted (P11).

    Args:
        error: what went wrong.
        reason: what could not be made: the workspace, or the ticket by which the claimer would be known (P12b).
    """
    card = find.task(ctx.tx, run.task_id)
    if card.current_run_id != run.id:
        return
    starts = failures.starts_today(ctx, card)
    if starts >= ctx.settings.number("starts_per_day"):  # free returns are bounded too (P44)
        failures.give_up(ctx, card, run, failures.End(s.RECLAIMED, reason, error.message), starts)
        return
    runs.close(ctx, run, s.RECLAIMED, {"end_reason": reason, "error": error.message}, by_owner=True)
    again = ctx.now + ctx.settings.number("workspace_retry_seconds")
    changes = {"eligible_at": again, "eligible_reason": reason}
    payload = {"reason": reason, "error": error.message, "until": again}
    move(ctx, card, "end-run", failures.origin(ctx, card), changes, payload, kind="reclaimed", run_id=run.id)


def heartbeat(ctx: Context, card: Task, note: str | None) -> tuple[Run, tuple[Comment, ...]]:
    """Extend the caller's claim; return the run and the comments that it has not seen yet.

    Raises:
        ClaimLost: the caller's run does not hold the card.
    """
    run, mine = fence.holder(ctx, card, "heartbeat")
    if run is None or not mine:
        raise fence.lost(ctx, card, run, "heartbeat")
    run = runs.touch(ctx, run, note=note)
    append_event(ctx, "heartbeat", card.id, {"note": note} if note else {}, run_id=run.id)
    found = tuple(rows.comment(r) for r in ctx.tx.all("comments.since", task_id=card.id, since=run.notice_cursor))
    if found:
        ctx.tx.assign("runs.update_open", {"notice_cursor": found[-1].id}, where_id=run.id)
    return run, tuple(c for c in found if c.run_id != run.id)
