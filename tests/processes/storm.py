"""A storm over one board: a hundred cards in chains and fans, and workers, shims and gateways that die at random (T5).

Each card has a script: how its first attempts end, and what its last one does. Who is hit besides is the storm's own
choice, from a seed. Whatever happens, in the end every card is where its script wants it, no card had two workers at
the same time, and nothing is left.
"""

from __future__ import annotations

import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hermes_kanban.lanes import proctable
from hermes_kanban.model import status as s
from tests.processes import verdicts
from tests.processes.home import Gateway, Home, kill, worker
from tests.processes.quiet import Quiet, write
from tests.processes.verdicts import ENDINGS, FAILURES, Part
from tests.surfaces.hermes import HERMES

MANY = ("hand", "foot", "head")
LANES = {name: worker("follow") for name in MANY} | {"single": worker("follow", max_concurrency=1)}
ROOM = 4  # workers at a time
# Limits so high that nothing but its script blocks a card, and no pause that would only cost time.
VALUES: dict[str, Any] = {
    "max_in_progress": ROOM,
    "failure_limit": 100_000,
    "protocol_violation_limit": 100_000,
    "reclaim_limit": 100_000,
    "starts_per_day": 100_000,
    "rate_limit_cooldown_seconds": 0,
    "quarantine_seconds": 5,
    "spawn_grace_seconds": 10,
    "claim_ttl_seconds": 30,
}
GATEWAYS = 2  # at once: the second waits for the first one's end
SEATS = ROOM + 2  # workers that may be seen at once: a slot is free a moment before a killed worker is gone
PAUSE = (0.05, 0.4)  # seconds between two hits
LONGEST_SLEEP = 1.5  # seconds for which something is stopped


@dataclass
class Report:
    """What a storm was."""

    hits: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    cards: int = 0
    seconds: float = 0.0
    faults: list[str] = field(default_factory=list)

    def add(self, other: Report) -> None:
        self.hits += other.hits
        self.outcomes += other.outcomes
        self.cards, self.seconds = self.cards + other.cards, self.seconds + other.seconds
        self.faults += other.faults

    def text(self) -> str:
        """Return the counts, a line each."""
        hits = ", ".join(f"{what} {many}" for what, many in self.hits.most_common())
        ends = ", ".join(f"{outcome} {many}" for outcome, many in self.outcomes.most_common())
        return (
            f"{self.cards} cards, {sum(self.outcomes.values())} attempts in {self.seconds:.0f} s ({ends})\n"
            f"{sum(self.hits.values())} hits ({hits}); {len(self.faults)} faults"
        )


