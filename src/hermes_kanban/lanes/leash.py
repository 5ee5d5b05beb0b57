"""The leash of a run: when what is left of it is asked to end, when it is killed, and for which reason (D14, D16).

It knows deadlines only, no processes, so that its rules can be read and tested in one place. Times are seconds of the
caller's monotonic clock.

    going --(a stop, a bad end, a deadline)--> asked --(kill grace)--> killing
"""

from __future__ import annotations

from hermes_kanban.lanes.order import LEADER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hermes_kanban.lanes.order import Order

GOING, ASKED, KILLING = "going", "asked", "killing"
TIMED_OUT, MEMORY, SIGNAL, OVERRIDE = "timed_out", "memory", "signal", "override"


class Leash:
    """The state of one run's end.

    Attributes:
        reason: the word for why it was stopped from outside, "" for an end of its own.
        overstayed: something stayed longer than the closing grace and had to be stopped.
    """

    def __init__(self, order: Order) -> None:
        self.reason = ""
        self.overstayed = False
        self._order = order
        self._too_long: float | None = None  # max_runtime is over then
        self._closing: float | None = None  # the closing grace is over then
        self._closed = False
        self._verdict = False  # the worker has ended by itself: nothing that follows is its reason (P14b)
        self._asked: float | None = None

    def released(self, now: float) -> None:
        """The worker runs from now on."""
        if self._order.max_runtime is not None:
            self._too_long = now + self._order.max_runtime

    def closed(self, now: float) -> None:
        """The run was closed on the board: what is left has the closing grace, once (D14b, C19)."""
        if not self._closed:
            self._closed, self._too_long = True, None
            self._grace(now)

    def leader_ended(self, now: float, *, well: bool) -> None:
        """The process that was started has ended; a launcher's end alone says nothing (C26)."""
        if self._order.wait_for != LEADER:
            return
        self._verdict, self._too_long = True, None
        if well:
            self._grace(now)
        else:
            self._ask(now)

    def stop(self, reason: str, now: float) -> None:
        """Somebody wants the run ended now. The first reason stands."""
        if self._asked is None and not self._verdict:
            self.reason = reason
        self._ask(now)

    def stage(self, now: float) -> str:
        """Return what is to be done with the processes at this time."""
        if self._asked is None and _reached(self._too_long, now):
            self.stop(TIMED_OUT, now)
        if self._asked is None and _reached(self._closing, now):
            self.overstayed = True
            self._ask(now)
        if self._asked is None:
            return GOING
        return KILLING if now >= self._asked + self._order.kill_grace else ASKED

    def deadline(self, now: float) -> float | None:
        """Return when the stage may change next by time alone; None: never."""
        if self._asked is not None:
            killing = self._asked + self._order.kill_grace
            return killing if killing > now else None
        return min((at for at in (self._too_long, self._closing) if at is not None), default=None)

    def _grace(self, now: float) -> None:
        over = now + self._order.closing_grace
        self._closing = over if self._closing is None else min(self._closing, over)

    def _ask(self, now: float) -> None:
        if self._asked is None:
            self._asked = now


def _reached(deadline: float | None, now: float) -> bool:
    return deadline is not None and now >= deadline
