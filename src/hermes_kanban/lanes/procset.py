"""The processes of one run: found wherever they went, ended, and proven gone (D14, D14b).

Agents run commands in sessions of their own, where a signal to the group does not reach. Below a living shim all of
them are its descendants (it is a subreaper). After a shim was killed, they are found by its roster, by the mark in
their environment, by session and by ancestry: `remains`, `destroy`.
"""

from __future__ import annotations

import os
import select
import signal

from hermes_kanban.base import process
from hermes_kanban.base.clock import SystemClock
from hermes_kanban.base.errors import Retryable
from hermes_kanban.base.record import Record, record
from hermes_kanban.lanes import proctable
from hermes_kanban.lanes.hunt import Hunt

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from hermes_kanban.lanes.proctable import Entry, Identity, Table
    from hermes_kanban.lanes.runfiles import Roster

    Found = TypeVar("Found")

ROUNDS = 40  # of stopping what is new; whoever still forks faster is killed in the next attempt
BURST = 200  # looks at our children, a few microseconds each
UNSEEN_SECONDS = 6.0  # a shim looks at its processes at least once in 5 s
PAUSE = 0.02
KILLING_SECONDS = 5.0


@record
class Look(Record):
    """A run's processes at one moment. `memory` in bytes, `cpu` in seconds (zombies are counted in it)."""

    members: tuple[Entry, ...] = ()
    memory: int = 0
    cpu: float = 0.0


class ProcessSet:
    """Everything below one living shim.

    Args:
        shim: its pid.
        mark: the run's lock, which stands in the environment of everything below.
        subreaper: whether the kernel hands orphans to the shim; where not, they are looked for by what is known.
    """

    def __init__(self, shim: int, mark: str, *, subreaper: bool) -> None:
        self._shim, self._mark, self._subreaper = shim, mark, subreaper
        self._known: set[Identity] = set()
        self._sessions: set[int] = set()
        self._told: set[Identity] = set()
        self._last = Look()

    @property
    def known(self) -> tuple[Identity, ...]:
        """Those seen at the last look."""
        return tuple(sorted(self._known))

    @property
    def sessions(self) -> tuple[int, ...]:
        """The sessions of those seen at the last look, which are the run's own."""
        return tuple(sorted(self._sessions))

    def look(self, *, without: int = 0) -> Look:
        """Return the members now, leaving out one process and all below it (the shim's own helper).

        Where the system has no descriptor left for looking, those seen last are believed to be still there.
        """
        try:
            self._last = self._look(without)
        except OSError:
            return self._last
        return self._last

    def _look(self, without: int) -> Look:
        everybody = proctable.table()
        found = proctable.descendants(everybody, {self._shim})
        if not self._subreaper:
            found = self._strays(everybody, found)
        if without:
            found -= {without, *proctable.descendants(everybody, {without})}
        members = tuple(everybody[pid] for pid in everybody if pid in found and everybody[pid].lives)
        self._known = {entry.identity for entry in members}
        self._sessions = {entry.session for entry in members} - {0, 1, os.getsid(0)}
        memory, cpu = sum(entry.memory for entry in members), sum(everybody[pid].cpu for pid in found)
        return Look(members, memory, cpu)

    def _strays(self, everybody: Table, below: set[int]) -> set[int]:
        """Add those whose parents ended: they are nobody's descendants any more."""
        roots = below | {pid for pid, started in self._known if _is(everybody, pid, started)}
        roots |= proctable.marked(everybody.keys() - {self._shim}, self._mark)
        found = proctable.closure(everybody, roots, self._sessions)
        return found - {self._shim}

    def proven_empty(self, *, childless: bool) -> bool:
        """Whether nothing of the run is left.

        Args:
            childless: the kernel says that the shim has no children. For a subreaper that is the proof.
        """
        return childless and (self._subreaper or not self.look().members)

    def ask_to_end(self, *, without: int = 0) -> Look:
        """Send SIGTERM, once each, to the members that had none yet, and wake those that are stopped (D14)."""
        seen = self.look(without=without)
        for entry in seen.members:
            if entry.identity not in self._told:
                self._told.add(entry.identity)
                proctable.send(entry, signal.SIGTERM)
                proctable.send(entry, signal.SIGCONT)
        return seen

    def kill(self, *, without: int = 0) -> Look:
        """Kill the members: stop all until no new ones appear, then SIGKILL; who cannot die yet is left (D14)."""
        kill_all(lambda: self.look(without=without).members, all_groups=True)
        if self._subreaper:
            _kill_children(without)
        return self.look(without=without)


