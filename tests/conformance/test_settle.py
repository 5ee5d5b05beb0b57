"""How the end of a run under a shim is booked, from its durable record alone (P14b, P14c, P27, P32, P40 to P45)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hermes_kanban.base.errors import NotClaimable, NothingReady, WrongState
from hermes_kanban.kernel.finish import Handoff
from hermes_kanban.kernel.supervise import Beat
from hermes_kanban.model import status as s
from hermes_kanban.model.claim import Claim
from hermes_kanban.model.exits import ExitRecord
from hermes_kanban.model.task import Task
from hermes_kanban.present import views
from tests.conformance.threads import race
from tests.world import FULL_REASON, PROCESS, World

TAIL = ("reading the card", "unknown skill: sew")
LONG = 2 * 3600  # longer than every pause
DAY = 86_400


def now(world: World) -> int:
    return world.clock.now_ms() // 1000


def left(claim: Claim, **facts: Any) -> ExitRecord:
    """Return what the shim of this run left."""
    return ExitRecord(claim.run.id, claim.task.id, claim.fence.lock, **({"tail": TAIL} | facts))


def ended(world: World, claim: Claim, **facts: Any) -> Task:
    """Book the end of a run, and check that the answer is the card as it is stored."""
    card = world.board().settle(claim.run.id, left(claim, **facts))
    assert card == world.task(card)
    return card


def attempt(world: World, card: Task, **facts: Any) -> Task:
    """Wait until the card may start, start it as the dispatcher does, and let it end."""
    world.clock.advance(LONG)
    known = world.task(card)
    return ended(world, world.alive(known, "rev" if known.phase == s.REVIEWING else "bot"), **facts)


def attempts(world: World, card: Task, ways: list[dict[str, Any]]) -> list[str]:
    """Let attempts end one after the other; return the card's state after each."""
    return [attempt(world, card, **way).status for way in ways]


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


def counters(card: Task) -> tuple[int, int, int, int]:
    return card.consecutive_failures, card.violation_streak, card.reclaim_streak, card.rate_limit_streak


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
    if pull:
        claim = world.claimed(card)[1]
        world.board().started(claim.run.id, claim.fence.lock, PROCESS)
    else:
        claim = world.alive(card)
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


# --- the breaker (P40, P41, P44) ----------------------------------------------------------------------------------
F, C, V = {"code": 1}, {"signal": 9}, {"code": 0}
R, T, S = {"code": 75}, {"signal": 15, "stop": "timed_out"}, {"signal": 9, "stop": "stale"}


@pytest.mark.parametrize("ways", [[F, C], [T, T], [C, {"spawn_error": "x"}], [V, V, V]])
def test_failures_under_a_shim_trip_the_breaker(world: World, ways: list[dict[str, Any]]) -> None:  # P40, P41
    card = world.card()  # C53: nothing hangs on a heartbeat
    assert attempts(world, card, ways) == [s.READY] * (len(ways) - 1) + [s.BLOCKED]
    assert world.person.runs(card.id)[-1].outcome == s.GAVE_UP
    assert world.kinds(card)[-1] == "gave_up"
    world.clock.advance(LONG)
    with pytest.raises(WrongState):
        world.dispatched(card)
    world.verified()


def test_a_quota_wall_costs_no_failure_and_waits_longer_each_time(world: World) -> None:  # P42, C40
    card, pauses = world.card(), []
    for _ in range(6):
        card = attempt(world, card, **R)
        assert (card.status, card.eligible_reason, card.consecutive_failures) == (s.READY, s.COOL_DOWN, 0)
        pauses.append((card.eligible_at or 0) - now(world))
    assert pauses == [300, 600, 1200, 2400, 3600, 3600]
    world.verified()


@pytest.mark.parametrize("seconds", [1, 7200, DAY])
def test_the_provider_s_own_word_decides_how_long(world: World, seconds: int) -> None:  # P42
    card = attempt(world, world.card(), code=75, retry_after=seconds)
    assert card.eligible_at == now(world) + seconds
    with pytest.raises(NotClaimable) as refusal:
        world.dispatched(card)
    assert refusal.value.fields["until"] == card.eligible_at


