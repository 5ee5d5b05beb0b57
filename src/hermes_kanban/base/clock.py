"""The one door to time. Everything above gets a clock passed in and reads it once per transaction."""

from __future__ import annotations

import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    class Clock(Protocol):
        """What the kernel needs of time."""

        def now_ms(self) -> int:
            """Return milliseconds since the epoch (UTC)."""

        def monotonic(self) -> float:
            """Return seconds of a clock that never goes back, for waits and deadlines."""


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        """Return milliseconds since the epoch (UTC)."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Return seconds of a clock that never goes back."""
        return time.monotonic()


class ManualClock:
    """A clock that stands still until it is told to go on."""

    def __init__(self, start: int = 1_800_000_000) -> None:
        self._ms = start * 1000

    def now_ms(self) -> int:
        """Return milliseconds since the epoch (UTC)."""
        return self._ms

    def monotonic(self) -> float:
        """Return the same instant in seconds."""
        return self._ms / 1000

    def advance(self, seconds: float) -> None:
        """Move the clock by so many seconds (negative: a clock that was set back)."""
        self._ms += round(seconds * 1000)
