"""Links: the child waits for the parent, and never for ever unseen (P4, P5, P6)."""

from __future__ import annotations

import pytest

from hermes_kanban.base.errors import ChildRunning, Cycle, Gated, InvalidValue, NotFound, TaskNotFound, WrongState
from hermes_kanban.kernel.finish import Handoff
from hermes_kanban.model import status as s
from hermes_kanban.model.task import Task
from tests.world import FULL_REASON, World


def chain(world: World, length: int) -> list[Task]:
    """Return cards of which each waits for the one before."""
    cards = [world.card("0")]
    for number in range(1, length):
        cards.append(world.card(str(number), parents=(cards[-1].id,)))
    return cards


# --- promotion (P4) ---------------------------------------------------------------------------------------------
def test_the_last_parent_promotes_its_children_in_the_same_step(world: World) -> None:  # P4, P1
    one, two = world.card("one"), world.card("two")
    child, other = world.card("child", parents=(one.id, two.id)), world.card("other", parents=(two.id,))
    assert world.person.complete(one.id, Handoff("ok")).promoted == ()
    assert world.status(child) == s.TODO
    assert world.person.complete(two.id, Handoff("ok")).promoted == (child.id, other.id)
    assert (world.status(child), world.status(other)) == (s.READY, s.READY)
    assert world.kinds(child) == ["created", "promoted"]
    world.verified()


def test_promotion_leaves_held_children_alone(world: World) -> None:  # P4, P26b, C64
    parent = world.card("parent")
    later = world.clock.now_ms() // 1000 + 60
    held = [
        world.card(status=s.TRIAGE, parents=(parent.id,)),
        world.card(status=s.BLOCKED, reason="no", parents=(parent.id,)),
        world.card(scheduled_at=later, parents=(parent.id,)),
    ]
    assert world.person.complete(parent.id, Handoff("ok")).promoted == ()
    assert [world.status(card) for card in held] == [s.TRIAGE, s.BLOCKED, s.SCHEDULED]
    world.verified()


def test_a_parent_archived_after_it_was_done_counts_as_done(world: World) -> None:  # P4
    parent = world.card("parent")
    world.person.complete(parent.id, Handoff("ok"))
    world.person.archive(parent.id)
    assert world.card("child", parents=(parent.id,)).status == s.READY
    child = world.card("child")
    assert world.person.link(parent.id, child.id).gated is False
    world.verified()


# --- new links (P5) ---------------------------------------------------------------------------------------------
def test_a_link_sends_a_ready_card_back_and_says_so(world: World) -> None:  # P5, C88
    parent, child = world.card("parent"), world.card("child")
    linked = world.person.link(parent.id, child.id)
    assert (linked.created, linked.gated, linked.gated_by, linked.task.status) == (True, True, (parent.id,), s.TODO)
    assert world.kinds(child) == ["created", "linked", "regated"]
    world.verified()


def test_a_link_to_a_done_parent_holds_nobody(world: World) -> None:  # P5
    parent, child = world.card("parent"), world.card("child")
    world.person.complete(parent.id, Handoff("ok"))
    assert world.person.link(parent.id, child.id).task.status == s.READY
    assert world.kinds(child) == ["created", "linked"]
    world.verified()


def test_the_same_link_again_changes_nothing(world: World) -> None:  # P5
    parent, child = world.card("parent"), world.card("child")
    world.person.link(parent.id, child.id)
    before = world.everything()
    assert world.person.link(parent.id, child.id).created is False
    assert world.everything() == before


def test_a_running_child_takes_no_link(world: World) -> None:  # P5
    parent = world.card("parent")
    _, claim = world.claimed(world.card("child"))
    with world.unchanged(ChildRunning) as refusal:
        world.person.link(parent.id, claim.task.id)
    assert "child is already running" in refusal.value.message
    world.verified()


def test_a_card_cannot_wait_for_itself(world: World) -> None:  # P5
    card = world.card()
    with world.unchanged(Cycle):
        world.person.link(card.id, card.id)


@pytest.mark.parametrize("length", [2, 3, 30])
def test_a_circle_is_refused_and_printed(world: World, length: int) -> None:  # P5
    cards = chain(world, length)
    with world.unchanged(Cycle) as refusal:
        world.person.link(cards[-1].id, cards[0].id)
    way = [cards[-1].id, *(card.id for card in cards)]
    assert refusal.value.fields["cycle"] == way
    assert " -> ".join(way) in refusal.value.message
    world.verified()


def test_two_ways_to_one_card_are_no_circle(world: World) -> None:  # P5
    top, left, right = world.card("top"), world.card("left"), world.card("right")
    bottom = world.card("bottom", parents=(left.id, right.id))
    assert world.person.link(top.id, left.id).created
    assert world.person.link(top.id, right.id).created
    assert world.person.link(top.id, bottom.id).created
    world.verified()


