"""Schema steps: numbered, forward, once, after one backup; every board has the same schema."""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import apsw
import pytest

from hermes_kanban.base.errors import StoreRefused
from hermes_kanban.kernel.finish import Handoff
from hermes_kanban.kernel.query import Filter
from hermes_kanban.store import migrate, sqlite, statements
from tests.store import homes
from tests.store.processes import process

NEWEST = homes.EXTENDED[-1][0]
BROKEN = (*homes.EXTENDED[:-1], (NEWEST, "broken", "CREATE TABLE shade (name); INSERT INTO nowhere VALUES (1)"))
# Steps that boards out there have gone through, by the SHA-256 of their text.
RELEASED = {1: "dcbb641a20990474fe05b6d1cb62dd1f49b9729d50273296f642db780639cd71"}
ROWS_OF_1 = Path(__file__).parent / "data" / "rows_of_schema_1.json"  # as release 1 wrote them, a card in each state


def schema(path: str | Path) -> list[tuple[object, ...]]:
    """Return everything that `.schema` shows."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        rows = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name").fetchall()
        return [*rows, ("version", connection.pragma("user_version"), connection.pragma("application_id"), "")]
    finally:
        connection.close()


def version(path: str | Path) -> int:
    found = schema(path)[-1][1]
    assert isinstance(found, int)
    return found


@pytest.fixture
def old(home: Path, database: str) -> str:
    """A board of an older release, with a card, closed."""
    board = homes.opened(home)
    homes.card(board, "kept", body="every word of it")
    homes.store_of(board).close()
    return database


def cards(path: str | Path) -> list[str]:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return [str(row[0]) for row in connection.execute("SELECT title || ': ' || body FROM tasks ORDER BY seq")]
    finally:
        connection.close()


def test_any_two_boards_have_the_same_schema(home: Path, database: str, tmp_path: Path) -> None:
    used = homes.opened(home)
    homes.card(used, "one")
    other = homes.make(tmp_path / "else", "side")
    assert schema(database) == schema(other.database)


def test_an_upgraded_board_has_the_schema_of_a_new_one(old: str, tmp_path: Path) -> None:
    homes.store(old, migrations=homes.EXTENDED).close()
    fresh = str(tmp_path / "fresh.db")
    sqlite.create(fresh, sqlite.SqliteOptions(migrations=homes.EXTENDED), {})
    assert schema(old) == schema(fresh)


@pytest.mark.parametrize("read_only", [False, True])
def test_an_older_board_opens_after_an_update_with_its_data(
    home: Path, old: str, read_only: bool
) -> None:  # C106, C107
    opened = homes.store(old, migrations=homes.EXTENDED, read_only=read_only)
    with opened.read() as tx:
        assert tx.one("schema.meta", key="slug") == ("default",)
    opened.close()
    assert version(old) == NEWEST
    assert cards(old) == ["card kept: every word of it"]


def test_what_is_backed_up_is_the_board_before_once(old: str) -> None:  # C109
    before = schema(old)
    for _ in range(3):
        homes.store(old, migrations=homes.EXTENDED).close()
    folder = Path(old).parent
    backups = [name for name in os.listdir(folder) if ".before-" in name]
    assert backups == [f"kanban.db.before-{NEWEST:04d}"]
    backup = folder / backups[0]
    assert backup.stat().st_mode & 0o777 == 0o600
    assert schema(backup) == before
    assert cards(backup) == ["card kept: every word of it"]
    homes.store(backup).close()  # it is a board, to be opened by the release that made it


def test_a_new_board_needs_no_backup(tmp_path: Path) -> None:
    sqlite.create(str(tmp_path / "kanban.db"), sqlite.SqliteOptions(migrations=homes.EXTENDED), {})
    assert not [name for name in os.listdir(tmp_path) if ".before-" in name]


def test_making_a_board_again_changes_nothing(old: str) -> None:
    before = homes.content(old)
    sqlite.create(old, sqlite.SqliteOptions(), {"board_id": "another"})
    assert homes.content(old) == before


def test_a_step_that_fails_undoes_all_of_them(old: str) -> None:
    before = schema(old)
    for _ in range(20):
        with pytest.raises(StoreRefused, match="nowhere"):
            homes.store(old, migrations=BROKEN)
    assert schema(old) == before
    assert len([name for name in os.listdir(Path(old).parent) if ".before-" in name]) == 1  # C109
    homes.store(old).close()
    homes.store(old, migrations=homes.EXTENDED).close()
    assert version(old) == NEWEST


def test_a_half_written_backup_is_no_backup(old: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_rename(source: str, target: str) -> None:
        raise OSError(28, "No space left on device", source)

    monkeypatch.setattr(migrate.os, "rename", no_rename)
    with pytest.raises(Exception, match="disk full"):
        homes.store(old, migrations=homes.EXTENDED)
    assert version(old) == homes.CURRENT
    assert not [name for name in os.listdir(Path(old).parent) if ".before-" in name]


def test_racing_processes_apply_each_step_once(old: str) -> None:
    with ExitStack() as stack:
        racers = [stack.enter_context(process("upgrade", old)) for _ in range(4)]
        assert [racer.line() for racer in racers] == ["up"] * 4
        for racer in racers:
            racer.go()
        assert [racer.line() for racer in racers] == [str(NEWEST)] * 4
    assert cards(old) == ["card kept: every word of it"]


def test_two_commands_in_the_same_instant_on_an_empty_home_make_one_board(home: Path) -> None:
    with ExitStack() as stack:
        racers = [stack.enter_context(process("init", home)) for _ in range(4)]
        assert [racer.line() for racer in racers] == ["up"] * 4
        for racer in racers:
            racer.go()
        ids = {racer.line() for racer in racers}
        assert [racer.end() for racer in racers] == [0] * 4
    assert len(ids) == 1
    assert len(ids.pop()) == 32
    board = homes.opened(home)
    homes.card(board, "one")
    assert board.verify() == ()


def test_a_newer_board_is_refused_with_the_version_that_it_needs(old: str) -> None:
    homes.store(old, migrations=homes.EXTENDED).close()
    before = homes.content(old)
    for attempt in (
        lambda: homes.store(old),
        lambda: homes.store(old, read_only=True),
        lambda: sqlite.create(old, sqlite.SqliteOptions(), {}),
    ):
        with pytest.raises(StoreRefused) as refusal:
            attempt()
        assert refusal.value.fields == {"reason": "newer_schema", "needs": NEWEST}
        assert f"schema {NEWEST}" in refusal.value.message
        assert "upgrade" in refusal.value.hint
    assert homes.content(old) == before


def test_a_process_that_was_there_before_the_update_stops_writing(home: Path, database: str) -> None:
    board = homes.opened(home)
    homes.card(board, "one")
    homes.store(database, migrations=homes.EXTENDED).close()
    with pytest.raises(StoreRefused) as refusal:
        homes.card(board, "two")
    assert refusal.value.fields["reason"] == "newer_schema"
    assert len(board.list(Filter()).cards) == 1


def test_steps_are_numbered_without_gaps() -> None:
    for number, name, text in statements.migrations("sqlite"):
        assert name.startswith(f"{number:04d}_")
        assert text.strip()


def test_a_released_step_is_never_edited() -> None:  # C106, C107
    texts = {number: hashlib.sha256(text.encode()).hexdigest() for number, _, text in homes.STEPS}
    assert {number: texts[number] for number in RELEASED} == RELEASED


# --- boards of every past version (C106) -------------------------------------------------------------------------
Rows = dict[str, list[dict[str, Any]]]


@pytest.fixture
def first(home: Path) -> tuple[str, Rows]:
    """The home's board as the first release left it, and its rows by table."""
    path, kept = homes.place(home).database, json.loads(ROWS_OF_1.read_text(encoding="utf-8"))
    os.makedirs(home, exist_ok=True)
    sqlite.create(path, sqlite.SqliteOptions(migrations=homes.STEPS[:1]), {})
    rows = {name: [dict(zip(columns, row, strict=True)) for row in found] for name, (columns, *found) in kept.items()}
    connection = apsw.Connection(path)
    connection.create_scalar_function(sqlite.GUARD, lambda *_: None, 0)
    with connection:
        for name, found in rows.items():
            insert = f"INSERT INTO {name} ({', '.join(found[0])}) VALUES ({', '.join(f':{c}' for c in found[0])})"
            connection.executemany(insert, found)
    connection.close()
    return path, rows


