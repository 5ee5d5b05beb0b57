"""A fair queue in front of the write lock, with a bounded wait.

SQLite's own busy handler sleeps and tries again: under load a process may starve for seconds while another
takes the lock over and over. A `flock` on a side file makes writers wait in the kernel's order instead, and the
kernel frees it when its holder dies. `flock` knows no time-out, so when the lock is taken a helper thread waits
for it and the caller waits for the thread; one that comes too late gives the lock back at once.
"""

from __future__ import annotations

import _thread
import fcntl
import os

from hermes_kanban.base.errors import Busy

_WIDTH = 20


class Turnstile:
    """The queue of one board. One instance serves one connection (one holder at a time)."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._descriptor = -1

    def enter(self, seconds: float) -> None:
        """Take the turn, waiting at most so many seconds.

        Raises:
            Busy: somebody else held it all that time; the error says who, if that is known.
        """
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            descriptor = self._queue(descriptor, seconds)
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor
        self._sign()

    def leave(self) -> None:
        """Give the turn to the next in the queue."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _sign(self) -> None:
        """Write our number into the file, so that others can say who holds the lock; a full disk does not matter."""
        try:
            os.pwrite(self._descriptor, str(os.getpid()).ljust(_WIDTH).encode(), 0)
        except OSError:
            return

    def _queue(self, descriptor: int, seconds: float) -> int:
        """Wait in the kernel's queue; the descriptor is ours on return, the thread's own on a time-out."""
        turn = _thread.allocate_lock()
        verdict = _thread.allocate_lock()
        turn.acquire()
        state = {"got": False, "abandoned": False}

        def wait() -> None:
            got = _blocking(descriptor)
            with verdict:
                state["got"] = got
                if state["abandoned"] or not got:
                    os.close(descriptor)
            turn.release()

        holder = _holder(descriptor)
        _thread.start_new_thread(wait, ())
        try:
            turn.acquire(timeout=max(seconds, 0.0))
        except BaseException:
            with verdict:
                state["abandoned"] = True
                if state["got"]:
                    os.close(descriptor)
            raise
        with verdict:
            if state["got"]:
                return descriptor
            state["abandoned"] = True
        raise Busy(
            f"the board is locked by another process{holder} and did not come free in {seconds:g} s",
            hint="nothing was changed; try again",
            waited=seconds,
        )


def _blocking(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError:
        return False
    return True


def _holder(descriptor: int) -> str:
    """Say who holds the lock, from the number that the holder wrote into the file."""
    text = os.pread(descriptor, _WIDTH, 0).decode("ascii", "replace").strip()
    return f" (pid {text})" if text.isdigit() else ""
