"""Held cards and what releases them: unblock, promote, schedule, time (P3, P26, P26b)."""

from __future__ import annotations

import pytest

from hermes_kanban.base.errors import ClaimLost, Forbidden, Gated, InvalidValue, NothingReady, WrongState
from hermes_kanban.kernel import failures, find
from hermes_kanban.kernel.context import Context
from hermes_kanban.kernel.finish import Handoff
from hermes_kanban.model import status as s
from hermes_kanban.model.actors import Actor
from hermes_kanban.model.claim import Claim
from hermes_kanban.model.task import Task
from tests.world import FULL_REASON, World


def later(world: World, seconds: int = 60) -> int:
    return world.clock.now_ms() // 1000 + seconds


def asked(world: World) -> Task:
    """Return a card whose worker asked: A is JSON, B is YAML."""
    board, claim = world.claimed()
    return board.block(claim.task.id, FULL_REASON, s.NEEDS_INPUT).task


def crash(world: World, claim: Claim) -> Task:
    with world.store.write() as tx:
        ctx = Context(tx, Actor(s.DISPATCHER, "host"), world.settings)
        return failures.end(ctx, find.task(tx, claim.task.id), failures.End(s.CRASHED, "signal", "it died"))


# --- unblock ---------------------------------------------------------------------------------------------------
def test_an_answer_becomes_a_comment_that_the_next_worker_reads_first(world: World) -> None:  # P26
    card = asked(world)
    released = world.person.unblock(card.id, "B: YAML, because ops asks for it")
    (comment,) = world.person.show(card.id).comments
    assert (comment.author, comment.author_kind, comment.body) == ("ann", s.HUMAN, "B: YAML, because ops asks for it")
    assert (released.status, released.answer_comment_id) == (s.READY, comment.id)
    event = world.person.events(task=card.id)[-1]
    assert (event.kind, event.actor, event.payload["comment"]) == ("unblocked", "human:ann", comment.id)
    text = world.person.context(card.id)
    assert text.index(comment.body) < text.index(FULL_REASON.what or "")
    world.verified()


@pytest.mark.parametrize(
    ("answer", "body"), [("B", "B: YAML"), ("a", "A: JSON"), ("b.", "B: YAML"), ("neither", "neither")]
)
def test_an_options_letter_stands_for_the_option(world: World, answer: str, body: str) -> None:  # P26
    card = asked(world)
    world.person.unblock(card.id, answer)
    assert world.person.show(card.id).comments[0].body == body


def test_unblock_without_an_answer_writes_no_comment(world: World) -> None:  # P26
    card = world.person.unblock(asked(world).id)
    assert (card.status, card.answer_comment_id) == (s.READY, None)
    assert world.person.show(card.id).comments == ()


def test_an_empty_answer_is_refused(world: World) -> None:  # P26
    card = asked(world)
    with world.refuses(card, InvalidValue):
        world.person.unblock(card.id, "  ")


def test_a_released_card_no_longer_says_why_it_was_held(world: World) -> None:  # P26b
    card = world.person.unblock(asked(world).id, "B")
    assert (card.hold_reason, card.hold_release, card.block_kind, card.block_fields) == (None,) * 4
    world.verified()


def test_unblock_goes_through_the_gate(world: World) -> None:  # P26, P3
    parent = world.card("parent")
    child = world.card("child", parents=(parent.id,))
    world.person.block(child.id, FULL_REASON)
    assert world.person.unblock(child.id).status == s.TODO
    world.person.complete(parent.id, Handoff("done"))
    assert world.status(child) == s.READY
    world.verified()


def test_a_card_from_review_returns_to_review(world: World) -> None:  # P3, P26
    card = world.in_review()
    world.person.block(card.id, FULL_REASON)
    assert world.person.unblock(card.id).status == s.REVIEW
    world.verified()


def test_a_persons_unblock_starts_a_fresh_budget(world: World) -> None:  # P26, P40, C50
    card = world.card()
    for _ in range(2):
        crash(world, world.claimed(world.task(card))[1])
        world.clock.advance(3600)
    assert world.task(card).consecutive_failures == 2
    released = world.person.unblock(card.id)
    assert (released.consecutive_failures, released.counted_failures, released.eligible_at) == (0, 0, None)
    assert world.person.events(task=card.id)[-1].actor == "human:ann"
    assert crash(world, world.claimed(released)[1]).status == s.READY
    world.verified()


