"""The breaker as a pure function: every mix of failures ends, and pauses grow, bounded and spread (P40 to P44)."""

from __future__ import annotations

from itertools import product

import pytest

from hermes_kanban.model import policy
from hermes_kanban.model import status as s

LIMITS = policy.Limits(failures=2, violations=3, reclaims=5, starts_per_day=50)
FAILED = (s.SPAWN_FAILED, s.FAILED, s.CRASHED, s.TIMED_OUT)
NEUTRAL = (s.RATE_LIMITED, s.RECLAIMED)


def booked(
    outcomes: tuple[str, ...],
    *,
    limits: policy.Limits = LIMITS,
    max_retries: int | None = None,
    progressed: bool = True,
    starts: int = 1,
) -> list[policy.Verdict]:
    """Book one attempt after the other until the breaker trips; return the verdicts."""
    verdicts: list[policy.Verdict] = []
    before = policy.Ledger(0, 0, 0, 0, 0)
    for outcome in outcomes:
        after = policy.book(
            before,
            outcome,
            terminal=False,
            progressed=progressed,
            max_retries=max_retries,
            starts_today=starts,
            limits=limits,
        )
        verdicts.append(after)
        if after.trips:
            break
        before = policy.Ledger(after.failures, after.counted, after.violations, after.reclaims, after.rate_limits)
    return verdicts


def test_the_mix_of_the_specification_trips_at_the_second_c() -> None:  # P40
    v, c = s.PROTOCOL_VIOLATION, s.CRASHED
    verdicts = booked((v, v, c, v, v, c, v))
    assert [bool(verdict.trips) for verdict in verdicts] == [False] * 5 + [True]
    assert (verdicts[-1].counted, verdicts[-1].failures, verdicts[-1].sticky) == (2, 6, False)


@pytest.mark.parametrize("failures", [1, 2, 3])
@pytest.mark.parametrize("violations", [1, 2, 3])
def test_every_mix_of_failures_and_violations_ends(failures: int, violations: int) -> None:  # P40, P41
    limits = policy.Limits(failures, violations, reclaims=5, starts_per_day=50)
    longest = failures * violations  # (v-1) violations before each failure but the last one, which trips
    for outcomes in product((s.CRASHED, s.PROTOCOL_VIOLATION), repeat=longest):
        assert booked(outcomes, limits=limits)[-1].trips, outcomes


def test_neutral_ends_change_nothing_of_when_a_mix_trips() -> None:  # P41, P42
    for outcomes in product((s.CRASHED, s.PROTOCOL_VIOLATION), repeat=6):
        mixed = tuple(end for outcome in outcomes for end in (*NEUTRAL, outcome))
        assert len(booked(mixed)) == 3 * len(booked(outcomes))


@pytest.mark.parametrize("most", [1, 2, 5])
def test_max_retries_is_the_nth_failure_of_any_mix(most: int) -> None:  # P40, P41
    for outcomes in product((s.TIMED_OUT, s.PROTOCOL_VIOLATION), repeat=5):
        assert len(booked(outcomes, max_retries=most)) == most


@pytest.mark.parametrize("outcome", FAILED)
def test_any_other_failure_ends_a_streak_of_violations(outcome: str) -> None:  # P41
    v = s.PROTOCOL_VIOLATION
    assert [verdict.violations for verdict in booked((v, v, outcome, v))] == [1, 2, 0, 1]


def test_a_trip_by_violations_is_sticky_and_one_by_failures_is_not() -> None:  # P27, P41
    assert booked((s.PROTOCOL_VIOLATION,) * 3)[-1].sticky
    assert not booked((s.CRASHED,) * 2)[-1].sticky


@pytest.mark.parametrize("outcome", [s.CRASHED, s.RATE_LIMITED, s.RECLAIMED])
def test_a_terminal_refusal_trips_at_once_for_good(outcome: str) -> None:  # P43
    verdict = policy.book(
        policy.Ledger(0, 0, 0, 0, 0),
        outcome,
        terminal=True,
        progressed=True,
        max_retries=100,
        starts_today=1,
        limits=LIMITS,
    )
    assert (bool(verdict.trips), verdict.sticky) == (True, True)


def test_lost_leases_trip_only_without_progress() -> None:  # P44
    assert len(booked((s.RECLAIMED,) * 20, progressed=False)) == LIMITS.reclaims
    assert not booked((s.RECLAIMED,) * 20, progressed=True)[-1].trips


def test_rate_limits_never_trip_by_themselves() -> None:  # P42
    last = booked((s.RATE_LIMITED,) * 100, max_retries=1)[-1]
    assert (last.trips, last.failures, last.rate_limits) == ("", 0, 100)


@pytest.mark.parametrize("outcome", [*FAILED, *NEUTRAL, s.PROTOCOL_VIOLATION])
def test_too_many_starts_of_a_day_trip_whatever_the_end(outcome: str) -> None:  # P44
    assert not booked((outcome,), starts=LIMITS.starts_per_day - 1)[-1].trips
    assert booked((outcome,), starts=LIMITS.starts_per_day)[-1].trips


def test_a_fresh_ledger_names_every_counter() -> None:  # P40, P26
    counters = booked((s.CRASHED,))[-1].counters()
    assert set(counters) < set(policy.FRESH)
    assert not any(policy.FRESH.values())


def test_pauses_double_up_to_a_bound() -> None:  # P42, P44
    assert [policy.doubled(300, n, 3600) for n in (0, 1, 2, 3, 4, 5, 1000)] == [300, 300, 600, 1200, 2400, 3600, 3600]
    assert policy.doubled(0, 9, 3600) == 0


def test_pauses_are_spread_by_a_quarter_and_stay_the_same_for_the_same_card() -> None:  # P44, C55
    spread = [policy.spread(1000, f"t_{n:08x}", salt) for n in range(200) for salt in (1, 2)]
    assert min(spread) >= 750
    assert max(spread) <= 1250
    assert len(set(spread)) > 20
    assert policy.spread(1000, "t_00000001", 1) == policy.spread(1000, "t_00000001", 1)
