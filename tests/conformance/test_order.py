"""Which card is next, and how many attempts may run (P15, P15b, P16)."""

from __future__ import annotations

from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from typing import Any

import pytest

from hermes_kanban.base.errors import (
    AtCapacity,
    NotClaimable,
    NothingReady,
    Refusal,
)
from hermes_kanban.kernel.board import Board
from hermes_kanban.kernel.finish import Handoff
from hermes_kanban.kernel.query import Filter
from hermes_kanban.model import status as s
from hermes_kanban.model.claim import Caps, Claim
from hermes_kanban.model.run import Run
from hermes_kanban.model.task import Task
from tests.conformance.threads import RACERS, race
from tests.world import World


def dispatch(world: World, card: Task, caps: Caps, *, lane: str = "shell", name: str = "coder") -> tuple[Task, Run]:
    """Claim as the dispatcher does."""
    return world.board("host").claim_for_dispatch(card.id, ttl=60, lane=lane, name=name, caps=caps)


# --- caps ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("scope", ["board", "profile", "lane"])
def test_a_full_cap_refuses_the_dispatchers_claim(world: World, scope: str) -> None:  # P15
    dispatch(world, world.card(), Caps(**{scope: 1}))
    second = world.card()
    with world.refuses(second, AtCapacity) as refusal:
        dispatch(world, second, Caps(**{scope: 1}))
    assert (refusal.value.fields["scope"], refusal.value.fields["cap"]) == (scope, 1)
    assert dispatch(world, second, Caps(**{scope: 2}))[0].status == s.RUNNING
    world.verified()


def test_caps_of_profile_and_lane_bind_only_their_own(world: World) -> None:  # P15
    caps = Caps(profile=1, lane=1)
    dispatch(world, world.card(), caps, lane="shell", name="coder")
    task, run = dispatch(world, world.card(), caps, lane="other", name="tester")
    assert (task.status, run.lane, run.profile, run.pull) == (s.RUNNING, "other", "tester", False)


def test_a_cap_frees_as_soon_as_an_attempt_ends(world: World) -> None:  # P15
    card, run = dispatch(world, world.card(), Caps(board=1))
    worker = world.board("coder", task=card.id, run=str(run.id), lock=run.claim_lock, interactive=False)
    worker.complete(card.id, Handoff("done"))
    assert dispatch(world, world.card(), Caps(board=1))[0].status == s.RUNNING


def test_pull_claims_take_no_slot(world: World) -> None:  # P15
    for _ in range(3):
        world.claimed()
    assert dispatch(world, world.card(), Caps(board=1, profile=1))[0].status == s.RUNNING


def test_caps_hold_with_many_dispatchers(world: World) -> None:  # P15
    for number in range(RACERS):
        world.card(f"card {number}")
    cards = [listed.task.id for listed in world.person.list(Filter()).cards]

    def start(board: Board, name: str) -> Any:
        mine = cards[int(name.removeprefix("racer"))]
        return board.claim_for_dispatch(mine, ttl=60, lane="shell", name="coder", caps=Caps(board=2))

    answers = race(world, start)
    assert sum(isinstance(a, AtCapacity) for a in answers) == RACERS - 2
    assert len(world.person.list(Filter(statuses=(s.RUNNING,))).cards) == 2
    world.verified()


def test_a_cooling_card_shows_from_when_it_is_eligible(world: World) -> None:  # P15b, P12c
    _, claim = world.claimed(ttl=60)
    world.person.reclaim(claim.task.id)
    (listed,) = world.person.list(Filter(statuses=(s.READY,))).cards
    assert (listed.task.eligible_at, listed.task.eligible_reason) == (claim.run.claim_expires, s.QUARANTINE)
    with world.refuses(claim.task, NotClaimable) as refusal:
        world.script("other").claim(claim.task.id)
    assert (refusal.value.fields["reason"], refusal.value.fields["until"]) == (s.QUARANTINE, claim.run.claim_expires)
    world.clock.advance(60)
    assert world.script("other").claim(claim.task.id).task.eligible_at is None
    world.verified()