def test_unblock_keeps_the_recurrences(world: World) -> None:  # P26, P24
    card = world.person.unblock(asked(world).id)
    world.claimed(card)[0].block(card.id, FULL_REASON, s.NEEDS_INPUT)
    assert world.person.unblock(card.id).block_recurrences == 1


@pytest.mark.parametrize("state", [s.READY, s.TRIAGE, s.RUNNING, s.DONE])
def test_only_a_held_card_is_unblocked(world: World, state: str) -> None:  # P26
    card = world.card(status=s.TRIAGE if state == s.TRIAGE else None)
    if state == s.RUNNING:
        world.claimed(card)
    if state == s.DONE:
        world.person.complete(card.id, Handoff("done"))
    with world.refuses(card, WrongState) as refusal:
        world.person.unblock(card.id, "B")
    assert refusal.value.fields["works_from"] == [s.BLOCKED, s.SCHEDULED]


def test_a_worker_does_not_release_cards(world: World) -> None:  # P26b, P70
    card = asked(world)
    _, claim = world.claimed()
    with world.refuses(card, Forbidden):
        world.worker(claim).unblock(card.id, "B")


# --- promote ---------------------------------------------------------------------------------------------------
def test_promote_is_refused_while_a_parent_is_open(world: World) -> None:  # P3, C79
    parent = world.card("parent")
    child = world.card("child", parents=(parent.id,))
    world.person.block(child.id, FULL_REASON)
    with world.refuses(child, Gated) as refusal:
        world.person.promote(child.id)
    assert refusal.value.exit_code == 4
    assert refusal.value.fields["open_parents"] == [parent.id]
    assert f"unlink {parent.id} {child.id}" in refusal.value.hint
    world.person.unlink(parent.id, child.id)
    assert world.person.promote(child.id).status == s.READY
    world.verified()


@pytest.mark.parametrize("state", [s.TRIAGE, s.BLOCKED, s.SCHEDULED])
def test_promote_makes_a_held_card_ready(world: World, state: str) -> None:  # P3, P26b
    card = world.card(status=None if state == s.SCHEDULED else state, reason="why")
    if state == s.SCHEDULED:
        world.person.schedule(card.id, later(world))
    promoted = world.person.promote(card.id)
    assert (promoted.status, promoted.scheduled_at, promoted.hold_reason) == (s.READY, None, None)
    assert world.script().claim().task.id == card.id
    world.verified()


def test_promote_frees_an_escalated_card(world: World) -> None:  # P24, P26b
    world.set(block_recurrence_limit=1)
    card = world.person.unblock(asked(world).id)
    held = world.claimed(card)[0].block(card.id, FULL_REASON, s.NEEDS_INPUT).task
    assert (held.status, held.escalated) == (s.TRIAGE, True)
    freed = world.person.promote(card.id)
    assert (freed.status, freed.escalated, freed.block_recurrences) == (s.READY, False, 1)
    world.verified()


@pytest.mark.parametrize("state", [s.TODO, s.READY, s.RUNNING, s.REVIEW])
def test_a_card_that_is_not_held_is_not_promoted(world: World, state: str) -> None:  # P26b
    parent = world.card("parent")
    card = world.in_review() if state == s.REVIEW else world.card(parents=(parent.id,) if state == s.TODO else ())
    if state == s.RUNNING:
        world.claimed(card)
    with world.refuses(card, WrongState):
        world.person.promote(card.id)


# --- schedule --------------------------------------------------------------------------------------------------
def test_a_scheduled_card_wakes_when_its_time_has_come(world: World) -> None:  # P3, P26b, C70
    card = world.person.schedule(world.card().id, later(world), "after the deploy")
    assert (card.status, card.hold_release, card.hold_reason) == (s.SCHEDULED, s.BY_TIME, "after the deploy")
    world.clock.advance(59)
    assert world.person.release_due() == ()
    world.clock.advance(1)
    assert world.person.release_due() == (card.id,)
    woken = world.task(card)
    assert (woken.status, woken.scheduled_at, woken.hold_reason, woken.hold_release) == (s.READY, None, None, None)
    assert world.kinds(card) == ["created", "scheduled", "due"]
    world.verified()


