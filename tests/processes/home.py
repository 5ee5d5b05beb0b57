"""A real home under the hands of a test: gateways that it starts, kills and starts again, and workers that obey it.

    with home(tmp_path) as here:
        here.gateway()
        task = here.create()                     # for the lane `puppet`
        run = here.alive(task)
        here.ask(run, "complete")                # the worker calls `hermes kanban complete`
        here.tell(run, "exit 0")
        card, run = here.ended(task)

Nothing of it is left behind, whatever the test did.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml

from hermes_kanban import boards, compose
from hermes_kanban.base import settings
from hermes_kanban.dispatcher.lease import holder
from hermes_kanban.dispatcher.slots import HOST, Slots
from hermes_kanban.kernel.reader import Reader
from hermes_kanban.lanes import proctable, runfiles
from hermes_kanban.model import status as s
from hermes_kanban.model.run import Run
from hermes_kanban.model.task import Task
from tests.surfaces.hermes import HERMES, Answer, Hermes

FAKE = str(Path(__file__).with_name("fake_worker.py"))
PATIENCE = 60.0  # seconds after which a test gives up; none waits that long when all is well
AGAIN = 0.05  # seconds after which what the board does not tell is looked at again
MANY = 100
EMPTY_LOOKS = 3

# Short graces, and no retry while a test looks. The dispatcher's safety net stays a minute: nothing may need it (D1).
SETTINGS: dict[str, Any] = {
    "durability": "normal",
    "max_in_progress": MANY,
    "spawn_grace_seconds": 3,
    "kill_grace_seconds": 1,
    "closing_grace_seconds": 1,
    "retry_backoff_seconds": 0,
}


def worker(*actions: str, **keys: Any) -> dict[str, Any]:
    """Return a lane whose worker does these actions (see fake_worker.py); `keys` are more settings of the lane."""
    return {"type": "command", "argv": [sys.executable, "-I", FAKE, *actions]} | keys


LANES = {"puppet": worker("obey")}


class Gateway:
    """A gateway that runs, by its pid. `log` is what it says."""

    def __init__(self, argv: list[str], env: Mapping[str, str], log: Path) -> None:
        self.log = log
        with log.open("wb") as out:
            given: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": out}
            self.process = subprocess.Popen(argv, env=dict(env), **given)
        until(lambda: self.said("gateway_started") or self.process.poll() is not None)
        assert self.process.poll() is None, log.read_text(encoding="utf-8")

    @property
    def pid(self) -> int:
        return self.process.pid

    def said(self, event: str = "") -> list[dict[str, Any]]:
        """Return the lines of its log (of one event); one that is no JSON is of the event `words`."""
        lines = self.log.read_text(encoding="utf-8").split("\n")[:-1]
        return [fact for fact in map(_fact, lines) if event in ("", fact["event"])]

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        """End it by SIGKILL."""
        self.process.kill()
        self.process.wait()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Ask it to end and wait; return its exit code."""
        self.send(number)
        return self.process.wait(PATIENCE)


