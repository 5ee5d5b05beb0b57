"""Raw SQL reads a board and cannot write to it (P72)."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess

import apsw
import pytest

from hermes_kanban.kernel.finish import Handoff
from hermes_kanban.kernel.query import Filter
from hermes_kanban.model import status as s
from hermes_kanban.store.sqlite import GUARD
from tests.world import FULL_REASON, SqliteWorld, World

TABLES = (
    "board_meta",
    "task_rows",
    "task_links",
    "task_comments",
    "task_events",
    "task_runs",
    "task_attachments",
    "kanban_notify_subs",
    "tasks",
)
FILTER = Filter(sort="seq")
PROGRAM = shutil.which("sqlite3")
needs_program = pytest.mark.skipif(PROGRAM is None, reason="there is no sqlite3 program here")


def columns(world: World, table: str) -> list[str]:
    with sqlite3.connect(f"file:{world.store.location}?mode=ro", uri=True) as connection:
        found = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
    connection.close()
    return found


def writes(world: World, table: str) -> list[str]:
    """Return every way to write to a table, on no rows too."""
    names = columns(world, table)
    first = names[0]
    values = ", ".join("1" for _ in names)
    listed = ", ".join(names)
    return [
        f"INSERT INTO {table} ({listed}) VALUES ({values})",
        f"INSERT OR REPLACE INTO {table} ({listed}) VALUES ({values})",
        f"INSERT OR IGNORE INTO {table} ({listed}) SELECT {listed} FROM {table}",
        f"UPDATE {table} SET {first} = {first}",
        f"UPDATE {table} SET {first} = {first} WHERE 0",
        f"UPDATE OR IGNORE {table} SET {names[-1]} = NULL",
        f"DELETE FROM {table}",
        f"DELETE FROM {table} WHERE 0",
    ]


def content(world: World) -> list[str]:
    connection = sqlite3.connect(f"file:{world.store.location}?mode=ro", uri=True)
    try:
        return list(connection.iterdump())
    finally:
        connection.close()


def ask(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the sqlite3 program."""
    assert PROGRAM is not None
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def filled(world: World) -> World:
    """A board on which something has happened."""
    parent = world.card("parent")
    world.card("child", parents=(parent.id,))
    world.person.comment(parent.id, "a fact")
    board, claim = world.claimed(parent)
    board.block(claim.task.id, FULL_REASON, s.NEEDS_INPUT)
    return world


def test_every_table_of_the_schema_is_meant(world: World) -> None:  # P72
    with sqlite3.connect(f"file:{world.store.location}?mode=ro", uri=True) as connection:
        query = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%'"
        assert {row[0] for row in connection.execute(query)} == set(TABLES)
    connection.close()


@pytest.mark.parametrize("table", TABLES)
def test_pythons_module_cannot_write(filled: World, table: str) -> None:  # P72
    before = content(filled)
    connection = sqlite3.connect(filled.store.location)
    try:
        for statement in writes(filled, table):
            with pytest.raises(sqlite3.OperationalError, match="use the command hermes kanban"):
                connection.execute(statement)
            connection.rollback()
    finally:
        connection.close()
    assert content(filled) == before
    filled.verified()


@needs_program
@pytest.mark.parametrize("table", TABLES)
def test_the_sqlite3_program_cannot_write(filled: World, table: str) -> None:  # P72
    before = content(filled)
    for statement in writes(filled, table)[::2]:
        ended = ask(filled.store.location, statement)
        assert ended.returncode != 0
        assert "hermes kanban" in ended.stderr + ended.stdout
    assert content(filled) == before
    filled.verified()


def test_an_upsert_cannot_pass_either(filled: World) -> None:  # P72
    card = filled.person.list(FILTER).cards[0].task
    connection = sqlite3.connect(filled.store.location)
    upsert = "INSERT INTO board_meta VALUES ('board_id', 'x') ON CONFLICT (key) DO UPDATE SET value = 'x'"
    with pytest.raises(sqlite3.OperationalError, match="hermes kanban"):
        connection.execute(upsert)
    connection.close()
    assert filled.task(card) == card


