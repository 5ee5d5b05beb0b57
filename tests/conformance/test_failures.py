"""The breaker's ledger: what counts, what is neutral, when a card is blocked for a person (P40 to P44)."""

from __future__ import annotations

from typing import Any

import pytest

from hermes_kanban.base.errors import NotClaimable, NothingReady
from hermes_kanban.kernel import failures, find
from hermes_kanban.kernel.context import Context
from hermes_kanban.kernel.finish import Handoff
from hermes_kanban.kernel.query import Filter
from hermes_kanban.model import status as s
from hermes_kanban.model.actors import Actor
from hermes_kanban.model.claim import Claim
from hermes_kanban.model.task import Task
from tests.world import FULL_REASON, World

# One letter per end of an attempt, as the specification writes its sequences.
LETTERS = {
    "c": s.CRASHED,
    "f": s.FAILED,
    "t": s.TIMED_OUT,
    "p": s.SPAWN_FAILED,
    "v": s.PROTOCOL_VIOLATION,
    "r": s.RATE_LIMITED,
    "l": s.RECLAIMED,
}
LONG = 2 * 3600  # longer than every pause


def ended(world: World, claim: Claim, outcome: str, **facts: Any) -> Task:
    """End the open run as the dispatcher does, in one write transaction."""
    found = failures.End(outcome, **({"reason": "test", "error": f"it ended as {outcome}"} | facts))
    with world.store.write() as tx:
        ctx = Context(tx, Actor(s.DISPATCHER, "host"), world.settings)
        return failures.end(ctx, find.task(tx, claim.task.id), found)


def attempt(world: World, card: Task, outcome: str, **facts: Any) -> Task:
    """Wait until the card may be claimed, claim it and let the attempt end."""
    world.clock.advance(LONG)
    return ended(world, world.claimed(world.task(card))[1], outcome, **facts)


def attempts(world: World, card: Task, letters: str) -> list[str]:
    """Let attempts end one after the other; return the card's state after each, until it is blocked."""
    states = []
    for letter in letters:
        states.append(attempt(world, card, LETTERS[letter]).status)
        if states[-1] == s.BLOCKED:
            break
    return states


def trips_at(world: World, letters: str, **fields: Any) -> int | None:
    """Return at which attempt (from 1) the breaker trips, or None."""
    states = attempts(world, world.card(**fields), letters)
    world.verified()
    return len(states) if states[-1] == s.BLOCKED else None


# --- the ledger ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("outcome", [s.SPAWN_FAILED, s.FAILED, s.CRASHED, s.TIMED_OUT, s.PROTOCOL_VIOLATION])
def test_every_kind_of_failed_run_counts_and_returns_the_card(world: World, outcome: str) -> None:  # P40
    card = attempt(world, world.card(), outcome, exit_code=3)
    assert (card.status, card.consecutive_failures) == (s.READY, 1)
    assert card.last_failure_error == f"it ended as {outcome}"
    (run,) = world.person.runs(card.id)
    assert (run.outcome, run.exit_code, run.error) == (outcome, 3, f"it ended as {outcome}")
    event = world.person.events(task=card.id)[-1]
    assert (event.kind, event.run_id, event.actor) == (outcome, run.id, "dispatcher:host")
    world.verified()


@pytest.mark.parametrize("outcome", [s.RATE_LIMITED, s.RECLAIMED])
def test_rate_limits_and_lost_leases_are_no_failures(world: World, outcome: str) -> None:  # P40, P42, C40
    card = world.card(max_retries=1)
    for _ in range(4):
        card = attempt(world, card, outcome)
    assert (card.status, card.consecutive_failures, card.counted_failures) == (s.READY, 0, 0)
    world.verified()


@pytest.mark.parametrize("letters", ["cc", "ft", "pc", "tf"])
def test_two_failures_trip_the_breaker(world: World, letters: str) -> None:  # P40, C53
    card = world.card()
    assert attempts(world, card, letters) == [s.READY, s.BLOCKED]
    held, last = world.task(card), world.person.runs(card.id)[-1]
    assert (last.outcome, held.hold_release, held.sticky) == (s.GAVE_UP, s.BY_PERSON, False)
    assert held.last_failure_error == f"it ended as {LETTERS[letters[1]]}"
    assert "failed 2 times" in (held.hold_reason or "")
    event = world.person.events(task=card.id)[-1]
    assert (event.kind, event.run_id, event.payload["why"]) == ("gave_up", last.id, held.hold_reason)
    assert [waiting.id for waiting in world.person.inbox()] == [card.id]
    world.clock.advance(LONG)
    with pytest.raises(NothingReady):
        world.script().claim()
    world.verified()


