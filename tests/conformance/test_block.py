"""Block: a reason in five parts, kinds that lead to different places, and an end of block loops (P24, P25, P26b)."""

from __future__ import annotations

from typing import Any

import pytest

from hermes_kanban.base.errors import BlockTemplate, InvalidValue, NothingReady, WrongState
from hermes_kanban.kernel.board import Board
from hermes_kanban.kernel.finish import Handoff
from hermes_kanban.model import blocks
from hermes_kanban.model import status as s
from hermes_kanban.model.blocks import Reason
from hermes_kanban.model.task import Task
from tests.world import FULL_REASON, World

SHORT = Reason("it does not work")
TWO_PARTS = blocks.from_fields("environment", "the other card is not done", (), None, None)


def blocked_again(world: World, card: Task | str, kind: str | None, times: int = 1) -> Task:
    """Let a script claim and block the card so many times; a person releases it in between."""
    current = world.task(card)
    for _ in range(times):
        if current.status == s.BLOCKED:
            current = world.person.unblock(current.id)
        board, _ = world.claimed(current)
        current = board.block(current.id, FULL_REASON, kind).task
    return current


def waiting_parent(world: World) -> tuple[Board, Task, Task]:
    """Return a running card whose parent was opened again, and the parent."""
    parent = world.card("parent")
    world.person.complete(parent.id, Handoff("done"))
    board, claim = world.claimed(world.card("child", parents=(parent.id,)))
    world.person.reopen(parent.id)
    return board, claim.task, world.task(parent)


# --- holding ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", [s.NEEDS_INPUT, s.CAPABILITY, s.TRANSIENT, None])
def test_a_block_holds_the_card_for_a_person_and_says_why(world: World, kind: str | None) -> None:  # P24, P25, P26b
    board, claim = world.claimed()
    closed = board.block(claim.task.id, FULL_REASON, kind)
    card = closed.task
    assert (card.status, card.block_kind, card.hold_release) == (s.BLOCKED, kind, s.BY_PERSON)
    assert (card.hold_reason, card.block_fields) == (FULL_REASON.text, FULL_REASON.fields())
    assert closed.run is not None
    assert (closed.run.outcome, closed.run.end_reason) == (s.OUT_BLOCKED, FULL_REASON.text)
    event = world.person.events(task=card.id)[-1]
    assert (event.kind, event.run_id) == ("blocked", claim.run.id)
    assert event.payload["cause"] == "spec undecided"
    assert [waiting.id for waiting in world.person.inbox()] == [card.id]
    world.verified()


def test_a_block_is_lifted_by_nothing_but_its_release(world: World) -> None:  # P24, P26b, P27, C64
    board, claim = world.claimed()
    board.block(claim.task.id, FULL_REASON, s.NEEDS_INPUT)
    before = world.facts(claim.task)
    for _ in range(10):
        world.clock.advance(86_400)
        assert world.person.release_due() == ()
        with pytest.raises(NothingReady):
            world.script("other").claim()
    assert world.facts(claim.task) == before


def test_a_blocked_child_does_not_follow_its_parent(world: World) -> None:  # P4, P26b, C64
    parent = world.card("parent")
    child = world.card("child", parents=(parent.id,))
    world.person.block(child.id, FULL_REASON)
    assert world.person.complete(parent.id, Handoff("done")).promoted == ()
    assert world.status(child) == s.BLOCKED
    assert world.person.unblock(child.id).status == s.READY
    world.verified()


def test_creating_a_card_as_blocked_is_the_same_as_blocking_it(world: World) -> None:  # P26b, C65
    made = world.card(status=s.BLOCKED, reason=FULL_REASON.text)
    held = world.person.block(world.card().id, FULL_REASON).task
    for field in ("status", "hold_reason", "hold_release", "block_kind", "block_fields", "phase"):
        assert getattr(made, field) == getattr(held, field), field
    for _ in range(3):
        world.clock.advance(3600)
        assert world.person.release_due() == ()
        with pytest.raises(NothingReady):
            world.script().claim()
    with world.refuses(made, WrongState):
        world.script().claim(made.id)
    assert world.person.unblock(made.id, "B").status == s.READY
    world.verified()


def test_a_blocked_card_says_who_must_act(world: World) -> None:  # P26b, P3b
    card = world.person.block(world.card().id, FULL_REASON).task
    (reason,) = world.person.why(card.id)[1].claimable
    assert (reason.code, reason.actor) == ("held", s.BY_PERSON)
    assert "section 3.2 names two formats" in reason.text