def test_a_wedged_worker_is_not_restarted_without_end(world: World) -> None:  # P44, C34, D16
    world.set(reclaim_limit=2)
    card = world.card()
    assert attempts(world, card, [S, S]) == [s.READY, s.BLOCKED]
    assert "2 times in a row" in (world.task(card).hold_reason or "")
    world.verified()


def test_ends_that_somebody_decided_spend_nothing(world: World) -> None:  # P44, D6
    world.set(reclaim_limit=2)
    card = world.card()
    for word in ("gateway_stop", "override", "superseded", "gateway_stop", "bridge_stop"):
        card = attempt(world, card, signal=15, stop=word)
        assert (card.status, counters(card), card.eligible_at) == (s.READY, (0, 0, 0, 0), None)
    assert attempts(world, card, [S]) == [s.READY]
    assert attempt(world, card, signal=15, stop="gateway_stop").reclaim_streak == 1
    assert attempts(world, card, [S]) == [s.BLOCKED]
    world.verified()


def test_starts_of_a_day_are_bounded_whatever_the_ends(world: World) -> None:  # P44
    world.set(starts_per_day=4)
    card = world.card()
    assert attempts(world, card, [R, {"signal": 15, "stop": "gateway_stop"}, S, R]) == [s.READY] * 3 + [s.BLOCKED]
    assert "started 4 times in a day" in (world.task(card).hold_reason or "")
    world.verified()


def test_what_fails_together_does_not_come_back_together(world: World) -> None:  # P44, C55
    world.set(retry_backoff_seconds=1000)
    claims = [world.alive() for _ in range(6)]
    again = {ended(world, claim, **T).eligible_at or 0 for claim in claims}
    assert len(again) > 1
    assert all(now(world) + 750 <= at <= now(world) + 1250 for at in again)
    world.verified()


def test_the_pause_grows_with_each_failure(world: World) -> None:  # P44
    world.set(failure_limit=20, retry_backoff_seconds=100)
    card = world.card()
    for nominal in (100, 200, 400, 800):
        card = attempt(world, card, **C)
        assert nominal * 3 // 4 <= (card.eligible_at or 0) - now(world) <= nominal * 5 // 4
    assert card.eligible_reason == s.BACK_OFF


# --- the provider says no (P43) -----------------------------------------------------------------------------------
def test_a_refused_credential_blocks_at_once_and_show_says_how_to_go_on(world: World) -> None:  # P43, P27
    claim = world.alive(world.card(max_retries=9))
    card = ended(world, claim, code=78, tail=("401: invalid x-api-key",))
    assert (card.status, card.sticky, card.hold_release, card.probe_at) == (s.BLOCKED, True, s.BY_PERSON, None)
    assert card.last_failure_error == "401: invalid x-api-key"
    run = world.run(claim)
    assert (run.outcome, run.exit_code, run.exit_kind) == (s.CRASHED, 78, "terminal_provider")
    event = world.person.events(task=card.id)[-1]
    assert (event.kind, event.payload["terminal_provider"]) == ("gave_up", True)
    shown = views.card(world.person.show(card.id), now(world))
    said = "Provider rejected this profile's credential or model — blocked after one attempt"
    assert said in shown
    assert f"hermes kanban unblock {card.id}" in shown.partition(said)[2]
    assert "401: invalid x-api-key" in shown
    world.clock.advance(100 * DAY)
    assert world.board().probe() == ()
    assert world.person.unblock(card.id).status == s.READY
    assert said not in views.card(world.person.show(card.id), now(world))
    assert ended(world, world.alive(world.task(card)), code=1).status == s.READY
    world.verified()


# --- one fresh attempt (P27, C52) -----------------------------------------------------------------------------------
def tripped(world: World, ways: list[dict[str, Any]]) -> Task:
    card = world.card()
    assert attempts(world, card, ways)[-1] == s.BLOCKED
    return world.task(card)


