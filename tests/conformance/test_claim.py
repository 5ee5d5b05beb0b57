"""Claims: one winner, a lease, a fence (P10 to P16)."""

from __future__ import annotations

import pytest

from hermes_kanban.base.errors import ClaimLost, NotClaimable
from hermes_kanban.kernel.finish import Handoff
from hermes_kanban.model import status as s
from tests.world import World


def test_a_second_claimer_hears_who_holds_the_card(world: World) -> None:  # P10
    _, claim = world.claimed(ttl=60)
    with pytest.raises(NotClaimable) as refusal:
        world.script("other").claim(claim.task.id)
    assert "bot" in refusal.value.message
    assert refusal.value.fields["until"] == claim.run.claim_expires


def test_a_lapsed_claim_is_taken_over_in_one_step(world: World) -> None:  # P10, C10
    late, first = world.claimed(ttl=60)
    world.clock.advance(61)
    second = world.script("other").claim(first.task.id)
    assert second.run.id > first.run.id
    assert world.kinds(first.task)[-2:] == ["reclaimed", "claimed"]
    with pytest.raises(ClaimLost):
        late.complete(first.task.id, Handoff("too late"))
    assert world.status(first.task) == s.RUNNING
    assert world.kinds(first.task)[-1] == "refused"
    world.verified()