class Storm:
    """One home in a storm.

    Args:
        home: with `LANES` and `VALUES`.
        seed: fixes scripts and choices, not how the system interleaves them.
    """

    def __init__(self, home: Home, seed: int) -> None:
        self._home, self._random = home, random.Random(seed)
        self._gateways: list[Gateway] = []
        self._passes: list[subprocess.Popen[bytes]] = []
        self._asleep: list[tuple[float, proctable.Entry]] = []
        self._parts: dict[str, Part] = {}
        self._hit_runs: set[int] = set()
        self.report = Report()

    def run(self, cards: int, hits: int, seconds: float) -> Report:
        """Let it rage over so many cards; then wait until they are all where they belong, and judge.

        Args:
            hits: at most so many.
            seconds: the longest that all of it may take.
        """
        began = time.monotonic()
        self._make(cards)
        for _ in range(GATEWAYS):
            self._gateways.append(self._home.gateway())
        while not self._over() and sum(self.report.hits.values()) < hits and time.monotonic() < began + seconds:
            self._home.until(self._moment())
            self._wake(time.monotonic())
            self._hit()
        while not self._over() and time.monotonic() < began + seconds:
            self._home.until(self._moment())
            self._wake(time.monotonic())
        over = self._over()
        self._calm()
        if over:
            self.report.faults += Quiet(self._home, seconds, ROOM).run()
        self._judge()
        self.report.seconds = time.monotonic() - began
        return self.report

    # --- the cards ---
    def _make(self, many: int) -> None:
        graph, endings = _graph(many, self._random)
        for card in graph:
            card["assignee"] = self._random.choice(MANY)
            if not card["parents"] and self._random.random() < 0.6:
                card["in"] = "1s"
        for task, ending in zip(self._home.apply(graph), endings, strict=True):
            failures = self._random.choices(FAILURES, k=self._random.choice((0, 0, 0, 1, 1, 2)))
            self._parts[task] = Part(tuple(failures), self._random.choice(ENDINGS[ending]), ending)
            write(self._home, task, self._parts[task], self._random.randint(0, 150), SEATS)
        self.report.cards = many

    def _over(self) -> bool:
        """Whether every card is where it belongs, and every attempt is known to have ended."""
        return not self._home.board.watched() and all(
            self._home.card(task).status == part.wanted for task, part in self._parts.items()
        )

    # --- who is hit ---
    def _moment(self) -> Callable[[], bool]:
        until = time.monotonic() + self._random.uniform(*PAUSE)
        return lambda: time.monotonic() >= until

    def _hit(self) -> None:
        what = self._random.choices(tuple(HITS), tuple(weight for weight, _ in HITS.values()))[0]
        if HITS[what][1](self):
            self.report.hits[what] += 1

    def _someone(self, who: str) -> proctable.Entry | None:
        """Return the worker or the shim of an attempt that goes on."""
        runs = [run for run in self._home.board.watched() if run.process_state == s.ALIVE]
        if not runs:
            return None
        run = self._random.choice(runs)
        found = proctable.entry_of(getattr(run, f"{who}_pid") or 0)
        if not found or not found.lives or found.started != getattr(run, f"{who}_started"):
            return None
        self._hit_runs.add(run.id)
        return found

    def _strike(self, who: str, number: signal.Signals) -> bool:
        found = self._someone(who)
        return found is not None and proctable.send(found, number)

    def _take_away(self) -> bool:
        """Take a card from its worker, as a person does; often before that has begun."""
        runs = [run for run in self._home.board.watched() if run.open]
        if not runs:
            return False
        run = self._random.choice(runs)
        self._hit_runs.add(run.id)
        return self._home.hermes("reclaim", run.task_id).code == 0

    def _stop(self, found: proctable.Entry | None) -> bool:
        """Put somebody to sleep for a while."""
        if found is None or not proctable.send(found, signal.SIGSTOP):
            return False
        self._asleep.append((time.monotonic() + self._random.uniform(0.1, LONGEST_SLEEP), found))
        return True

    def _wake(self, now: float) -> None:
        for at, found in [one for one in self._asleep if one[0] <= now]:
            proctable.send(found, signal.SIGCONT)
            self._asleep.remove((at, found))

    def _lose_gateway(self, number: signal.Signals) -> bool:
        """End a gateway and start another one."""
        victim = self._gateways.pop(self._random.randrange(len(self._gateways)))
        kill(victim.pid, signal.SIGCONT)
        victim.stop(number)
        self._gateways.append(self._home.gateway())
        return True

    def _stop_gateway(self) -> bool:
        return self._stop(proctable.entry_of(self._random.choice(self._gateways).pid))

    def _single_pass(self) -> bool:
        """Do a pass beside the gateways; whoever has the board does it."""
        self._passes = [one for one in self._passes if one.poll() is None]
        if self._passes:
            return False
        given: dict[str, Any] = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.DEVNULL,
            "stderr": subprocess.DEVNULL,
        }
        self._passes.append(subprocess.Popen([HERMES, "kanban", "dispatch"], env=self._home.hermes.env, **given))
        return True

    # --- the end ---
    def _calm(self) -> None:
        """Let everybody go on who is stopped, and end the gateways."""
        self._wake(float("inf"))
        for one in self._passes:
            one.wait()
        for gateway in self._gateways:
            gateway.stop()

    def _judge(self) -> None:
        for task, part in self._parts.items():
            self.report.outcomes.update(run.outcome or "open" for run in self._home.board.runs(task))
            self.report.faults += verdicts.of_card(self._home, task, part, self._hit_runs)
        self.report.faults += verdicts.of_home(self._home)


HITS: dict[str, tuple[float, Callable[[Storm], bool]]] = {
    "worker killed": (6, lambda storm: storm._strike("worker", signal.SIGKILL)),
    "worker told to end": (2, lambda storm: storm._strike("worker", signal.SIGTERM)),
    "worker stopped": (2, lambda storm: storm._stop(storm._someone("worker"))),
    "shim killed": (5, lambda storm: storm._strike("shim", signal.SIGKILL)),
    "shim told to end": (1, lambda storm: storm._strike("shim", signal.SIGTERM)),
    "shim stopped": (3, lambda storm: storm._stop(storm._someone("shim"))),
    "gateway killed": (2, lambda storm: storm._lose_gateway(signal.SIGKILL)),
    "gateway told to end": (1, lambda storm: storm._lose_gateway(signal.SIGTERM)),
    "gateway stopped": (1, lambda storm: storm._stop_gateway()),
    "card taken away": (2, lambda storm: storm._take_away()),
    "single pass": (1, lambda storm: storm._single_pass()),
}


def _graph(many: int, dice: random.Random) -> tuple[list[dict[str, Any]], list[str]]:
    """Return cards in chains of five and in fans of ten (one, eight, one), and how each is to end.

    Only a card for which nobody waits may end blocked.
    """
    cards: list[dict[str, Any]] = []
    endings: list[str] = []
    while len(cards) < many:
        group = len(cards)
        if dice.random() < 0.5:
            parents = [[], *([i] for i in range(4))]
        else:
            parents = [[], *([0] for _ in range(8)), [*range(1, 9)]]
        for number, above in enumerate(parents[: many - group]):
            names = [f"c{group + one}" for one in above]
            cards.append({"name": f"c{group + number}", "title": f"card {group + number}", "parents": names})
            last = number == len(parents) - 1
            endings.append(s.BLOCKED if last and dice.random() < 0.4 else s.DONE)
    return cards, endings
