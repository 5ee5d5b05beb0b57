"""How the end of a run under a shim is booked, from its durable record alone (P14b, P14c, P25, P45)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hermes_kanban.base.errors import NotClaimable, NothingReady
from hermes_kanban.kernel.finish import Handoff
from hermes_kanban.kernel.supervise import Beat
from hermes_kanban.model import status as s
from hermes_kanban.model.claim import Claim
from hermes_kanban.model.task import Task
from tests.conformance.ends import LONG, TAIL, counters, ended, left, now
from tests.conformance.threads import race
from tests.world import FULL_REASON, PROCESS, World

# --- every outcome (P45) ------------------------------------------------------------------------------------------
# name: the record; outcome, event, the counters failures, violations, lost leases, rate limits
ENDS: dict[str, tuple[dict[str, Any], str, str, tuple[int, int, int, int]]] = {
    "failed": ({"code": 1}, s.FAILED, "failed", (1, 0, 0, 0)),
    "crashed": ({"signal": 11}, s.CRASHED, "crashed", (1, 0, 0, 0)),
    "violated": ({"code": 0}, s.PROTOCOL_VIOLATION, "protocol_violation", (1, 1, 0, 0)),
    "rate limited": ({"code": 75}, s.RATE_LIMITED, "rate_limited", (0, 0, 0, 1)),
    "timed out": ({"signal": 15, "stop": "timed_out"}, s.TIMED_OUT, "timed_out", (1, 0, 0, 0)),
    "stale": ({"signal": 15, "stop": "stale"}, s.RECLAIMED, "stale", (0, 0, 1, 0)),
    "too big": ({"signal": 9, "stop": "memory"}, s.FAILED, "failed", (1, 0, 0, 0)),
    "its shim was ended": ({"signal": 15, "stop": "signal"}, s.CRASHED, "crashed", (1, 0, 0, 0)),
    "the gateway stopped": ({"signal": 15, "stop": "gateway_stop"}, s.RECLAIMED, "reclaimed", (0, 0, 0, 0)),
    "not started": ({"spawn_error": "no such program"}, s.SPAWN_FAILED, "spawn_failed", (1, 0, 0, 0)),
}


@pytest.mark.parametrize("way", ENDS)
def test_every_end_is_booked_from_its_record(world: World, way: str) -> None:  # P45, P40, P41, P42
    facts, outcome, kind, counts = ENDS[way]
    claim = world.alive()
    card = ended(world, claim, **facts)
    assert (card.status, counters(card), card.current_run_id) == (s.READY, counts, None)
    run = world.run(claim)
    assert (run.outcome, run.process_state, run.ended_at) == (outcome, s.ENDED, now(world))
    event = world.person.events(task=card.id)[-1]
    assert (event.kind, event.run_id, event.actor) == (kind, run.id, "dispatcher:host")
    assert run.exit_code == (-facts["signal"] if "signal" in facts else facts.get("code"))
    world.verified()


@pytest.mark.parametrize("way", ENDS)
def test_the_last_words_are_on_the_attempt_and_on_the_card(world: World, way: str) -> None:  # C47, P40
    claim = world.alive()
    card = ended(world, claim, **ENDS[way][0])
    run = world.run(claim)
    assert run.error == card.last_failure_error
    assert "no such program" in (run.error or "") if way == "not started" else TAIL[1] in (run.error or "")


@pytest.mark.parametrize("way", ENDS)
def test_whoever_notices_first_the_verdict_is_the_same(world: World, way: str) -> None:  # P45, C46, C116
    claim, found = world.alive(), ENDS[way][0]
    answers = race(world, lambda board, _: board.settle(claim.run.id, left(claim, **found)))  # type: ignore[attr-defined]
    assert len(set(answers)) == 1
    assert world.run(claim).outcome == ENDS[way][1]
    assert world.kinds(claim.task).count(ENDS[way][2]) == 1
    assert counters(world.task(claim.task)) == ENDS[way][3]
    world.verified()


@pytest.mark.parametrize("way", ENDS)
def test_booking_an_end_again_changes_nothing(world: World, way: str) -> None:  # P14, P14b, P45
    claim = world.alive()
    ended(world, claim, **ENDS[way][0])
    before = world.everything()
    for other in ENDS:
        ended(world, claim, **ENDS[other][0])
    world.board().settle(claim.run.id, None)
    assert world.everything() == before


def test_a_worker_whose_shim_was_killed_crashed(world: World) -> None:  # D13, P45, C10
    claim = world.alive()
    card = world.board().settle(claim.run.id, None)
    run = world.run(claim)
    assert (run.outcome, run.error, run.exit_kind) == (s.CRASHED, "pid 4712 not alive", "vanished")
    assert (card.status, card.consecutive_failures, card.last_failure_error) == (s.READY, 1, "pid 4712 not alive")
    world.verified()


def test_an_exit_counts_from_its_own_attempt(world: World) -> None:  # C7, C56
    first = world.alive()
    ended(world, first, signal=15, stop="timed_out")
    world.clock.advance(LONG)
    second = world.alive(first.task)
    run = world.run(second)
    assert (run.started_at, run.last_heartbeat_at) == (now(world), now(world))
    assert world.task(first.task).started_at == now(world)
    world.verified()


# --- closed already (P14b, P14c) ----------------------------------------------------------------------------------
CLOSINGS: dict[str, Callable[[World, Claim], object]] = {
    "complete": lambda w, c: w.inside(c).complete(c.task.id, Handoff("done")),
    "block": lambda w, c: w.inside(c).block(c.task.id, FULL_REASON),
    "request-review": lambda w, c: w.inside(c).request_review(c.task.id, Handoff("look"), "rev"),
    "override": lambda w, c: w.person.complete(c.task.id, Handoff("mine"), override=True),
    "reclaim": lambda w, c: w.person.reclaim(c.task.id),
    "archive": lambda w, c: w.person.archive(c.task.id, override=True),
}


@pytest.mark.parametrize("found", ["badly", "well", "told to", "no record"])
@pytest.mark.parametrize("closing", CLOSINGS)
def test_how_the_worker_of_a_closed_run_ends_touches_no_card(world: World, closing: str, found: str) -> None:  # P14b
    claim = world.alive()  # C5, C19
    CLOSINGS[closing](world, claim)
    before, closed = world.task(claim.task), world.run(claim)
    assert closed.process_state == s.CLOSING
    facts: dict[str, dict[str, Any]] = {
        "badly": {"signal": 11},
        "well": {"code": 0},
        "told to": {"signal": 15, "stop": "override", "overstayed": True},
    }
    record = left(claim, **facts[found]) if found in facts else None
    card = world.board().settle(claim.run.id, record)
    assert card == before.evolve(eligible_at=None, eligible_reason=None) == world.task(card)
    run = world.run(claim)
    assert run.evolve(process_state=s.CLOSING, exit_code=None, exit_kind=None) == closed
    code = {"badly": -11, "well": 0, "told to": -15, "no record": None}[found]
    kind = {"badly": "signal", "well": "exit", "told to": "stopped", "no record": "vanished"}[found]
    assert (run.process_state, run.exit_code, run.exit_kind) == (s.ENDED, code, kind)
    assert world.kinds(card)[-1] == "reconciled"
    world.verified()


@pytest.mark.parametrize("closing", ["block", "request-review", "reclaim"])
def test_proof_of_the_end_frees_the_card_for_the_next(world: World, closing: str) -> None:  # P14c
    claim = world.alive(ttl=600)
    CLOSINGS[closing](world, claim)
    if closing == "block":
        world.person.unblock(claim.task.id)
    with pytest.raises(NotClaimable):
        world.script("rev").claim(claim.task.id)
    ended(world, claim, code=0)
    assert world.script("rev").claim(claim.task.id).run.id > claim.run.id
    world.verified()


def test_an_old_run_s_end_says_nothing_about_the_next_one_s_card(world: World) -> None:  # P14b, C5
    first = world.alive(ttl=60)
    world.person.reclaim(first.task.id)
    world.clock.advance(60 + 120)
    second = world.alive(first.task)
    before = world.task(first.task), world.run(second)
    ended(world, first, signal=9)
    assert (world.task(first.task), world.run(second)) == before
    world.person.reclaim(first.task.id)
    held = world.task(first.task)
    ended(world, first, code=1)
    assert world.task(first.task) == held
    world.verified()


# --- success policies ---------------------------------------------------------------------------------------------
SAID = ("plan", "step one", "step two", "", "step three", "all 12 tests pass", "bye")


@pytest.mark.parametrize("pull", [False, True])
@pytest.mark.parametrize("policy", ["complete", "request_review", "block_for_review"])
def test_a_lane_s_policy_closes_the_card_of_a_good_end(world: World, policy: str, pull: bool) -> None:
    child = world.card("child", parents=((card := world.card(reviewer="rev")).id,))
    claim = pulled(world, card) if pull else world.alive(card)
    done = ended(world, claim, code=0, policy=policy, tail=SAID)
    outcome, status = {
        "complete": (s.COMPLETED, s.DONE),
        "request_review": (s.REVIEW_REQUESTED, s.REVIEW),
        "block_for_review": (s.OUT_BLOCKED, s.BLOCKED),
    }[policy]
    run = world.run(claim)
    assert (done.status, run.outcome, run.process_state) == (status, outcome, s.ENDED)
    assert (run.exit_code, run.exit_kind, done.consecutive_failures) == (0, "exit", 0)
    assert (done.eligible_at, done.eligible_reason) == (None, None)
    words = run.end_reason if policy == "block_for_review" else run.summary
    assert "all 12 tests pass\nbye" in (words or "")
    assert "plan" not in (words or "")
    assert world.status(child) == (s.READY if status == s.DONE else s.TODO)
    actor = f"{s.BRIDGE if pull else s.WORKER}:bot"
    assert [e.actor for e in world.person.events(task=card.id) if e.run_id == run.id][-1] == actor
    if policy == "block_for_review":
        assert (done.hold_release, done.block_kind) == (s.BY_PERSON, s.NEEDS_INPUT)
        assert [waiting.id for waiting in world.person.inbox()] == [card.id]
    before = world.everything()
    ended(world, claim, code=0, policy=policy)
    assert world.everything() == before
    world.verified()


@pytest.mark.parametrize("policy", ["complete", "request_review"])
def test_a_reviewer_s_good_end_approves(world: World, policy: str) -> None:  # P30
    claim = world.alive(world.in_review("bot", "rev"), "rev")
    assert ended(world, claim, code=0, policy=policy).status == s.DONE
    assert world.run(claim).outcome == s.COMPLETED
    world.verified()


def test_a_silent_program_s_good_end_says_so(world: World) -> None:  # P22
    claim = world.alive()
    ended(world, claim, code=0, policy="complete", tail=())
    assert "said nothing" in (world.run(claim).summary or "")


def test_the_board_s_rules_stand_above_a_policy(world: World) -> None:  # P30b, P41
    world.set(allow_self_review=True)
    card = world.in_review("bot", "bot")
    claim = world.alive(card, "bot")
    world.set(allow_self_review=False)
    after = ended(world, claim, code=0, policy="complete")
    run = world.run(claim)
    assert (after.status, run.outcome, run.process_state) == (s.REVIEW, s.PROTOCOL_VIOLATION, s.ENDED)
    assert "complete was refused" in (run.error or "")
    world.verified()


def test_a_policy_closes_no_card_that_its_worker_closed(world: World) -> None:  # P14
    claim = world.alive()
    world.inside(claim).block(claim.task.id, FULL_REASON)
    assert ended(world, claim, code=0, policy="complete").status == s.BLOCKED
    assert world.run(claim).outcome == s.OUT_BLOCKED


# --- a bridge's run: nobody else looks at what its program did (P25, P42) ----------------------------------------
def pulled(world: World, card: Task | None = None) -> Claim:
    """Return a bridge's claim whose shim came alive."""
    claim = world.claimed(card)[1]
    world.board().started(claim.run.id, claim.fence.lock, PROCESS)
    return claim


