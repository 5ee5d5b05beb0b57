"""A race: processes do random verbs on one board, gateways start workers beside them, anybody is killed at any time.

When the time is over the racers end, the gateways finish what runs, a last caller brings every card to its end, and
the history is judged.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hermes_kanban import compose
from hermes_kanban.kernel.query import Filter
from hermes_kanban.kernel.reader import Reader
from tests.histories import checker, history
from tests.histories.history import History, Note, Violation
from tests.histories.killer import Killer
from tests.histories.shrink import shrink
from tests.processes.home import Gateway, Home, home

ROOT = Path(__file__).parents[2]
# Who takes part, again and again in this order.
PARTS = ("kept", "kept", "fresh", "kept", "tail", "kept", "commands", "look")
SKEWS = (0.0, 0.0, 0.4, -0.4)  # seconds by which a racer's clock is wrong
WORKER = [sys.executable, str(Path(__file__).with_name("worker.py"))]
PAGE = 10_000
PATIENCE = 90.0  # seconds in which every worker must be proven gone, whatever happened to it
LONGEST_DRAIN = 300.0  # seconds
BAD = ("loop_restarted", "gateway_trouble", "board_trouble", "words")  # events of a gateway's log
VALUES: dict[str, Any] = {
    "max_in_progress": 3,
    "quarantine_seconds": 2,
    "claim_ttl_seconds": 6,
    "spawn_grace_seconds": 10,
    "kill_grace_seconds": 1,
    "closing_grace_seconds": 1,
    "retry_backoff_seconds": 1,
    "rate_limit_cooldown_seconds": 1,
    "dispatch_interval_seconds": 5,
    "failure_limit": 3,
    "external_assignees": ["finisher", *(f"racer{number}" for number in range(4))],
}


@dataclass
class Report:
    """What happened in a race."""

    calls: Counter[str] = field(default_factory=Counter)
    done: Counter[str] = field(default_factory=Counter)  # calls that were answered and changed something
    endings: Counter[str] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)
    hits: Counter[str] = field(default_factory=Counter)
    workers: Counter[str] = field(default_factory=Counter)  # attempts under a shim, by their outcome
    started: int = 0
    events: int = 0
    drained: int = 0
    violations: list[Violation] = field(default_factory=list)

    @property
    def operations(self) -> int:
        """Calls that were made, and attempts that gateways started and judged."""
        return sum(self.calls.values()) + sum(self.workers.values())

    def add(self, other: Report) -> None:
        self.calls += other.calls
        self.done += other.done
        self.endings += other.endings
        self.notes += other.notes
        self.hits += other.hits
        self.workers += other.workers
        self.started, self.events = self.started + other.started, self.events + other.events
        self.drained += other.drained
        self.violations += other.violations

    def count(self, found: History) -> None:
        """Add what a history holds."""
        self.events = len(found.events)
        self.calls.update(call.verb for call in found.calls)
        self.done.update(call.verb for call in found.calls if call.new)
        self.endings.update(call.error or ("killed" if call.end is None else "done") for call in found.calls)
        self.workers.update(str(run["outcome"]) for run in found.runs.values() if run["supervised"])
        self.notes.update(note.kind for note in found.notes)

    def text(self) -> str:
        """Return the counts, a line each."""

        def counts(of: Counter[str]) -> str:
            return ", ".join(f"{name} {number}" for name, number in of.most_common())

        return (
            f"{sum(self.calls.values())} calls ({counts(self.calls)})\n"
            f"answers: {counts(self.endings)}\n"
            f"{sum(self.workers.values())} workers ({counts(self.workers)})\n"
            f"{self.events} events; {self.started} processes started; hits: {counts(self.hits)}; "
            f"{self.drained} cards brought to their end; {len(self.violations)} violations"
        )


class Race:
    """One board, its racers, its gateways, and the killer.

    Args:
        folder: an empty folder; the board's home is made in it.
        processes: how many race at a time.
        seed: fixes what is tried and whom the killer meets, not how the system interleaves them.
        gateways: how many run at a time; one dispatches, the others stand by.
        parts: who takes part, again and again in this order.
    """

    def __init__(
        self, folder: Path, processes: int, seed: int, *, gateways: int = 2, parts: Sequence[str] = PARTS
    ) -> None:
        self._seed = seed
        self._folder, self._history = folder, folder / "history.jsonl"
        (folder / "busy").mkdir(parents=True)
        self._processes, self._gateways, self._parts = processes, gateways, parts
        self._errors = folder / "errors.txt"
        self._racers: list[subprocess.Popen[bytes]] = []
        self.report = Report()

    def run(self, seconds: float) -> Report:
        """Race for so long, then stop everybody and judge."""
        durability = self._dice("board").choice(["full", "normal"])
        lanes = {
            "hand": {"type": "command", "argv": [*WORKER, str(self._history), str(self._seed)]},
            "foot": {"type": "command", "argv": [*WORKER, str(self._history), str(self._seed)]},
            "plain": {"type": "command", "argv": ["true"], "success_policy": "complete"},
        }
        with home(self._folder, lanes, **VALUES, durability=durability) as here:
            killer = Killer(here, self._dice("killer"), self._racers, lambda: self._start(here))
            for part in (self._rage, self._finish):
                try:
                    part(here, killer, seconds)
                except Exception:  # whatever it is: what was recorded is judged all the same
                    self._broke(traceback.format_exc())
                finally:
                    self._stop_racers()
            self._judge(here, killer)
        return self.report

    def _dice(self, part: str | int) -> random.Random:
        """Return the chance of one part of the race: how often one draws changes nothing for the others."""
        return random.Random(f"{self._seed}/{part}")

    def _broke(self, text: str) -> None:
        self.report.violations.append(Violation("fault", text))

    def _rage(self, here: Home, killer: Killer, seconds: float) -> None:
        for _ in range(self._gateways):
            here.gateway()
        for _ in range(self._processes):
            self._start(here)
        end = time.monotonic() + seconds
        try:
            while time.monotonic() < end:
                killer.step()
                for code in killer.fallen:
                    self._fell(code)
                killer.fallen.clear()
        finally:
            killer.wake()
            self.report.hits += killer.hits

    # --- racers ---
    def _start(self, here: Home) -> None:
        number = self.report.started
        self.report.started += 1
        self._racers.append(self._process(here, self._parts[number % len(self._parts)], number))

    def _process(self, here: Home, style: str, number: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.histories", "--history", str(self._history), "--style", style]
        dice = self._dice(number)
        command += ["--label", f"p{number}", "--seed", str(dice.getrandbits(32))]
        command += ["--skew", str(0 if style == "drain" else dice.choice(SKEWS))]
        name = "finisher" if style == "drain" else f"racer{number % 4}"
        variables = here.hermes.env | {"HERMES_KANBAN_NAME": name}
        with self._errors.open("ab") as errors:
            return subprocess.Popen(
                command, cwd=ROOT, env=variables, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors
            )

    def _fell(self, code: int) -> None:
        words = self._errors.read_text(encoding="utf-8", errors="replace")[-2000:]
        self._broke(f"a process of the race ended with {code}: {words}")

    def _stop_racers(self) -> None:
        for racer in self._racers:
            racer.send_signal(signal.SIGCONT)
            racer.terminate()
        for racer in self._racers:
            try:
                code = racer.wait(timeout=60)
            except subprocess.TimeoutExpired:
                racer.kill()
                code = racer.wait()
            if code not in (0, -signal.SIGTERM):  # a racer that was just starting has no handler yet
                self._fell(code)
        self._racers.clear()

    # --- the end ---
    def _finish(self, here: Home, killer: Killer, _seconds: float) -> None:
        """Start no more workers, wait until all are proven gone, end the gateways, and bring every card to its end."""
        here.lanes = {}
        here.configure()
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until and (left := [run for run in here.board.watched() if run.supervised]):
            time.sleep(0.1)
        for run in left:
            text = f"run {run.id} is {run.process_state}, outcome {run.outcome}: nobody proves its end"
            self.report.violations.append(Violation("stuck", f"{text}\n{here.trouble()}"))
        for gateway in here.gateways:
            self._ended_well(gateway, killed=gateway.pid in killer.killed)
        before = self._done(here)
        drain = self._process(here, "drain", self.report.started)
        self._racers.append(drain)
        if drain.wait(LONGEST_DRAIN):
            self._fell(drain.returncode)
        self._racers.remove(drain)
        self.report.drained = self._done(here) - before

    def _ended_well(self, gateway: Gateway, *, killed: bool) -> None:
        code = gateway.process.poll()
        code = gateway.stop() if code is None else code
        said = gateway.said()[: -1 if killed else None]  # the last line of one that was killed may be torn
        bad = [fact for fact in said if fact["event"] in BAD]
        if bad or (code and not killed):
            self._broke(f"a gateway ended with {code}: {bad[:3]}")

    def _done(self, here: Home) -> int:
        return sum(column.count for column in here.board.columns(1) if column.status == "done")

    def _judge(self, here: Home, killer: Killer) -> None:
        with self._history.open(encoding="utf-8", errors="replace") as lines:
            found = history.read(lines)
        found.notes += [Note("killer", "hit", {"run": run}) for run in sorted(killer.runs)]
        complete(found, compose.open_reader(here.env, here.place))
        self.report.count(found)
        if found.torn > sum(killer.hits.values()):
            self._broke(f"{found.torn} lines of the history cannot be read")
        violations = checker.check(found)
        self.report.violations += violations
        if self.report.violations:
            found.save(self._folder / "whole.json")
        if violations:
            shrink(found, violations[0]).save(self._folder / "minimal.json")


def complete(found: History, board: Reader) -> None:
    """Add what the board holds in the end."""
    after = 0
    while page := board.events(since=after, limit=PAGE):
        found.events += [event.as_dict() for event in page]
        after = page[-1].id
    cards = [listed.task for listed in board.list(Filter(archived=True, sort="seq", limit=100_000)).cards]
    found.tasks = {card.id: card.as_dict() for card in cards}
    for card in cards:
        shown = board.show(card.id, events=1)
        found.comments[card.id] = shown.comment_count
        found.runs |= {run.id: run.as_dict() for run in shown.runs}
    found.findings = [f"{finding.task_id} {finding.problem}" for finding in board.verify()]


def kept(folder: Path) -> str:
    """Return where a failed race left its history."""
    return f"{folder} (whole.json; minimal.json: the smallest that fails; python -m tests.histories.checker FILE)"