class Home:
    """One home with a default board, and a reader of it in this process.

    Args:
        folder: where it is made.
        runtime: a folder for sockets with a short path.
        lanes: lanes by name.
        values: more of `kanban:` in config.yaml.
    """

    def __init__(self, folder: Path, runtime: str, lanes: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        self.path = folder / "home"
        self.path.mkdir(parents=True)
        (self.path / "puppets").mkdir(mode=0o700)
        self.lanes, self.values = dict(lanes), {**SETTINGS, **values}
        self.configure()
        self.hermes = Hermes(self.path, XDG_RUNTIME_DIR=runtime)
        self.hermes.ok("init")
        self.env = compose.Environment(self.hermes.env, str(self.path), settings.load(str(self.path)))
        self.place = boards.place(str(self.path), boards.DEFAULT, self.hermes.env)
        self.board: Reader = compose.open_reader(self.env, self.place)
        self._feed = self.board.feed()
        self.gateways: list[Gateway] = []

    def configure(self, **values: Any) -> None:
        """Write config.yaml with these values changed; gateways that run read it again."""
        self.values |= values
        document = {"kanban": self.values | {"lanes": self.lanes}}
        half = self.path / "config.half"
        half.write_text(yaml.safe_dump(document), encoding="utf-8")
        half.rename(self.path / "config.yaml")

    # --- who dispatches ---
    def gateway(self, *words: str, **variables: str) -> Gateway:
        """Start a gateway; it has said that it runs."""
        log = self.path / f"gateway.{len(self.gateways)}.log"
        made = Gateway([HERMES, "gateway", "start", *words], self.hermes.env | variables, log)
        self.gateways.append(made)
        return made

    def dispatch(self, *words: str) -> dict[str, Any]:
        """Do one pass; return its report."""
        report: dict[str, Any] = self.hermes.ask("dispatch", *words)
        return report

    def dispatcher(self) -> int | None:
        """Return the pid of who has dispatched this board at least once and still may."""
        return (holder(self.place.folder) or {}).get("pid")

    # --- cards and runs ---
    def create(self, title: str = "card", *words: str, lane: str = "puppet") -> str:
        """Make a card for a lane; return its id."""
        return self.hermes.create(title, "--assignee", lane, *words)

    def apply(self, cards: list[dict[str, Any]]) -> list[str]:
        """Make a graph of cards in one call (`hermes kanban apply`); return their ids in the same order."""
        return self.hermes.ok("apply", "-", "-q", stdin=json.dumps(cards).encode()).split()

    def card(self, task: str) -> Task:
        return self.board.show(task, events=1).task

    def run(self, task: str) -> Run | None:
        """Return the last attempt at a card."""
        return next(reversed(self.board.runs(task)), None)

    def find(self, run: Run) -> Run:
        """Return a run as it is now."""
        return next(found for found in self.board.runs(run.task_id) if found.id == run.id)

    def kinds(self, task: str) -> list[str]:
        """Return the kinds of a card's events, in order."""
        return [event.kind for event in self.board.events(limit=10_000, task=task)]

    def alive(self, task: str) -> Run:
        """Wait until an attempt at the card is under way; return it."""
        self.until(lambda: (run := self.run(task)) and run.process_state == s.ALIVE)
        run = self.run(task)
        assert run is not None
        return run

    def ended(self, task: str) -> tuple[Task, Run]:
        """Wait until the last attempt at the card is over and proven so; return both."""
        self.until(lambda: (run := self.run(task)) and not run.open and run.process_state == s.ENDED)
        run = self.run(task)
        assert run is not None
        return self.card(task), run

    def until(self, true: Callable[[], object]) -> None:
        """Wait until something is so; a change of the board wakes, other things are looked at again in a moment."""
        deadline = time.monotonic() + PATIENCE
        while not true():
            assert time.monotonic() < deadline, f"it never came to be\n{self.trouble()}"
            self._feed.wait(AGAIN)

    def trouble(self) -> str:
        """Return what may explain a failure: the ends of the gateways' logs, and the attempts."""
        logs = [f"--- {one.log.name}\n{one.log.read_text(encoding='utf-8')[-1500:]}" for one in self.gateways]
        runs = [f"{run.task_id} {run.id} {run.process_state} {run.outcome}" for run in self.board.watched()]
        return "\n".join([*logs, "--- not proven ended", *runs])

    # --- puppets ---
    def tell(self, run: Run, line: str) -> None:
        """Have a puppet do something, and do not wait: it may end by it."""
        pipe = self._pipe(run)
        self.until(lambda: _write(pipe, line))

    def ask(self, run: Run, line: str) -> None:
        """Have a puppet do something, and wait until it has done it."""
        did = Path(f"{self._pipe(run)}.did")
        before = _lines(did)
        self.tell(run, line)
        self.until(lambda: _lines(did) > before)

    def _pipe(self, run: Run) -> Path:
        return self.path / "puppets" / f"{self.place.slug}.{run.id}"

    # --- what is there ---
    def marked(self, run: Run) -> list[int]:
        """Return which processes of a run live, by the mark in their environment: its shim and all below."""
        everybody = proctable.table()
        return [pid for pid in proctable.marked(everybody, run.claim_lock or "") if everybody[pid].lives]

    def processes(self) -> list[proctable.Entry]:
        """Return every process that lives in this home, gateways too."""
        meant = f"HERMES_HOME={self.path}".encode()
        return [one for one in proctable.table().values() if one.lives and meant in _environment(one.pid)]

    def locks(self) -> list[int]:
        """Return the runs whose lock is held."""
        found = Path(self.place.runs).glob("*.lock")
        return [int(path.stem) for path in found if runfiles.held(self.place.runs, int(path.stem))]

    def slots(self) -> int:
        """Return how many of the host's slots are taken."""
        return MANY - Slots(str(self.path / "kanban" / "slots")).free(HOST, MANY)

    def clean_up(self) -> None:
        """End everything that lives in this home."""
        self._feed.close()
        deadline = time.monotonic() + PATIENCE
        empty = 0
        while empty < EMPTY_LOOKS:  # who forks just now may be missed by one
            found = self.processes()
            empty = 0 if found else empty + 1
            assert time.monotonic() < deadline, found
            for one in found:
                proctable.send(one, signal.SIGKILL)
            time.sleep(AGAIN)
        for gateway in self.gateways:
            gateway.process.wait()


@contextmanager
def home(folder: Path, lanes: Mapping[str, Any] | None = None, **values: Any) -> Iterator[Home]:
    """A fresh home with lanes (by default `puppet`) and settings; nothing of it runs on afterwards."""
    with tempfile.TemporaryDirectory(prefix="hk") as runtime:
        made = Home(folder, runtime, LANES if lanes is None else lanes, values)
        try:
            yield made
        finally:
            made.clean_up()


def until(true: Callable[[], object]) -> None:
    """Wait until something that the system shows is so."""
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.005)


def kill(pid: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Send a signal to a process that the test knows to be its own."""
    os.kill(pid, number)


def _fact(line: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(line) if line.startswith("{") else {"event": "words", "text": line}
    return found


def _write(pipe: Path, line: str) -> bool:
    """Write a line to a puppet that listens; false while it does not."""
    try:
        descriptor = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:  # not made yet, or nobody reads
        return False
    try:
        os.write(descriptor, f"{line}\n".encode())
    finally:
        os.close(descriptor)
    return True


def _lines(path: Path) -> int:
    with suppress(FileNotFoundError):
        return path.read_bytes().count(b"\n")
    return 0


def _environment(pid: int) -> list[bytes]:
    with suppress(OSError):
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return []


__all__ = ["Answer", "Gateway", "Home", "home", "kill", "until", "worker"]
