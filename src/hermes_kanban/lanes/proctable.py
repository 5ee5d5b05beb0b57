"""The table of processes: who is below whom, in which session, how much memory and processor time each took.

A process is told apart by pid and start token, and a signal goes only to the one that was meant (D12). Facts come
from /proc; where there is none, from psutil, through a module that is loaded only then.
"""

from __future__ import annotations

import errno
import os
import signal

from hermes_kanban.base import lazy, process
from hermes_kanban.base.process import GONE_STATES, PROC
from hermes_kanban.base.record import Record, record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from typing import Any

    Table = dict[int, "Entry"]
    Identity = tuple[int, str]

MARK = b"HERMES_KANBAN_CLAIM_LOCK="  # unique to a run, in the environment of everything below its shim
MOST_STAT_BYTES = 4096
MOST_LISTED_BYTES = 1_048_576
MOST_ENVIRONMENT_BYTES = 4_194_304
EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
PAGE = os.sysconf("SC_PAGE_SIZE")
TICKS = os.sysconf("SC_CLK_TCK")

# Fields of /proc/PID/stat, counted behind the name.
STATE, PARENT, GROUP, SESSION, TIMES, STARTED, RESIDENT = 0, 1, 2, 3, slice(11, 15), 19, 21


@record
class Entry(Record):
    """One process. `memory` in bytes; `cpu` in seconds, with that of the children that it collected."""

    pid: int
    parent: int
    group: int
    session: int
    started: str
    state: str
    memory: int
    cpu: float

    @property
    def identity(self) -> Identity:
        """What tells it from all others of this boot."""
        return self.pid, self.started

    @property
    def lives(self) -> bool:
        """Whether it still runs; a zombie does not (C22)."""
        return self.state not in GONE_STATES


def table() -> Table:
    """Return all processes that can be seen, the newest first: whoever forks fast is looked at soon.

    Raises:
        OSError: the system is out of descriptors or memory.
    """
    if not _has_proc():
        found: Table = _portable().table()
        return found
    return {entry.pid: entry for entry in map(entry_of, sorted(pids(), reverse=True)) if entry is not None}


def entry_of(pid: int) -> Entry | None:
    """Return the process with this pid, None if there is none."""
    if not _has_proc():
        found: Entry | None = _portable().entry_of(pid)
        return found
    _head, bracket, tail = _read(f"{PROC}/{pid}/stat", MOST_STAT_BYTES).rpartition(b")")
    if not bracket:
        return None
    f = tail.split()
    cpu = sum(map(int, f[TIMES])) / TICKS
    state, started, memory = f[STATE].decode(), f[STARTED].decode(), int(f[RESIDENT]) * PAGE
    return Entry(pid, int(f[PARENT]), int(f[GROUP]), int(f[SESSION]), started, state, memory, cpu)


def children() -> set[int]:
    """Return the pids of this process's own children, zombies too; none where the kernel does not list them."""
    listed = _read(f"{PROC}/self/task/{os.getpid()}/children", MOST_LISTED_BYTES)
    return set(map(int, listed.split()))


def pids() -> set[int]:
    """Return the pids of all processes that can be seen: quicker than `table`."""
    if not _has_proc():
        return set(_portable().table())
    return {int(name) for name in os.listdir(PROC) if name.isdigit()}


def environment(pid: int) -> bytes:
    """Return the environment with which a process was started, none where it is gone or cannot be read.

    Raises:
        OSError: the system is out of descriptors or memory.
    """
    if _has_proc():
        return _read(f"{PROC}/{pid}/environ", MOST_ENVIRONMENT_BYTES)
    found: bytes = _portable().environment(pid)
    return found


def carries(variables: bytes, mark: str) -> bool:
    """Whether an environment carries a run's mark."""
    return MARK + os.fsencode(mark) in variables.split(b"\0")


def marked(pids: Iterable[int], mark: str) -> set[int]:
    """Return those of these processes whose environment carries a run's mark (D13, D14b)."""
    return {pid for pid in pids if mark and carries(environment(pid), mark)}


def descendants(all_of_them: Table, roots: Collection[int]) -> set[int]:
    """Return the pids of these processes' children, their children, and so on; roots are not in it."""
    children: dict[int, list[int]] = {}
    for entry in all_of_them.values():
        children.setdefault(entry.parent, []).append(entry.pid)
    found: set[int] = set()
    ahead = list(roots)
    while ahead:
        new = [pid for pid in children.get(ahead.pop(), ()) if pid not in found]
        found.update(new)
        ahead += new
    return found - set(roots)


def closure(all_of_them: Table, roots: set[int], sessions: set[int]) -> set[int]:
    """Return the roots, everybody below them, everybody in these sessions, and in sessions that they lead."""
    found = roots & all_of_them.keys()
    while True:
        ours = sessions | {pid for pid in found if all_of_them[pid].session == pid}
        together = {entry.pid for entry in all_of_them.values() if entry.session in ours}
        more = found | together
        more |= descendants(all_of_them, more)
        if more == found:
            return found
        found = more


def send(entry: Entry, number: int) -> bool:
    """Send a signal to exactly this process; whether it was there and may be signalled (D12)."""
    try:
        if not hasattr(os, "pidfd_open"):
            return _send_plainly(entry, number)
        descriptor = os.pidfd_open(entry.pid)
    except ProcessLookupError:
        return False
    except OSError:  # a kernel or a sandbox without it
        return _send_plainly(entry, number)
    try:
        if not _is_still(entry):
            return False
        signal.pidfd_send_signal(descriptor, number)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def _send_plainly(entry: Entry, number: int) -> bool:
    try:
        still = _is_still(entry)
        if still:
            os.kill(entry.pid, number)
    except OSError:
        return False
    return still


def _is_still(entry: Entry) -> bool:
    found = entry_of(entry.pid)
    return found is not None and found.started == entry.started


def here() -> str:
    """Return what a pid must be of to mean something here: this boot, this pid namespace (D12)."""
    return f"{process.boot_id()}/{process.pid_namespace()}"


def start_token_now() -> float:
    """Return the start token that a process started now would have.

    Raises:
        OSError: it cannot be known now.
    """
    if not _has_proc():
        return float(_portable().start_token_now())
    return float(_read(f"{PROC}/uptime", MOST_STAT_BYTES).split(b" ")[0]) * TICKS


def later(token: float, seconds: float) -> float:
    """Return the start token of so many seconds later."""
    return token + seconds * (TICKS if _has_proc() else 1)


# --- where the facts come from --------------------------------------------------------------------------------
def _has_proc() -> bool:
    return os.path.exists(f"{PROC}/self/stat")


def _portable() -> Any:
    return lazy.module("hermes_kanban.lanes.portable")


def _read(path: str, most: int) -> bytes:
    """Return a file's bytes, none if it cannot be read: the process went, or is not ours to look at.

    Raises:
        OSError: the system is out of descriptors or memory: a process that cannot be read now must not look gone.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in EXHAUSTED:
            raise
        return b""
    try:
        return os.read(descriptor, most)
    except OSError:
        return b""
    finally:
        os.close(descriptor)
