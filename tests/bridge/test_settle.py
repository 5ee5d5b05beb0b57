"""What the end of a bridge's run leads to, whoever books it: a kernel's matter, one transaction (P1, P14b, P45)."""

from __future__ import annotations

from typing import Any

import pytest

from hermes_kanban.base.errors import NotClaimable, WrongState
from hermes_kanban.kernel import block
from hermes_kanban.kernel.finish import Handoff
from hermes_kanban.model import exits
from hermes_kanban.model import status as s
from hermes_kanban.model.claim import Claim
from hermes_kanban.model.exits import ExitRecord
from hermes_kanban.model.task import Task
from tests.world import PROCESS, World


def pulled(world: World, card: Task | None = None, ttl: int = 60, *, alive: bool = True) -> Claim:
    """Claim a card as a bridge does, and let its shim say that the program lives."""
    claim = world.claimed(card, ttl=ttl)[1]
    if alive:
        world.board().started(claim.run.id, claim.fence.lock, PROCESS)
    return claim


def ended(world: World, claim: Claim, **facts: Any) -> Task:
    """Book the end of a run from its exit record, as whoever notices it does."""
    given = {"policy": "complete", "tail": ("last words",)} | facts
    return world.board().settle(claim.run.id, ExitRecord(claim.run.id, claim.task.id, claim.fence.lock, **given))


WAYS: dict[str, dict[str, Any]] = {
    "failed": {"code": 1},
    "crashed": {"signal": 9},
    "terminal": {"code": 78},
    "timed out": {"signal": 15, "stop": "timed_out"},
    "memory": {"signal": 9, "stop": "memory"},
    "spawn failed": {"spawn_error": "the program agent is not there", "hint": "install it"},
    "violation": {"code": 0, "policy": "require_call"},
}


@pytest.mark.parametrize("alive", [True, False])
@pytest.mark.parametrize("way", WAYS)
def test_what_says_nothing_of_later_blocks_the_card(world: World, way: str, alive: bool) -> None:  # P25
    claim = pulled(world, alive=alive)
    facts = WAYS[way]
    card, run = ended(world, claim, **facts), world.run(claim)
    assert (card.status, card.hold_release, card.block_kind, card.sticky) == (s.BLOCKED, s.BY_PERSON, None, False)
    assert (card.eligible_at, card.eligible_reason, card.consecutive_failures) == (None, None, 0)
    assert (run.outcome, run.end_verb, run.process_state) == (s.OUT_BLOCKED, "block", s.ENDED)
    verdict = exits.classify(ExitRecord(1, "t", "l", **({"policy": "complete", "tail": ("last words",)} | facts)))
    assert (run.exit_code, run.exit_kind, run.error) == (verdict.exit_code, verdict.exit_kind, verdict.error)
    fields = card.block_fields or {}
    assert set(fields) == {"cause", "what", "options", "recommendation", "next_action"}
    assert fields["cause"] == ("auth missing" if way == "terminal" else "environment")
    event = world.person.events(task=card.id)[-1]
    assert (event.kind, event.actor, event.run_id) == ("blocked", "bridge:bot", run.id)
    before = world.everything()
    ended(world, claim, **facts)  # harmless to repeat
    world.board().settle(claim.run.id, None)
    assert world.everything() == before
    assert world.person.unblock(card.id, "A").status == s.READY
    world.verified()


def test_a_vanished_shim_blocks_the_card(world: World) -> None:  # D13
    claim = pulled(world)
    card = world.board().settle(claim.run.id, None)
    assert (card.status, world.run(claim).exit_kind) == (s.BLOCKED, "vanished")
    assert "pid 4712 not alive" in (card.hold_reason or "")
    world.verified()


def test_a_start_that_failed_blocks_the_card(world: World) -> None:  # D11
    claim = pulled(world, alive=False)
    card = world.board().spawn_failed(claim.run, "no process could be started", "look at the limits")
    assert card.status == s.BLOCKED
    assert "spawn_failed: no process could be started; look at the limits" in (card.hold_reason or "")
    world.verified()


def test_a_policy_that_the_board_refuses_blocks_the_card(world: World) -> None:  # P30b
    world.set(allow_self_review=True)
    claim = pulled(world, world.in_review("bot", "bot"))
    world.set(allow_self_review=False)
    card = ended(world, claim, code=0)
    assert card.status == s.BLOCKED
    assert "complete was refused" in (card.hold_reason or "")
    assert world.person.unblock(card.id).status == s.REVIEW
    world.verified()


