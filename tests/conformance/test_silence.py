"""Runs of another host: judged by lease and quarantine alone, and taken over once (D3, P14c, C25)."""

from __future__ import annotations

import pytest

from hermes_kanban.base.errors import NotClaimable, NothingReady
from hermes_kanban.kernel.finish import Handoff
from hermes_kanban.kernel.supervise import Beat
from hermes_kanban.model import status as s
from hermes_kanban.model.claim import Caps, Claim
from tests.conformance.threads import race
from tests.world import FULL_REASON, World


def beat(world: World, claim: Claim) -> Beat:
    return world.board(host="far").renew(claim.run.id, claim.fence.lock, active=True)


def test_another_host_s_run_is_ended_when_lease_and_quarantine_are_over(world: World) -> None:  # P14c, D3
    claim = world.alive(host="far", ttl=60)
    world.clock.advance(60 + 119)
    assert not world.board().fell_silent(claim.run.id)
    with pytest.raises(NotClaimable):
        world.script("other").claim(claim.task.id)
    with pytest.raises(NothingReady):
        world.script("other").claim()
    world.clock.advance(1)
    assert world.board().fell_silent(claim.run.id)
    run, card = world.run(claim), world.task(claim.task)
    assert (run.outcome, run.end_reason, run.process_state) == (s.RECLAIMED, "host_silent", s.ENDED)
    assert (card.status, card.consecutive_failures, card.reclaim_streak) == (s.READY, 0, 1)
    assert not world.board().fell_silent(claim.run.id)
    assert beat(world, claim) == Beat("closed")
    world.verified()


def test_a_host_that_renews_is_left_alone(world: World) -> None:  # D3, C25
    claim = world.alive(host="far", ttl=60)
    for _ in range(10):
        world.clock.advance(50)
        world.board(host="far").renew(claim.run.id, claim.fence.lock, active=False)
        assert not world.board().fell_silent(claim.run.id)
    assert world.run(claim).open


def test_a_run_of_this_host_never_falls_silent(world: World) -> None:  # D13, D15: its lock says whether it lives
    claim = world.alive(ttl=60)
    world.clock.advance(100_000)
    assert not world.board().fell_silent(claim.run.id)
    with pytest.raises(NotClaimable):
        world.script("other").claim(claim.task.id)
    assert world.run(claim).open


@pytest.mark.parametrize("way", ["by its id", "as the next", "by a dispatcher"])
def test_a_claimer_takes_over_what_a_silent_host_left(world: World, way: str) -> None:  # P14c, P10
    claim = world.alive(host="far", ttl=60)
    other = world.card("other", priority=-1)
    world.clock.advance(60 + 120)
    if way == "by a dispatcher":
        taken = world.dispatched(claim.task)
    else:
        taken = world.script("other").claim(claim.task.id if way == "by its id" else None)
    assert (taken.task.id, taken.task.status) == (claim.task.id, s.RUNNING)
    assert world.run(claim).end_reason == "host_silent"
    assert world.kinds(claim.task)[-2:] == ["reclaimed", "claimed"]
    assert world.script("other").claim().task.id == other.id
    world.verified()


def test_a_silent_host_s_review_is_not_offered_to_who_did_the_work(world: World) -> None:  # P30b, P14c
    first, claim = world.claimed(name="bot")
    first.block(claim.task.id, FULL_REASON)
    world.person.unblock(claim.task.id)
    second, _ = world.claimed(claim.task, name="other")
    second.request_review(claim.task.id, Handoff("look"), None)
    world.alive(claim.task, "rev", host="far", ttl=60)
    fine = world.in_review("coder", None, title="fine")
    world.clock.advance(60 + 120)
    assert world.script("bot").claim(review=True).task.id == fine.id
    with pytest.raises(NothingReady):
        world.script("bot").claim(review=True)
    assert world.script("third").claim(review=True).task.id == claim.task.id
    world.verified()


def test_a_closed_run_of_a_silent_host_frees_its_card_when_its_time_is_over(world: World) -> None:  # P14c
    claim = world.alive(host="far", ttl=60)
    world.inside(claim).request_review(claim.task.id, Handoff("look"), "rev")
    assert not world.board().fell_silent(claim.run.id)
    world.clock.advance(60 + 120)
    assert world.board().fell_silent(claim.run.id)
    assert world.run(claim).process_state == s.ENDED
    assert world.run(claim).outcome == s.REVIEW_REQUESTED
    assert not world.board().fell_silent(claim.run.id)
    assert world.script("rev").claim(claim.task.id).run.role == s.REVIEWER
    world.verified()


def test_two_hosts_that_notice_at_once_end_it_once(world: World) -> None:  # D3, C116
    claim = world.alive(host="far", ttl=60)
    world.clock.advance(60 + 120)
    answers = race(world, lambda board, _: board.fell_silent(claim.run.id))
    assert sorted(answers) == [False] * (len(answers) - 1) + [True]
    assert world.kinds(claim.task).count("reclaimed") == 1
    world.verified()


def test_caps_hold_for_a_card_that_is_taken_over(world: World) -> None:  # P15, P14c
    claim = world.alive(host="far", ttl=60)
    world.alive()
    world.clock.advance(60 + 120)
    board = world.board()
    task, run = board.claim_for_dispatch(claim.task.id, ttl=60, lane="lane", name="bot", caps=Caps(board=2))
    assert (task.status, run.pull) == (s.RUNNING, False)