# --- order ---------------------------------------------------------------------------------------------------
def _taken(world: World, count: int, **how: Any) -> list[str]:
    return [world.script(f"other{n}").claim(**how).task.title for n in range(count)]


def test_next_goes_by_priority_then_by_age(world: World) -> None:  # P16, C137
    for title, priority in (("a", 0), ("b", 5), ("c", -1), ("d", 5), ("e", 0)):
        world.card(title, priority=priority)
    assert _taken(world, 5) == ["b", "d", "a", "e", "c"]
    with pytest.raises(NothingReady):
        world.script().claim()


def test_order_is_by_seq_and_not_by_the_clock(world: World) -> None:  # P16
    world.card("first")
    world.clock.advance(-3600)
    world.card("second")
    assert _taken(world, 2) == ["first", "second"]


def test_a_lapsed_card_takes_its_place_in_the_order(world: World) -> None:  # P10, P16
    for title, priority in (("low", 0), ("lapsed", 1), ("high", 5)):
        world.card(title, priority=priority)
    world.claimed(world.person.list(Filter()).cards[1].task, ttl=60)
    world.clock.advance(60)
    assert _taken(world, 3) == ["high", "lapsed", "low"]
    world.verified()


def test_next_can_be_narrowed_to_an_assignee(world: World) -> None:  # P16
    world.card("of nobody")
    world.card("of other", assignee="other", priority=9)
    world.card("of bot", assignee="bot")
    assert world.script().claim(assignee="bot").task.title == "of bot"
    assert world.script().claim(assignee="none").task.title == "of nobody"
    with pytest.raises(NothingReady, match="for bot"):
        world.script().claim(assignee="bot")
    assert world.script().claim().task.title == "of other"


def test_next_review_takes_reviews_alone(world: World) -> None:  # P16, P30
    world.card("work", priority=9)
    card = world.in_review(title="judge me")
    claim = world.script("rev").claim(review=True)
    assert (claim.task.id, claim.run.role) == (card.id, s.REVIEWER)
    with pytest.raises(NothingReady):
        world.script("rev").claim(review=True)


def test_nothing_ready_is_exit_4_and_writes_nothing(world: World) -> None:  # P16
    held = world.card(status=s.TRIAGE)
    with world.refuses(held, NothingReady) as refusal:
        world.script().claim()
    assert (refusal.value.code, refusal.value.exit_code) == ("nothing_ready", 4)


def test_a_due_card_is_taken_by_next(world: World) -> None:  # P16, C70
    card = world.card(scheduled_at=world.clock.now_ms() // 1000 + 60)
    with pytest.raises(NothingReady):
        world.script().claim()
    world.clock.advance(60)
    assert world.script().claim().task.id == card.id
    assert world.kinds(card) == ["created", "due", "claimed"]
    world.verified()


def _claim_and_wait(world: World, seconds: float) -> Claim | Refusal:
    own = world.beside()
    try:
        return own.script().claim(wait=seconds)
    except Refusal as refusal:
        return refusal
    finally:
        own.close()


def test_a_waiting_claimer_gets_the_card_that_comes(world: World) -> None:  # P16
    with ThreadPoolExecutor(1) as pool:
        waiter = pool.submit(_claim_and_wait, world, 1000)
        card = world.card()
        answer = waiter.result()
    assert isinstance(answer, Claim)
    assert answer.task.id == card.id
    world.verified()


def test_a_waiting_claimer_gives_up_when_its_time_is_over(world: World) -> None:  # P16
    with ThreadPoolExecutor(1) as pool:
        waiter = pool.submit(_claim_and_wait, world, 5)
        while not wait([waiter], 0.02, FIRST_COMPLETED).done:
            world.clock.advance(1)
        assert isinstance(waiter.result(), NothingReady)
    assert world.kinds() == []
