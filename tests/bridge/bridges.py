"""Bridges as real processes in a home of a test, with puppets (see `tests/processes/home.py`) for their programs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

from hermes_kanban.lanes import runfiles
from hermes_kanban.model import status as s
from hermes_kanban.model.run import Run
from tests.processes.home import FAKE, PATIENCE, Home, home, until
from tests.surfaces.hermes import HERMES

NAME = "bot"
PUPPET = (sys.executable, "-I", FAKE, "obey")
FREE = ("external_assignees", [NAME, "rev", "ann"])
KEEPS = "import sys; open(sys.argv[1], 'ab').write(sys.stdin.buffer.read())"


def program(*actions: str) -> tuple[str, ...]:
    """Return the command line of a worker that does these actions and ends (see `tests/processes/fake_worker.py`)."""
    return (sys.executable, "-I", FAKE, *actions)


class Pull:
    """A bridge that runs.

    Args:
        here: whose home.
        words: options of `hermes kanban bridge`.
        argv: the program; empty where the options name a lane.
        variables: more of the environment.
    """

    made = 0

    def __init__(self, here: Home, *words: str, argv: tuple[str, ...] = PUPPET, **variables: str) -> None:
        Pull.made += 1
        self.log = here.path / f"bridge.{Pull.made}.log"
        self.out = here.path / f"bridge.{Pull.made}.out"
        whose = () if "--assignee" in words else ("--assignee", NAME)
        command = [HERMES, "kanban", "bridge", *whose, *words, *(("--", *argv) if argv else ())]
        with self.log.open("wb") as log, self.out.open("wb") as out:
            given: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": log}
            self.process = subprocess.Popen(command, env=here.hermes.env | variables, **given)
        here.bridges.append(self.process)  # type: ignore[attr-defined]

    @property
    def pid(self) -> int:
        return self.process.pid

    def said(self, event: str = "") -> list[dict[str, Any]]:
        """Return the lines of its log (of one kind); a line that is no JSON is a traceback."""
        lines = self.log.read_text(encoding="utf-8").split("\n")[:-1]
        return [fact for fact in map(json.loads, lines) if event in ("", fact["event"])]

    def hears(self, event: str, times: int = 1) -> dict[str, Any]:
        """Wait until it has said something so often; return the last time."""
        try:
            until(lambda: len(self.said(event)) >= times or self.process.poll() is not None)
        except AssertionError:
            raise AssertionError(self.log.read_text(encoding="utf-8")) from None
        found = self.said(event)
        assert len(found) >= times, self.log.read_text(encoding="utf-8")
        return found[times - 1]

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        """End it by SIGKILL."""
        self.process.kill()
        self.process.wait()

    def wait(self) -> int:
        """Wait until it leaves by itself; return its exit code. It never prints anything to stdout."""
        code = self.process.wait(PATIENCE)
        assert self.out.read_bytes() == b""
        return code

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Ask it to end and wait; return its exit code."""
        self.send(number)
        return self.wait()


@contextmanager
def pulled(folder: Path, **values: Any) -> Iterator[Home]:
    """A home without lanes whose cards wait for bridges."""
    with home(folder, {}, **dict([FREE]), **values) as made:
        made.bridges = []  # type: ignore[attr-defined]
        try:
            yield made
        finally:
            for one in made.bridges:  # type: ignore[attr-defined]
                one.kill()
                one.wait()


def create(here: Home, title: str = "card", *words: str) -> str:
    """Make a card for the bridge; return its id."""
    return here.create(title, *words, lane=NAME)


def shim_of(here: Home, run: Run) -> int:
    """Return the pid of a run's shim."""
    here.until(lambda: runfiles.read_roster(here.place.runs, run.id))
    found = runfiles.read_roster(here.place.runs, run.id)
    assert found is not None
    return found.shim[0]


def open_runs(here: Home, *tasks: str) -> int:
    """Return how many of these cards are held."""
    return sum(run is not None and run.open for run in map(here.run, tasks))


def reason(here: Home, task: str) -> dict[str, Any]:
    """Return the five parts of a card's block."""
    found = here.card(task).block_fields
    assert found is not None
    assert set(found) == {"cause", "what", "options", "recommendation", "next_action"}  # P25
    return found


def keeper(here: Home) -> tuple[str, Path]:
    """Return an alert command, and the file that gets what it was told."""
    kept = here.path / "alerts"
    return f"{sys.executable} -I -c {_quoted(KEEPS)} {_quoted(str(kept))}", kept


def _quoted(text: str) -> str:
    return f'"{text}"'


def alerts(kept: Path) -> list[dict[str, Any]]:
    """Return what the alert command was told, call by call."""
    return [json.loads(line) for line in kept.read_text(encoding="utf-8").splitlines()] if kept.exists() else []


@contextmanager
def unwritable(here: Home) -> Iterator[None]:
    """Keep the board from being written."""
    connection = apsw.Connection(here.place.database)
    connection.set_busy_timeout(10_000)
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")
        connection.close()


@contextmanager
def caught_before_the_start(here: Home, number: int) -> Iterator[None]:
    """Catch a run after its claim, before it can come alive: its shim asks, and the board cannot be written (D11).

    The lock of a run is made when all is written that the bridge knows of it; its shim is a process, which takes far
    longer to be there than the write lock takes to be had.
    """
    leave = threading.Event()

    def catch() -> None:
        path = runfiles.lock_path(here.place.runs, number)
        until(lambda: os.path.exists(path))
        with unwritable(here):
            leave.wait(PATIENCE)

    thread = threading.Thread(target=catch)
    thread.start()
    try:
        yield
    finally:
        leave.set()
        thread.join()


def asks(here: Home, task: str) -> tuple[Run, int]:
    """Wait until the shim of a caught run asks for its start; return the run, and the shim's pid."""
    here.until(lambda: here.run(task))
    run = here.run(task)
    assert run is not None
    shim = shim_of(here, run)
    run = here.find(run)
    assert (run.supervised, run.process_state) == (False, s.UNKNOWN), "it was not caught"
    return run, shim
