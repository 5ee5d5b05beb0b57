"""The channels to the shims of one board: who is connected, what each was told, and what each says (D13)."""

from __future__ import annotations

import os
import socket
from contextlib import suppress

from hermes_kanban.base.errors import InvalidValue
from hermes_kanban.lanes import channel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_CHUNK = 65_536


class Link:
    """One shim.

    Args:
        run: the run that it guards.
        sock: the channel.
        pid: of the shim when it is our child and must be collected, else 0.
    """

    def __init__(self, run: int, sock: socket.socket, pid: int = 0) -> None:
        self.run, self.sock, self.pid = run, sock, pid
        self.closing = False
        self.stopped = False
        self.starting = pid > 0
        self._lines = channel.Lines()
        sock.setblocking(False)

    @property
    def closed(self) -> bool:
        """Whether we let go of it."""
        return self.sock.fileno() < 0

    def receive(self) -> tuple[list[dict[str, Any]], bool]:
        """Return the messages that came, and whether the channel goes on."""
        messages: list[dict[str, Any]] = []
        while True:
            try:
                data = self.sock.recv(_CHUNK)
            except BlockingIOError:
                return messages, True
            except OSError:
                return messages, False
            if not data:
                return messages, False
            try:
                messages += self._lines.feed(data)
            except InvalidValue:  # none of our shims writes that
                return messages, False

    def say(self, message: dict[str, Any]) -> bool:
        """Send a message; False when the shim does not take it (dead, or stopped)."""
        try:
            channel.send(self.sock, message)
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Let go of the channel; the shim goes on by itself."""
        self.sock.close()


def connect(path: str, run: int) -> Link | None:
    """Connect to a shim that runs on since a former dispatcher (D6); None where nobody listens."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.setblocking(False)
    try:
        sock.connect(path)
    except OSError:
        sock.close()
        return None
    return Link(run, sock)


def collect_child(pid: int) -> bool:
    """Collect a shim that was our child; True when nothing is left to collect."""
    with suppress(ChildProcessError):
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    return True
