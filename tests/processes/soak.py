"""Storm after storm over workers, shims and gateways, each on a new home with a hundred cards (T5).

    python -m tests.processes.soak --minutes 10 --seed 7

The seed is printed; it fixes scripts and hits, not how the system interleaves them. Exit code 1 when something was
found: then the home is kept, and its place is printed.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.processes import storm
from tests.processes.home import home

LONGEST = 600.0  # seconds in which a hundred cards must be done, whatever happens


def main() -> int:
    parser = argparse.ArgumentParser(
        description="kill workers, shims and gateways at random, and judge what came of it"
    )
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--cards", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=None, help="at most so many")
    parser.add_argument("--hits", type=int, default=sys.maxsize, help="at most so many in a round")
    parser.add_argument("--longest", type=float, default=LONGEST, help="seconds that a round may take")
    given = parser.parse_args()
    seed = given.seed if given.seed is not None else random.SystemRandom().getrandbits(31)
    print(f"seed {seed}, {given.cards} cards a round, {given.minutes:g} minutes", flush=True)
    total, end, number = storm.Report(), time.monotonic() + given.minutes * 60, 0
    while time.monotonic() < end and not total.faults and number != given.rounds:
        folder = Path(tempfile.mkdtemp(prefix="hermes-storm-"))
        with home(folder, storm.LANES, **storm.VALUES) as here:
            total.add(storm.Storm(here, seed + number).run(given.cards, hits=given.hits, seconds=given.longest))
        number += 1
        print(f"round {number} (seed {seed + number - 1}): {total.text()}", flush=True)
        if total.faults:
            print(f"kept: {folder}")
        else:
            shutil.rmtree(folder)
    print("\n".join(total.faults[:20]))
    return 1 if total.faults else 0


if __name__ == "__main__":
    sys.exit(main())