def stored(path: str | Path, tables: Rows) -> Rows:
    """Return the rows of these tables as they are in a file, with every column it has."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    connection.row_trace = lambda cursor, row: dict(zip((d[0] for d in cursor.get_description()), row, strict=True))
    try:
        return {name: list(connection.execute(f"SELECT * FROM {name}")) for name in tables}
    finally:
        connection.close()


def test_an_upgrade_from_1_keeps_every_row(first: tuple[str, Rows]) -> None:  # C106, C107
    path, rows = first
    assert version(path) == 1
    homes.store(path).close()
    assert version(path) == sqlite.SCHEMA_VERSION
    now = stored(path, rows)
    added = {"guard": None, "probe_at": None}
    assert now["task_rows"] == [row | added for row in rows["task_rows"]]
    added = {"shim_pid": None, "shim_started": None, "standing_still": 0, "deferred": 0}
    assert [{name: row[name] for name in rows["task_runs"][0] | added} for row in now["task_runs"]] == [
        row | added for row in rows["task_runs"]
    ]
    for name in rows.keys() - {"task_rows", "task_runs"}:
        assert now[name] == rows[name], name


def test_an_upgraded_board_of_1_is_like_a_new_one_and_sound(  # C106
    first: tuple[str, Rows], home: Path, tmp_path: Path
) -> None:
    path, rows = first
    board = homes.opened(home)
    assert schema(path) == schema(homes.make(tmp_path / "else", "side").database)
    assert board.verify() == ()
    listed = board.list(Filter(archived=True, sort="seq", limit=100)).cards
    assert [card.task.id for card in listed] == [row["id"] for row in rows["task_rows"]]
    by_title = {card.task.title: card.task.id for card in listed}
    assert board.complete(by_title["ready"], Handoff("done")).promoted == (by_title["todo"],)
    assert board.runs(by_title["supervised"])[0].open
    assert board.verify() == ()
    homes.store_of(board).close()
