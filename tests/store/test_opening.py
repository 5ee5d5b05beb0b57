"""What may be opened as a board, and what is refused with its reason; nothing that is refused is changed."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from hermes_kanban import compose
from hermes_kanban.base.errors import BoardNotFound, Busy, Refusal, StoreRefused
from hermes_kanban.store import filesystem, sqlite, statements
from hermes_kanban.store.errors import unsafe_release
from tests.store import homes
from tests.store.processes import ask


def refused(path: str | Path, *, read_only: bool = False, **options: object) -> StoreRefused:
    """Return why a file is refused, for reading and writing alike; it must stay as it is."""
    before = _bytes(path)
    with pytest.raises(StoreRefused) as refusal:
        homes.store(path, read_only=read_only, **options)
    with pytest.raises(StoreRefused) as other:
        homes.store(path, read_only=not read_only, **options)
    assert other.value.fields["reason"] == refusal.value.fields["reason"]
    assert _bytes(path) == before
    assert refusal.value.exit_code == 9
    assert refusal.value.hint
    return refusal.value


def _bytes(path: str | Path) -> bytes:
    return Path(path).read_bytes() if os.path.isfile(path) else b""


# --- the library ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("version", "safe"),
    [
        ("3.51.2", False),
        ("3.51.3", True),
        ("3.54.1", True),
        ("4.0.0", True),
        ("3.50.6", False),
        ("3.50.7", True),
        ("3.44.5", False),
        ("3.44.6", True),
        ("3.45.9", False),
        ("3.7.17", False),
    ],
)
def test_a_library_that_may_lose_writes_is_refused(version: str, safe: bool) -> None:
    refusal = unsafe_release(version)
    assert (refusal is None) is safe
    assert refusal is None or refusal.fields["reason"] == "unsafe_sqlite"


def test_the_library_that_we_use_is_safe() -> None:
    assert unsafe_release(apsw.sqlite_lib_version()) is None


def test_an_unsafe_library_opens_nothing(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: "3.46.0")
    assert refused(database).fields["reason"] == "unsafe_sqlite"


def test_the_hot_path_stays_light() -> None:
    heavy = (
        "typing dataclasses pathlib subprocess logging datetime uuid secrets tempfile shutil inspect socket yaml rich"
    )
    assert not set(heavy.split()) & set(ask("imports"))


# --- where it lies -------------------------------------------------------------------------------------------
def mounts(tmp_path: Path, kind: str) -> str:
    """Write a table of mounts in which the test's disk is of this type."""
    device = os.stat(tmp_path).st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    table = tmp_path / "mountinfo"
    table.write_text(
        "21 1 0:999 / / rw,relatime shared:1 - ext4 /dev/root rw\n"
        f"36 35 {number} /mnt1 /mnt2 rw,noatime master:1 - {kind} somewhere:/x rw,errors=continue\n",
        encoding="utf-8",
    )
    return str(table)


@pytest.mark.parametrize("kind", ["nfs4", "nfs", "cifs", "smb3", "9p", "fuse.sshfs", "virtiofs", "ceph"])
def test_a_network_file_system_is_refused_by_its_name(database: str, tmp_path: Path, kind: str) -> None:  # C113
    refusal = refused(database, mounts=mounts(Path(database).parent, kind))
    assert refusal.fields["reason"] == "network_filesystem"
    assert refusal.fields["filesystem"] == kind
    assert kind in refusal.message
    assert "PostgreSQL" in refusal.hint
    assert "HERMES_ALLOW_NETWORK_FS=1" in refusal.hint


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "tmpfs", "overlay", "zfs"])
def test_a_local_file_system_is_fine(database: str, kind: str) -> None:
    opened = homes.store(database, mounts=mounts(Path(database).parent, kind))
    assert opened.warnings == ()
    opened.close()


def test_nothing_is_made_on_a_network_file_system(home: Path) -> None:  # C113
    home.mkdir()
    options = sqlite.SqliteOptions(mounts=mounts(home, "nfs4"))
    with pytest.raises(StoreRefused):
        sqlite.create(str(home / "kanban.db"), options, {})
    assert not (home / "kanban.db").exists()


def test_it_opens_on_a_network_file_system_when_allowed_and_warns(home: Path, database: str) -> None:
    allowed = homes.environment(home, HERMES_ALLOW_NETWORK_FS="1")
    assert compose.store_options(allowed).allow_network
    assert not compose.store_options(homes.environment(home)).allow_network
    opened = homes.store(database, allow_network=True, mounts=mounts(home, "nfs4"))
    assert "nfs4" in opened.warnings[0]
    opened.close()


