"""Hunts down by its mark what is left of a run whose shim is gone, quicker than that can fork (D13, D14b).

A process that forks and ends all the time is a new one before a look at everybody is over. So everybody is read only
once; after that, only pids that were not there before, which takes a fraction of a millisecond.
"""

from __future__ import annotations

import signal

from hermes_kanban.lanes import proctable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

LOOKS = 200  # in a row; on a system that forks a lot, many are not sure


class Hunt:
    """The hunt for one run.

    Args:
        mark: the run's lock, which stands in the environment of everything below its shim.
        spared: pids that are not to be touched.
    """

    def __init__(self, mark: str, spared: Collection[int]) -> None:
        self._mark, self._spared = mark, frozenset(spared)
        self._strangers: set[int] = set()
        self._blank: set[int] = set()  # no environment to be read the first time: gone, a zombie, becoming a program

    def over(self) -> bool:
        """Kill whoever is found; whether it is sure that there is nobody any more.

        Raises:
            OSError: the system has no descriptor left for looking.
        """
        return not self._mark or any(self._look() for _ in range(LOOKS))

    def _look(self) -> bool:
        """Look at who is new. Sure is a look in which all of them could be read: who vanished may have left a child."""
        listed = proctable.pids()
        self._strangers &= listed
        self._blank &= listed
        new = sorted(listed - self._strangers - self._spared, reverse=True)
        return all([self._is_stranger(pid) for pid in new])

    def _is_stranger(self, pid: int) -> bool:
        environment = proctable.environment(pid)
        if proctable.carries(environment, self._mark):
            self._kill(pid)
            return False
        if environment or pid in self._blank:
            self._strangers.add(pid)
            return True
        self._blank.add(pid)
        return False

    def _kill(self, pid: int) -> None:
        """Kill a process that carried the mark a moment ago, unless it is another one by now (D12)."""
        found = proctable.entry_of(pid)
        if found and proctable.carries(proctable.environment(pid), self._mark):
            proctable.send(found, signal.SIGKILL)
