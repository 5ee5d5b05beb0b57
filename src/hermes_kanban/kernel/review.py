"""Request changes: the reviewer's other verdict sends the card back to its implementer (P30, P31)."""

from __future__ import annotations

from hermes_kanban.base.errors import Forbidden, InvalidValue
from hermes_kanban.kernel import failures, fence, finish, gate, runs, thread
from hermes_kanban.kernel.apply import NOT_HELD, first_line, move
from hermes_kanban.kernel.finish import Closed
from hermes_kanban.model import status as s
from hermes_kanban.model import transitions
from hermes_kanban.model.run import Run
from hermes_kanban.model.task import Task

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from hermes_kanban.kernel.context import Context

VERB = "request-changes"


def request_changes(ctx: Context, card: Task, text: str, *, override: bool = False) -> Closed:
    """Send the card back to its implementer with the reason as a comment; neither a block nor a failure (P31).

    Raises:
        InvalidValue: no reason.
        ClaimLost: the caller's run does not hold the card.
        Forbidden: the caller's run is not a reviewer's.
        WrongState: the card is not in review.
    """
    stored = finish.already_closed(ctx, card, VERB)
    if stored:
        return stored
    if not text.strip():
        raise InvalidValue("request-changes needs a reason", hint="say what has to change", argument="text")
    run, mine = fence.holder(ctx, card, VERB, override=override)
    transitions.check(card, VERB)
    if run and run.role != s.REVIEWER:
        raise Forbidden(
            f"run {run.id} of {card.id} is not a review",
            hint="changes are requested by a reviewer, of a card in review",
            task_id=card.id,
        )
    quarantine = failures.leave(ctx, card, run, VERB, mine=mine)
    comment = thread.add(ctx, card, text, author=None, run=run if mine else None)
    kept = run if run and mine else finish.by_hand(ctx, card, {"end_reason": text}, s.CHANGES_REQUESTED)
    moved = _send_back(ctx, card, text, kept, quarantine, comment.id)
    if run and mine:
        facts = {"end_reason": text, "end_verb": VERB, "end_result": {"to": moved.status}}
        kept = runs.close(ctx, run, s.CHANGES_REQUESTED, facts, by_owner=True)
    return Closed(moved, kept)


def _send_back(
    ctx: Context, card: Task, text: str, run: Run | None, quarantine: dict[str, Any], comment_id: int
) -> Task:
    rounds = card.review_rounds + 1
    changes: dict[str, Any] = {
        **NOT_HELD,
        "phase": s.WORK,
        "assignee": card.implementer or card.assignee,
        "review_rounds": rounds,
        **quarantine,
    }
    payload = {"reason": first_line(text), "round": rounds, "comment": comment_id}
    to = gate.target(ctx.tx, card, phase=s.WORK)
    if rounds >= ctx.settings.number("review_round_limit"):
        to = s.BLOCKED
        changes |= {
            "hold_reason": f"changes were requested {rounds} times; a person must decide how to go on",
            "hold_release": s.BY_PERSON,
        }
        ctx.warn(f"{card.id} went through {rounds} rounds of review and now waits for a person")
    return move(ctx, card, VERB, to, changes, payload, run_id=run.id if run else None)