def test_unknown_cards_cannot_be_linked(world: World) -> None:  # P5
    card = world.card()
    for parent, child in ((card.id, "t_00000000"), ("t_00000000", card.id), (card.id, "elsewhere")):
        with world.unchanged(TaskNotFound):
            world.person.link(parent, child)


def test_closed_cards_wait_for_nothing(world: World) -> None:  # P5, P6
    parent, done, gone = world.card("parent"), world.card("done"), world.card("gone")
    world.person.complete(done.id, Handoff("ok"))
    world.person.archive(gone.id)
    for child in (done, gone):
        with world.unchanged(WrongState):
            world.person.link(parent.id, child.id)
    with world.unchanged(InvalidValue) as refusal:
        world.person.link(gone.id, parent.id)
    assert "for ever" in refusal.value.message
    world.verified()


def test_a_review_with_an_open_parent_cannot_be_claimed(world: World) -> None:  # P10, P3b
    card = world.in_review()
    parent = world.card("parent")
    assert world.person.link(parent.id, card.id).gated
    with world.refuses(card, Gated) as refusal:
        world.script("rev").claim(card.id)
    assert refusal.value.fields["open_parents"] == [parent.id]
    world.person.complete(parent.id, Handoff("ok"))
    world.script("rev").claim(card.id)
    world.verified()


# --- unlink (P5, C82) ---------------------------------------------------------------------------------------------
def test_removing_the_last_open_parent_lets_the_child_go_at_once(world: World) -> None:  # P5, C82
    one, two = world.card("one"), world.card("two")
    child = world.card("child", parents=(one.id, two.id))
    first = world.person.unlink(one.id, child.id)
    assert (first.task.status, first.gated_by) == (s.TODO, (two.id,))
    second = world.person.unlink(two.id, child.id)
    assert (second.task.status, second.gated) == (s.READY, False)
    assert world.kinds(child) == ["created", "unlinked", "unlinked", "promoted"]
    world.verified()


def test_a_link_that_is_not_there_cannot_be_removed(world: World) -> None:  # P5
    one, two = world.card("one"), world.card("two")
    with world.unchanged(NotFound) as refusal:
        world.person.unlink(one.id, two.id)
    assert refusal.value.exit_code == 3


def test_unlinking_a_running_child_leaves_it_running(world: World) -> None:  # P5
    parent = world.card("parent")
    world.person.complete(parent.id, Handoff("ok"))
    _, claim = world.claimed(world.card("child", parents=(parent.id,)))
    assert world.person.unlink(parent.id, claim.task.id).task.status == s.RUNNING
    world.verified()


def test_a_card_waiting_for_its_review_round_returns_to_review(world: World) -> None:  # P3
    card = world.in_review()
    parent = world.card("parent")
    world.person.link(parent.id, card.id)
    world.person.schedule(card.id)
    assert world.person.unblock(card.id).status == s.TODO
    assert world.person.unlink(parent.id, card.id).task.status == s.REVIEW
    world.verified()


# --- by hand (C89) and parents that coordinate (C86) -----------------------------------------------------------------
@pytest.mark.parametrize("state", [s.TRIAGE, s.BLOCKED, s.SCHEDULED])
def test_by_hand_a_card_does_not_pass_an_open_parent(world: World, state: str) -> None:  # P3, C89, C79
    parent = world.card("parent")
    held = {s.SCHEDULED: {"scheduled_at": world.clock.now_ms() // 1000 + 60}, s.BLOCKED: {"reason": "no"}}
    fields = held.get(state, {}) | ({} if state == s.SCHEDULED else {"status": state})
    child = world.card("child", parents=(parent.id,), **fields)
    with world.unchanged(Gated) as refusal:
        world.person.promote(child.id)
    assert parent.id in refusal.value.message
    assert f"unlink {parent.id} {child.id}" in refusal.value.hint
    world.person.complete(parent.id, Handoff("ok"))
    assert world.person.promote(child.id).status == s.READY
    world.verified()


def test_a_dependency_block_frees_the_coordinator_until_its_cards_are_done(world: World) -> None:  # C86, P24
    board, claim = world.claimed(world.card("coordinate"))
    part = world.card("part")
    board.block(claim.task.id, FULL_REASON, s.NEEDS_INPUT)
    world.person.link(part.id, claim.task.id)
    assert world.person.unblock(claim.task.id).status == s.TODO, "it waits for its part, the part waits for nobody"
    with world.unchanged(Cycle):
        world.person.link(claim.task.id, part.id)
    assert world.person.complete(part.id, Handoff("ok")).promoted == (claim.task.id,)
    world.verified()
