"""Kills, stops and wakes the processes of a race: racers, gateways, shims, workers."""

from __future__ import annotations

import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable

from hermes_kanban.lanes import proctable
from hermes_kanban.model import status as s
from tests.processes.home import Home

PAUSE = (0.3, 1.8)  # seconds between two hits
ASLEEP = (0.5, 4.0)  # seconds for which something is stopped: racers' claims last 1 to 3


class Killer:
    """Hits one process at a time.

    Args:
        dice: fixes whom it meets.
        racers: those that race; who is killed is taken out and another one started.
        start: starts a racer.
    """

    def __init__(
        self, here: Home, dice: random.Random, racers: list[subprocess.Popen[bytes]], start: Callable[[], None]
    ) -> None:
        self._here, self._dice, self._racers, self._start = here, dice, racers, start
        self._asleep: list[tuple[float, proctable.Entry]] = []
        self.hits: Counter[str] = Counter()
        self.runs: set[int] = set()  # whose worker or shim was hit
        self.killed: set[int] = set()  # gateways, by pid
        self.fallen: list[int] = []  # exit codes of racers that ended by themselves

    def step(self) -> None:
        """Wait a little, and hit somebody."""
        until = time.monotonic() + self._dice.uniform(*PAUSE)
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(left, 0.2))
            self.wake(time.monotonic())
        what = self._dice.choices(tuple(HITS), tuple(weight for weight, _ in HITS.values()))[0]
        if HITS[what][1](self):
            self.hits[what] += 1

    def wake(self, now: float = float("inf")) -> None:
        """Let those go on whose sleep is over (by default: all)."""
        for at, found in [one for one in self._asleep if one[0] <= now]:
            proctable.send(found, signal.SIGCONT)
            self._asleep.remove((at, found))

    def _sleep(self, found: proctable.Entry | None) -> bool:
        if found is None or len(self._asleep) > 1 or not proctable.send(found, signal.SIGSTOP):
            return False
        self._asleep.append((time.monotonic() + self._dice.uniform(*ASLEEP), found))
        return True

    def _racer(self, number: signal.Signals) -> bool:
        victim = self._dice.choice(self._racers)
        if victim.poll() is not None:
            self.fallen.append(victim.returncode)
        elif number == signal.SIGSTOP:
            return self._sleep(proctable.entry_of(victim.pid))
        else:
            victim.kill()
            victim.wait()
        self._racers.remove(victim)
        self._start()
        return True

    def _someone(self, who: str) -> proctable.Entry | None:
        """Return the worker or the shim of an attempt that goes on."""
        runs = [run for run in self._here.board.watched() if run.process_state == s.ALIVE]
        if not runs:
            return None
        run = self._dice.choice(runs)
        self.runs.add(run.id)
        found = proctable.entry_of(getattr(run, f"{who}_pid") or 0)
        return found if found and found.lives and found.started == getattr(run, f"{who}_started") else None

    def _run(self, who: str, number: signal.Signals) -> bool:
        found = self._someone(who)
        if number == signal.SIGSTOP:
            return self._sleep(found)
        return found is not None and proctable.send(found, number)

    def _gateway(self, number: signal.Signals) -> bool:
        """End a gateway and start another one, or stop it for a while."""
        living = [one for one in self._here.gateways if one.process.poll() is None]
        if not living:
            return False
        victim = self._dice.choice(living)
        if number == signal.SIGSTOP:
            return self._sleep(proctable.entry_of(victim.pid))
        victim.send(signal.SIGCONT)
        if number == signal.SIGKILL:
            self.killed.add(victim.pid)
        victim.stop(number)
        self._here.gateway()
        return True


HITS: dict[str, tuple[float, Callable[[Killer], bool]]] = {
    "racer killed": (6, lambda killer: killer._racer(signal.SIGKILL)),
    "racer stopped": (2, lambda killer: killer._racer(signal.SIGSTOP)),
    "worker killed": (2, lambda killer: killer._run("worker", signal.SIGKILL)),
    "worker stopped": (1, lambda killer: killer._run("worker", signal.SIGSTOP)),
    "shim killed": (2, lambda killer: killer._run("shim", signal.SIGKILL)),
    "shim stopped": (1, lambda killer: killer._run("shim", signal.SIGSTOP)),
    "gateway killed": (0.6, lambda killer: killer._gateway(signal.SIGKILL)),
    "gateway told to end": (0.3, lambda killer: killer._gateway(signal.SIGTERM)),
    "gateway stopped": (0.3, lambda killer: killer._gateway(signal.SIGSTOP)),
}