def test_a_block_that_is_refused_leaves_the_card_to_the_ledger(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    claim = pulled(world)

    def refuse(*_values: object, **_named: object) -> None:
        raise WrongState("refused")

    monkeypatch.setattr(block, "block", refuse)
    card = ended(world, claim, code=1)
    assert (card.status, card.consecutive_failures, world.run(claim).outcome) == (s.READY, 1, s.FAILED)
    world.verified()


LATER: dict[str, tuple[dict[str, Any], str, int]] = {
    "rate limited": ({"code": 75, "retry_after": 600}, s.RATE_LIMITED, 0),
    "the bridge was stopped": ({"signal": 15, "stop": "bridge_stop"}, s.RECLAIMED, 0),
    "the system goes down": ({"signal": 15, "stop": "signal"}, s.CRASHED, 1),
    "stale": ({"signal": 15, "stop": "stale"}, s.RECLAIMED, 0),
}


@pytest.mark.parametrize("way", LATER)
def test_what_says_later_returns_the_card(world: World, way: str) -> None:  # P42, D6
    claim = pulled(world)
    facts, outcome, failures = LATER[way]
    card = ended(world, claim, **facts)
    assert (card.status, world.run(claim).outcome, card.consecutive_failures) == (s.READY, outcome, failures)
    assert world.run(claim).process_state == s.ENDED
    if way == "rate limited":
        assert (card.eligible_at or 0) - world.clock.now_ms() // 1000 == 600
        with pytest.raises(NotClaimable):
            world.script("other").claim(card.id)
    world.verified()


@pytest.mark.parametrize("facts", [{"code": 1}, {"code": 0}, {"code": 75}])
def test_a_card_that_its_program_closed_stays_closed(world: World, facts: dict[str, Any]) -> None:  # P14b
    claim = pulled(world)
    world.inside(claim).complete(claim.task.id, Handoff("itself"))
    assert ended(world, claim, **facts).status == s.DONE
    run = world.run(claim)
    assert (run.outcome, run.summary, run.exit_code) == (s.COMPLETED, "itself", facts["code"])
    world.verified()


# --- a lease that ran out -----------------------------------------------------------------------------------------
def test_a_lease_alone_decides_and_the_old_program_is_still_looked_after(world: World) -> None:  # P10, P14c, D14b
    first = pulled(world, ttl=10)
    world.clock.advance(11)
    second = world.script("other").claim(first.task.id, ttl=60)
    old = world.run(first)
    assert (old.outcome, old.end_reason, old.process_state) == (s.RECLAIMED, "lease", s.CLOSING)
    assert [run.id for run in world.board().watched()] == [old.id]  # so that somebody ends what may be left of it
    assert world.board().renew(old.id, first.fence.lock, active=True).by_owner is False
    before = world.task(first.task)
    ended(world, first, code=0)
    assert world.run(first).process_state == s.ENDED
    assert world.task(first.task) == before
    world.script("other", second).complete(first.task.id, Handoff("done"))
    world.verified()


def test_until_somebody_takes_the_card_a_late_beat_renews(world: World) -> None:  # P10
    claim = pulled(world, ttl=10)
    world.clock.advance(30)
    assert world.board().renew(claim.run.id, claim.fence.lock, active=True).state == "open"
    with pytest.raises(NotClaimable):
        world.script("other").claim(claim.task.id)


def test_a_card_that_a_person_takes_waits_for_the_old_program_s_end(world: World) -> None:  # P12c, P14c
    claim = pulled(world)
    world.person.reclaim(claim.task.id)
    with pytest.raises(NotClaimable):
        world.script("other").claim(claim.task.id)
    ended(world, claim, signal=9, stop="override")
    assert world.script("other").claim(claim.task.id).run.id > claim.run.id
    world.verified()


def test_open_pull_claims_can_be_asked_for(world: World) -> None:
    heard, unheard = pulled(world), pulled(world, alive=False)
    world.alive()
    ended(world, pulled(world), code=1)
    assert [run.id for run in world.board().pulled()] == [heard.run.id, unheard.run.id]
    kept = world.board().keep(unheard.run.id, "lane", "/logs/x.log")
    assert (kept.lane, kept.log_path, kept.supervised) == ("lane", "/logs/x.log", False)
