"""A real shim under the hands of a test: its order, its channel, its files, and waits that end when it says so."""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import socket
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from hermes_kanban.lanes import channel, procset, proctable, runfiles
from hermes_kanban.model.exits import ExitRecord

PATIENCE = 20.0  # seconds after which a test gives up; none waits that long when all is well
RUN = 7
HIGH = 200

YES = {"ok": True, "state": "open"}


def py(text: str) -> tuple[str, ...]:
    """Return the command line of a worker that runs this Python text."""
    return (sys.executable, "-I", "-u", "-c", text)


class Shim:
    """One shim that was started, and the starter's end of its channel."""

    def __init__(
        self,
        folder: Path,
        argv: tuple[str, ...],
        extra: Mapping[str, str],
        changes: Mapping[str, Any],
        program: tuple[str, ...],
    ) -> None:
        self.folder = folder
        self.runs = folder / "runs"
        self.log = folder / "logs" / "t_ab.log"
        self.log.parent.mkdir(exist_ok=True)
        (folder / "work").mkdir(exist_ok=True)
        self.mark = f"host:1:{uuid.uuid4()}"
        self.order = {
            **{"run": RUN, "task": "t_ab", "lock": self.mark, "argv": list(argv), "workspace": str(folder / "work")},
            **{"log": str(self.log), "log_bytes": 1_000_000, "folder": str(self.runs), "report": []},
            **{"socket": str(folder / "7.shim"), "ttl": 900, "beat": 30, "max_runtime": None, "kill_grace": 0.5},
            **{"closing_grace": 0.5, "memory_limit": 0, "wait_for": "leader", "policy": "require_call"},
            **changes,
        }
        self.lines = channel.Lines()
        self.inbox: list[dict[str, Any]] = []
        self.status: int | None = None
        environment = {"PATH": os.environ["PATH"], "HERMES_KANBAN_CLAIM_LOCK": self.mark, **extra}
        self.pid, self.channel = launch(self.runs, environment, program=program)

    # --- the channel ---
    def say(self, **message: Any) -> None:
        channel.send(self.channel, message)

    def hear(self, op: str) -> dict[str, Any]:
        """Return the next message of this kind; those before it are passed over."""
        while True:
            while self.inbox:
                found = self.inbox.pop(0)
                if found.get("op") == op:
                    return found
            assert self.listen(), f"the shim closed its channel before it said {op}"

    def listen(self, patience: float = PATIENCE) -> bool:
        """Take in what comes next; false at the end of the channel."""
        assert select.select([self.channel], [], [], patience)[0], "the shim says nothing"
        data = self.channel.recv(65_536)
        self.inbox += self.lines.feed(data)
        return bool(data)

    def begin(self, answer: Mapping[str, Any] = YES) -> dict[str, Any]:
        """Give the order, and answer its first message; return that."""
        self.say(**self.order)
        started = self.hear("started")
        self.say(**answer)
        return started

    def hang_up(self) -> None:
        self.channel.close()

    # --- its end ---
    def end(self) -> ExitRecord | None:
        """Answer whatever it says until it is gone; return what it left."""
        with suppress(OSError):
            while self.listen():
                for _ in self.inbox:
                    self.say(**YES)
                self.inbox.clear()
        self.wait()
        return self.record()

    def wait(self) -> int:
        """Wait until the shim has ended."""
        if self.status is None:
            until(self._has_ended)
        assert self.status is not None
        return self.status

    def _has_ended(self) -> bool:
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid:
            self.status = os.waitstatus_to_exitcode(status)
        return bool(pid)

    def record(self) -> ExitRecord | None:
        return runfiles.read_exit(str(self.runs), RUN)

    def held(self) -> bool:
        return runfiles.held(str(self.runs), RUN)

    def text(self) -> str:
        """Return the log."""
        return self.log.read_text(errors="surrogateescape") if self.log.exists() else ""

    def left(self) -> list[int]:
        """Return which processes that carry the run's mark are still there."""
        everybody = proctable.table()
        return [pid for pid in proctable.marked(everybody, self.mark) if everybody[pid].lives]

    def clean_up(self) -> None:
        self.channel.close()
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        roster = runfiles.read_roster(str(self.runs), RUN)
        assert procset.destroy(self.mark, roster, 0)


PROGRAM = ("-m", "hermes_kanban.lanes.shim")


def launch(
    runs: Path, environment: Mapping[str, str], slots: tuple[int, ...] = (), program: tuple[str, ...] = PROGRAM
) -> tuple[int, socket.socket]:
    """Start a shim the way its contract says: 0 the channel, 1 and 2 the null device, 3 the lock, then slots."""
    ours, theirs = socket.socketpair()
    lock = runfiles.take_lock(str(runs), RUN)
    null = os.open(os.devnull, os.O_RDWR)
    given = (theirs.fileno(), null, null, lock, *slots)
    high = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, HIGH) for descriptor in given]
    argv = [sys.executable, "-I", *program, "/nowhere/kanban.db", str(RUN)]
    actions = [(os.POSIX_SPAWN_DUP2, descriptor, number) for number, descriptor in enumerate(high)]
    pid = os.posix_spawn(argv[0], argv, dict(environment), file_actions=actions, setsid=True)
    for descriptor in (*high, lock, null):
        os.close(descriptor)
    theirs.close()
    return pid, ours


@contextmanager
def shim(
    folder: Path,
    argv: tuple[str, ...],
    extra: Mapping[str, str] | None = None,
    program: tuple[str, ...] = (),
    **changes: Any,
) -> Iterator[Shim]:
    """A shim with an order to run this command line; nothing of it is left behind."""
    made = Shim(folder, argv, extra or {}, changes, program or PROGRAM)
    try:
        yield made
    finally:
        made.clean_up()


def until(true: Any) -> None:
    """Wait until something that the system shows is so."""
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.005)


def alive(pid: int) -> bool:
    found = proctable.entry_of(pid)
    return found is not None and found.lives


def pids_in(path: Path, many: int = 1) -> list[int]:
    """Wait until a worker has written so many pids into a file, and return them."""
    until(lambda: path.exists() and len(path.read_text().split("\n")) > many)
    return [int(line) for line in path.read_text().split()]


def as_json(path: Path) -> Any:
    return json.loads(path.read_text())
