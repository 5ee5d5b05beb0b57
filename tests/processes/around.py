"""What tests need around a home: other boards, other holders of locks, other times, a look at files."""

from __future__ import annotations

import copy
import ctypes
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

from hermes_kanban import boards, compose
from hermes_kanban.model.run import Run
from hermes_kanban.store.sqlite import GUARD
from tests.processes.home import PATIENCE, Home

HOLDER = """
import fcntl, os, sqlite3, sys
queue = os.open(sys.argv[1] + ".lock", os.O_RDWR | os.O_CREAT, 0o600)
fcntl.flock(queue, fcntl.LOCK_EX)
board = sqlite3.connect(sys.argv[1], isolation_level=None)
board.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.read()
"""
IN_OPEN = 0x20


@contextmanager
def beside(here: Home, slug: str) -> Iterator[Home]:
    """Another board of the same home, made if it is not there; what is done with it is done on that board."""
    if slug not in boards.names(str(here.path), here.hermes.env):
        here.hermes.ok("boards", "create", slug)
    other = copy.copy(here)
    other.hermes = here.hermes.set(HERMES_KANBAN_BOARD=slug)
    other.place = boards.place(str(here.path), slug, here.hermes.env)
    other.board = compose.open_reader(here.env, other.place)
    other._feed = other.board.feed()
    try:
        yield other
    finally:
        other._feed.close()


@contextmanager
def locked(database: str) -> Iterator[None]:
    """Another process holds the write lock of a board, and the queue in front of it, for as long as the test wants."""
    argv = [sys.executable, "-I", "-c", HOLDER, database]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        yield
        assert holder.poll() is None


def change(here: Home, statement: str, *values: object) -> int:
    """Change stored times behind the board's back (raw SQL is refused to everybody else, P72); return how many rows."""
    connection = apsw.Connection(here.place.database)
    try:
        connection.create_scalar_function(GUARD, lambda *_: None, 0)
        connection.set_busy_timeout(10_000)
        connection.execute(statement, values)
        return connection.changes()
    finally:
        connection.close()


class Opens:
    """Counts how often somebody opens a file (inotify: Linux)."""

    def __init__(self, path: str) -> None:
        self._path = path
        libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        assert libc.inotify_add_watch(self._descriptor, os.fsencode(path), IN_OPEN) >= 0

    def wait(self) -> None:
        """Wait until it was opened since this was asked last."""
        assert select.select([self._descriptor], [], [], PATIENCE)[0], f"nobody opens {self._path}"
        while select.select([self._descriptor], [], [], 0)[0]:
            os.read(self._descriptor, 65_536)

    def close(self) -> None:
        os.close(self._descriptor)


def files(folder: Path | str) -> dict[str, bytes]:
    """Return every regular file below a folder with its bytes (the index of a write-ahead log is no content)."""
    found = (path for path in sorted(Path(folder).rglob("*")) if path.is_file() and not path.name.endswith("-shm"))
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def cards(here: Home, *titles: str, lane: str = "puppet", **facts: object) -> list[str]:
    """Make many cards in one call; return their ids."""
    own = {"assignee": lane, **facts}
    return here.apply([{"title": title, "idempotency_key": os.urandom(8).hex(), **own} for title in titles])


def now(here: Home) -> int:
    """Return the board's own time, epoch seconds."""
    with here.board._store.read() as tx:
        return tx.now


def shell(line: str, **keys: Any) -> dict[str, Any]:
    """Return a lane that runs this line of a shell; `keys` are more settings of the lane."""
    return {"argv": ["sh", "-c", line]} | keys


def outcomes(here: Home, task: str) -> list[str | None]:
    return [run.outcome for run in here.board.runs(task)]


def gone(here: Home, run: Run) -> bool:
    """Whether nothing of a run is left but, perhaps, its shim on the way out."""
    return not [pid for pid in here.marked(run) if pid != run.shim_pid]
