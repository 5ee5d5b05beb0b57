"""The shim: one small supervisor process for each run (D13). `python -I -m hermes_kanban.lanes.shim DATABASE RUN`.

It holds the run's lock while a process of the run is left. It imports almost nothing, has one thread, and knows
neither board nor settings: the order on its channel says everything. This module is its first second: descriptors,
signals, order, lock. What follows is `lanes.supervisor`.

Descriptors at its start: 0 the channel to the starter, 1 and 2 the null device, 3 the locked file of the run, 4 and on
the slots that it occupies, which it only keeps open until nothing of the run is left.
"""

from __future__ import annotations

import fcntl
import os
import select
import socket
import sys

from hermes_kanban.base.clock import SystemClock
from hermes_kanban.base.errors import InvalidValue, Refusal, Retryable
from hermes_kanban.lanes import channel, order, runfiles, start
from hermes_kanban.lanes.output import Log
from hermes_kanban.lanes.signals import Signals
from hermes_kanban.lanes.supervisor import Supervisor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hermes_kanban.lanes.order import Order

LOCK = 3
ORDER_SECONDS = 15.0
UNUSABLE, FAULT = 2, 70


def main(arguments: list[str]) -> int:
    """Run the shim to its end.

    Args:
        arguments: the board's database, which only the report program gets, and the number of the run.

    Returns:
        0 when the run is over or its start was refused; 2 when there was no order that could be followed; 70 for a
        fault of the shim itself: its worker dies with it, and the dispatcher sees to the rest (D13).
    """
    database, run = arguments
    first, slots = _own_descriptors()
    signals = Signals()
    _own_session()
    try:
        given = _order(first, int(run))
        _check_lock(given)
    except (Refusal, OSError, ValueError) as error:
        _refuse(first, run, str(error))
        return UNUSABLE
    try:
        subreaper = start.become_subreaper()
        Supervisor(given, database, first, (LOCK, *slots), SystemClock(), signals, subreaper=subreaper).run()
    except Exception as error:
        _confess(given, error)
        return FAULT
    return 0


def _own_descriptors() -> tuple[socket.socket, tuple[int, ...]]:
    """Keep what was given from every child, put the channel out of the way of descriptor 0; return it and the slots."""
    slots = tuple(descriptor for descriptor in start.others() if _keep(descriptor) and descriptor > LOCK)
    first = socket.socket(fileno=fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, LOCK + 1))
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    os.dup2(null, 0)
    os.close(null)
    return first, slots


def _keep(descriptor: int) -> bool:
    try:
        os.set_inheritable(descriptor, False)
    except OSError:
        return False  # that of the listing itself
    return True


def _own_session() -> None:
    """Be apart from whoever started us: what is in our session is the run's."""
    try:
        os.setsid()
    except OSError:
        return  # it leads a session already


def _order(first: socket.socket, run: int) -> Order:
    """Wait for the order on the channel's first line.

    Raises:
        InvalidValue: it is none, or another run's.
        Retryable: it did not come.
    """
    clock = SystemClock()
    until = clock.monotonic() + ORDER_SECONDS
    lines = channel.Lines()
    while (left := until - clock.monotonic()) > 0:
        if not select.select((first,), (), (), left)[0]:
            break
        seen = first.recv(channel.CHUNK, socket.MSG_PEEK)
        data = first.recv(seen.find(b"\n") + 1 or len(seen) or 1)  # what follows the order is for the supervisor
        for message in lines.feed(data):
            return _of_run(order.parse(message), run)
        if not data:
            break
    raise Retryable("no order came", hint="start the run again")


def _of_run(given: Order, run: int) -> Order:
    if given.run != run:
        raise InvalidValue(f"the order is for run {given.run}, not {run}", hint="give the order of this run")
    return given


def _check_lock(given: Order) -> None:
    """Make sure that what we hold is this run's lock: without it nobody could know that the run lives (D13).

    Raises:
        Retryable: it is another file, or somebody else's.
        OSError: there is none.
    """
    ours, meant = os.fstat(LOCK), os.stat(runfiles.lock_path(given.folder, given.run))
    if (ours.st_dev, ours.st_ino) != (meant.st_dev, meant.st_ino):
        raise Retryable(f"descriptor {LOCK} is not the lock of run {given.run}", hint="pass the locked file on")
    fcntl.flock(LOCK, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _refuse(first: socket.socket, run: str, message: str) -> None:
    try:
        channel.send(first, {"op": "refused", "run": run, "message": message})
    except OSError:
        return


def _confess(given: Order, error: Exception) -> None:
    """Leave the reason where people look: nobody reads what a shim prints."""
    log = Log(given.log, given.log_bytes)
    log.mark(f"[kanban-shim] a fault of the supervisor ended this run: {type(error).__name__}: {error}")
    log.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
