"""Review on the same card: who judges, what a verdict does, what an interrupted review does (P30 to P32)."""

from __future__ import annotations

import pytest

from hermes_kanban.base.errors import ClaimLost, Forbidden, InvalidValue, NothingReady, SelfReview, WrongState
from hermes_kanban.kernel import failures, find
from hermes_kanban.kernel.board import Board
from hermes_kanban.kernel.context import Context
from hermes_kanban.kernel.finish import Handoff
from hermes_kanban.model import status as s
from hermes_kanban.model.actors import Actor
from hermes_kanban.model.claim import Claim
from hermes_kanban.model.task import Task
from tests.world import FULL_REASON, World

LOOK = Handoff("please look", {"branch": "fix"})


def reviewing(world: World, card: Task, name: str = "rev") -> tuple[Board, Claim]:
    claim = world.script(name).claim(card.id, ttl=60)
    return world.script(name, claim), claim


# --- handing over ----------------------------------------------------------------------------------------------
def test_a_hand_over_keeps_the_implementers_name(world: World) -> None:  # P30
    board, claim = world.claimed(world.card(assignee="bot"))
    closed = board.request_review(claim.task.id, LOOK, "rev")
    card = closed.task
    assert (card.status, card.phase, card.implementer, card.reviewer) == (s.REVIEW, s.REVIEWING, "bot", "rev")
    assert closed.run is not None
    assert (closed.run.outcome, closed.run.summary, closed.run.metadata) == (
        s.REVIEW_REQUESTED,
        "please look",
        {"branch": "fix"},
    )
    event = world.person.events(task=card.id)[-1]
    assert (event.kind, event.run_id) == ("review_requested", claim.run.id)
    assert event.payload["implementer"] == "bot"
    world.verified()


@pytest.mark.parametrize(
    ("named", "on_card", "setting", "judge"),
    [
        ("rev", "other", "ann", "rev"),
        (None, "other", "ann", "other"),
        (None, None, "ann", "ann"),
        (None, None, "", None),
    ],
)
def test_the_reviewer_is_the_named_one_else_the_setting_else_a_person(
    world: World, named: str | None, on_card: str | None, setting: str, judge: str | None
) -> None:  # P30
    world.set(reviewer=setting)
    board, claim = world.claimed(world.card(reviewer=on_card))
    card = board.request_review(claim.task.id, LOOK, named).task
    assert card.reviewer == judge
    assert [waiting.id for waiting in world.person.inbox()] == ([card.id] if judge is None else [])


def test_without_a_distinct_reviewer_the_card_waits_for_a_person(world: World) -> None:  # P30b
    board, claim = world.claimed()
    card = board.request_review(claim.task.id, LOOK, "bot").task
    assert card.reviewer is None
    assert "a person must review it" in board.warnings[0]
    assert [waiting.id for waiting in world.person.inbox()] == [card.id]
    dispatchable = world.person.why(card.id)[1].dispatchable
    assert [(reason.code, reason.actor) for reason in dispatchable] == [("reviewer", s.BY_PERSON)]


def test_a_person_hands_over_a_card_that_nobody_runs(world: World) -> None:  # P30, P21
    card = world.card(assignee="bot")
    moved = world.person.request_review(card.id, LOOK, "rev").task
    assert (moved.status, moved.implementer, moved.reviewer) == (s.REVIEW, "bot", "rev")
    assert world.person.runs(card.id)[0].role == s.MANUAL
    world.verified()


@pytest.mark.parametrize("state", [s.TRIAGE, s.BLOCKED])
def test_a_held_card_is_not_handed_over(world: World, state: str) -> None:  # P30
    card = world.card(status=state, reason="why")
    with world.refuses(card, WrongState):
        world.person.request_review(card.id, LOOK)


def test_a_hand_over_is_a_success_of_the_ledger(world: World) -> None:  # P30, P40
    _, claim = world.claimed()
    _end(world, claim, s.CRASHED)
    world.clock.advance(60)
    board, claim = world.claimed(world.task(claim.task))
    card = board.request_review(claim.task.id, LOOK).task
    assert (card.consecutive_failures, card.counted_failures) == (0, 0)


# --- verdicts --------------------------------------------------------------------------------------------------
def test_a_reviewer_approves_by_complete(world: World) -> None:  # P30
    card = world.in_review()
    child = world.card(parents=(card.id,))
    board, claim = reviewing(world, card)
    assert (claim.run.role, claim.run.claimed_from, claim.task.implementer) == (s.REVIEWER, s.REVIEW, "bot")
    closed = board.complete(card.id, Handoff("fine"))
    assert (closed.task.status, closed.promoted) == (s.DONE, (child.id,))
    assert [run.outcome for run in world.person.runs(card.id)] == [s.REVIEW_REQUESTED, s.COMPLETED]
    world.verified()