def test_a_tripped_card_gets_exactly_one_fresh_attempt(world: World) -> None:  # P27, C52, C49
    card = tripped(world, [C, C])
    assert card.probe_at == now(world) + DAY
    world.clock.advance(DAY - 1)
    assert world.board().probe() == ()
    world.clock.advance(1)
    assert world.board().probe() == (card.id,)
    assert world.board().probe() == ()
    fresh = world.task(card)
    assert (fresh.status, fresh.consecutive_failures, fresh.probe_at, fresh.hold_reason) == (s.READY, 2, None, None)
    event = world.person.events(task=card.id)[-1]
    assert (event.kind, event.payload["probe"], event.actor) == ("unblocked", True, "dispatcher:host")
    again = ended(world, world.alive(fresh), **C)  # nothing was forgiven: the next failure trips again
    assert (again.status, again.probe_at) == (s.BLOCKED, now(world) + DAY)
    world.clock.advance(DAY)
    assert world.board().probe() == (card.id,)
    claim = world.alive(world.task(card))
    world.inside(claim).complete(card.id, Handoff("done"))
    assert counters(world.task(card)) == (0, 0, 0, 0)
    world.verified()


@pytest.mark.parametrize("ways", [[V, V, V], [{"code": 78}]])
def test_a_sticky_block_is_a_person_s(world: World, ways: list[dict[str, Any]]) -> None:  # P27, P41
    card = tripped(world, ways)
    assert (card.sticky, card.probe_at) == (True, None)
    world.clock.advance(10 * DAY)
    assert world.board().probe() == ()
    assert world.status(card) == s.BLOCKED
    assert world.person.unblock(card.id).sticky is False


def test_a_fresh_attempt_can_be_switched_off(world: World) -> None:  # P27
    world.set(failure_retry_seconds=0)
    card = tripped(world, [C, C])
    world.clock.advance(100 * DAY)
    assert (card.probe_at, world.board().probe()) == (None, ())


@pytest.mark.parametrize("way", ["unblock", "promote", "complete", "archive", "schedule"])
def test_what_a_person_decides_ends_the_wait_for_a_fresh_attempt(world: World, way: str) -> None:  # P27, P26b, C64
    card = tripped(world, [C, C])
    person = world.person
    decisions: dict[str, Callable[[], object]] = {
        "unblock": lambda: person.unblock(card.id),
        "promote": lambda: person.promote(card.id),
        "complete": lambda: (person.complete(card.id, Handoff("by hand")), person.reopen(card.id)),
        "archive": lambda: (person.archive(card.id), person.unarchive(card.id)),
        "schedule": lambda: (person.schedule(card.id), person.unblock(card.id)),
    }
    decisions[way]()
    assert world.task(card).probe_at is None
    person.block(card.id, FULL_REASON, s.NEEDS_INPUT)
    world.clock.advance(2 * DAY)
    assert world.board().probe() == ()
    assert world.status(card) == s.BLOCKED
    world.verified()


def test_a_probe_goes_through_the_gate(world: World) -> None:  # P27, P3
    card = tripped(world, [C, C])
    parent = world.card("parent")
    world.person.link(parent.id, card.id)
    world.clock.advance(DAY)
    assert world.board().probe() == (card.id,)
    assert world.status(card) == s.TODO
    world.verified()


# --- reviews (P32) ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("way", [F, C, V, R, S, T])
def test_a_reviewer_s_run_that_dies_returns_the_card_to_review(world: World, way: dict[str, Any]) -> None:  # P32, C77
    card = world.in_review("bot", "rev")
    claim = world.alive(card, "rev")
    assert claim.run.role == s.REVIEWER
    after = ended(world, claim, **way)
    assert (after.status, after.phase, after.reviewer, after.implementer) == (s.REVIEW, s.REVIEWING, "rev", "bot")
    world.clock.advance(LONG)
    assert world.alive(after, "rev").run.role == s.REVIEWER
    world.verified()


def test_reviewers_that_die_trip_the_breaker_and_the_probe_is_a_review(world: World) -> None:  # P32, P27
    card = world.in_review("bot", "rev")
    assert attempts(world, card, [C, C]) == [s.REVIEW, s.BLOCKED]
    world.clock.advance(DAY)
    assert world.board().probe() == (card.id,)
    assert world.status(card) == s.REVIEW
    world.verified()


# --- the shim hears it --------------------------------------------------------------------------------------------
def test_after_the_end_a_shim_hears_that_its_run_is_closed(world: World) -> None:  # P14b, D13
    claim = world.alive()
    ended(world, claim, code=1)
    assert world.board().renew(claim.run.id, claim.fence.lock, active=True) == Beat("closed")
    with pytest.raises(NothingReady):
        world.script().claim()
    world.verified()
