"""The one door to time. Everything above gets a clock passed in and reads it once per transaction.

`span` is how people are told a duration; it stands here since the messages of the kernel need it too.
"""

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


_UNITS = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))
_SEVERAL = 2  # from two of a unit on, that unit is used


def span(seconds: int) -> str:
    """Return a duration in its largest fitting unit, for people."""
    size = abs(seconds)
    for unit, name in _UNITS:
        if size >= unit * (_SEVERAL if unit > 1 else 1):
            return f"{size // unit} {name}"
    return "0 s"


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