def test_a_link_to_a_network_file_system_is_followed(home: Path, database: str, tmp_path: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(database)
    assert filesystem.type_of(str(home), mounts(home, "nfs")) == "nfs"
    assert refused(link, mounts=mounts(home, "nfs")).fields["reason"] == "network_filesystem"


def test_an_unreadable_table_of_mounts_is_no_reason_to_refuse(database: str, tmp_path: Path) -> None:
    assert filesystem.type_of(str(tmp_path), str(tmp_path / "none")) == ""
    (tmp_path / "odd").write_text("no table\n", encoding="utf-8")
    assert filesystem.type_of(str(tmp_path), str(tmp_path / "odd")) == ""
    homes.store(database, mounts=str(tmp_path / "none")).close()


class _Answering(apsw.VFSFile):
    """A file of a system where the journal mode cannot be switched."""

    answer: object = None

    def xFileControl(self, op: int, ptr: int) -> bool:
        if op == apsw.SQLITE_FCNTL_PRAGMA:
            pragma = apsw.VFSFcntlPragma(ptr)
            if pragma.name == "journal_mode":
                if isinstance(self.answer, BaseException):
                    raise self.answer
                pragma.result = str(self.answer)
                return True
        return super().xFileControl(op, ptr)


class _Stubborn(apsw.VFS):
    def __init__(self, name: str, answer: object) -> None:
        self._name, self._answer = name, answer
        super().__init__(name, "")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        made = _Answering("", name, flags)  # type: ignore[arg-type]
        made.answer = self._answer
        return made


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        ("delete", StoreRefused, "write-ahead log"),
        (apsw.ProtocolError("locking protocol"), Busy, "locks"),
        (apsw.BusyError("database is locked"), Busy, "locked"),
    ],
)
def test_a_place_without_a_log_is_refused_clearly(
    tmp_path: Path, answer: object, error: type[Refusal], words: str
) -> None:  # C113
    vfs = _Stubborn("stubborn", answer)
    try:
        with pytest.raises(error) as refusal:
            sqlite.create(str(tmp_path / "kanban.db"), sqlite.SqliteOptions(vfs="stubborn"), {})
    finally:
        vfs.unregister()
    assert words in refusal.value.message
    assert "local disk" in refusal.value.hint or "try again" in refusal.value.hint