def test_a_reviewer_sends_the_card_back_to_its_implementer(world: World) -> None:  # P31
    card = world.in_review()
    board, claim = reviewing(world, card)
    closed = board.request_changes(card.id, "the test is missing\nand the docs")
    back = closed.task
    assert (back.status, back.phase, back.assignee, back.review_rounds) == (s.READY, s.WORK, "bot", 1)
    assert (back.consecutive_failures, back.block_recurrences, back.hold_reason) == (0, 0, None)
    (comment,) = world.person.show(card.id).comments
    assert (comment.author, comment.body, comment.run_id) == ("rev", "the test is missing\nand the docs", claim.run.id)
    event = world.person.events(task=card.id)[-1]
    assert (event.kind, event.payload["reason"], event.payload["round"]) == (
        "changes_requested",
        "the test is missing",
        1,
    )
    assert world.script("bot").claim(assignee="bot").task.id == card.id
    world.verified()


def test_the_context_names_the_newest_correction_first(world: World) -> None:  # P30b, P62
    card = world.in_review()
    for text in ("first correction", "second correction"):
        reviewing(world, card)[0].request_changes(card.id, text)
        world.claimed(world.task(card))[0].request_review(card.id, LOOK, "rev")
    context = world.person.context(card.id)
    assert context.index("second correction") < context.index("first correction")


def test_a_rejection_goes_through_the_gate(world: World) -> None:  # P31, P3
    parent = world.card()
    world.person.complete(parent.id, Handoff("done"))
    card = world.in_review(parents=(parent.id,))
    world.person.reopen(parent.id)
    assert world.person.request_changes(card.id, "wait for the parent").task.status == s.TODO
    world.person.complete(parent.id, Handoff("done"))
    assert world.status(card) == s.READY
    world.verified()


def test_a_rejection_goes_to_who_did_the_work_and_not_to_the_assignee(world: World) -> None:  # P30b, C74
    card = world.card(assignee="rev")
    board, _ = world.claimed(card, "bot")
    board.request_review(card.id, LOOK, "rev")
    reviewer, _ = reviewing(world, card)
    assert reviewer.request_changes(card.id, "no").task.assignee == "bot"


def test_the_last_implementer_is_who_worked_last(world: World) -> None:  # P30b, C74
    card = world.in_review("bot")
    reviewing(world, card)[0].request_changes(card.id, "no")
    board, _ = world.claimed(world.task(card), "other")
    board.request_review(card.id, LOOK)
    assert world.person.request_changes(card.id, "still no").task.assignee == "other"


def test_an_empty_request_for_changes_is_refused(world: World) -> None:  # P31
    card = world.in_review()
    board, _ = reviewing(world, card)
    with world.refuses(card, InvalidValue):
        board.request_changes(card.id, " \n")


def test_an_implementer_cannot_request_changes(world: World) -> None:  # P30
    board, claim = world.claimed()
    with world.refuses(claim.task, Forbidden):
        board.request_changes(claim.task.id, "of my own work")


def test_a_reviewer_cannot_hand_over_again(world: World) -> None:  # P30
    card = world.in_review()
    board, _ = reviewing(world, card)
    with world.refuses(card, Forbidden) as refusal:
        board.request_review(card.id, LOOK)
    assert "request-changes" in refusal.value.hint


def test_changes_are_requested_of_a_card_in_review_alone(world: World) -> None:  # P31
    card = world.card()
    with world.refuses(card, WrongState):
        world.person.request_changes(card.id, "too early")


def test_review_rounds_are_bounded(world: World) -> None:  # P30b
    world.set(review_round_limit=3)
    card = world.in_review()
    for _ in range(2):
        assert reviewing(world, card)[0].request_changes(card.id, "again").task.status == s.READY
        world.claimed(world.task(card))[0].request_review(card.id, LOOK, "rev")
    board, _ = reviewing(world, card)
    held = board.request_changes(card.id, "again").task
    assert (held.status, held.hold_release, held.review_rounds) == (s.BLOCKED, s.BY_PERSON, 3)
    assert "3 times" in (held.hold_reason or "")
    assert "waits for a person" in board.warnings[0]
    assert [waiting.id for waiting in world.person.inbox()] == [card.id]
    assert world.person.unblock(card.id, "do it like this").status == s.READY
    world.verified()


