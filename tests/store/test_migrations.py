"""Schema steps: numbered, forward, once, after one backup; every board has the same schema."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

import apsw
import pytest

from hermes_kanban.base.errors import StoreRefused
from hermes_kanban.kernel.query import Filter
from hermes_kanban.store import migrate, sqlite, statements
from tests.store import homes
from tests.store.processes import process

NEWEST = homes.EXTENDED[-1][0]
BROKEN = (*homes.EXTENDED[:2], (3, "0003_broken", "CREATE TABLE shade (name); INSERT INTO nowhere VALUES (1)"))


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
    assert version(old) == 1
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