def test_the_failure_limit_is_a_setting(world: World) -> None:  # P40
    world.set(failure_limit=4)
    assert trips_at(world, "cccccc") == 4


@pytest.mark.parametrize("letters", ["ccccc", "vvvvv", "vcvcv", "cvvcv", "crvlctc"])
def test_max_retries_counts_any_mix_of_failures(world: World, letters: str) -> None:  # P40, P41
    nth = [i for i, letter in enumerate(letters, 1) if letter not in "rl"]
    assert trips_at(world, letters, max_retries=4) == nth[3]


def test_max_retries_of_one_trips_at_once(world: World) -> None:  # P40
    assert trips_at(world, "c", max_retries=1) == 1


@pytest.mark.parametrize(
    ("letters", "at"),
    [
        ("vvcvvc", 6),  # the example of the specification
        ("vvcvvvv", 6),
        ("vcvc", 4),
        ("cvc", 3),
        ("cvvv", 4),
        ("vvv", 3),
        ("vrvrv", 5),
        ("vlvlv", 5),
        ("crrrc", 5),
        ("clllc", 5),
    ],
)
def test_every_mix_ends(world: World, letters: str, at: int) -> None:  # P40, P41
    assert trips_at(world, letters) == at


def test_returning_by_itself_resets_nothing(world: World) -> None:  # P40, C49
    world.set(failure_limit=3)
    card = attempt(world, world.card(), s.CRASHED)
    assert attempt(world, card, s.RECLAIMED).consecutive_failures == 1
    assert attempt(world, card, s.RATE_LIMITED).consecutive_failures == 1
    world.clock.advance(LONG)
    world.claimed(world.task(card))
    assert world.person.reclaim(card.id).consecutive_failures == 1
    assert attempts(world, card, "cc") == [s.READY, s.BLOCKED]
    world.verified()


@pytest.mark.parametrize("reset", ["success", "hand-over", "unblock"])
def test_success_hand_over_and_unblock_reset_the_ledger(world: World, reset: str) -> None:  # P40, P26, C50
    card = attempt(world, attempt(world, world.card(), s.PROTOCOL_VIOLATION), s.CRASHED)
    world.clock.advance(LONG)
    board, _ = world.claimed(world.task(card))
    if reset == "success":
        board.complete(card.id, Handoff("done"))
        card = world.person.reopen(card.id).task
    elif reset == "hand-over":
        card = board.request_review(card.id, Handoff("look"), "rev").task
    else:
        board.block(card.id, FULL_REASON, s.NEEDS_INPUT)
        assert world.task(card).consecutive_failures == 2
        card = world.person.unblock(card.id)
    assert (card.consecutive_failures, card.counted_failures, card.violation_streak) == (0, 0, 0)
    world.verified()


def test_a_request_for_changes_resets_nothing_and_counts_nothing(world: World) -> None:  # P31, P40
    card = world.in_review()
    claim = world.script("rev").claim(card.id)
    ended(world, claim, s.CRASHED)
    assert world.person.request_changes(card.id, "again").task.consecutive_failures == 1


# --- violations ------------------------------------------------------------------------------------------------
def test_a_violation_within_the_budget_returns_the_card(world: World) -> None:  # P41, C44
    card = attempt(world, world.card(), s.PROTOCOL_VIOLATION)
    assert (card.status, card.violation_streak, card.counted_failures) == (s.READY, 1, 0)
    review = attempt(world, world.in_review("other"), s.PROTOCOL_VIOLATION)
    assert (review.status, review.violation_streak) == (s.REVIEW, 1)
    world.verified()