def kill_all(look: Callable[[], tuple[Entry, ...]], *, all_groups: bool = False) -> None:
    """Stop everybody seen until nobody new appears, then kill them: nothing can fork in between (D14b).

    Args:
        look: returns the processes that are to be killed, as they are now.
        all_groups: every group that one of them is in holds none but them, also where its leader has ended.
    """
    stopped: set[Identity] = set()
    groups: set[int] = set()
    seen = look()
    for _ in range(ROUNDS):
        fresh = [entry for entry in seen if entry.identity not in stopped]
        if not fresh:
            break
        stopped.update(entry.identity for entry in fresh)
        groups |= {entry.group for entry in fresh if all_groups or entry.group == entry.pid}
        for entry in fresh:
            proctable.send(entry, signal.SIGSTOP)
        seen = look()
    for group in groups - {0, 1, os.getpgrp()}:
        _kill_group(group)
    for entry in seen:
        proctable.send(entry, signal.SIGKILL)


def _kill_children(without: int) -> None:
    """Kill whoever becomes a child of ours within the next moment.

    A process that forks and ends all the time is a new one before a look is over, but it is always our child: the
    kernel hands it to us when its parent ends. That list is short and quickly read, and none of its pids can be
    another's, since only we collect them.
    """
    done = {without}
    for _ in range(BURST):
        for pid in _children() - done:
            done.add(pid)
            _kill_child(pid)


def _children() -> set[int]:
    try:
        return proctable.children()
    except OSError:
        return set()


def _kill_child(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:
        return


def _kill_group(group: int) -> None:
    """Kill a process group: unlike a signal to a process, it hits also who is just being forked."""
    try:
        os.killpg(group, signal.SIGKILL)
    except OSError:
        return


# --- after a shim died ----------------------------------------------------------------------------------------
def remains(mark: str, roster: Roster | None) -> tuple[Entry, ...]:
    """Return the processes of a run that are still there although its shim is not (D13, D14b).

    Args:
        mark: the run's lock. Only for runs that had a shim: the mark of a pull claim may stand in a person's shell.
        roster: what the shim knew, if that can be read. Pids of another boot or pid namespace mean nothing here.

    The asking process is never among them.

    Raises:
        Retryable: the system has no descriptor left for looking.
    """
    return _looked(lambda: _remains(mark, roster))


def _looked(look: Callable[[], Found]) -> Found:
    try:
        return look()
    except OSError as error:
        raise Retryable(
            f"the processes of a run cannot be looked at: {error.strerror}", hint="it is tried again"
        ) from error


def _remains(mark: str, roster: Roster | None) -> tuple[Entry, ...]:
    everybody = proctable.table()
    asking = os.getpid()
    roots = proctable.marked(everybody.keys() - {asking}, mark)
    sessions: set[int] = set()
    if roster is not None and roster.boot == proctable.here():
        known = [roster.shim, *([roster.worker] if roster.worker else []), *roster.known]
        roots |= {pid for pid, started in known if _is(everybody, pid, started)}
        roots |= _unseen(everybody, roster)
        sessions = {everybody[pid].session for pid in roots if everybody[pid].session in roster.sessions}
    found = proctable.closure(everybody, roots, sessions) - {asking}
    return tuple(entry for entry in everybody.values() if entry.pid in found and entry.lives)


def _unseen(everybody: Table, roster: Roster) -> set[int]:
    """Return who is in one of the run's sessions and was started before the shim's next look was due.

    A session's number is not given to others while somebody is in it, so only within that time it is surely the same.
    """
    latest = proctable.later(roster.looked, UNSEEN_SECONDS)
    return {e.pid for e in everybody.values() if e.session in roster.sessions and float(e.started) <= latest}


def destroy(mark: str, roster: Roster | None, grace: float) -> bool:
    """End what is left of a run whose shim is gone; whether nothing of it is there any more (D14, D14b).

    Blocks for at most the grace and 5 s. SIGTERM, the grace in seconds, then SIGKILL; never for the asking process
    and those above it. Who survives (uninterruptible, of another user) keeps the run from having ended: ask again.

    Raises:
        Retryable: the system has no descriptor left for looking.
    """
    clock = SystemClock()
    mine = {above.pid for above in process.lineage()}

    def left() -> tuple[Entry, ...]:
        return tuple(entry for entry in remains(mark, roster) if entry.pid not in mine)

    told: set[Identity] = set()
    until = clock.monotonic() + grace
    while (seen := left()) and clock.monotonic() < until:
        for entry in (e for e in seen if e.identity not in told):
            told.add(entry.identity)
            proctable.send(entry, signal.SIGTERM)
            proctable.send(entry, signal.SIGCONT)
        _pause(PAUSE)
    until = clock.monotonic() + KILLING_SECONDS
    hunt = Hunt(mark, {*mine, os.getpid()})
    while clock.monotonic() < until:
        if left():
            kill_all(left)
        if _looked(hunt.over) and not left():
            break
        _pause(PAUSE)
    return not remains(mark, roster)


def _is(everybody: Table, pid: int, started: str) -> bool:
    return pid in everybody and everybody[pid].started == started


def _pause(seconds: float) -> None:
    select.select((), (), (), seconds)
