"""Whom a shim tells how its run goes: who is connected, or, when nobody is, the report program (D13).

The starter's channel is the first connection; whoever connects to the run's socket later gets the news once those
before it are gone or silent, so a new gateway goes on where a dead one left off. All that are connected may give
orders. The report program is the command line: one run of it per message, never waited for.
"""

from __future__ import annotations

import json
import os
import signal
import socket

from hermes_kanban.base.errors import InvalidValue
from hermes_kanban.lanes import channel, start

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from hermes_kanban.lanes.order import Order
    from hermes_kanban.lanes.start import Program

    Heard = Callable[[Mapping[str, Any] | None], None]
    Told = Callable[[Mapping[str, Any]], None]

MOST_PEERS = 8
PROGRAM_SECONDS = 30.0
MOST_ANSWER = 65_536


class Peer:
    """One connection, and since when it owes us an answer."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.sock = sock
        self.lines = channel.Lines()
        self.owes_since: float | None = None


class Talk:
    """All connections of a shim, and its report program.

    Args:
        order: the run's.
        database: which board, for the report program.
        first: the channel to the starter.
        hello: what a newcomer is told first.
        heard: is called with each answer, whatever it answers; with None when there will be none.
        told: is called with each order that a peer gives.
    """

    def __init__(
        self,
        order: Order,
        database: str,
        first: socket.socket,
        hello: Callable[[], Mapping[str, Any]],
        heard: Heard,
        told: Told,
    ) -> None:
        self._order, self._database = order, database
        self._hello, self._heard, self._told = hello, heard, told
        self._peers = [Peer(first)]
        self._listener: socket.socket | None = None
        self._program: Program | None = None
        self._hushed: set[int] = set()
        self._until = 0.0
        self._printed = b""

    # --- the run's socket ---
    def listen(self) -> None:
        """Make the run's socket; where it cannot be made, the report program has to do (D13)."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.unlink()
            listener.bind(self._order.socket)
            os.chmod(self._order.socket, 0o600)
            listener.listen(MOST_PEERS)
            listener.setblocking(False)
        except OSError:
            listener.close()
            return
        self._listener = listener

    def unlink(self) -> None:
        """Remove the run's socket: its shim is no more, or has not begun."""
        try:
            os.unlink(self._order.socket)
        except OSError:
            return

    # --- telling ---
    @property
    def connected(self) -> bool:
        """Whether anybody is connected."""
        return bool(self._peers)

    @property
    def helper(self) -> int:
        """The process id of the report program that runs now, or 0."""
        return self._program.pid if self._program else 0

    def tell(self, message: Mapping[str, Any], now: float) -> None:
        """Send a message to whoever listens, or have it delivered by the report program."""
        for peer in tuple(self._peers):
            if peer.owes_since is not None and now - peer.owes_since > self._order.ttl / 4:
                continue  # it is there but does not answer, and the lease must not run out over that
            if self._send(peer, message):
                peer.owes_since = now if peer.owes_since is None else peer.owes_since
                return
        self.deliver(message, now)

    def deliver(self, message: Mapping[str, Any], now: float) -> None:
        """Start the report program with a message; the answer is heard later. A former one that still runs ends."""
        self.hush()
        argv = (*self._order.report, self._database, str(self._order.run), str(message["op"]))
        try:
            self._program = start.run(argv, json.dumps(message).encode() + b"\n") if self._order.report else None
        except OSError:
            self._program = None
        self._until, self._printed = now + PROGRAM_SECONDS, b""
        if self._program is None:
            self._heard(None)

    def hush(self) -> None:
        """End the report program if it runs; it is collected like any child."""
        if self._program is not None:
            _kill_session(self._program.pid)
            self._hushed.add(self._program.pid)
            self._close_program()

    # --- what the loop calls ---
    def sources(self) -> dict[int, Callable[[float], None]]:
        """Return what is to be waited for, with whom to call when there is something."""
        found = {peer.sock.fileno(): self._reader(peer) for peer in self._peers}
        if self._listener is not None:
            found[self._listener.fileno()] = self._accept
        if self._program is not None and self._program.answer >= 0:
            found[self._program.answer] = self._listen_to_program
        return found

    def deadline(self) -> float | None:
        """Return when the report program has taken too long."""
        return self._until if self._program is not None else None

    def tick(self, now: float) -> None:
        """End a report program that takes too long: that is no answer."""
        if self._program is not None and now >= self._until:
            self.hush()
            self._heard(None)

    def ended(self, pid: int, status: int) -> bool:
        """Take note of a child's end; whether it was a report program."""
        if pid in self._hushed:
            self._hushed.remove(pid)
            return True
        if self._program is None or pid != self._program.pid:
            return False
        self._listen_to_program(0)
        self._close_program()
        self._heard(_answer(self._printed) if status == 0 else None)
        return True

    # --- peers ---
    def _accept(self, _now: float) -> None:
        assert self._listener is not None
        try:
            sock, _ = self._listener.accept()
        except OSError:
            return
        if len(self._peers) >= MOST_PEERS or not channel.may_talk(sock, os.getpid()):
            sock.close()
            return
        peer = Peer(sock)
        self._peers.append(peer)
        self._send(peer, self._hello())

    def _send(self, peer: Peer, message: Mapping[str, Any]) -> bool:
        try:
            channel.send(peer.sock, message)
        except OSError:
            self._drop(peer)
            return False
        return True

    def _reader(self, peer: Peer) -> Callable[[float], None]:
        return lambda _now: self._read(peer)

    def _read(self, peer: Peer) -> None:
        try:
            data = peer.sock.recv(channel.CHUNK)
            messages = peer.lines.feed(data)
        except BlockingIOError:
            return
        except (OSError, InvalidValue):
            data, messages = b"", []
        for message in messages:
            self._take(peer, message)
        if not data:
            self._drop(peer)

    def _take(self, peer: Peer, message: Mapping[str, Any]) -> None:
        if "do" in message:
            self._told(message)
        elif "ok" in message:
            peer.owes_since = None
            self._heard(_usable(message))

    def _drop(self, peer: Peer) -> None:
        """Forget a connection; what it has not answered nobody will."""
        if peer not in self._peers:
            return
        self._peers.remove(peer)
        peer.sock.close()
        if peer.owes_since is not None:
            self._heard(None)

    # --- the report program ---
    def _listen_to_program(self, _now: float) -> None:
        if self._program is None or self._program.answer < 0:
            return
        try:
            while data := os.read(self._program.answer, channel.CHUNK):
                self._printed = (self._printed + data)[:MOST_ANSWER]
        except BlockingIOError:
            return
        os.close(self._program.answer)
        self._program = self._program.evolve(answer=-1)

    def _close_program(self) -> None:
        if self._program is not None and self._program.answer >= 0:
            os.close(self._program.answer)
        self._program = None


def _answer(printed: bytes) -> Mapping[str, Any] | None:
    try:
        found = channel.parse(printed)
    except InvalidValue:
        return None
    return _usable(found) if "ok" in found else None


def _usable(answer: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return an answer, None for one that only says that there is none now."""
    return None if answer.get("retry") is True else answer


def _kill_session(pid: int) -> None:
    """Kill a helper that has not been collected, with what it started; it leads a group as soon as it runs."""
    for kill in (os.killpg, os.kill):
        try:
            kill(pid, signal.SIGKILL)
        except OSError:
            continue
