"""When enough is enough: one pure ledger of failures, violations, lost leases and rate limits (P40 to P44)."""

from __future__ import annotations

from hermes_kanban.base.record import Record, record
from hermes_kanban.model import status as s

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_COUNTED = (s.SPAWN_FAILED, s.FAILED, s.CRASHED, s.TIMED_OUT)
NOTHING = ""  # stands for an outcome that spends nothing: somebody decided that the attempt ends

# What a success, a hand-over to review or a person's unblock resets.
FRESH: dict[str, Any] = {
    "consecutive_failures": 0,
    "counted_failures": 0,
    "violation_streak": 0,
    "reclaim_streak": 0,
    "rate_limit_streak": 0,
    "sticky": False,
}


@record
class Ledger(Record):
    """The counters of a card before an attempt ends.

    Args:
        failures: every failed run since the last reset, violations included.
        counted: those that were not violations.
        violations: violations in a row.
        reclaims: lost leases and stale ends in a row without progress.
        rate_limits: rate limits in a row.
    """

    failures: int
    counted: int
    violations: int
    reclaims: int
    rate_limits: int


@record
class Limits(Record):
    """The bounds from the settings."""

    failures: int
    violations: int
    reclaims: int
    starts_per_day: int


@record
class Verdict(Record):
    """The counters after it; `trips` says why the breaker trips, or is empty."""

    failures: int
    counted: int
    violations: int
    reclaims: int
    rate_limits: int
    trips: str = ""
    sticky: bool = False

    def counters(self) -> dict[str, Any]:
        """Return the columns of a task."""
        return {
            "consecutive_failures": self.failures,
            "counted_failures": self.counted,
            "violation_streak": self.violations,
            "reclaim_streak": self.reclaims,
            "rate_limit_streak": self.rate_limits,
        }


def book(
    before: Ledger,
    outcome: str,
    *,
    terminal: bool,
    progressed: bool,
    max_retries: int | None,
    starts_today: int,
    limits: Limits,
) -> Verdict:
    """Book the end of an attempt and judge.

    Violations have a budget of their own (P41), so that every mix ends: v v c v v c trips at the second c. Rate
    limits are neutral (P42); lost leases count only among themselves, and not after progress (P44).
    """
    after = _counted(before, outcome, progressed=progressed)
    if terminal:
        return after.evolve(trips="the provider rejected this profile's credential or model", sticky=True)
    if outcome in (*_COUNTED, s.PROTOCOL_VIOLATION):
        after = _judge(after, outcome, max_retries, limits)
    elif outcome == s.RECLAIMED and after.reclaims >= limits.reclaims:
        after = after.evolve(trips=f"it lost its lease {after.reclaims} times in a row without progress")
    if not after.trips and starts_today >= limits.starts_per_day:
        return after.evolve(trips=too_many_starts(starts_today))
    return after


def too_many_starts(starts: int) -> str:
    """Return why a card that was started so often is blocked (P44)."""
    return f"it was started {starts} times in a day"


def _counted(before: Ledger, outcome: str, *, progressed: bool) -> Verdict:
    after = Verdict(before.failures, before.counted, before.violations, before.reclaims, before.rate_limits)
    if outcome == s.RATE_LIMITED:
        return after.evolve(rate_limits=before.rate_limits + 1)
    if outcome == s.RECLAIMED:
        return after.evolve(reclaims=0 if progressed else before.reclaims + 1)
    if outcome == s.PROTOCOL_VIOLATION:
        return after.evolve(failures=before.failures + 1, violations=before.violations + 1, rate_limits=0)
    if outcome in _COUNTED:
        return after.evolve(failures=before.failures + 1, counted=before.counted + 1, violations=0, rate_limits=0)
    return after


def _judge(after: Verdict, outcome: str, max_retries: int | None, limits: Limits) -> Verdict:
    violation = outcome == s.PROTOCOL_VIOLATION
    if max_retries is not None:
        if after.failures < max_retries:
            return after
        return after.evolve(trips=f"it failed {after.failures} times (max_retries {max_retries})", sticky=violation)
    if violation and after.violations >= limits.violations:
        return after.evolve(trips=f"its worker ended {after.violations} times without closing it", sticky=True)
    if not violation and after.counted >= limits.failures:
        return after.evolve(trips=f"it failed {after.counted} times")
    return after


def doubled(base: int, times: int, most: int) -> int:
    """Return a pause that doubles with each repetition, up to a bound (seconds)."""
    return min(most, base << min(max(times - 1, 0), 16))


def spread(pause: int, key: str, salt: int) -> int:
    """Return a pause of 0.75 to 1.25 times the given one, the same for the same card and count (C55)."""
    mixed = sum((index + 7) * ord(char) for index, char in enumerate(f"{key}{salt}")) % 101
    return pause * (75 + mixed // 2) // 100