def test_a_cascade_cannot_pass_either(filled: World) -> None:  # P72
    connection = sqlite3.connect(filled.store.location)
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA recursive_triggers = ON")
    with pytest.raises(sqlite3.OperationalError, match="hermes kanban"):
        connection.execute("DELETE FROM task_rows WHERE seq = 1")
    connection.close()
    filled.verified()


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("verb", ["insert", "update", "delete"])
def test_a_missing_guard_is_reported(world: World, table: str, verb: str) -> None:  # P72
    connection = apsw.Connection(world.store.location)
    connection.execute(f"DROP TRIGGER guard_{table}_{verb}")
    connection.close()
    (finding,) = world.person.verify()
    assert f"guard_{table}_{verb} is missing" in finding.problem


def test_the_message_is_the_functions_name(world: World) -> None:  # P72
    assert "hermes kanban" in GUARD
    assert "raw SQL cannot write" in GUARD


# --- the read-only queries that people use (P72) ------------------------------------------------------------------
ALIVE = "SELECT id, title, assignee, last_heartbeat_at\nFROM tasks WHERE status='running';"
FAILED = (
    "SELECT task_id, outcome, error FROM task_runs\n"
    "WHERE outcome NOT IN ('completed', 'reclaimed')\nORDER BY started_at DESC LIMIT 20;"
)


def history(world: World) -> tuple[list[list[str]], list[list[str]]]:
    """Make a running card and two failed attempts; return what both queries must answer."""
    done, _ = world.claimed(world.card("finished"))
    card = world.card("fails")
    for _ in range(2):
        board, _ = world.claimed(card)
        board.block(card.id, FULL_REASON)
        world.person.unblock(card.id)
        world.clock.advance(5)
    _, claim = world.claimed(world.card("runs", assignee="bot"), ttl=60)
    done.complete(world.person.find_id(world.person.list(FILTER).cards[0].task.id), Handoff("ok"))
    beat = str(world.clock.now_ms() // 1000)
    alive = [[claim.task.id, "runs", "bot", beat]]
    return alive, [[card.id, s.OUT_BLOCKED, ""], [card.id, s.OUT_BLOCKED, ""]]


def test_pythons_module_answers_them(world: World) -> None:  # P72
    alive, failed = history(world)
    for query, want in ((ALIVE, alive), (FAILED, failed)):
        connection = sqlite3.connect(f"file:{world.store.location}?mode=ro", uri=True)
        rows = connection.execute(query).fetchall()
        connection.close()
        assert [["" if value is None else str(value) for value in row] for row in rows] == want
    world.verified()


@needs_program
@pytest.mark.parametrize("still_open", [True, False], ids=["while the board is open", "after it was closed"])
def test_the_sqlite3_program_answers_them(world: World, still_open: bool) -> None:  # P72
    alive, failed = history(world)
    location = world.store.location
    if not still_open:
        world.store.close()
    for query, want in ((ALIVE, alive), (FAILED, failed)):
        for argv in ((f"file:{location}?mode=ro", query), ("-readonly", location, query)):
            ended = ask(*argv)
            assert ended.returncode == 0, ended.stderr
            assert [line.split("|") for line in ended.stdout.splitlines()] == want


def test_the_columns_that_people_know_are_there(world: World) -> None:  # P72, P2
    assert {"claim_lock", "claim_expires", "started_at", "worker_pid", "current_run_id"} <= set(columns(world, "tasks"))
    board, claim = world.claimed(ttl=60)
    query = "SELECT claim_lock, claim_expires, started_at, current_run_id FROM tasks WHERE id = ?"
    with sqlite3.connect(f"file:{world.store.location}?mode=ro", uri=True) as connection:
        run = claim.run
        held = connection.execute(query, (claim.task.id,)).fetchone()
        assert held == (run.claim_lock, run.claim_expires, run.started_at, run.id)
        board.complete(claim.task.id, Handoff("ok"))
        assert connection.execute(query, (claim.task.id,)).fetchone() == (None, None, run.started_at, None)
    connection.close()
    assert isinstance(world, SqliteWorld)