def test_a_due_card_with_an_open_parent_goes_to_todo(world: World) -> None:  # P3, C70
    parent = world.card("parent")
    card = world.card("child", parents=(parent.id,), scheduled_at=later(world))
    assert card.status == s.SCHEDULED
    world.clock.advance(120)
    assert world.person.release_due() == (card.id,)
    assert world.status(card) == s.TODO
    world.verified()


def test_a_scheduled_card_does_not_follow_its_parent(world: World) -> None:  # P26b
    parent = world.card("parent")
    card = world.card("child", parents=(parent.id,), scheduled_at=later(world))
    assert world.person.complete(parent.id, Handoff("done")).promoted == ()
    assert world.status(card) == s.SCHEDULED


def test_a_due_card_can_be_claimed_without_a_dispatcher(world: World) -> None:  # C70, P3b
    card = world.card(scheduled_at=later(world))
    with world.refuses(card, WrongState):
        world.script().claim(card.id)
    world.clock.advance(60)
    assert world.script().claim(card.id).task.id == card.id
    world.verified()


def test_a_card_parked_without_a_time_says_who_releases_it(world: World) -> None:  # P26b, C70
    card = world.person.schedule(world.card().id)
    assert (card.scheduled_at, card.hold_release, card.hold_reason) == (None, s.BY_PERSON, "parked")
    world.clock.advance(10 * 86_400)
    assert world.person.release_due() == ()
    assert [waiting.id for waiting in world.person.inbox()] == [card.id]
    with pytest.raises(NothingReady):
        world.script().claim()
    assert world.person.unblock(card.id).status == s.READY
    world.verified()


def test_unblock_clears_the_start_time_before_the_gate(world: World) -> None:  # P3, P26
    card = world.card(scheduled_at=later(world))
    released = world.person.unblock(card.id)
    assert (released.status, released.scheduled_at) == (s.READY, None)
    world.clock.advance(120)
    assert world.person.release_due() == ()
    world.verified()


def test_a_card_scheduled_from_review_returns_to_review(world: World) -> None:  # P3
    card = world.in_review()
    world.person.schedule(card.id, later(world))
    world.clock.advance(60)
    world.person.release_due()
    assert world.status(card) == s.REVIEW
    world.verified()


@pytest.mark.parametrize("seconds", [0, -1, -86_400])
def test_a_start_time_lies_in_the_future(world: World, seconds: int) -> None:  # C70, P50
    card = world.card()
    with world.refuses(card, InvalidValue):
        world.person.schedule(card.id, later(world, seconds))


def test_scheduling_a_running_card_ends_its_run_by_override(world: World) -> None:  # P12c
    board, claim = world.claimed()
    with world.refuses(claim.task, ClaimLost, logged=True):
        world.person.schedule(claim.task.id)
    card = world.person.schedule(claim.task.id, override=True)
    assert (card.status, world.person.runs(card.id)[0].outcome) == (s.SCHEDULED, s.RECLAIMED)
    with world.refuses(card, ClaimLost, logged=True):
        board.complete(card.id, Handoff("late"))
    world.verified()


def test_a_worker_schedules_nothing(world: World) -> None:  # P70
    board, claim = world.claimed()
    for caller in (board, world.worker(claim)):
        with world.refuses(claim.task, Forbidden):
            caller.schedule(claim.task.id, later(world))


def test_a_letter_that_no_option_has_is_refused(world: World) -> None:  # P26
    board, claim = world.claimed()
    board.block(claim.task.id, FULL_REASON)
    with pytest.raises(InvalidValue, match="no option 'D'"):
        world.person.unblock(claim.task.id, "D")
    assert world.status(claim.task) == s.BLOCKED
    assert world.person.unblock(claim.task.id, "b").status == s.READY


def test_a_card_whose_time_has_come_may_be_claimed_and_why_says_so(world: World) -> None:  # P3b, C70
    card = world.card(scheduled_at=world.clock.now_ms() // 1000 + 10)
    assert [reason.code for reason in world.person.why(card.id)[1].claimable] == ["held"]
    world.clock.advance(10)
    assert world.person.why(card.id)[1].claimable == ()
    assert world.script().claim(card.id).task.status == s.RUNNING
