"""The talk of a shim with whoever watches it: one JSON object per line, both ways, over a local stream socket.

Used by both ends. Who may talk to a shim is decided from what the kernel says about the other end, never from what
it says itself: the same user, and no process below the shim, since a worker must not end or keep its own run.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import sys

from hermes_kanban.base import process, strictjson
from hermes_kanban.base.errors import InvalidValue, Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

MOST_LINE = 1_048_576
CHUNK = 65_536
LINUX_CREDENTIALS = struct.Struct("3i")  # struct ucred: pid, uid, gid
LOCAL_PEERCRED, LOCAL_PEERPID, SOL_LOCAL = 1, 2, 0  # <sys/un.h> of macOS
MAC_CREDENTIALS = struct.Struct("IIh2x16I")  # struct xucred: version, uid, number of groups, groups


def send(sock: socket.socket, message: Mapping[str, Any]) -> None:
    """Send one message.

    Raises:
        OSError: the other end is gone, or (a non-blocking socket) does not read; part of the message may be on its
            way then, so nothing more can be said on this socket.
    """
    sock.sendall(json.dumps(message, separators=(",", ":")).encode() + b"\n")


class Lines:
    """Puts messages together from what was received, piece by piece."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        """Return the messages that are whole now.

        Raises:
            InvalidValue: a line is no JSON object, or longer than 1 MiB: whoever sends that is none of ours.
        """
        *whole, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > MOST_LINE:
            raise _strange("a line without an end")
        return [parse(line) for line in whole if line.strip()]


def parse(line: bytes) -> dict[str, Any]:
    """Return the message on a line.

    Raises:
        InvalidValue: it is no JSON object, or longer than 1 MiB.
    """
    if len(line) > MOST_LINE:
        raise _strange("a line that is too long")
    try:
        return strictjson.parse(line, halves="surrogateescape")
    except ValueError as error:
        raise _strange(f"a line that is no JSON to use here ({error})") from error


def _strange(what: str) -> InvalidValue:
    return InvalidValue(f"{what} came over the channel of a shim", hint="send one JSON object per line")


def other_end(sock: socket.socket) -> tuple[int, int]:
    """Return pid and user id of the process that connected, as the kernel knows them.

    Raises:
        OSError: it cannot be known.
    """
    if sys.platform == "darwin":
        pid = sock.getsockopt(SOL_LOCAL, LOCAL_PEERPID)
        found = sock.getsockopt(SOL_LOCAL, LOCAL_PEERCRED, MAC_CREDENTIALS.size)
        return pid, MAC_CREDENTIALS.unpack(found)[1]
    found = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, LINUX_CREDENTIALS.size)
    pid, user, _group = LINUX_CREDENTIALS.unpack(found)
    return pid, user


def may_talk(sock: socket.socket, shim: int) -> bool:
    """Whether the other end of this socket may talk to the shim with this pid.

    Not another user, nobody below this shim or another one (a worker ends no run), and nobody whose ancestors cannot
    be seen.
    """
    try:
        pid, user = other_end(sock)
        line = process.lineage(pid)
    except (OSError, Refusal):
        return False
    below = process.shim_above(line) is not None or shim in [above.pid for above in line]
    return user == os.geteuid() and bool(line) and not below