@pytest.mark.parametrize("state", [s.BLOCKED, s.TRIAGE, s.SCHEDULED, s.DONE])
def test_a_card_in_another_state_is_not_blocked(world: World, state: str) -> None:  # P24
    card = world.card(status=state if state in (s.BLOCKED, s.TRIAGE) else None, reason="why")
    if state == s.SCHEDULED:
        world.person.schedule(card.id)
    if state == s.DONE:
        world.person.complete(card.id, Handoff("done"))
    with world.refuses(card, WrongState):
        world.person.block(card.id, FULL_REASON)


# --- dependencies ----------------------------------------------------------------------------------------------
def test_a_dependency_with_an_open_parent_waits_and_resumes_by_itself(world: World) -> None:  # P24
    board, card, parent = waiting_parent(world)
    closed = board.block(card.id, TWO_PARTS, s.DEPENDENCY)
    assert (closed.task.status, closed.task.hold_release) == (s.TODO, None)
    assert world.kinds(card)[-1] == "dependency_wait"
    assert world.person.complete(parent.id, Handoff("done")).promoted == (card.id,)
    assert world.status(card) == s.READY
    world.verified()


def test_a_dependency_without_an_open_parent_waits_for_a_person(world: World) -> None:  # P24, C67
    board, claim = world.claimed()
    card = board.block(claim.task.id, TWO_PARTS, s.DEPENDENCY).task
    assert (card.status, card.block_kind, card.hold_release) == (s.BLOCKED, s.NEEDS_INPUT, s.BY_PERSON)
    assert "no open parent" in board.warnings[0]
    for _ in range(50):
        with pytest.raises(NothingReady):
            world.script().claim()
    assert len(world.person.runs(card.id)) == 1
    world.verified()


def test_a_dependency_whose_parents_are_all_done_waits_for_a_person(world: World) -> None:  # P24, C67
    parent = world.card("parent")
    world.person.complete(parent.id, Handoff("done"))
    board, claim = world.claimed(world.card("child", parents=(parent.id,)))
    assert board.block(claim.task.id, TWO_PARTS, s.DEPENDENCY).task.status == s.BLOCKED
    world.verified()


# --- loops -----------------------------------------------------------------------------------------------------
def test_the_same_block_again_and_again_goes_to_triage(world: World) -> None:  # P24, C68
    card = blocked_again(world, world.card(), s.NEEDS_INPUT)
    assert card.block_recurrences == 0
    card = blocked_again(world, card, s.NEEDS_INPUT)
    assert (card.status, card.block_recurrences) == (s.BLOCKED, 1)
    card = blocked_again(world, card, s.NEEDS_INPUT)
    assert (card.status, card.block_recurrences, card.escalated) == (s.TRIAGE, 2, True)
    assert (card.hold_reason, card.hold_release) == (FULL_REASON.text, s.BY_PERSON)
    assert world.kinds(card)[-1] == "block_loop_detected"
    with world.refuses(card, WrongState):
        world.script().claim(card.id)
    world.verified()


def test_the_loops_limit_is_a_setting(world: World) -> None:  # P24
    world.set(block_recurrence_limit=1)
    assert blocked_again(world, world.card(), s.TRANSIENT, times=2).status == s.TRIAGE


def test_downgraded_dependencies_count_as_what_they_became(world: World) -> None:  # P24, C67
    card = blocked_again(world, world.card(), s.DEPENDENCY, times=3)
    assert (card.status, card.block_recurrences) == (s.TRIAGE, 2)


def test_different_kinds_are_no_loop(world: World) -> None:  # P24
    card = world.card()
    for kind in (s.NEEDS_INPUT, s.CAPABILITY, s.NEEDS_INPUT, s.TRANSIENT):
        card = blocked_again(world, card, kind)
    assert (card.status, card.block_recurrences) == (s.BLOCKED, 0)


def test_a_block_without_a_kind_is_no_loop(world: World) -> None:  # P24
    assert blocked_again(world, world.card(), None, times=4).block_recurrences == 0


def test_a_persons_block_is_no_loop(world: World) -> None:  # P24
    card = world.card()
    for _ in range(4):
        assert world.person.block(card.id, FULL_REASON, s.NEEDS_INPUT).task.status == s.BLOCKED
        world.person.unblock(card.id)
    assert world.task(card).block_recurrences == 0