@pytest.mark.parametrize("name", ["a b", "a?b#c", "50%25", "x&mode=memory", "ünï", "ab\udcff", "q'uo\"te;"])
def test_any_name_of_a_folder_will_do(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    made = homes.make(folder)
    opened = homes.store(made.database)
    opened.close()
    assert sorted(os.listdir(folder)) == ["kanban", "kanban.db", "kanban.db.lock"]
    assert os.stat(made.database).st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == [name]


def test_a_doubled_slash_in_front_is_no_address(database: str) -> None:
    homes.store(f"/{database}").close()


# --- what lies there -----------------------------------------------------------------------------------------
def test_a_missing_file_is_not_made(tmp_path: Path) -> None:  # C128
    for read_only in (True, False):
        with pytest.raises(BoardNotFound) as refusal:
            homes.store(tmp_path / "kanban.db", read_only=read_only)
        assert "init" in refusal.value.hint
    with pytest.raises(BoardNotFound):
        homes.store(tmp_path / "no" / "kanban.db")
    assert os.listdir(tmp_path) == []


def _text(path: Path) -> None:
    path.write_text("dear diary\n" * 100, encoding="utf-8")


def _one_byte(path: Path) -> None:
    path.write_bytes(b"x")


def _empty(path: Path) -> None:
    path.touch()


def _other_sqlite(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.executescript("CREATE TABLE songs (name)")
    connection.close()


def _other_program(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.executescript("PRAGMA application_id = 77; PRAGMA user_version = 1")
    connection.close()


def _folder(path: Path) -> None:
    path.mkdir()


def _dangling(path: Path) -> None:
    path.symlink_to(path.with_name("gone"))


@pytest.mark.parametrize("make", [_text, _other_sqlite, _other_program, _folder, _dangling])
def test_what_is_no_board_is_refused_and_left_alone(tmp_path: Path, make: Callable[[Path], None]) -> None:
    path = tmp_path / "kanban.db"
    make(path)
    refusal = refused(path)
    assert refusal.fields["reason"] == "not_a_board"
    assert str(path) in refusal.message


@pytest.mark.parametrize("make", [_one_byte, _empty])
def test_a_making_under_way_is_no_board_yet(tmp_path: Path, make: Callable[[Path], None]) -> None:
    path = tmp_path / "kanban.db"
    make(path)
    with pytest.raises(BoardNotFound, match="under way"):
        homes.store(path)


@pytest.mark.parametrize("make", [_text, _other_sqlite, _other_program, _folder])
def test_nor_is_a_board_made_over_it(tmp_path: Path, make: Callable[[Path], None]) -> None:
    path = tmp_path / "kanban.db"
    make(path)
    before = _bytes(path)
    with pytest.raises(StoreRefused):
        sqlite.create(str(path), sqlite.SqliteOptions(), {})
    assert _bytes(path) == before


def test_an_interrupted_making_is_finished_by_the_next(tmp_path: Path) -> None:
    path = tmp_path / "kanban.db"
    _empty(path)
    with pytest.raises(BoardNotFound, match="interrupted"):
        homes.store(path)
    sqlite.create(str(path), sqlite.SqliteOptions(), {"board_id": "b"})
    homes.store(path).close()


def test_a_board_of_hermes_agent_is_recognised(tmp_path: Path) -> None:
    path = tmp_path / "kanban.db"
    connection = sqlite3.connect(path)
    connection.executescript(
        "CREATE TABLE tasks (id TEXT PRIMARY KEY, title TEXT, status TEXT);"
        "CREATE TABLE task_runs (id INTEGER PRIMARY KEY, task_id TEXT);"
        "CREATE TABLE task_events (id INTEGER PRIMARY KEY, task_id TEXT);"
        "INSERT INTO tasks VALUES ('t_1', 'old', 'ready');"
    )
    connection.close()
    refusal = refused(path)
    assert refusal.fields["reason"] == "foreign_board"
    assert "Hermes Agent" in refusal.message
    assert "HERMES_HOME" in refusal.hint
    with pytest.raises(StoreRefused):
        sqlite.create(str(path), sqlite.SqliteOptions(), {})


def test_a_damaged_file_is_refused_not_repaired(home: Path, database: str) -> None:
    board = homes.opened(home)
    for number in range(60):
        homes.card(board, f"n{number}", body="x" * 2000)
    homes.store_of(board).close()
    assert not os.path.exists(f"{database}-wal")
    data = bytearray(Path(database).read_bytes())
    for page in range(4096, len(data), 4096):
        data[page : page + 8] = b"\xde\xad\xbe\xef\xde\xad\xbe\xef"
    Path(database).write_bytes(data)
    before = Path(database).read_bytes()
    with pytest.raises(StoreRefused) as refusal:
        homes.opened(home, write=False).stats()
    assert refusal.value.fields["reason"] == "damaged"
    assert "backup" in refusal.value.hint
    with pytest.raises(StoreRefused):
        homes.card(homes.opened(home), "another")
    assert Path(database).read_bytes() == before


def test_damage_that_no_verb_meets_is_found_by_looking(home: Path, database: str) -> None:
    board = homes.opened(home)
    homes.card(board, "one", body="x" * 20_000)
    homes.store_of(board).close()
    data = bytearray(Path(database).read_bytes())
    overflow = next(p for p in range(0, len(data), 4096) if data[p + 4 : p + 4096] == b"x" * 4092)
    data[overflow : overflow + 4] = (0xFFFFFF).to_bytes(4, "big")  # the chain of a long text leads nowhere
    Path(database).write_bytes(data)
    opened = homes.store(database)
    assert opened.check_integrity()
    opened.close()


def test_a_sound_file_has_nothing_wrong(database: str) -> None:
    opened = homes.store(database)
    assert opened.check_integrity() == []
    assert opened.schema_differences() == []
    opened.close()


def test_the_schema_number_is_that_of_the_last_step() -> None:
    numbers = [number for number, _, _ in statements.migrations("sqlite")]
    assert numbers == list(range(1, sqlite.SCHEMA_VERSION + 1))


def test_a_pipe_or_a_device_is_no_board(tmp_path: Path) -> None:
    pipe = tmp_path / "kanban.db"
    os.mkfifo(pipe, 0o664)
    before = pipe.stat().st_mode
    assert refused(pipe).fields["reason"] == "not_a_board"  # at once: nobody waits for a writer
    with pytest.raises(StoreRefused):
        sqlite.create(str(pipe), sqlite.SqliteOptions(), {})
    assert pipe.stat().st_mode == before
    assert [path.name for path in tmp_path.iterdir()] == ["kanban.db"]


def test_a_board_that_was_replaced_is_not_written_on(tmp_path: Path) -> None:
    path = tmp_path / "kanban.db"
    sqlite.create(str(path), sqlite.SqliteOptions(), {"board_id": "b"})
    store = homes.store(path)
    path.unlink()
    with pytest.raises(BoardNotFound), store.write():
        pass
    sqlite.create(str(path), sqlite.SqliteOptions(), {"board_id": "another"})
    with pytest.raises(BoardNotFound), store.read():
        pass
    store.close()
