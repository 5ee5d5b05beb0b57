"""The breaker over runs under a shim: what trips it, the pauses, the one attempt after (P27, P32, P40 to P44)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hermes_kanban.base.errors import NotClaimable, WrongState
from hermes_kanban.kernel.finish import Handoff
from hermes_kanban.model import status as s
from hermes_kanban.model.task import Task
from hermes_kanban.present import views
from tests.conformance.ends import DAY, LONG, attempt, attempts, counters, ended, now
from tests.world import FULL_REASON, World

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
    assert "tried once more: in 24 h" in views.card(world.person.show(card.id), now(world))  # P3b
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
