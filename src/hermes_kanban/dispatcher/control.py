"""The dispatcher's own socket: a pass and its report for whoever asks, or how it stands (`dispatch`, `gateway status`).

It is in the run-time folder of this user; only the holder of the board's lease binds it.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress

from hermes_kanban.base import process
from hermes_kanban.base.clock import SystemClock
from hermes_kanban.base.errors import InvalidValue, Retryable
from hermes_kanban.lanes import channel
from hermes_kanban.store.feed import board_mark
from hermes_kanban.workspace.base import make_private

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_SUFFIX = ".dispatch"
_CHUNK = 65_536
ASKED_SECONDS = 2.0  # in which whoever asks must have said what


def control_path(runtime_folder: str, database: str) -> str:
    """Return where the dispatcher of a board listens."""
    return os.path.join(runtime_folder, f"{board_mark(database)}{_SUFFIX}")


class Control:
    """The listening end."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.server: socket.socket | None = None

    def open(self) -> socket.socket | None:
        """Listen; None where the folder cannot be used (then only the dispatcher's own wake-ups count)."""
        server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            make_private(os.path.dirname(self._path))
            with suppress(FileNotFoundError):
                os.unlink(self._path)
            server.bind(self._path)
            os.chmod(self._path, 0o600)
            server.listen(8)
        except OSError:
            server.close()
            return None
        server.setblocking(False)
        self.server = server
        return server

    def accept(self) -> socket.socket | None:
        """Return who asks now, if anybody of this user does and is not inside of a run."""
        assert self.server is not None
        try:
            sock, _ = self.server.accept()
        except OSError:
            return None
        if _may_ask(sock):
            sock.settimeout(ASKED_SECONDS)
            return sock
        sock.close()
        return None

    def close(self) -> None:
        """Stop listening."""
        if self.server is not None:
            self.server.close()
            self.server = None
            with suppress(OSError):
                os.unlink(self._path)


def _may_ask(sock: socket.socket) -> bool:
    try:
        pid, user = channel.other_end(sock)
    except OSError:
        return False
    line = process.lineage(pid)
    return user == os.geteuid() and bool(line) and process.shim_above(line) is None


def receive(sock: socket.socket, seconds: float = ASKED_SECONDS) -> dict[str, Any] | None:
    """Return one message, None when the other end goes away or has not said all of it in time.

    Args:
        seconds: the longest wait for the whole message: who sends it byte by byte holds up nobody.
    """
    lines, clock = channel.Lines(), SystemClock()
    deadline = clock.monotonic() + seconds
    while (left := deadline - clock.monotonic()) > 0:
        try:
            sock.settimeout(left)
            data = sock.recv(_CHUNK)
            found = lines.feed(data)
        except (OSError, InvalidValue):
            return None
        if found:
            return found[0]
        if not data:
            return None
    return None


def ask(path: str, message: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Ask the dispatcher of a board.

    Args:
        seconds: the longest wait.

    Raises:
        Retryable: it does not answer.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.settimeout(seconds)
    try:
        sock.connect(path)
        channel.send(sock, message)
        answer = receive(sock, seconds)
    except OSError:
        answer = None
    finally:
        sock.close()
    if answer is None:
        raise Retryable("the dispatcher of this board does not answer", hint="look at `hermes gateway status`")
    return answer
