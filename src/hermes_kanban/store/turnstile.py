"""A fair queue in front of the write lock, with a bounded wait.

SQLite's own busy handler sleeps and tries again: under load a process may starve for seconds while another
takes the lock over and over. A `flock` on a side file makes writers wait in the kernel's order instead, and the
kernel frees it when its holder dies. `flock` knows no time-out, so when the lock is taken a helper thread waits
for it and the caller waits for the thread. One that comes too late gives the lock back at once; until it does,
the next call of the same connection waits with it: a holder that hangs for days costs one thread, not thousands.
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
        self._pid = 0
        self._waiter: _Waiter | None = None

    def enter(self, seconds: float) -> bool:
        """Take the turn, waiting at most so many seconds; return whether there was anything to wait for.

        Raises:
            Busy: somebody else held it all that time; the error says who, if that is known.
            OSError: the side file cannot be made or locked.
        """
        waiter = self._waiter
        if waiter is None or not waiter.rejoin():
            self._waiter = waiter = None
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            if not _taken_at_once(descriptor):
                self._waiter = waiter = _Waiter(descriptor)
        if waiter is not None:
            descriptor = waiter.wait(seconds)
            self._waiter = None
        self._descriptor, self._pid = descriptor, os.getpid()
        self._sign()
        return waiter is not None

    def leave(self) -> None:
        """Give the turn to the next in the queue."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor < 0:
            return
        if os.getpid() == self._pid:
            _give_back(descriptor)
        else:
            os.close(descriptor)

    def _sign(self) -> None:
        """Write our number into the file, so that others can say who holds the lock; a full disk does not matter."""
        try:
            os.pwrite(self._descriptor, str(self._pid).ljust(_WIDTH).encode(), 0)
        except OSError:
            return


class _Waiter:
    """A helper thread in the kernel's queue. It owns the descriptor until `wait` returns it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._news = _thread.allocate_lock()
        self._news.acquire()
        self._state = _thread.allocate_lock()
        self._wanted = True
        self._over = False
        self._error: OSError | None = None
        try:
            _thread.start_new_thread(self._run, ())
        except BaseException:
            os.close(descriptor)
            raise

    def wait(self, seconds: float) -> int:
        """Return the locked descriptor, which is the caller's from now on.

        Raises:
            Busy: the time is over; the thread goes on and will give the lock back.
            OSError: the lock cannot be had at all.
        """
        try:
            self._news.acquire(timeout=max(seconds, 0.0))
        except BaseException:
            self._give_up()
            raise
        with self._state:
            if self._error is not None:
                raise self._error
            if self._over:
                return self._descriptor
            self._wanted = False
            holder = _holder(self._descriptor)
        raise Busy(
            f"the board is locked by another process{holder} and did not come free in {seconds:g} s",
            hint="nothing was changed; try again",
            waited=seconds,
        )

    def rejoin(self) -> bool:
        """Want the turn again after a time-out; False when it has come and was given back meanwhile."""
        with self._state:
            self._wanted = not self._over
            return self._wanted

    def _run(self) -> None:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        except OSError as error:
            self._error = error
        with self._state:
            self._over = True
            if self._error is not None or not self._wanted:
                _give_back(self._descriptor)
        self._news.release()

    def _give_up(self) -> None:
        """Leave the queue although the wait was interrupted; the lock may have come in the same instant."""
        with self._state:
            if self._over and self._wanted and self._error is None:
                _give_back(self._descriptor)
            self._wanted = False


def _taken_at_once(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except BaseException:
        os.close(descriptor)
        raise
    return True


def _give_back(descriptor: int) -> None:
    """Unlock and close. A child that was forked meanwhile shares the lock: by closing alone it would stay with it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    except OSError:
        return  # what was written is written; closing frees the lock too
    finally:
        os.close(descriptor)


def _holder(descriptor: int) -> str:
    """Say who holds the lock, from the number that the holder wrote into the file."""
    text = os.pread(descriptor, _WIDTH, 0).decode("ascii", "replace").strip()
    return f" (pid {text})" if text.isdigit() else ""
