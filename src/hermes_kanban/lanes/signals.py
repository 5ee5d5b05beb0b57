"""Signals of a shim: they are only noted, and wake its loop (D14)."""

from __future__ import annotations

import os
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType

ENDING = frozenset((signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT))
MEANINGLESS = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGPIPE)  # by default the first three would kill
MOST_WAKES = 4096


class Signals:
    """Notes the signals that matter from now on; there is one of these in a process.

    Attributes:
        descriptor: can be read when a signal came.
    """

    def __init__(self) -> None:
        self.descriptor, waker = os.pipe()
        os.set_blocking(self.descriptor, False)
        os.set_blocking(waker, False)
        self._caught: set[int] = set()
        for number in MEANINGLESS:
            signal.signal(number, signal.SIG_IGN)
        for number in (*ENDING, signal.SIGCHLD):
            signal.signal(number, self._note)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)

    def take(self) -> frozenset[int]:
        """Return the signals that came since the last call."""
        _read_away(self.descriptor)
        found = frozenset(self._caught)
        self._caught -= found
        return found

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self._caught.add(number)


def _read_away(descriptor: int) -> None:
    try:
        os.read(descriptor, MOST_WAKES)
    except BlockingIOError:
        return  # there was none
