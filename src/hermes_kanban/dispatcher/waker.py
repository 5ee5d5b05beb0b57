"""What other threads say to a loop: look soon, or stop. The loop waits for it together with everything else."""

from __future__ import annotations

import os
from threading import Lock


class Waker:
    """A pipe to one loop.

    Attributes:
        dirty: something happened that is worth a pass.
        stopped: the loop is to end soon.
        stop_workers: together with what it started (D6).
    """

    def __init__(self) -> None:
        self._in, self._out = os.pipe()
        os.set_blocking(self._in, False)
        os.set_blocking(self._out, False)
        self._lock = Lock()
        self._open = True
        self.dirty = True
        self.stopped = False
        self.stop_workers = False

    def fileno(self) -> int:
        """Return what a selector waits for."""
        return self._in

    def wake(self) -> None:
        """Have the loop look soon; one that has ended is not disturbed (its descriptors may be others' by now)."""
        with self._lock:
            self.dirty = True
            if not self._open:
                return
            try:
                os.write(self._out, b"!")
            except BlockingIOError:
                return

    def stop(self, *, workers: bool) -> None:
        """Have the loop end soon."""
        self.stop_workers = workers
        self.stopped = True
        self.wake()

    def drain(self) -> None:
        """Take what was said."""
        try:
            while os.read(self._in, 512):
                pass
        except BlockingIOError:
            return

    def close(self) -> None:
        """Free the pipe."""
        with self._lock:
            self._open = False
            os.close(self._in)
            os.close(self._out)