@pytest.mark.parametrize("way", ["failed", "crashed", "violated", "timed out", "too big", "not started"])
def test_a_bridge_s_bad_end_blocks_its_card_with_all_that_is_known(world: World, way: str) -> None:  # P25
    claim = pulled(world)
    card = ended(world, claim, **ENDS[way][0])
    assert (card.status, card.hold_release, card.consecutive_failures, card.eligible_at) == (
        s.BLOCKED,
        s.BY_PERSON,
        0,
        None,
    )
    fields = card.block_fields or {}
    assert all(fields.get(name) for name in ("cause", "what", "options", "recommendation", "next_action"))
    assert f"run {claim.run.id} of bot" in fields["what"]
    assert ("no such program" if way == "not started" else TAIL[1]) in fields["what"]
    assert f"hermes kanban unblock {card.id}" in fields["next_action"]
    run = world.run(claim)
    assert (run.outcome, run.process_state) == (s.OUT_BLOCKED, s.ENDED)
    assert run.exit_code == (-ENDS[way][0]["signal"] if "signal" in ENDS[way][0] else ENDS[way][0].get("code"))
    assert world.person.unblock(card.id, "A").status == s.READY
    world.verified()


def test_a_bridge_s_last_words_make_no_parts_of_the_reason(world: World) -> None:  # C161, P25
    tail = ("Options:", "A: drop the table", "Recommendation: A", "選択肢：B", "Next action needed: type yes")
    fields = ended(world, pulled(world), code=1, tail=tail).block_fields or {}
    assert "A: drop the table" not in fields["options"]
    assert fields["recommendation"] != "A"
    assert "type yes" not in fields["next_action"]
    assert "drop the table" in fields["what"]


@pytest.mark.parametrize("way", ["rate limited", "stale", "the gateway stopped", "its shim was ended"])
def test_a_bridge_s_run_that_only_says_later_gives_the_card_back(world: World, way: str) -> None:  # P42, D6
    claim = pulled(world)
    card = ended(world, claim, **ENDS[way][0])
    assert card.status == s.READY
    assert (card.eligible_reason == s.COOL_DOWN) == (way == "rate limited")
    assert (world.run(claim).outcome, world.run(claim).process_state) == (ENDS[way][1], s.ENDED)
    world.verified()


# --- the shim hears it --------------------------------------------------------------------------------------------
def test_after_the_end_a_shim_hears_that_its_run_is_closed(world: World) -> None:  # P14b, D13
    claim = world.alive()
    ended(world, claim, code=1)
    assert world.board().renew(claim.run.id, claim.fence.lock, active=True) == Beat("closed")
    with pytest.raises(NothingReady):
        world.script().claim()
    world.verified()
