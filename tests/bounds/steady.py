"""One process works on a board for long: `python -m tests.bounds.steady --operations 100000 --seed 7`.

Verbs, reads, refusals, feeds, files, a board that is busy, boards that are opened and closed, forked children: what
the process holds at the end must be what it held in the middle. It prints the second quarter beside the last one and
exits with 1 if anything grew, failed, or is wrong on the board.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests.bounds.chores import Chores
from tests.bounds.meter import Meter
from tests.store import homes

SAMPLES = 60  # how often what the process holds is looked at


@dataclass(frozen=True)
class Steady:
    """What was done, what was held, and what is wrong."""

    done: Counter[str]
    table: list[tuple[str, float, float, bool]]
    faults: list[str]

    def text(self) -> str:
        """Return the counts and the table."""
        counts = ", ".join(f"{name} {number}" for name, number in self.done.most_common())
        rows = [f"{sum(self.done.values())} operations: {counts}"]
        rows.append(f"{'':<22}{'second quarter':>16}{'last quarter':>16}")
        rows += [f"{name:<22}{before:>16.1f}{after:>16.1f}" for name, before, after, _ in self.table]
        return "\n".join([*rows, *self.faults])


def steady(home: str, operations: int, seed: int) -> Steady:
    """Do so many operations on a fresh board of this home in this process.

    Nothing is flushed to the disk on the way: that takes most of the time and holds nothing.
    """
    Path(home, "config.yaml").write_text("kanban: {durability: normal}", encoding="utf-8")
    place = homes.make(home)
    chores = Chores(home, random.Random(seed))
    meter = Meter(place.database, homes.store_of(chores.reader)._connection)
    faults: list[str] = []
    every = max(operations // SAMPLES, 1)
    try:
        chores.all()
        while (number := sum(chores.done.values())) < operations:
            chores.step()
            if number // every != sum(chores.done.values()) // every:
                meter.look()
        faults += [
            f"{name} grew: {before:.1f} to {after:.1f}" for name, before, after, holds in meter.table() if not holds
        ]
        faults += [f"verify: {finding}" for finding in chores.reader.verify()]
    finally:
        chores.close()
    return Steady(chores.done, meter.table(), faults)


def main() -> int:
    """Run once and print what came of it."""
    parser = argparse.ArgumentParser(description="one process works on a board for long")
    parser.add_argument("--operations", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hermes-steady-") as home:
        found = steady(home, given.operations, given.seed)
    print(found.text())
    return 1 if found.faults else 0


if __name__ == "__main__":
    sys.exit(main())