def test_only_complete_resets_the_recurrences(world: World) -> None:  # P24, P26
    card = blocked_again(world, world.card(), s.NEEDS_INPUT, times=2)
    assert world.person.unblock(card.id).block_recurrences == 1
    board, _ = world.claimed(world.task(card))
    assert board.request_review(card.id, Handoff("look"), "rev").task.block_recurrences == 1
    assert world.person.request_changes(card.id, "no").task.block_recurrences == 1
    board, _ = world.claimed(world.task(card))
    assert board.complete(card.id, Handoff("done")).task.block_recurrences == 0
    assert world.person.reopen(card.id).task.block_recurrences == 0
    assert blocked_again(world, card, s.NEEDS_INPUT).block_recurrences == 0
    world.verified()


# --- the template ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("agent", ["bridge", "worker"])
@pytest.mark.parametrize("part", ["cause", "what", "options", "recommendation", "next_action"])
def test_an_agents_reason_needs_all_five_parts(world: World, agent: str, part: str) -> None:  # P25
    board, claim = world.claimed()
    board = board if agent == "bridge" else world.worker(claim)
    reason = FULL_REASON.evolve(**{part: () if part == "options" else None})
    with world.refuses(claim.task, BlockTemplate) as refusal:
        board.block(claim.task.id, reason, s.NEEDS_INPUT)
    assert len(refusal.value.fields["missing"]) == 1
    assert blocks.TEMPLATE in refusal.value.hint
    assert (refusal.value.exit_code, world.status(claim.task)) == (7, s.RUNNING)


def test_a_cause_that_is_none_of_the_five_is_refused_from_an_agent(world: World) -> None:  # P25
    board, claim = world.claimed()
    with world.refuses(claim.task, BlockTemplate) as refusal:
        board.block(claim.task.id, FULL_REASON.evolve(cause="bad luck"), s.NEEDS_INPUT)
    assert "auth missing" in refusal.value.message


def test_an_agents_template_text_is_read(world: World) -> None:  # P25
    board, claim = world.claimed()
    text = (
        "cause: test failure\nwhat happened: 3 tests fail\noptions: A / B\nrecommendation: A\nnext action needed: say"
    )
    card = board.block(claim.task.id, blocks.from_text(text), s.NEEDS_INPUT).task
    assert card.hold_reason == text
    assert card.block_fields == {
        "cause": "test failure",
        "what": "3 tests fail",
        "options": ["A", "B"],
        "recommendation": "A",
        "next_action": "say",
    }


def test_a_dependency_needs_the_first_two_parts_only(world: World) -> None:  # P25
    board, card, _ = waiting_parent(world)
    with world.refuses(card, BlockTemplate) as refusal:
        board.block(card.id, SHORT, s.DEPENDENCY)
    assert refusal.value.fields["missing"] == ["cause", "what happened"]
    assert board.block(card.id, TWO_PARTS, s.DEPENDENCY).task.status == s.TODO


def test_a_person_may_leave_parts_out(world: World) -> None:  # P25
    card = world.person.block(world.card().id, SHORT, s.NEEDS_INPUT).task
    assert (card.status, card.hold_reason, card.block_fields) == (s.BLOCKED, SHORT.text, None)


@pytest.mark.parametrize(("policy", "warnings"), [("warn", 1), ("off", 0)])
def test_the_template_can_be_asked_for_less_sternly(world: World, policy: str, warnings: int) -> None:  # P25
    world.set(block_template=policy)
    board, claim = world.claimed()
    assert board.block(claim.task.id, SHORT, s.NEEDS_INPUT).task.status == s.BLOCKED
    assert len(board.warnings) == warnings
    world.verified()


@pytest.mark.parametrize("who", ["owner", "person"])
@pytest.mark.parametrize("wrong", [{"reason": Reason("  \n")}, {"kind": "bored"}])
def test_a_block_needs_a_reason_and_a_known_kind(world: World, who: str, wrong: dict[str, Any]) -> None:  # P24, P25
    card = world.card()
    board = world.claimed(card)[0] if who == "owner" else world.person
    given = {"reason": FULL_REASON, "kind": s.NEEDS_INPUT} | wrong
    with world.refuses(card, InvalidValue):
        board.block(card.id, given["reason"], given["kind"])


def test_a_card_created_as_blocked_needs_a_reason(world: World) -> None:  # P26b
    last = world.person.last_event_id()
    with pytest.raises(InvalidValue):
        world.card(status=s.BLOCKED)
    assert world.person.last_event_id() == last


def test_who_blocked_and_was_answered_can_go_on_at_once(world: World) -> None:  # P14c, P26
    board, claim = world.claimed()
    board.block(claim.task.id, FULL_REASON, s.NEEDS_INPUT)
    world.person.unblock(claim.task.id, "A")
    assert world.script("other").claim(claim.task.id).run.id == claim.run.id + 1
    world.verified()
