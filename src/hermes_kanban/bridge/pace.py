"""When a bridge claims next: at once after news, else when something comes up by time; not while it backs off."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hermes_kanban.base.clock import Clock

BACK_OFF = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)  # seconds before the next try, while nothing can be claimed or started


class Pace:
    """The pauses of one bridge.

    Args:
        clock: the time; all instants are of its monotonic clock.

    Attributes:
        failures: how often in a row the board could not be asked or claimed from.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._news = True
        self._look_at = self._until = 0.0
        self._bad_starts = 0
        self.failures = 0

    @property
    def due(self) -> float:
        """When to claim next."""
        return max(self._until, 0.0 if self._news else self._look_at)

    def news(self) -> None:
        """The board changed, or there is room again."""
        self._news = True

    def looked(self, seconds: float) -> None:
        """Everything was taken that could be; look again after so long even without news."""
        self._news = False
        self._look_at = self._clock.monotonic() + seconds

    def claimed(self) -> None:
        """A claim went well: the next failure is a first one."""
        self.failures = 0

    def back_off(self) -> float:
        """Nothing can be claimed now: pause, longer each time; return the seconds."""
        seconds = _step(self.failures)
        self.failures += 1
        self._pause(seconds)
        return seconds

    def ended(self, *, started: bool) -> None:
        """A run ended. While none can be started at all the next card would fare no better: pause, longer each time."""
        if started:
            self._bad_starts = 0
        else:
            self._pause(_step(self._bad_starts))
            self._bad_starts += 1

    def _pause(self, seconds: float) -> None:
        self._until = self._clock.monotonic() + seconds
        self._news = True


def _step(times: int) -> float:
    return BACK_OFF[min(times, len(BACK_OFF) - 1)]
