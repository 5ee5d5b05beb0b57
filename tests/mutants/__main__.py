"""Break the product on purpose, one mistake at a time, and see whether the checks find each (decision 0009).

    python -m tests.mutants                       every mutant, after each check on the unbroken copy
    python -m tests.mutants --only NAME [...]     these alone; `--check storm`: those of one check
    python -m tests.mutants --write               put the table into docs/decisions/0009-mutants.md

What is printed for each: found or not, by which words, after how many seconds. Exit code 1 when one was not found, or
when a check fails on the unbroken copy.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from queue import SimpleQueue

from tests.mutants import checks, table
from tests.mutants.catalogue import MUTANTS
from tests.mutants.checks import CHECKS, Found
from tests.mutants.mutant import Mutant
from tests.mutants.workshop import Workshop, workshop

TAIL = 2000
Job = tuple[Mutant | None, str]  # a mutant (None: nothing is broken), and the check that is to find it


def main() -> int:
    given = _arguments()
    chosen = [m for m in MUTANTS if (not given.only or m.name in given.only) and given.check in (None, m.check)]
    if not chosen:
        print("no such mutant", file=sys.stderr)
        return 2
    used = [name for name in CHECKS if any(mutant.check == name for mutant in chosen)]
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with _crew(given) as judged:
        if not given.trust and not _sound(used, judged([(None, name) for name in used])):
            return 1
        results = []
        for mutant, found in zip(chosen, judged([(m, m.check) for m in chosen]), strict=True):
            results.append((mutant, found))
            print(table.line(mutant, found), flush=True)
            if given.write:
                table.write([(mutant, found)])  # at once: who is interrupted keeps what was found
    missed = [mutant.name for mutant, found in results if not found.text]
    print(f"{len(chosen)} mutants, {len(chosen) - len(missed)} found; not found: {', '.join(missed) or 'none'}")
    return 1 if missed else 0


@contextmanager
def _crew(given: argparse.Namespace) -> Iterator[Callable[[list[Job]], Iterator[Found]]]:
    """Yield a function that does jobs, as many at a time as there are copies; who is interrupted leaves nothing."""
    free: SimpleQueue[Workshop] = SimpleQueue()

    def one(job: Job) -> Found:
        mutant, check = job
        place = free.get()
        try:
            with place.broken(mutant):
                return checks.judge(place, check, given.seed, given.tries if mutant else 1)
        finally:
            free.put(place)

    with workshop(given.jobs) as places, ThreadPoolExecutor(given.jobs) as pool:
        for place in places:
            free.put(place)
        try:
            yield lambda jobs: pool.map(one, jobs)
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            for place in places:
                place.close()
            raise


def _sound(names: list[str], results: Iterator[Found]) -> bool:
    """Show that the checks pass on what is not broken; whether they do."""
    sound = True
    for name, found in zip(names, results, strict=True):
        print(f"{name:9} unbroken: {found.text or 'passes'} ({found.seconds:.0f} s)", flush=True)
        if found.text:
            sound = False
            print(found.output[-TAIL:])
    return sound


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description="see whether the checks find mistakes")
    parser.add_argument("--only", nargs="+", metavar="NAME")
    parser.add_argument("--check", choices=tuple(CHECKS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tries", type=int, help="how many seeds at most")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--trust", action="store_true", help="do not run the checks on the unbroken copy first")
    parser.add_argument("--write", action="store_true", help="write the table into the decision")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
