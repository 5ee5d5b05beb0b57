"""Races processes on one board, kills and stops them at random, and judges the recorded history (T1).

    python -m tests.histories.soak --minutes 10 --seed 7 --processes 6

Each round is a new board of at most a minute. The seed is printed; it fixes what the racers try and whom the killer
meets, not how the system interleaves them. Exit code 1 when the checker found a violation.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from hermes_kanban import boards, compose
from hermes_kanban.base import settings
from hermes_kanban.kernel.query import Filter
from hermes_kanban.kernel.reader import Reader
from tests.histories import checker

ROOT = Path(__file__).parents[2]
ROUND_SECONDS = 60.0
LONGEST_TTL = 3  # of the racers' claims; a process that is stopped longer has lost its lease
PAUSE_BETWEEN_KILLS = (0.2, 1.6)
STOPS = 0.15  # share of the hits that stop a process instead of killing it
STYLES = ("kept", "fresh", "kept", "tail")
PAGE = 10_000


@dataclass
class Report:
    """What happened in a race."""

    calls: Counter[str] = field(default_factory=Counter)
    endings: Counter[str] = field(default_factory=Counter)
    killed: int = 0
    stopped: int = 0
    started: int = 0
    events: int = 0
    violations: list[checker.Violation] = field(default_factory=list)

    def add(self, other: Report) -> None:
        self.calls += other.calls
        self.endings += other.endings
        self.killed, self.stopped = self.killed + other.killed, self.stopped + other.stopped
        self.started, self.events = self.started + other.started, self.events + other.events
        self.violations += other.violations

    def text(self) -> str:
        """Return the counts, a line each."""
        verbs = ", ".join(f"{verb} {number}" for verb, number in self.calls.most_common())
        ends = ", ".join(f"{end} {number}" for end, number in self.endings.most_common())
        return (
            f"{sum(self.calls.values())} calls ({verbs})\n"
            f"answers: {ends}\n"
            f"{self.events} events; {self.started} processes started, {self.killed} killed, {self.stopped} stopped; "
            f"{len(self.violations)} violations"
        )


class Race:
    """One board, its racers, and the killer.

    Args:
        folder: an empty folder; the board's home is made in it.
        processes: how many race at a time.
        seed: for the killer, and for the racers' own seeds.
    """

    def __init__(self, folder: Path, processes: int, seed: int) -> None:
        self._random = random.Random(seed)
        self._home, self._history = folder / "home", folder / "history.jsonl"
        self._home.mkdir(parents=True)
        durability = self._random.choice(["full", "normal"])
        (self._home / "config.yaml").write_text(f"kanban:\n  durability: {durability}\n", encoding="utf-8")
        self._variables = {"HERMES_HOME": str(self._home), "TMPDIR": str(folder), "PATH": os.environ["PATH"]}
        self._env = compose.Environment(self._variables, str(self._home), settings.load(str(self._home)))
        self.place = boards.place(str(self._home), boards.DEFAULT, self._variables)
        compose.create_board(self._env, self.place)
        self._errors = folder / "errors.txt"
        self._racers: list[subprocess.Popen[bytes]] = []
        self._asleep: list[tuple[float, subprocess.Popen[bytes]]] = []
        self._processes = processes
        self.report = Report()

    def run(self, seconds: float) -> Report:
        """Race for so long, then stop everybody and judge."""
        end = time.monotonic() + seconds
        try:
            for _ in range(self._processes):
                self._start()
            while time.monotonic() < end:
                time.sleep(self._random.uniform(*PAUSE_BETWEEN_KILLS))
                self._wake()
                self._hit()
        finally:
            self._stop_all()
        self._judge()
        return self.report

    def _start(self) -> None:
        self.report.started += 1
        number = self.report.started
        style = STYLES[(number - 1) % len(STYLES)]
        command = [sys.executable, "-m", "tests.histories.racer", "--history", str(self._history)]
        command += ["--label", f"p{number}", "--seed", str(self._random.getrandbits(32)), "--style", style]
        variables = self._variables | {"HERMES_KANBAN_NAME": f"racer{number % 4}"}
        with self._errors.open("ab") as errors:
            racer = subprocess.Popen(
                command, cwd=ROOT, env=variables, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors
            )
        self._racers.append(racer)

    def _hit(self) -> None:
        """Kill a racer and start another, or stop one for longer than its lease."""
        victim = self._random.choice(self._racers)
        if victim.poll() is not None:
            self._died_by_itself(victim)
        elif self._random.random() < STOPS and not self._asleep:
            victim.send_signal(signal.SIGSTOP)
            self._asleep.append((time.monotonic() + LONGEST_TTL * self._random.uniform(0.5, 1.3), victim))
            self.report.stopped += 1
            return
        elif victim not in [sleeper for _, sleeper in self._asleep]:
            victim.kill()
            victim.wait()
            self.report.killed += 1
        else:
            return
        self._racers.remove(victim)
        self._start()

    def _died_by_itself(self, racer: subprocess.Popen[bytes]) -> None:
        words = self._errors.read_text(encoding="utf-8", errors="replace")[-2000:]
        self.report.violations.append(checker.Violation("fault", f"a racer ended with {racer.returncode}: {words}"))

    def _wake(self) -> None:
        now = time.monotonic()
        for moment, racer in [pair for pair in self._asleep if pair[0] <= now]:
            racer.send_signal(signal.SIGCONT)
            self._asleep.remove((moment, racer))

    def _stop_all(self) -> None:
        for racer in self._racers:
            racer.send_signal(signal.SIGCONT)
            racer.terminate()
        for racer in self._racers:
            try:
                code = racer.wait(timeout=30)
            except subprocess.TimeoutExpired:
                racer.kill()
                code = racer.wait()
            if code not in (0, -signal.SIGTERM):  # a racer that was just starting has no handler yet
                self._died_by_itself(racer)

    def _judge(self) -> None:
        with self._history.open(encoding="utf-8", errors="replace") as lines:
            history = checker.read(lines)
        complete(history, compose.open_board(self._env, self.place, write=False))
        self.report.violations += checker.check(history)
        self.report.events = len(history.events)
        self.report.calls.update(call.verb for call in history.calls)
        self.report.endings.update(call.error or ("killed" if call.end is None else "done") for call in history.calls)


def complete(history: checker.History, board: Reader) -> None:
    """Add what the board holds in the end."""
    after = 0
    while page := board.events(since=after, limit=PAGE):
        history.events += [event.as_dict() for event in page]
        after = page[-1].id
    cards = [listed.task for listed in board.list(Filter(archived=True, sort="seq", limit=100_000)).cards]
    history.tasks = {card.id: card.as_dict() for card in cards}
    for card in cards:
        shown = board.show(card.id, events=1)
        history.comments[card.id] = shown.comment_count
        history.runs |= {run.id: run.as_dict() for run in shown.runs}
    history.findings = [f"{finding.task_id} {finding.problem}" for finding in board.verify()]


def main() -> int:
    parser = argparse.ArgumentParser(description="race and kill processes on a board, and judge what happened")
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--processes", type=int, default=6)
    given = parser.parse_args()
    seed = given.seed if given.seed is not None else random.SystemRandom().getrandbits(31)
    print(f"seed {seed}, {given.processes} processes, {given.minutes:g} minutes", flush=True)
    total, end, number = Report(), time.monotonic() + given.minutes * 60, 0
    while time.monotonic() < end and not total.violations:
        folder = Path(tempfile.mkdtemp(prefix="hermes-soak-"))
        race = Race(folder, given.processes, seed + number)
        total.add(race.run(min(ROUND_SECONDS, max(1.0, end - time.monotonic()))))
        number += 1
        print(f"round {number} (seed {seed + number - 1}): {total.text()}", flush=True)
        if total.violations:
            print(f"kept: {folder}")
        else:
            shutil.rmtree(folder)
    for violation in total.violations[:10]:
        print(violation.report())
    return 1 if total.violations else 0


if __name__ == "__main__":
    sys.exit(main())
