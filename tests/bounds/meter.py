"""What a process holds: handles, threads, memory, prepared statements; and how much of it may have come to it."""

from __future__ import annotations

import gc
import os
import resource
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

import apsw

from hermes_kanban.store import statements
from tests.store import homes

KIB = 1024


@dataclass(frozen=True)
class Bound:
    """How much a figure may be larger in the last quarter than in the second: a share of it, and so much besides."""

    share: float
    more: float

    def holds(self, before: float, after: float) -> bool:
        return after <= before * (1 + self.share) + self.more


# Python keeps free memory in arenas and SQLite up to 2 MB of pages for each connection, so memory is no exact count.
BOUNDS = {
    "handles": Bound(0.0, 0.5),
    "threads": Bound(0.0, 0.5),
    "python objects": Bound(0.01, 500.0),
    "python blocks": Bound(0.01, 2000.0),
    "sqlite KiB": Bound(0.05, 1024.0),
    "resident KiB": Bound(0.03, 2048.0),
    "log KiB": Bound(0.05, 512.0),
    "prepared statements": Bound(0.0, 0.5),
    "statement texts": Bound(0.0, 5.5),
}


class Meter:
    """What this process holds, now and then."""

    def __init__(self, database: str, connection: apsw.Connection) -> None:
        self._log = Path(f"{database}-wal")
        self._connection = connection
        self.samples: dict[str, list[float]] = {name: [] for name in BOUNDS}

    def look(self) -> None:
        """Keep what there is after everything unreachable was freed."""
        gc.collect()
        cache = self._connection.cache_stats(include_entries=False)
        found = {
            "handles": homes.handles(),
            "threads": _threads(),
            "python objects": len(gc.get_objects()),
            "python blocks": sys.getallocatedblocks(),
            "sqlite KiB": apsw.memory_used() / KIB,
            "resident KiB": _resident(),
            "log KiB": self._log.stat().st_size / KIB if self._log.exists() else 0.0,
            "prepared statements": cache["size"],
            "statement texts": len(statements._composed) + sum(map(len, statements._loaded.values())),
        }
        for name, value in found.items():
            self.samples[name].append(value)

    def quarter(self, name: str, number: int) -> float:
        """Return the mean of a quarter's samples (the largest where not one more is allowed)."""
        quarter = max(len(self.samples[name]) // 4, 1)
        found = self.samples[name][number * quarter : (number + 1) * quarter]
        return max(found) if BOUNDS[name].share == 0.0 else mean(found)

    def table(self) -> list[tuple[str, float, float, bool]]:
        """Return each figure with its second and its last quarter, and whether its bound holds."""
        rows = []
        for name, bound in BOUNDS.items():
            before, after = self.quarter(name, 1), self.quarter(name, 3)
            rows.append((name, before, after, bound.holds(before, after)))
        return rows


def _threads() -> int:
    folder = "/proc/self/task"
    return len(os.listdir(folder)) if os.path.isdir(folder) else 1


def _resident() -> float:
    """Return the resident memory in KiB."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except FileNotFoundError:
        asked = subprocess.run(["ps", "-o", "rss=", "-p", str(os.getpid())], capture_output=True, text=True, check=True)
        return float(asked.stdout)
    return pages * resource.getpagesize() / KIB


def handles_of(pid: int) -> int:
    """Return how many files another process has open."""
    return len(os.listdir(f"/proc/{pid}/fd"))
