"""The processes of the demonstration: the gateway, the bridge, and `watch`, whose lines are the news of the board.

Every process is in a session of its own, so that Ctrl-C in the terminal reaches the demonstration alone, which then
stops what it started: by process id, nothing else.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from examples.kanban_cli import HERMES, Json

ROOT = Path(__file__).resolve().parent.parent  # where the package `examples` lies
STOP_SECONDS = 8.0


class Service:
    """A command that runs until it is told to stop.

    Args:
        argv: the command line.
        env: its whole environment.
        log: the file for what it prints.
    """

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], log: Path) -> None:
        self.log = log
        log.parent.mkdir(mode=0o700, exist_ok=True)
        with log.open("ab") as file:
            self._process = subprocess.Popen(
                argv,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def exit_code(self) -> int | None:
        """How it ended; None while it runs."""
        return self._process.poll()

    def stop(self) -> int:
        """End it with SIGTERM (SIGKILL if it does not listen); return its exit code."""
        if self._process.poll() is None:
            self._process.terminate()
        return _end_of(self._process)


def _end_of(process: subprocess.Popen[bytes]) -> int:
    try:
        return process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


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
        )
        assert self._process.stdout is not None
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True)
        self._reader.start()

    def _read(self, lines: IO[bytes]) -> None:
        try:
            with lines:
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
        code = _end_of(self._process)
        self._reader.join()
        return code


# --- what is left ---------------------------------------------------------------------------------------------
def left_over(home: Path, pids: Sequence[int]) -> list[str]:
    """Return the processes of runs that still live, in words.

    Where there is /proc, everything is found whose environment says that it was started for a run of this home;
    elsewhere the processes that the board knows (`pids`: shims and workers).
    """
    if Path("/proc/self/environ").exists():
        return [f"process {pid}: {_command(pid)}" for pid in _marked(home)]
    return [f"process {pid}" for pid in pids if _runs(pid)]


def _marked(home: Path) -> list[int]:
    mark = f"HERMES_HOME={home}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                variables = (entry / "environ").read_bytes().split(b"\0")
            except OSError:  # gone meanwhile, or another user's
                continue
            if mark in variables and any(one.startswith(b"HERMES_KANBAN_CLAIM_LOCK=") for one in variables):
                found.append(int(entry.name))
    return found


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return "gone by now"


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's by now
        return False
    return True
