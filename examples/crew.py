"""The processes of the demonstration: worker programs, and `watch`, whose lines are the news of the board.

Every process is in a session of its own, so that Ctrl-C in the terminal reaches the demonstration alone, which then
stops what it started: by process id, nothing else.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from examples.kanban_cli import HERMES, Json

ROOT = Path(__file__).resolve().parent.parent
STOP_SECONDS = 4.0


class Crew:
    """The worker programs that run, by name.

    Args:
        env: the environment of all of them; each gets its own name besides.
        logs: the folder for what they print.
    """

    def __init__(self, env: Mapping[str, str], logs: Path) -> None:
        self._env = env
        self._logs = logs
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, program: str, *words: str) -> None:
        """Start `python -m examples.PROGRAM` as the worker of that name."""
        self._logs.mkdir(exist_ok=True)
        with (self._logs / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [sys.executable, "-m", f"examples.{program}", *words],
                cwd=ROOT,
                env={**self._env, "HERMES_KANBAN_NAME": name, "HERMES_KANBAN_ROLE": "bridge"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def kill(self, name: str) -> int:
        """Kill one worker as a power cut would (SIGKILL, this process alone); return its process id."""
        process = self._processes[name]
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        return process.pid

    def exit_codes(self) -> dict[str, int | None]:
        """Return how each worker ended; None for those that run."""
        return {name: process.poll() for name, process in self._processes.items()}

    def working(self) -> bool:
        """Whether any worker still runs."""
        return None in self.exit_codes().values()

    def stop(self) -> None:
        """End the workers that still run, and what they called: SIGTERM, then SIGKILL for who does not listen."""
        running = [process for process in self._processes.values() if process.poll() is None]
        for process in running:
            os.killpg(process.pid, signal.SIGTERM)  # its session: the worker and the command that it waits for
        for process in running:
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


class News:
    """The events of a board as they are committed: `hermes kanban watch` and a thread that reads its lines."""

    def __init__(self, board: str, env: Mapping[str, str]) -> None:
        self._lines: queue.SimpleQueue[Json | None] = queue.SimpleQueue()
        self._process = subprocess.Popen(
            [HERMES, "kanban", "--board", board, "watch", "--since=0"],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            start_new_session=True,
            text=True,
            encoding="utf-8",
        )
        threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True).start()

    def _read(self, lines: IO[str]) -> None:
        try:
            for line in lines:
                self._lines.put(json.loads(line))
        finally:
            self._lines.put(None)

    def take(self, seconds: float) -> list[Json]:
        """Return what is new, waiting that long for the first event.

        Raises:
            EOFError: `watch` has ended.
        """
        fresh: list[Json] = []
        try:
            while True:
                event = self._lines.get(timeout=0 if fresh else seconds)
                if event is None:
                    raise EOFError("`hermes kanban watch` ended by itself")
                fresh.append(event)
        except queue.Empty:
            return fresh

    def stop(self) -> int:
        """End `watch` with SIGINT; return its exit code."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        try:
            return self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()
