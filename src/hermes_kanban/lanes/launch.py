"""Starts a shim: its order on the channel, the run's lock and the slots as descriptors that it inherits (D10, D13).

Dispatcher and bridge start workers through this one door, with exactly the environment and argv that the lane gives.
"""

from __future__ import annotations

import fcntl
import os
import socket
import sys
from contextlib import suppress

from hermes_kanban.base.errors import WorkspaceFailed
from hermes_kanban.base.process import SHIM
from hermes_kanban.lanes import channel
from hermes_kanban.lanes.order import Order
from hermes_kanban.store.feed import board_mark
from hermes_kanban.workspace.base import make_private

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

REPORT = "hermes_kanban.lanes.report"
_FIRST = 3  # the run's lock; the slots follow
_LONGEST_BEAT = 30  # seconds
_HIGH = 200  # where descriptors are put aside, so that none stands where another is to go


def socket_path(runtime_folder: str, database: str, run: int) -> str:
    """Return where the shim of a run can be reached."""
    return os.path.join(runtime_folder, f"{board_mark(database)}.{run}.shim")


def report_command() -> tuple[str, ...]:
    """Return the beginning of the command line that a shim asks while nobody is connected."""
    return (sys.executable, "-I", "-m", REPORT)


def beat(ttl: int) -> int:
    """Return how often a shim renews a lease of so many seconds."""
    return max(1, min(_LONGEST_BEAT, ttl // 3))


def launch(order: Order, database: str, environment: Mapping[str, str], held: list[int]) -> tuple[int, socket.socket]:
    """Start the shim; return its pid and our end of its channel.

    Args:
        order: what it is told.
        database: the board's file, by which callers below are known (P70).
        environment: the worker's, whole.
        held: the run's locked file, then the slots; the shim gets copies, ours are closed here.

    Raises:
        WorkspaceFailed: the system could not start a process at all.
    """
    argv = [sys.executable, "-I", *SHIM, database, str(order.run)]
    ends: list[socket.socket] = []
    try:
        ends += socket.socketpair()
        ours, theirs = ends
        with suppress(OSError):
            make_private(os.path.dirname(order.socket))
        pid = _spawn(argv, dict(environment), [theirs.fileno(), *held])
        channel.send(ours, order.as_dict())
    except OSError as error:
        for end in ends[:1]:
            end.close()
        raise WorkspaceFailed(
            f"no process could be started: {error.strerror}", hint="look at the limits of processes and memory"
        ) from error
    finally:
        for end in ends[1:]:
            end.close()
        for descriptor in held:
            os.close(descriptor)
    return pid, ours


def _spawn(argv: list[str], environment: dict[str, str], descriptors: list[int]) -> int:
    """Start a program in a session of its own: 0 is the channel, 1 and 2 lead nowhere, the rest follows in order."""
    aside = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _HIGH) for descriptor in descriptors]
    places = [0, *range(_FIRST, _FIRST + len(descriptors) - 1)]
    actions: list[Any] = [(os.POSIX_SPAWN_OPEN, place, os.devnull, os.O_RDWR, 0) for place in (1, 2)]
    actions += [(os.POSIX_SPAWN_DUP2, given, place) for given, place in zip(aside, places, strict=True)]
    try:
        try:
            return os.posix_spawn(argv[0], argv, environment, file_actions=actions, setsid=True)
        except NotImplementedError:  # the shim makes its own session
            return os.posix_spawn(argv[0], argv, environment, file_actions=actions)
    finally:
        for descriptor in aside:
            os.close(descriptor)
