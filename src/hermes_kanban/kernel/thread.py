"""Comments: facts for the next reader, never edited (P60)."""

from __future__ import annotations

from hermes_kanban.base.errors import Forbidden, InvalidValue
from hermes_kanban.base.record import Record, record
from hermes_kanban.kernel import fence, find, runs
from hermes_kanban.kernel.apply import append_event
from hermes_kanban.model import status as s
from hermes_kanban.model.run import Run
from hermes_kanban.model.task import Task
from hermes_kanban.model.thread import Comment
from hermes_kanban.store import rows

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hermes_kanban.kernel.context import Context

EXCERPT = 200


@record
class Commented(Record):
    """A new comment, when the card's worker will read it (P62b), and the card."""

    comment: Comment
    delivery: str
    task: Task


def comment(ctx: Context, card: Task, body: str, author: str | None) -> Commented:
    """Add a comment; the owner's own extends its claim (P13).

    Args:
        author: another name than the caller's; not for workers.

    Raises:
        InvalidValue: empty.
        Forbidden: a worker chose another author.
        ClaimLost: a run was shown that does not hold the card.
    """
    run = find.open_run(ctx.tx, card)
    mine = _mine(ctx, card, run)
    if author is not None and author != ctx.actor.name and ctx.actor.kind in (s.WORKER, s.ORCHESTRATOR):
        raise Forbidden(
            f"a worker comments under its own name ({ctx.actor.name})", hint="leave --author out", task_id=card.id
        )
    if mine and run:
        runs.touch(ctx, run, progress=True)
    made = add(ctx, card, body, author=author, run=run if mine else None)
    return Commented(made, _delivery(run, mine), card)


def add(ctx: Context, card: Task, body: str, *, author: str | None, run: Run | None) -> Comment:
    """Write the comment and its event."""
    if not body.strip():
        raise InvalidValue("a comment needs a text", hint="write the fact that the next reader needs", argument="text")
    number = ctx.tx.insert(
        "comments.add",
        task_id=card.id,
        run_id=run.id if run else None,
        author=author or ctx.actor.name,
        author_kind=ctx.actor.kind,
        body=body,
        created_at=ctx.tx.now,
        at_ms=ctx.tx.now_ms,
    )
    payload = {"comment": number, "author": author or ctx.actor.name, "excerpt": body.strip()[:EXCERPT]}
    append_event(ctx, "commented", card.id, payload, run_id=run.id if run else None)
    row = ctx.tx.one("comments.by_id", id=number)
    assert row is not None
    return rows.comment(row)


def _mine(ctx: Context, card: Task, run: Run | None) -> bool:
    if ctx.fence is None:
        return False
    if ctx.actor.kind in (s.WORKER, s.ORCHESTRATOR) and ctx.actor.task_id != card.id:
        return False
    if run and (run.id, run.claim_lock) == (ctx.fence.run_id, ctx.fence.lock):
        return True
    if ctx.implicit:
        return False
    raise fence.lost(ctx, card, run, "comment")


def _delivery(run: Run | None, mine: bool) -> str:
    if run is None or mine:
        return "next_attempt" if run is None else "own_run"
    return "next_heartbeat"
