"""What the model found in the kernel, kept as short stories."""

from __future__ import annotations

import pytest

from hermes_kanban.base.errors import ClaimLost, NotClaimable
from hermes_kanban.kernel.finish import Handoff
from hermes_kanban.model import status as s
from hermes_kanban.model.claim import Claim
from tests.world import FULL_REASON, World


def twice_claimed(world: World, name: str = "bot", **facts: bool) -> tuple[Claim, Claim]:
    """Let one caller lose a claim of a card to its own second claim."""
    first = world.script(name, **facts).claim(world.card().id, ttl=60)
    world.clock.advance(61)
    return first, world.script(name, first, **facts).claim(first.task.id, ttl=60)


def test_a_card_in_review_comes_back_from_the_archive_to_review(world: World) -> None:  # P3
    card = world.in_review()
    world.person.archive(card.id)
    assert world.person.unarchive(card.id).status == s.REVIEW
    world.verified()


def test_a_quarantine_outlives_complete_and_reopen(world: World) -> None:  # P14c
    _, claim = world.claimed(ttl=600)
    world.person.reclaim(claim.task.id)
    world.person.complete(claim.task.id, Handoff("done by hand"))
    world.person.reopen(claim.task.id)
    with pytest.raises(NotClaimable):
        world.script("other").claim(claim.task.id)
    world.clock.advance(601)
    assert world.script("other").claim(claim.task.id).run.id > claim.run.id
    world.verified()


def test_who_lost_two_claims_of_a_card_may_claim_it_again(world: World) -> None:  # P10, P12b
    first, second = twice_claimed(world)
    with pytest.raises(ClaimLost):
        world.script("bot", first, second).heartbeat(first.task.id)
    assert world.script("bot", first, second).heartbeat(first.task.id, run=second.run.id)[0].open
    world.clock.advance(61)
    third = world.script("bot", first, second).claim(first.task.id)
    assert third.run.id > second.run.id
    world.verified()


def test_a_person_who_lost_a_claim_may_still_decide_about_the_card(world: World) -> None:  # P12b, P70
    first, second = twice_claimed(world, "ann", interactive=True)
    person = world.script("ann", first, second, interactive=True)
    other = world.card()
    assert person.link(first.task.id, other.id).gated
    assert person.archive(first.task.id, "release").status == s.ARCHIVED
    assert world.status(other) == s.READY
    world.verified()


def test_a_card_whose_time_has_come_may_still_be_in_quarantine(world: World) -> None:  # P3b, P14c
    claim = world.alive(ttl=60)
    world.person.schedule(claim.task.id, world.clock.now_ms() // 1000 + 40, override=True)
    world.clock.advance(50)
    [reason] = world.person.why(claim.task.id)[1].claimable
    assert reason.code == s.QUARANTINE
    with pytest.raises(NotClaimable):
        world.script("other").claim(claim.task.id)
    world.clock.advance(60 + 120)
    assert world.person.why(claim.task.id)[1].claimable == ()
    assert world.script("other").claim(claim.task.id).run.id > claim.run.id
    world.verified()


def test_who_says_that_a_proven_end_lives_on_holds_nothing(world: World) -> None:  # P14b, P14c
    claim = world.alive(ttl=60)
    world.person.reclaim(claim.task.id)
    world.board().settle(claim.run.id, None)
    before = world.task(claim.task)
    world.board().renew(claim.run.id, claim.fence.lock, active=True)
    world.board().defer(claim.run.id, "it survives SIGKILL")
    assert world.task(claim.task) == before
    assert world.script("other").claim(claim.task.id).run.id > claim.run.id
    world.verified()


@pytest.mark.parametrize("inside", [True, False])
def test_an_orchestrator_does_not_release_the_card_that_its_run_closed(world: World, inside: bool) -> None:  # P14, P14b
    claim, other = world.alive(orchestrates=True), world.card()
    chief = world.inside(claim) if inside else world.worker(claim, role=s.ORCHESTRATOR)
    chief.block(claim.task.id, FULL_REASON, s.NEEDS_INPUT)
    with world.refuses(claim.task, ClaimLost, logged=True):
        chief.unblock(claim.task.id)
    with world.refuses(claim.task, ClaimLost, logged=True):
        chief.link(other.id, claim.task.id)
    world.person.unblock(claim.task.id)
    world.verified()
