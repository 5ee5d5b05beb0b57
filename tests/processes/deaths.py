"""The ways in which a worker can die, what each must be judged as, and who may be the one to notice it (T5, C46).

The rows of the matrix are `DEATHS`, its columns `COLUMNS`. All rows of a column happen at once, in one home: a `Scene`.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import apsw

from hermes_kanban.lanes import proctable, runfiles, start
from hermes_kanban.model import exits
from hermes_kanban.model import status as s
from hermes_kanban.model.run import Run
from tests.processes.home import Home, kill, until, worker

NOTHING_READY = 4  # exit code
NEXT_PID = Path("/proc/sys/kernel/ns_last_pid")
LANES = {"puppet": worker("obey"), "limited": worker("obey")}  # a rate limit is a pause for the whole lane
# Nothing is tried again while a test looks, and nobody who may still print is ended before.
VALUES = {"retry_backoff_seconds": 3000, "closing_grace_seconds": 60, "lock_wait_seconds": 10}


@dataclass(frozen=True)
class Verdict:
    """What is booked: on the run, on the card, in its counters (P40 to P45)."""

    status: str
    outcome: str | None
    code: int | None = None
    kind: str | None = None
    failures: int = 0
    counted: int = 0
    violations: int = 0
    reclaims: int = 0
    rate_limits: int = 0


def failed(outcome: str, code: int | None = None, kind: str = "exit", status: str = s.READY) -> Verdict:
    """Return the verdict of a failure that is no violation."""
    return Verdict(status, outcome, code, kind, failures=1, counted=1)


@dataclass
class Scene:
    """A home in which workers die.

    Args:
        home: where.
        runs: the run of each death.
        strangers: processes that were put into freed pids.
    """

    home: Home
    runs: dict[str, Run] = field(default_factory=dict)
    strangers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def begin(self, deaths: dict[str, Death]) -> None:
        """Make a card for each death; somebody who dispatches them is there, or comes."""
        cards = [{"title": name, "assignee": "puppet"} | death.card for name, death in deaths.items()]
        self._deaths, self._tasks = deaths, dict(zip(deaths, self.home.apply(cards), strict=True))

    def prepare(self) -> None:
        """Wait until each has its worker, and let them do what they do before."""
        for name, death in sorted(self._deaths.items(), key=lambda one: not one[1].early):
            self.runs[name] = self.home.alive(self._tasks[name])
            if death.early:
                death.strike(self, self.runs[name])
        for name, death in self._deaths.items():
            for line in death.before:
                self.home.ask(self.runs[name], line)

    def strike(self, deaths: dict[str, Death]) -> None:
        for name, death in deaths.items():
            if not death.early:
                death.strike(self, self.runs[name])

    def verdict(self, death: str) -> Verdict:
        """Return what is booked now."""
        mine = self.runs[death]
        card = self.home.card(mine.task_id)
        run = self.home.find(mine)
        counters = (card.consecutive_failures, card.counted_failures, card.violation_streak)
        streaks = (card.reclaim_streak, card.rate_limit_streak)
        # A shim that is woken to be ended with its worker may still find the time to write down the code, or not.
        code = None if self._deaths[death].stays else run.exit_code
        return Verdict(card.status, run.outcome, code, run.exit_kind, *counters, *streaks)

    def booked(self, death: str) -> bool:
        """Whether the end of a run is known to the board, and that nothing of it is left."""
        mine = self.runs[death]
        return all(run.id != mine.id for run in self.home.board.watched())

    def shim_of(self, run: Run) -> int:
        roster = runfiles.read_roster(self.home.place.runs, run.id)
        assert roster is not None
        return roster.shim[0]

    def dead(self, death: str) -> bool:
        """Whether the end of a run has come to its end, noticed or not: nobody holds its lock."""
        return not runfiles.held(self.home.place.runs, self.runs[death].id)


@dataclass(frozen=True)
class Death:
    """One row of the matrix.

    Args:
        strike: what happens to the run; it may wait for what the system shows.
        verdict: what it is.
        before: what the worker does while its first dispatcher is there.
        card: more keys of the card.
        stays: a process is left that holds the run's lock: only a dispatcher can end it.
        early: it strikes as soon as the worker is there; when it ends is the shim's own affair.
    """

    strike: Callable[[Scene, Run], None]
    verdict: Verdict
    before: tuple[str, ...] = ()
    card: dict[str, object] = field(default_factory=dict)
    stays: bool = False
    early: bool = False


# --- what strikes ---------------------------------------------------------------------------------------------
def told(line: str) -> Callable[[Scene, Run], None]:
    """The worker does it itself."""
    return lambda scene, run: scene.home.tell(run, line)


def signalled(number: signal.Signals) -> Callable[[Scene, Run], None]:
    """A signal to the worker from outside."""
    return lambda _scene, run: kill(run.worker_pid or 0, number)


def shim_signalled(number: signal.Signals) -> Callable[[Scene, Run], None]:
    """A signal to the shim."""
    return lambda scene, run: kill(scene.shim_of(run), number)


def vanished(scene: Scene, run: Run) -> None:
    """Shim and worker are gone in one moment, as after a power cut: nobody could write anything."""
    shim = scene.shim_of(run)
    kill(shim, signal.SIGSTOP)
    kill(run.worker_pid or 0)
    kill(shim)
    until(lambda: not (_lives(shim) or _lives(run.worker_pid or 0)))


def pids_reused(scene: Scene, run: Run) -> None:
    """After it vanished, both pids belong to processes that have nothing to do with it (C15)."""
    shim = scene.shim_of(run)
    vanished(scene, run)
    _collect(shim)
    for pid in (run.worker_pid or 0, shim):
        scene.strangers.append(_stranger(pid))


def stopped_for_a_while(scene: Scene, run: Run) -> None:
    """The shim sleeps while its worker ends."""
    shim = scene.shim_of(run)
    kill(shim, signal.SIGSTOP)
    scene.home.tell(run, "exit 1")
    until(lambda: not _lives(run.worker_pid or 0))
    kill(shim, signal.SIGCONT)


def stopped_for_good(scene: Scene, run: Run) -> None:
    """The shim sleeps for ever, and a person takes the card (P12c)."""
    kill(scene.shim_of(run), signal.SIGSTOP)
    scene.home.hermes.ok("block", run.task_id, "it hangs", "--override")


DEATHS: dict[str, Death] = {
    "0, closed": Death(told("exit 0"), Verdict(s.DONE, s.COMPLETED, 0, "exit"), ("complete",)),
    "0, blocked": Death(told("exit 0"), Verdict(s.BLOCKED, s.BLOCKED, 0, "exit"), ("block",)),
    "0, open": Death(told("exit 0"), Verdict(s.READY, s.PROTOCOL_VIOLATION, 0, "exit", failures=1, violations=1)),
    "1": Death(told("exit 1"), failed(s.FAILED, 1)),
    "1, closed before": Death(told("exit 1"), Verdict(s.DONE, s.COMPLETED, 1, "exit"), ("complete",)),
    "75": Death(
        told("exit 75"), Verdict(s.READY, s.RATE_LIMITED, 75, "exit", rate_limits=1), card={"assignee": "limited"}
    ),
    "78": Death(told("exit 78"), failed(s.CRASHED, 78, exits.TERMINAL_PROVIDER, s.BLOCKED)),
    "SIGTERM": Death(signalled(signal.SIGTERM), failed(s.CRASHED, -signal.SIGTERM, "signal")),
    "SIGKILL": Death(signalled(signal.SIGKILL), failed(s.CRASHED, -signal.SIGKILL, "signal")),
    "stopped": Death(
        signalled(signal.SIGSTOP),
        failed(s.TIMED_OUT, -signal.SIGTERM, "stopped"),
        card={"max_runtime": 12},
        early=True,
    ),
    "zombie child": Death(told("exit 1"), failed(s.FAILED, 1), ("zombie",)),
    "stragglers": Death(told("exit 1"), failed(s.FAILED, 1), ("leave 3",)),
    "fork bomb": Death(told("exit 1"), failed(s.FAILED, 1), ("bomb 4 60",)),
    "shim SIGTERM": Death(shim_signalled(signal.SIGTERM), failed(s.CRASHED, -signal.SIGTERM, "stopped")),
    "shim SIGKILL": Death(shim_signalled(signal.SIGKILL), failed(s.CRASHED, None, "vanished")),
    "shim SIGKILL, closed": Death(
        shim_signalled(signal.SIGKILL), Verdict(s.DONE, s.COMPLETED, None, "vanished"), ("complete",)
    ),
    "shim SIGKILL, stragglers": Death(
        shim_signalled(signal.SIGKILL), failed(s.CRASHED, None, "vanished"), ("leave 3", "bomb 2 40")
    ),
    "shim stopped, continued": Death(stopped_for_a_while, failed(s.FAILED, 1)),
    "shim stopped": Death(stopped_for_good, Verdict(s.BLOCKED, s.RECLAIMED, None, "stopped"), stays=True),
    "vanished": Death(vanished, failed(s.CRASHED, None, "vanished")),
}
REUSED = "reused pids"
if os.access(NEXT_PID, os.W_OK) and os.geteuid() == 0:  # only who may choose pids can try this
    DEATHS[REUSED] = Death(pids_reused, failed(s.CRASHED, None, "vanished"))


# --- who notices ----------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Column:
    """Who starts the workers, and who is to notice how they ended.

    Args:
        by_gateway: a gateway starts them; else a single pass does.
        killed: that gateway is killed before anything happens.
        heir: the next gateway is there by then.
        unseen: the shims can tell nobody: the board cannot be written while it happens.
        notice: what is done afterwards.
        cannot: deaths that cannot be noticed so, with the reason.
    """

    by_gateway: bool
    killed: bool = False
    heir: bool = False
    unseen: bool = False
    notice: Callable[[Home], object] = lambda _home: None
    cannot: dict[str, str] = field(default_factory=dict)

    @property
    def deaths(self) -> dict[str, Death]:
        return {name: death for name, death in DEATHS.items() if name not in self.cannot}


def claim_next(home: Home) -> None:
    """Ask for work as a bridge does. There is none: all that died wait for their next try."""
    answer = home.hermes("claim", "--next")
    assert answer.code == NOTHING_READY, answer


_NO_SHIM = "there is no shim that could report it"
_HOLDS = "only a dispatcher ends processes; until then the card is kept from claimers"
COLUMNS: dict[str, Column] = {
    "its gateway": Column(
        by_gateway=True, cannot={REUSED: "a shim keeps its pid until its parent, the gateway, noticed its end"}
    ),
    "the next gateway": Column(by_gateway=True, killed=True, heir=True),
    "a gateway that comes later": Column(by_gateway=True, killed=True, unseen=True, notice=lambda home: home.gateway()),
    "a single pass": Column(by_gateway=False, unseen=True, notice=lambda home: home.dispatch()),
    "a claimer": Column(by_gateway=False, unseen=True, notice=claim_next, cannot={"shim stopped": _HOLDS}),
    "the shim itself": Column(
        by_gateway=False,
        cannot={"shim stopped": _HOLDS}
        | dict.fromkeys([name for name in DEATHS if name.startswith("shim SIGKILL")], _NO_SHIM)
        | dict.fromkeys(("vanished", REUSED), _NO_SHIM),
    ),
}


def play(scene: Scene, column: Column) -> None:
    """Let all deaths of a column happen and be noticed; afterwards all is booked that ever will be."""
    home, deaths = scene.home, column.deaths
    starter = home.gateway() if column.by_gateway else None
    scene.begin(deaths)
    if starter is None:
        home.dispatch()
    scene.prepare()
    if starter is not None and column.killed:
        starter.kill()
    if column.heir:
        heir = home.gateway()
        home.until(lambda: home.dispatcher() == heir.pid)
    last = {name: death for name, death in deaths.items() if death.stays}
    scene.strike(last)
    rest = {name: death for name, death in deaths.items() if not death.stays}
    if column.unseen:
        with nobody_writes(home):
            scene.strike(rest)
            home.until(lambda: all(scene.dead(name) for name in rest))
        assert not any(scene.booked(name) for name in rest if not rest[name].early)
        column.notice(home)
    else:
        scene.strike(rest)


@contextmanager
def nobody_writes(home: Home) -> Iterator[None]:
    """Keep the board from being written, by holding its write lock; whoever wants to gives up at once."""
    home.configure(lock_wait_seconds=0)
    connection = apsw.Connection(home.place.database)
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")
        connection.close()
        home.configure(**VALUES)


@contextmanager
def adopting() -> Iterator[None]:
    """Get the orphans of this process's children, and collect none before the end: what died stays a zombie."""
    assert start.become_subreaper()
    try:
        yield
    finally:
        ctypes.CDLL(None).prctl(start.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _lives(pid: int) -> bool:
    found = proctable.entry_of(pid)
    return found is not None and found.lives


def _collect(pid: int) -> None:
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def _stranger(pid: int) -> subprocess.Popen[bytes]:
    """Start a process that has exactly this pid."""
    for _ in range(1000):
        _collect(pid)
        NEXT_PID.write_text(str(pid - 1), encoding="ascii")
        made = subprocess.Popen(["sleep", "600"])
        if made.pid == pid:
            return made
        made.kill()
        made.wait()
        time.sleep(0.005)
    raise AssertionError(f"pid {pid} is not to be had")
