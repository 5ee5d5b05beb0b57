"""Fair turns: when slots are scarce, boards start workers one after the other, not the quickest first (D7)."""

from __future__ import annotations

from threading import Lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


class Turns:
    """The queue of boards that want to start more than there is room for, within one process."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._queue: list[str] = []
        self._wakers: dict[str, Callable[[], None]] = {}

    def join(self, board: str, wake: Callable[[], None]) -> None:
        """Take part; `wake` is called when it may be this board's turn."""
        with self._lock:
            self._wakers[board] = wake

    def part(self, board: str) -> None:
        """Take part no more."""
        with self._lock:
            self._wakers.pop(board, None)
        self.leave(board)

    def mine(self, board: str) -> bool:
        """Whether this board may start one now; else it stands in the queue from now on."""
        with self._lock:
            if not self._queue or self._queue[0] == board:
                return True
            if board not in self._queue:
                self._queue.append(board)
            return False

    def wait(self, board: str) -> None:
        """Stand in the queue: there is more to start than room."""
        with self._lock:
            if board not in self._queue:
                self._queue.append(board)

    def started(self, board: str) -> None:
        """After a start whoever waits goes first."""
        with self._lock:
            if board in self._queue and len(self._queue) > 1:
                self._queue.remove(board)
                self._queue.append(board)
        self.freed()

    def leave(self, board: str) -> None:
        """Want nothing any more."""
        with self._lock:
            if board not in self._queue:
                return
            self._queue.remove(board)
        self.freed()

    def freed(self) -> None:
        """Tell whoever is first in the queue that a slot may have come free."""
        with self._lock:
            wake = self._wakers.get(self._queue[0]) if self._queue else None
        if wake is not None:
            wake()
