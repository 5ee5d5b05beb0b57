"""Race after race (T1, T1b), each on a new board of at most a minute, until the time is over or something is found.

    python -m tests.histories.soak --minutes 60 --seed 7 --processes 8 --gateways 2

The seed is printed; that of a round repeats what the round tried. Exit code 1 when a violation was found: then the
home is kept with the whole history and the smallest one that still shows it.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.histories.race import PARTS, Race, Report, kept

ROUND_SECONDS = 60.0


def main() -> int:
    parser = argparse.ArgumentParser(description="race and kill processes on a board, and judge what happened")
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--gateways", type=int, default=2)
    parser.add_argument("--round", type=float, default=ROUND_SECONDS, help="seconds of one race")
    parser.add_argument("--parts", nargs="+", default=PARTS, choices=sorted(set(PARTS)), help="who takes part")
    given = parser.parse_args()
    seed = given.seed if given.seed is not None else random.SystemRandom().getrandbits(31)
    print(f"seed {seed}, {given.processes} processes, {given.gateways} gateways, {given.minutes:g} minutes", flush=True)
    total, began, number = Report(), time.monotonic(), 0
    end = began + given.minutes * 60
    while time.monotonic() < end and not total.violations:
        folder = Path(tempfile.mkdtemp(prefix="hermes-soak-"))
        race = Race(folder, given.processes, seed + number, gateways=given.gateways, parts=given.parts)
        total.add(race.run(min(given.round, max(1.0, end - time.monotonic()))))
        number += 1
        print(
            f"round {number} (seed {seed + number - 1}, {time.monotonic() - began:.0f} s): {total.text()}", flush=True
        )
        if not total.violations:
            shutil.rmtree(folder)
            continue
        print(f"kept: {kept(folder)}")
    for violation in total.violations[:10]:
        print(violation.report())
    answered = sum(total.done.values())
    print(f"{total.operations} operations ({answered} changed something), {len(total.violations)} violations")
    return 1 if total.violations else 0


if __name__ == "__main__":
    sys.exit(main())
