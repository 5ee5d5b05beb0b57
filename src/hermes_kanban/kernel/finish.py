"""Complete: the work is done, the children may go (P4, P12, P21 to P23)."""

from __future__ import annotations

from hermes_kanban.base.errors import Forbidden, InvalidValue, UnknownCards
from hermes_kanban.base.record import Record, record
from hermes_kanban.kernel import attach, claim, failures, fence, find, gate, runs
from hermes_kanban.kernel.apply import NOT_HELD, first_line, move
from hermes_kanban.model import policy, transitions
from hermes_kanban.model import status as s
from hermes_kanban.model.run import Run
from hermes_kanban.model.task import Task

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from hermes_kanban.kernel.context import Context
    from hermes_kanban.model.thread import Attachment, StoredFile


@record
class Handoff(Record):
    """What the next reader gets: summary for people, metadata for machines, files that are kept (P22, D20)."""

    summary: str | None = None
    metadata: dict[str, Any] | None = None
    result: str | None = None
    created: tuple[str, ...] = ()
    artifacts: tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether nothing is handed over at all."""
        return self.summary is None and self.metadata is None and self.result is None

    @property
    def says_nothing(self) -> bool:
        """Whether neither summary nor result holds a word."""
        return not f"{self.summary or ''}{self.result or ''}".strip()


@record
class Closed(Record):
    """The answer to a closing verb.

    Args:
        task: the card as it is now.
        run: the run that ended, if any.
        already: True when this very call had been answered before (P12).
        promoted: children that became ready.
        attachments: the artifacts that were kept (D20).
    """

    task: Task
    run: Run | None = None
    already: bool = False
    promoted: tuple[str, ...] = ()
    attachments: tuple[Attachment, ...] = ()


def already_closed(ctx: Context, card: Task, verb: str) -> Closed | None:
    """Return the stored answer if this verb with this fence was answered before (P12)."""
    run = fence.repeated(ctx, card, verb)
    if run is None:
        return None
    stored = run.end_result or {}
    return Closed(card, run, already=True, promoted=tuple(stored.get("promoted", ())))


def complete(
    ctx: Context,
    card: Task,
    handoff: Handoff,
    artifacts: tuple[StoredFile, ...] = (),
    *,
    override: bool = False,
    bulk: bool = False,
) -> Closed:
    """Finish the card and let its children go, in one step.

    Args:
        artifacts: the declared files, copied already: they become attachments together with the ending (D20, C98).
        override: a person's: also from todo, triage, scheduled, and over somebody else's run (P12c).
        bulk: one of several ids of a person's call, which needs no summary (P22).

    Raises:
        InvalidValue: neither a summary nor a result.
        ClaimLost: the caller's run does not hold the card.
        SelfReview: a reviewer approves its own work (P30).
        UnknownCards: it names cards that it did not make (P23).
        WrongState: it is in no state to be completed.
    """
    stored = already_closed(ctx, card, "complete")
    if stored:
        return stored
    if not (bulk and ctx.actor.is_person):
        _says_something(handoff)
    run, mine = fence.holder(ctx, card, "complete", override=override)
    transitions.check(card, "complete", override=override and ctx.actor.is_person)
    if card.phase == s.REVIEWING:
        judge = run.profile if run and mine else None
        claim.refuse_self_review(ctx, card, judge or ctx.actor.name)
    _made_by(ctx, run, handoff.created)
    quarantine = failures.leave(ctx, card, run, "complete", mine=mine)
    kept = run if mine else _by_hand(ctx, card, handoff, s.COMPLETED)
    attached = attach.record_files(ctx, card, artifacts, kept)
    done = _done(ctx, card, handoff, kept, quarantine, override=override and not mine)
    promoted = gate.promote_children(ctx, card.id)
    if run and mine:
        stays = {"end_verb": "complete", "end_result": {"to": done.status, "promoted": list(promoted)}}
        kept = runs.close(ctx, run, s.COMPLETED, _facts(handoff) | stays, by_owner=True)
    return Closed(done, kept, promoted=promoted, attachments=attached)


def _says_something(handoff: Handoff) -> None:
    if handoff.says_nothing:
        raise InvalidValue(
            "complete needs a summary or a result",
            hint='say what the next reader must know: --summary "…"',
            argument="summary",
        )


def _done(
    ctx: Context, card: Task, handoff: Handoff, run: Run | None, quarantine: dict[str, Any], *, override: bool
) -> Task:
    changes: dict[str, Any] = {
        **NOT_HELD,
        **policy.FRESH,
        "block_recurrences": 0,
        "last_block_kind": None,
        "escalated": False,
        "completed_at": ctx.now,
        "scheduled_at": None,
        "last_failure_error": None,
        "answer_comment_id": None,
        **quarantine,
    }
    if not quarantine and card.eligible_reason != s.QUARANTINE:  # a quarantine outlives a later reopen (P14c)
        changes |= {"eligible_at": None, "eligible_reason": None}
    if handoff.result is not None:
        changes["result"] = handoff.result
    payload: dict[str, Any] = {}
    if not handoff.empty:
        payload["summary"] = first_line(handoff.summary or handoff.result)
    if override:
        payload["override"] = True
    number = run.id if run else None
    return move(ctx, card, "complete", s.DONE, changes, payload, run_id=number, override=override)


def by_hand(ctx: Context, card: Task, facts: dict[str, Any], outcome: str) -> Run | None:
    """Keep what a person said on a manual run, if they said anything (P21)."""
    said = {name: value for name, value in facts.items() if value is not None}
    return runs.manual(ctx, card.id, card.status, outcome, said) if said else None


def _by_hand(ctx: Context, card: Task, handoff: Handoff, outcome: str) -> Run | None:
    if handoff.empty:
        return None
    return by_hand(ctx, card, {**_facts(handoff), "summary": handoff.summary or first_line(handoff.result)}, outcome)


def _facts(handoff: Handoff) -> dict[str, Any]:
    return {"summary": handoff.summary or handoff.result, "metadata": handoff.metadata}


def _made_by(ctx: Context, run: Run | None, created: tuple[str, ...]) -> None:
    """Check the cards that the worker says it made (P23)."""
    wrong = []
    makers = (ctx.actor.label, run.claimed_by if run else None)  # a script is a bridge for its own card alone (P70)
    for text in created:
        card = find.known_task(ctx.tx, text)
        if card is None or not (card.created_by in makers or (run and card.created_run_id == run.id)):
            wrong.append(text)
    if wrong:
        raise UnknownCards(
            f"these cards do not exist or were made by somebody else: {', '.join(wrong)}",
            hint="complete again without them (leave --created out if you made none); the card is still open",
            unknown=wrong,
        )


def request_review(
    ctx: Context, card: Task, handoff: Handoff, reviewer: str | None, *, override: bool = False
) -> Closed:
    """Hand the work over for a verdict; the card stays the same one (P30).

    Args:
        reviewer: who is to judge; None: `kanban.reviewer`, else a person.

    Raises:
        ClaimLost: the caller's run does not hold the card.
        Forbidden: a reviewer's run ends with complete or request-changes.
        WrongState: it is in no state to be reviewed.
    """
    stored = already_closed(ctx, card, "request-review")
    if stored:
        return stored
    run, mine = fence.holder(ctx, card, "request-review", override=override)
    transitions.check(card, "request-review")
    if run and mine and run.role == s.REVIEWER:
        raise Forbidden(
            "a reviewer's run ends with complete (approve) or request-changes",
            hint=f"`hermes kanban complete {card.id} --summary …` or `hermes kanban request-changes {card.id} TEXT`",
            task_id=card.id,
        )
    quarantine = failures.leave(ctx, card, run, "request-review", mine=mine)
    implementer = run.profile if run and mine else card.implementer or card.assignee or ctx.actor.name
    who = _distinct(ctx, card, implementer, reviewer or card.reviewer or ctx.settings.text("reviewer") or None)
    changes = {**policy.FRESH, "phase": s.REVIEWING, "reviewer": who, "implementer": implementer, **quarantine}
    kept = run if run and mine else _by_hand(ctx, card, handoff, s.REVIEW_REQUESTED)
    payload = {"summary": first_line(handoff.summary), "reviewer": who, "implementer": implementer}
    moved = move(ctx, card, "request-review", s.REVIEW, changes, payload, run_id=kept.id if kept else None)
    if run and mine:
        facts = _facts(handoff) | {"end_verb": "request-review", "end_result": {"to": moved.status}}
        kept = runs.close(ctx, run, s.REVIEW_REQUESTED, facts, by_owner=True)
    return Closed(moved, kept)


def _distinct(ctx: Context, card: Task, implementer: str | None, reviewer: str | None) -> str | None:
    """Return the reviewer, or None (a person decides) when it would be the implementer itself (P30b)."""
    if reviewer is None or reviewer != implementer or ctx.settings.flag("allow_self_review"):
        return reviewer
    ctx.warn(f"{reviewer} did the work on {card.id}, so a person must review it")
    return None
