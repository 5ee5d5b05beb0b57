"""Who asks from inside of a run: workers that are shells under a real shim, and probes that ask from where they got to.

A probe's way into the world is a line of the worker's shell; how it got there is part of its answer, so that a test
can see that the road was the one it is about.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hermes_kanban.model.run import Run
from tests.processes.home import Home, home
from tests.surfaces.hermes import HERMES

PROBE = str(Path(__file__).with_name("probe.py"))
WORKER, ORCHESTRATOR = "bot", "boss"
_SHELL = 'at="$1/$HERMES_KANBAN_RUN_ID"; mkfifo "$at.in" "$at.out" && exec sh -s >"$at.out" <"$at.in" 2>&1'
_FOLDER = "shells"

Line = list[str]


@contextmanager
def callers_home(folder: Path) -> Iterator[Home]:
    """A home with a gateway and two lanes of shells; who closed its card, or is told to end, has time to go on."""
    shells = str(folder / "home" / _FOLDER)
    lanes = {WORKER: _lane(shells, False), ORCHESTRATOR: _lane(shells, True)}
    with home(folder, lanes, closing_grace_seconds=60, kill_grace_seconds=30) as here:
        (here.path / _FOLDER).mkdir()
        here.gateway()
        yield here


def _lane(shells: str, orchestrates: bool) -> dict[str, Any]:
    return {"type": "command", "argv": ["sh", "-c", _SHELL, "sh", shells], "orchestrates": orchestrates}


class Worker:
    """The worker of a card: a shell that does one line after the other, as long as it is not told to exit.

    Args:
        here: the home.
        lane: whose card it is.
        task: a card that waits for that lane; by default one is made.
    """

    def __init__(self, here: Home, lane: str = WORKER, task: str = "") -> None:
        self.here, self.lane = here, lane
        self.task = task or here.create(f"for {lane}", lane=lane)
        self.run: Run = here.alive(self.task)
        pipe = here.path / _FOLDER / str(self.run.id)
        here.until(Path(f"{pipe}.out").exists)  # and then each end waits for the other
        self._out = open(f"{pipe}.out", "rb")  # noqa: SIM115
        self._in = open(f"{pipe}.in", "wb", buffering=0)  # noqa: SIM115

    @property
    def shim(self) -> int:
        assert self.run.shim_pid is not None
        return self.run.shim_pid

    def __call__(self, line: str) -> tuple[int, str]:
        """Do a line; return its exit code, and what it printed on both streams."""
        self._in.write(f"{{ {line}\n}} </dev/null; _code=$?; echo; echo end $_code\n".encode())
        lines: list[str] = []
        while not (lines and lines[-1].startswith("end ")):
            read = self._out.readline().decode()
            assert read, f"the worker ended: {lines}"
            lines.append(read)
        return int(lines.pop().split()[1]), "".join(lines).strip()

    def kanban(self, *words: str) -> tuple[int, str]:
        """Do a verb of the board."""
        return self(shlex.join(["hermes", "kanban", *words]))

    def does(self, *lines: Line, **variables: str) -> list[int]:
        """Do commands in a child of the worker with more variables; return their exit codes."""
        probe = Probe(self.here, list(lines))
        self(f"{' '.join(f'{name}={shlex.quote(value)}' for name, value in variables.items())} {probe.command}")
        codes: list[int] = probe.answer()["codes"]
        return codes

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_error: object) -> None:
        """Let it end well: there are no more lines."""
        self._in.close()
        self._out.close()


class Probe:
    """One probe: its command line, and its answer.

    Args:
        here: the home; what of it a probe has lost on its way it is given back.
        lines: commands, each a list of words.
        below: the pid that must have adopted it before it asks; 0: it does not matter.
        called: the name that it gives itself.
    """

    def __init__(self, here: Home, lines: list[Line], below: int = 0, called: str = "") -> None:
        self._here = here
        self._plan = here.path / f"plan.{os.urandom(6).hex()}"
        variables = {name: here.hermes.env[name] for name in ("PATH", "HERMES_HOME", "XDG_RUNTIME_DIR")}
        plan = {"lines": lines, "variables": variables, "below": below, "called": called}
        self._plan.write_text(json.dumps(plan), encoding="utf-8")
        self.command = shlex.join([sys.executable, "-I", PROBE, str(self._plan)])

    def answer(self) -> dict[str, Any]:
        """Wait for the answer; `codes` are the exit codes of its lines."""
        done = Path(f"{self._plan}.done")
        self._here.until(done.exists)
        found: dict[str, Any] = json.loads(done.read_text(encoding="utf-8"))
        return found | {"codes": [line["code"] for line in found["lines"]]}


def kanban(*words: str) -> Line:
    """Return the command line of a verb."""
    return [HERMES, "kanban", *words]


def looks_like_the_shim(here: Home, run: int) -> Line:
    """Return the words by which a shell's command line reads as that of a shim of a run."""
    return ["-m", "hermes_kanban.lanes.shim", here.place.database, str(run)]


def log(here: Home, task: str) -> list[tuple[str, str, int | None]]:
    """Return what happened to a card: kind, actor, run."""
    return [(event.kind, event.actor, event.run_id) for event in here.board.events(limit=10_000, task=task)]


def settled(here: Home) -> None:
    """Check that whatever was tried, the home is as its person left it."""
    assert here.gateways[0].process.poll() is None
    assert {row["name"] for row in here.hermes.ask("lanes", "list")} == {WORKER, ORCHESTRATOR}
    assert "sneaky" not in {row["slug"] for row in here.hermes.ask("boards", "list")}
    assert here.hermes.ok("verify") == "ok"
