"""The files that a shim writes beside a board, and the table of all places beside the boards' rows."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from hermes_kanban.lanes import runfiles
from hermes_kanban.model.exits import ExitRecord
from tests.crashes import taps
from tests.crashes.places import CHANGES, HomeStage, UpgradeStage
from tests.crashes.stage import Stage


class RunStage(Stage):
    """What a shim writes beside the board: its roster in the lock file, and how the run ended (P45)."""

    _END = ExitRecord(1, "t_00000001", "host:1:token", code=1, tail=("last words",) * 200)
    _ROSTERS = tuple(
        runfiles.Roster(1, "boot", float(n), (1, "a"), (2, "b"), tuple((pid, "c") for pid in range(9 * n)), (1,))
        for n in (9, 1)
    )

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._folder = str(self.live / "runs")
        self.before = self.state()

    def play(self) -> None:
        lock = runfiles.take_lock(self._folder, 1)
        try:
            runfiles.reserve(self._folder, 1)
            for roster in self._ROSTERS:
                runfiles.write_roster(lock, roster)
            runfiles.write_exit(self._folder, self._END)
            taps.acknowledge()
        finally:
            os.close(lock)

    def settle(self) -> None:
        """Whoever looks changes nothing."""

    def state(self) -> str:
        assert not runfiles.held(self._folder, 1)
        assert runfiles.read_roster(self._folder, 1) in (None, *self._ROSTERS)
        found = runfiles.read_exit(self._folder, 1)
        assert found in (None, self._END)
        return f"{found}"

    def go_on(self, state: str) -> None:
        self.play()
        assert runfiles.read_exit(self._folder, 1) == self._END
        assert runfiles.read_roster(self._folder, 1) == self._ROSTERS[-1]
        assert sorted(os.listdir(self._folder)) == ["1.exit", "1.lock"]


@dataclass(frozen=True)
class Place:
    """A stage by its name; `beside` as of a change."""

    name: str
    make: Callable[[Path], Stage]
    beside: bool = False

    def __str__(self) -> str:
        return self.name


PLACES = (
    *(Place(change.name, partial(HomeStage, change=change), change.beside) for change in CHANGES),
    Place("an upgrade", UpgradeStage),
    Place("the files of a run", RunStage, beside=True),
)
