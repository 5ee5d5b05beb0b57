"""Homes and boards for the store's tests, opened the way real processes open them."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

from hermes_kanban import boards, compose
from hermes_kanban.base import settings
from hermes_kanban.base.clock import SystemClock
from hermes_kanban.kernel.board import Board
from hermes_kanban.model.task import TaskDraft
from hermes_kanban.store import sqlite, statements

STEPS = tuple(statements.migrations("sqlite"))
CURRENT = STEPS[-1][0]
EXTENDED = (
    *STEPS,
    (
        CURRENT + 1,
        f"{CURRENT + 1:04d}_colour",
        "ALTER TABLE task_rows ADD COLUMN colour TEXT; CREATE INDEX task_rows_colour ON task_rows (colour)",
    ),
    (CURRENT + 2, f"{CURRENT + 2:04d}_shade", "CREATE TABLE shade (name TEXT PRIMARY KEY)"),
)


def environment(home: str | Path, **variables: str) -> compose.Environment:
    """Return what a process in this home is told."""
    given = {"HERMES_HOME": str(home), "HERMES_PROFILE": "tester", "XDG_RUNTIME_DIR": f"{home}-run"} | variables
    return compose.Environment(given, settings.home_folder(given), settings.load(str(home)))


def place(home: str | Path, name: str = boards.DEFAULT) -> boards.Place:
    return boards.place(str(home), name, {})


def make(home: str | Path, name: str = boards.DEFAULT) -> boards.Place:
    """Make a board as `init` does."""
    found = place(home, name)
    compose.create_board(environment(home), found)
    return found


def opened(home: str | Path, name: str = boards.DEFAULT, *, write: bool = True) -> Board:
    """Open a board as a command does."""
    return compose.open_board(environment(home), place(home, name), write=write)


def store_of(board: Board) -> sqlite.SqliteStore:
    store = board._store
    assert isinstance(store, sqlite.SqliteStore)
    return store


def store(path: str | Path, *, read_only: bool = False, **options: Any) -> sqlite.SqliteStore:
    """Open a board's file."""
    return sqlite.SqliteStore(str(path), sqlite.SqliteOptions(**options), SystemClock(), read_only=read_only)


def card(board: Board, key: str, **fields: Any) -> str:
    """Create a card as a script does, and return its id."""
    return board.create(TaskDraft(title=f"card {key}", idempotency_key=key, **fields)).task.id


def handles() -> int:
    """Return how many files this process has open."""
    for folder in ("/proc/self/fd", "/dev/fd"):
        if os.path.isdir(folder):
            return len(os.listdir(folder))
    raise AssertionError("open files cannot be counted here")


def content(path: str | Path) -> tuple[str, str]:
    """Return what a board's file and its log hold; only for a file that nobody has open in this process."""
    found = []
    for name in (str(path), f"{path}-wal"):
        data = Path(name).read_bytes() if os.path.exists(name) else b""
        found.append(hashlib.sha256(data).hexdigest())
    return found[0], found[1]
