"""A card whose last worker may still be at work: nobody else gets it until that is over (P14c)."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes_kanban.base.errors import NotClaimable, SelfReview, WorkspaceFailed
from hermes_kanban.kernel.finish import Handoff
from hermes_kanban.kernel.query import Filter
from hermes_kanban.model import status as s
from hermes_kanban.model.claim import Caps
from tests.world import FULL_REASON, World


def test_a_supervised_worker_that_handed_over_is_proven_gone_before_the_review_begins(world: World) -> None:  # P14c
    claim = world.dispatched()
    world.worker(claim).request_review(claim.task.id, Handoff("look"), "rev")
    with pytest.raises(NotClaimable) as refusal:
        world.script("rev").claim(claim.task.id)
    assert refusal.value.fields["reason"] == s.QUARANTINE
    world.board().prove_ended(claim.run.id)
    assert world.script("rev").claim(claim.task.id).run.role == s.REVIEWER
    assert world.kinds(claim.task)[-2:] == ["reconciled", "claimed"]
    world.verified()


def test_where_nobody_can_tell_lease_and_quarantine_decide(world: World) -> None:  # P14c, P15b
    claim = world.dispatched(ttl=60)
    world.worker(claim).block(claim.task.id, FULL_REASON)
    world.person.unblock(claim.task.id)
    [listed] = world.person.list(Filter(statuses=(s.READY,))).cards
    assert listed.task.eligible_at == claim.run.claim_expires + 120
    world.clock.advance(60 + 120 - 1)
    with pytest.raises(NotClaimable):
        world.script("other").claim(claim.task.id)
    world.clock.advance(1)
    assert world.script("other").claim(claim.task.id).run.id > claim.run.id
    world.verified()


def test_proof_about_an_older_run_frees_nothing(world: World) -> None:  # P14b
    claim = world.dispatched()
    world.person.reclaim(claim.task.id)
    world.clock.advance(200)
    second = world.board().claim_for_dispatch(claim.task.id, ttl=60, lane="lane", name="bot", caps=Caps())[1]
    world.person.reclaim(claim.task.id)
    world.board().prove_ended(claim.run.id)
    with pytest.raises(NotClaimable):
        world.script("other").claim(claim.task.id)
    world.board().prove_ended(second.id)
    world.script("other").claim(claim.task.id)
    world.verified()


def test_every_implementer_of_the_round_is_kept_from_its_review(world: World) -> None:  # C73, P30b
    first, claim = world.claimed(name="bot")
    first.block(claim.task.id, FULL_REASON)
    world.person.unblock(claim.task.id)
    second, again = world.claimed(world.task(claim.task), name="other")
    second.request_review(claim.task.id, Handoff("look"), None)
    with pytest.raises(SelfReview):
        world.script("bot").claim(claim.task.id)
    assert world.script("rev").claim(review=True).task.id == again.task.id
    world.verified()


def test_a_new_round_begins_with_requested_changes(world: World) -> None:  # P30b
    first, claim = world.claimed(name="bot")
    first.request_review(claim.task.id, Handoff("look"), "rev")
    world.person.request_changes(claim.task.id, "shorter")
    second, _ = world.claimed(world.task(claim.task), name="other")
    second.request_review(claim.task.id, Handoff("look again"), None)
    assert world.script("bot").claim(claim.task.id).run.role == s.REVIEWER
    world.verified()


def test_a_workspace_that_never_comes_blocks_the_card_in_the_end(world: World, tmp_path: Path) -> None:  # P44, P11
    world.set(starts_per_day=3)
    card = world.card(workspace_kind="dir", workspace_path=str(tmp_path / "missing"))
    for _ in range(3):
        with pytest.raises(WorkspaceFailed):
            world.script("bot").claim(card.id)
        world.clock.advance(31)
    assert world.status(card) == s.BLOCKED
    assert "3 times in a day" in (world.task(card).hold_reason or "")
    world.verified()
