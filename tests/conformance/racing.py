"""Real processes on one board of a temporary home, which start their work at one signal."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from hermes_kanban import boards, compose
from hermes_kanban.base.settings import Settings
from hermes_kanban.kernel.board import Board

PROLOGUE = """
import json, sys
from contextlib import suppress
from hermes_kanban import boards, compose
from hermes_kanban.base.errors import Refusal
from hermes_kanban.kernel.finish import Handoff
from hermes_kanban.model.task import TaskDraft
env = compose.environment()
board = compose.open_board(env, boards.place(env.home, "default", env.variables), write=True)
print("ready", flush=True)
sys.stdin.readline()
"""


class Racer:
    """One process: it says that it is ready, waits for the signal, works, prints lines."""

    def __init__(self, argv: list[str], environment: dict[str, str]) -> None:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(argv, env=environment, stdin=pipe, stdout=pipe, stderr=pipe, text=True)

    def ready(self) -> None:
        """Wait until the process has opened the board."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line == "ready\n", self._process.communicate(timeout=30)[1]

    def go(self) -> None:
        """Let it begin."""
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def finished(self) -> list[str]:
        """Return the lines that it printed."""
        out, errors = self._process.communicate(timeout=120)
        assert self._process.returncode == 0, errors
        return out.splitlines()


class Home:
    """A home with one board."""

    def __init__(self, folder: Path) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HERMES_")}
        self._variables = kept | {"HERMES_HOME": str(folder / "home"), "TMPDIR": str(folder)}
        (folder / "home").mkdir(mode=0o700)
        self._env = compose.Environment(self._variables, str(folder / "home"), Settings())
        self._place = boards.place(self._env.home, "default", self._variables)
        compose.create_board(self._env, self._place)

    def start(self, code: str, *arguments: str, **variables: str) -> Racer:
        """Start a process that runs this code with `board` open."""
        return Racer([sys.executable, "-c", PROLOGUE + code, *arguments], self._variables | variables)

    def board(self) -> Board:
        """Return the board, to look at."""
        return compose.open_board(self._env, self._place, write=False)

    def broken_order(self) -> list[str]:
        """Return each card that was claimed while a parent of it was not done, by the log's own order."""
        done: set[str] = set()
        parents: dict[str, set[str]] = {}
        broken = []
        for event in self.board().events(limit=100_000):
            card = event.task_id or ""
            if event.kind == "created":
                parents[card] = set(event.payload["parents"])
            elif event.kind == "linked":
                parents[card].add(event.payload["parent"])
            elif event.kind == "completed":
                done.add(card)
            elif event.kind == "claimed" and parents[card] - done:
                broken.append(card)
        return broken
