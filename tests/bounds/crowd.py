"""Many processes write on one board at once: `python -m tests.bounds.crowd --processes 32 --seconds 60 --seed 7`.

No call may fail, no process may starve, no card may be claimed twice, and what was acknowledged is there. It prints
how often each process wrote and how long it waited, and exits with 1 if anything is wrong.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hermes_kanban.kernel.reader import Reader
from hermes_kanban.model import status as s
from tests.store import homes

ROOT = Path(__file__).parents[2]
PATIENCE = 120.0  # seconds beyond the time of writing in which every process must have told what it did


@dataclass(frozen=True)
class Crowd:
    """What the processes did, and what is wrong with it."""

    told: list[dict[str, Any]]
    seconds: float
    faults: list[str]

    @property
    def writes(self) -> list[int]:
        """The transactions of each process that wrote."""
        return [one["writes"] for one in self.told] or [0]

    @property
    def poorest(self) -> float:
        """The share of the process that wrote least, of what a process wrote on average."""
        return min(self.writes) * len(self.writes) / max(sum(self.writes), 1)

    @property
    def fairness(self) -> float:
        """Jain's index: 1 when all wrote equally often, 1/n when one wrote alone."""
        squares = sum(number * number for number in self.writes)
        return sum(self.writes) ** 2 / max(len(self.writes) * squares, 1)

    def text(self) -> str:
        """Return the table and the totals."""
        rows = [f"{'process':<10}{'writes':>8}{'p50 ms':>10}{'p99 ms':>10}{'longest ms':>12}{'errors':>8}"]
        for one in self.told:
            waits = "".join(f"{one[name] * 1000:>{width}.1f}" for name, width in WIDTHS.items())
            rows.append(f"{one['name']:<10}{one['writes']:>8}{waits}{one['errors']:>8}")
        total, longest = sum(self.writes), max((one["longest"] for one in self.told), default=0.0)
        counts = {name: sum(len(one[name]) for one in self.told) for name in ("created", "claims", "completed")}
        rows += [
            f"{len(self.told)} processes wrote {total} times in {self.seconds:g} s ({total / self.seconds:.0f}/s): "
            f"{counts['created']} cards created, {counts['claims']} claimed, {counts['completed']} completed",
            f"fairness {self.fairness:.4f} (Jain), poorest {self.poorest:.3f} of the mean, longest wait "
            f"{longest * 1000:.0f} ms, {sum(one['errors'] for one in self.told)} errors, {len(self.faults)} faults",
        ]
        return "\n".join([*rows, *self.faults])


WIDTHS = {"p50": 10, "p99": 10, "longest": 12}


def crowd(home: str, processes: int, seconds: float, seed: int) -> Crowd:
    """Let so many processes write on a fresh board of this home for so long, then look at the board."""
    homes.make(home)
    writers = [_writer(home, f"w{number}", seconds, seed * 1000 + number) for number in range(processes)]
    faults: list[str] = []
    try:
        for writer in writers:
            assert writer.stdout is not None
            if writer.stdout.readline().strip() != "up":
                faults.append("a process did not come up")
        for writer in writers:  # all are up: now they begin, within a few milliseconds of each other
            assert writer.stdin is not None
            writer.stdin.write("go\n")
            writer.stdin.flush()
        answers = [_answer(writer, seconds, faults) for writer in writers]
    finally:
        for writer in writers:
            if writer.poll() is None:
                writer.kill()
                writer.wait()
    told = [answer for answer in answers if answer]
    board = homes.opened(home, write=False)
    return Crowd(told, seconds, faults + [fault for check in CHECKS for fault in check(board, told)])


def _writer(home: str, name: str, seconds: float, seed: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.bounds.writer", home, name, str(seconds), str(seed)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, cwd=ROOT, text=True, **pipes)


def _answer(writer: subprocess.Popen[str], seconds: float, faults: list[str]) -> dict[str, Any]:
    try:
        out, errors = writer.communicate(timeout=seconds + PATIENCE)
    except subprocess.TimeoutExpired:
        faults.append("a process hangs")
        return {}
    if writer.returncode:
        faults.append(f"a process ended with {writer.returncode}: {errors[-1000:]}")
        return {}
    answer: dict[str, Any] = json.loads(out)
    return answer


# --- what must be so afterwards ---------------------------------------------------------------------------------
def _refused(_board: Reader, told: list[dict[str, Any]]) -> list[str]:
    return [f"{one['name']}: {error}" for one in told for error in one["first_errors"]]


def _starved(_board: Reader, told: list[dict[str, Any]]) -> list[str]:
    return [f"{one['name']} never wrote" for one in told if not one["writes"]]


def _claimed_twice(board: Reader, told: list[dict[str, Any]]) -> list[str]:  # P2, P10
    winners = Counter(tuple(claim) for one in told for claim in one["claims"])
    faults = [f"{claim} was won by {times} callers" for claim, times in winners.items() if times > 1]
    for one in told:
        for card, number in one["claims"]:
            run = next((run for run in board.runs(card) if run.id == number), None)
            if run is None or run.profile != one["name"]:
                faults.append(f"run {number} of {card} is not {one['name']}'s, who won it")
    return faults


def _lost(board: Reader, told: list[dict[str, Any]]) -> list[str]:  # T1b
    faults = []
    for one in told:
        for card in one["created"]:
            if not board.events(task=card, kinds=("created",)):
                faults.append(f"{card} of {one['name']} is gone")
        for card in one["completed"]:
            if board.show(card, events=1).task.status != s.DONE:
                faults.append(f"{card} was completed by {one['name']} and is not done")
        for card, number in Counter(one["commented"]).items():
            if board.show(card, events=1).comment_count != number:
                faults.append(f"{card} has not the {number} comments of {one['name']}")
    return faults


def _unsound(board: Reader, _told: list[dict[str, Any]]) -> list[str]:  # P81
    return [f"verify: {finding}" for finding in board.verify()]


CHECKS = (_refused, _starved, _claimed_twice, _lost, _unsound)


def main() -> int:
    """Run one crowd and print what came of it."""
    parser = argparse.ArgumentParser(description="many processes write on one board")
    parser.add_argument("--processes", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hermes-crowd-") as home:
        found = crowd(home, given.processes, given.seconds, given.seed)
    print(found.text())
    return 1 if found.faults else 0


if __name__ == "__main__":
    sys.exit(main())