# --- one's own work --------------------------------------------------------------------------------------------
def test_nobody_claims_the_review_of_their_own_work(world: World) -> None:  # P30, P30b, C73
    card = world.in_review("bot", None)
    with world.refuses(card, SelfReview) as refusal:
        world.script("bot").claim(card.id)
    assert refusal.value.exit_code == 6
    with pytest.raises(NothingReady):
        world.script("bot").claim(review=True)
    assert world.script("other").claim(review=True).task.id == card.id


def test_nobody_approves_their_own_work_without_a_claim(world: World) -> None:  # P30, P30b, C73
    card = world.in_review("bot", None)
    with world.refuses(card, SelfReview):
        world.script("bot").complete(card.id, Handoff("fine"))


def test_a_reviewer_is_nobody_else_by_another_claim(world: World) -> None:  # P30b, P12
    card = world.in_review()
    reviewing(world, card)
    with world.refuses(card, ClaimLost, logged=True):
        world.script("bot").complete(card.id, Handoff("fine"))


def test_a_lapsed_review_is_not_taken_over_by_the_implementer(world: World) -> None:  # P30b, P10
    card = world.in_review()
    _, claim = reviewing(world, card)
    world.clock.advance(60)
    with world.refuses(card, SelfReview):
        world.script("bot").claim(card.id)
    with pytest.raises(NothingReady):
        world.script("bot").claim(review=True)
    assert world.script("other").claim(review=True).run.id == claim.run.id + 1
    world.verified()


def test_self_review_can_be_allowed(world: World) -> None:  # P30
    world.set(allow_self_review=True)
    board, claim = world.claimed()
    card = board.request_review(claim.task.id, LOOK, "bot").task
    assert card.reviewer == "bot"
    assert reviewing(world, card, "bot")[0].complete(card.id, Handoff("fine")).task.status == s.DONE


def test_a_person_at_a_terminal_may_always_decide(world: World) -> None:  # P30b
    card = world.in_review("ann", None)
    assert world.person.complete(card.id, Handoff("I looked again")).task.status == s.DONE
    other = world.in_review("ann", None)
    assert world.person.claim(other.id).run.role == s.REVIEWER
    world.verified()


# --- an interrupted review -------------------------------------------------------------------------------------
def _end(world: World, claim: Claim, outcome: str) -> Task:
    with world.store.write() as tx:
        ctx = Context(tx, Actor(s.DISPATCHER, "host"), world.settings)
        return failures.end(ctx, find.task(tx, claim.task.id), failures.End(outcome, "test", "it died"))


def test_a_lapsed_review_goes_back_to_review(world: World) -> None:  # P32, C77
    card = world.in_review()
    _, first = reviewing(world, card)
    world.clock.advance(60)
    board, second = reviewing(world, card, "other")
    assert (second.run.role, second.run.claimed_from) == (s.REVIEWER, s.REVIEW)
    assert world.person.runs(card.id)[1].outcome == s.RECLAIMED
    assert world.task(card).consecutive_failures == 0
    assert board.complete(card.id, Handoff("fine")).task.status == s.DONE
    assert first.task.implementer == "bot"
    world.verified()


def test_a_reclaimed_review_goes_back_to_review(world: World) -> None:  # P32, C77
    card = world.in_review()
    reviewing(world, card)
    back = world.person.reclaim(card.id)
    assert (back.status, back.phase, back.implementer, back.reviewer) == (s.REVIEW, s.REVIEWING, "bot", "rev")
    world.verified()


@pytest.mark.parametrize("outcome", [s.FAILED, s.CRASHED, s.TIMED_OUT, s.SPAWN_FAILED, s.PROTOCOL_VIOLATION])
def test_a_dead_review_goes_back_to_review_and_counts_like_any_run(world: World, outcome: str) -> None:  # P32, P40
    card = world.in_review()
    _, claim = reviewing(world, card)
    back = _end(world, claim, outcome)
    assert (back.status, back.consecutive_failures, back.review_rounds) == (s.REVIEW, 1, 0)
    world.clock.advance(60)
    reviewing(world, back)
    world.verified()


def test_reviews_that_keep_dying_trip_the_breaker(world: World) -> None:  # P32, P40
    card = world.in_review()
    for _ in range(2):
        _end(world, reviewing(world, card)[1], s.CRASHED)
        world.clock.advance(3600)
    assert world.status(card) == s.BLOCKED
    assert world.person.unblock(card.id).status == s.REVIEW
    world.verified()


def test_a_reviewer_may_ask_and_the_card_comes_back_to_review(world: World) -> None:  # P3, P24
    card = world.in_review()
    board, _ = reviewing(world, card)
    board.block(card.id, FULL_REASON, s.NEEDS_INPUT)
    assert world.person.unblock(card.id, "A").status == s.REVIEW
    world.verified()