def test_violations_at_their_limit_block_for_good(world: World) -> None:  # P41, P27
    card = world.card()
    assert attempts(world, card, "vvv") == [s.READY, s.READY, s.BLOCKED]
    held = world.task(card)
    assert (held.sticky, world.person.runs(card.id)[-1].outcome) == (True, s.GAVE_UP)
    assert world.kinds(card)[-1] == "gave_up"
    assert world.person.unblock(card.id).sticky is False
    world.verified()


def test_the_violation_limit_is_a_setting(world: World) -> None:  # P41
    world.set(protocol_violation_limit=1)
    assert trips_at(world, "v") == 1


# --- rate limits -----------------------------------------------------------------------------------------------
def test_rate_limits_wait_longer_each_time(world: World) -> None:  # P42, C40
    card, pauses = world.card(), []
    for _ in range(6):
        card = attempt(world, card, s.RATE_LIMITED)
        pauses.append((card.eligible_at or 0) - world.clock.now_ms() // 1000)
    assert pauses == [300, 600, 1200, 2400, 3600, 3600]
    assert (card.status, card.eligible_reason, card.consecutive_failures) == (s.READY, s.COOL_DOWN, 0)
    world.verified()


def test_a_cooling_card_is_not_claimed_and_says_until_when(world: World) -> None:  # P42, P15b, P3b
    card = attempt(world, world.card(), s.RATE_LIMITED)
    with world.refuses(card, NotClaimable) as refusal:
        world.script().claim(card.id)
    assert (refusal.value.fields["reason"], refusal.value.fields["until"]) == (s.COOL_DOWN, card.eligible_at)
    with pytest.raises(NothingReady):
        world.script().claim()
    (listed,) = world.person.list(Filter(statuses=(s.READY,))).cards
    assert listed.task.eligible_at == card.eligible_at
    world.clock.advance(300)
    assert world.script().claim().task.eligible_at is None
    world.verified()


def test_the_providers_own_word_decides_how_long(world: World) -> None:  # P42
    when = world.clock.now_ms() // 1000 + LONG + 42
    card = attempt(world, world.card(), s.RATE_LIMITED, retry_at=when)
    assert card.eligible_at == when


def test_a_success_starts_the_pauses_anew(world: World) -> None:  # P42
    card = attempt(world, attempt(world, world.card(), s.RATE_LIMITED), s.RATE_LIMITED)
    world.clock.advance(LONG)
    world.claimed(world.task(card))[0].complete(card.id, Handoff("done"))
    card = attempt(world, world.person.reopen(card.id).task, s.RATE_LIMITED)
    assert card.eligible_at == world.clock.now_ms() // 1000 + 300


# --- the provider says no --------------------------------------------------------------------------------------
def test_a_refused_credential_blocks_at_once(world: World) -> None:  # P43, P27
    facts = {"terminal": True, "exit_code": 78, "exit_kind": "terminal_provider", "error": "401: no such model"}
    card = attempt(world, world.card(), s.CRASHED, **facts)
    assert (card.status, card.sticky, card.hold_release) == (s.BLOCKED, True, s.BY_PERSON)
    assert card.last_failure_error == "401: no such model"
    (run,) = world.person.runs(card.id)
    assert (run.outcome, run.exit_code, run.exit_kind) == (s.CRASHED, 78, "terminal_provider")
    event = world.person.events(task=card.id)[-1]
    assert (event.kind, event.payload["terminal_provider"]) == ("gave_up", True)
    released = world.person.unblock(card.id)
    assert (released.status, released.sticky, released.consecutive_failures) == (s.READY, False, 0)
    world.verified()


# --- free returns ----------------------------------------------------------------------------------------------
def test_lost_leases_without_progress_are_bounded(world: World) -> None:  # P44, C14
    card = world.card()
    for number in range(5):
        claim = world.script(f"puller{number}").claim(card.id, ttl=60)
        world.clock.advance(60)
    with pytest.raises(NotClaimable, match="lost its lease"):
        world.script("other").claim(card.id)
    held = world.task(card)
    assert (held.status, held.reclaim_streak, held.consecutive_failures) == (s.BLOCKED, 5, 0)
    assert world.kinds(card)[-1] == "gave_up"
    assert world.person.runs(card.id)[-1].outcome == s.GAVE_UP
    assert claim.run.id == 5
    assert world.person.unblock(card.id).reclaim_streak == 0
    world.verified()


def test_the_reclaim_limit_is_a_setting(world: World) -> None:  # P44, C14
    world.set(reclaim_limit=2)
    assert trips_at(world, "lll") == 2


def test_next_goes_on_after_a_card_that_tripped(world: World) -> None:  # P44, P10
    world.set(reclaim_limit=1)
    lost, fine = world.card("lost", priority=5), world.card("fine")
    world.claimed(lost, ttl=60)
    world.clock.advance(60)
    assert world.script("other").claim().task.id == fine.id
    assert world.status(lost) == s.BLOCKED
    world.verified()


@pytest.mark.parametrize("sign", ["comment", "note"])
def test_progress_starts_the_count_of_lost_leases_anew(world: World, sign: str) -> None:  # P44, P13
    world.set(reclaim_limit=2)
    card = attempt(world, world.card(), s.RECLAIMED)
    world.clock.advance(LONG)
    board, claim = world.claimed(card)
    if sign == "comment":
        board.comment(card.id, "half of it is done")
    else:
        board.heartbeat(card.id, "half of it is done")
    assert ended(world, claim, s.RECLAIMED).reclaim_streak == 0
    assert attempts(world, card, "ll") == [s.READY, s.BLOCKED]


def test_a_bare_heartbeat_is_no_progress(world: World) -> None:  # P44
    world.set(reclaim_limit=1)
    board, claim = world.claimed()
    board.heartbeat(claim.task.id)
    assert ended(world, claim, s.RECLAIMED).status == s.BLOCKED


def test_silence_past_the_limit_ends_the_attempt_and_counts(world: World) -> None:  # P44, C34
    world.set(reclaim_limit=2)
    card = attempt(world, world.card(), s.RECLAIMED, reason="stale")
    assert world.kinds(card)[-1] == "stale"
    assert world.person.runs(card.id)[-1].outcome == s.RECLAIMED
    assert attempt(world, card, s.RECLAIMED, reason="stale").status == s.BLOCKED


def test_a_persons_reclaim_spends_nothing(world: World) -> None:  # P44, P12c
    world.set(reclaim_limit=1)
    card = world.card()
    for _ in range(3):
        world.clock.advance(LONG)
        world.claimed(world.task(card))
        assert world.person.reclaim(card.id).reclaim_streak == 0
    world.verified()


def test_starts_of_one_day_are_bounded(world: World) -> None:  # P44
    world.set(starts_per_day=4)
    card = world.card()
    assert attempts(world, card, "rrrrr") == [s.READY] * 3 + [s.BLOCKED]
    assert "started 4 times in a day" in (world.task(card).hold_reason or "")
    world.verified()


def test_starts_of_another_day_do_not_count(world: World) -> None:  # P44
    world.set(starts_per_day=4)
    card = world.card()
    assert attempts(world, card, "rrr") == [s.READY] * 3
    world.clock.advance(86_400)
    assert attempts(world, card, "rrrr") == [s.READY] * 3 + [s.BLOCKED]


# --- back-off --------------------------------------------------------------------------------------------------
def test_retries_wait_longer_each_time_and_say_so(world: World) -> None:  # P44, P3b
    world.set(failure_limit=20, retry_backoff_seconds=100)
    card = world.card()
    for nominal in (100, 200, 400, 800, 1600, 3200, 3600, 3600):
        card = attempt(world, card, s.CRASHED)
        pause = (card.eligible_at or 0) - world.clock.now_ms() // 1000
        assert nominal * 3 // 4 <= pause <= nominal * 5 // 4
        (reason,) = world.person.why(card.id)[1].claimable
        assert (reason.code, reason.until, reason.actor) == (s.BACK_OFF, card.eligible_at, "nobody")
        assert world.person.events(task=card.id)[-1].payload["until"] == card.eligible_at
    world.verified()


def test_cards_that_fail_together_do_not_retry_together(world: World) -> None:  # P44, C55
    world.set(retry_backoff_seconds=1000)
    claims = [world.claimed()[1] for _ in range(6)]
    again = {ended(world, claim, s.TIMED_OUT).eligible_at for claim in claims}
    assert len(again) > 1
    world.verified()
