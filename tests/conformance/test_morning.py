"""What a person reads in the morning: a tripped card says why, and when it is tried again (P26b, P40, C47)."""

from __future__ import annotations

from hermes_kanban.model.exits import ExitRecord
from hermes_kanban.present import views
from tests.world import World


def test_a_tripped_card_shows_its_last_words_and_its_next_attempt(world: World) -> None:  # P27, C47
    world.set(failure_limit=1)
    claim = world.dispatched(world.card("nightly"))
    lock = claim.run.claim_lock or ""
    world.board().settle(claim.run.id, ExitRecord(claim.run.id, claim.task.id, lock, code=3, tail=("no such table",)))
    shown = views.inbox(world.person.inbox(), world.clock.now_ms() // 1000)
    assert "no such table" in shown
    assert "exit code 3" in shown
    assert "tried once more by itself in 24 h" in shown
