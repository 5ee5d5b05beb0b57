"""Change notice between processes: a datagram after each commit is the hint, the store's counter the truth.

Whoever waits binds a socket in a folder of the run-time directory; whoever commits looks into that folder (it
is nearly always empty) and sends one byte to each socket of its board. A lost datagram costs nothing but a
quarter of a second: the waiter asks the store itself that often.
"""

from __future__ import annotations

import os
import select
import zlib

from hermes_kanban.base import lazy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from hermes_kanban.base.clock import Clock

SLOW_POLL = 0.25
_counter = 0


def board_mark(location: str) -> str:
    """Return a short name for a board's place (a path of a socket is bounded to about a hundred bytes)."""
    return f"{zlib.crc32(os.path.realpath(location).encode('utf-8', 'surrogateescape')):08x}"


def poke(folder: str, location: str) -> None:
    """Wake everybody who waits for this board. Never fails and never waits: it is only a hint."""
    try:
        names = os.listdir(folder)
    except OSError:
        return
    if not names or not _private(folder):
        return
    mark = board_mark(location)
    sockets = [n for n in names if n.startswith(mark) and n.endswith(".sock")]
    if sockets:
        _send(folder, sockets)


def _private(folder: str) -> bool:
    """Whether nobody else can put anything there: the temporary directory is everybody's."""
    try:
        found = os.lstat(folder)
    except OSError:
        return False
    return found.st_mode & 0o170077 == 0o040000 and found.st_uid == os.getuid()


def _send(folder: str, names: list[str]) -> None:
    _socket = lazy.module("_socket")  # only where somebody waits

    with_datagrams = _socket.socket(_socket.AF_UNIX, _socket.SOCK_DGRAM)
    with_datagrams.setblocking(False)
    try:
        for name in names:
            path = os.path.join(folder, name)
            try:
                with_datagrams.sendto(b"!", path)
            except ConnectionRefusedError:
                _remove(path)
            except OSError:
                continue
    finally:
        with_datagrams.close()


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return


class SocketFeed:
    """Waits for a change of one board.

    Args:
        folder: where the sockets are (0700, ours).
        location: the board's file.
        version: asks the store for its counter of foreign commits.
        clock: for deadlines.
    """

    def __init__(self, folder: str, location: str, version: Callable[[], int], clock: Clock) -> None:
        self._version = version
        self._seen = version()
        self._clock = clock
        self._path = ""
        self._poller = select.poll()
        self._socket = self._bind(folder, location)

    def wait(self, seconds: float) -> bool:
        """Return True as soon as the store changed, False when the time is over."""
        deadline = self._clock.monotonic() + seconds
        while True:
            version = self._version()
            if version != self._seen:
                self._seen = version
                return True
            left = deadline - self._clock.monotonic()
            if left <= 0:
                return False
            if self._poller.poll(min(left, SLOW_POLL) * 1000):
                self._drain()

    def fileno(self) -> int:
        """Return what a selector may watch for pokes, -1 where there is no socket."""
        return -1 if self._socket is None else int(self._socket.fileno())

    def changed(self) -> bool:
        """Whether the store changed since this was asked last; takes the pokes that have come."""
        self._drain()
        version = self._version()
        before, self._seen = self._seen, version
        return version != before

    def monotonic(self) -> float:
        """Return the clock that the waits are measured by, in seconds."""
        return self._clock.monotonic()

    def close(self) -> None:
        """Remove the socket."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
            _remove(self._path)

    def _bind(self, folder: str, location: str) -> Any:
        global _counter  # noqa: PLW0603 - several feeds of one process need different names
        _socket = lazy.module("_socket")
        _counter += 1
        self._path = os.path.join(folder, f"{board_mark(location)}.{os.getpid()}.{_counter}.sock")
        bound = _socket.socket(_socket.AF_UNIX, _socket.SOCK_DGRAM)
        try:
            bound.setblocking(False)
            os.makedirs(folder, mode=0o700, exist_ok=True)
            if not _private(folder):
                raise PermissionError(folder)
            _remove(self._path)
            bound.bind(self._path)
        except OSError:
            bound.close()
            return None  # the slow poll does without
        self._poller.register(bound.fileno(), select.POLLIN)
        return bound

    def _drain(self) -> None:
        while self._socket is not None:
            try:
                self._socket.recv(16)
            except BlockingIOError:
                return
