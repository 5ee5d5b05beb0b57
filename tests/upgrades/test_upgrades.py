"""Boards of every schema that was ever released open with this code, and keep every row (T10, C106, C107, C109).

A new migration needs: the frozen files of its predecessor (`freeze.py`, and their sums here) and a row in `ADDED`.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import apsw
import pytest

from hermes_kanban.base.errors import StoreRefused
from hermes_kanban.kernel.verbs import BY_NAME
from hermes_kanban.model import event, status
from hermes_kanban.store import sqlite
from tests.fuzz.ground import CALLERS, PERSON, Ground
from tests.fuzz.judge import harmless
from tests.store import homes
from tests.upgrades.freeze import FULL, HERE, rows

Rows = dict[str, list[list[Any]]]
SUMS = {
    "schema_1.db.gz": "6f64a92548c255ce84064ef30b80c90bd6eb2b685981a9182d3b2b39e2125296",
    "schema_1.json": "28001d1a4ad44557a8d0c2fec80fa99600024b955174dde4eb67b60a676b3e8a",
    "schema_2.db.gz": "dbc4e40428cf75c84b85e2bb5ed952dc8757c9c0e5416dd8a53a18c8b3ebdc68",
    "schema_2.json": "d66eb146584084764e5919617e440533da1f503bcf95e3147bdb204cf64ac726",
}
# For each schema the columns that its migration adds, with what they hold on rows that were there before.
ADDED: dict[int, dict[str, dict[str, Any]]] = {
    2: {
        "task_rows": {"probe_at": None, "guard": None},
        "task_runs": {"shim_pid": None, "shim_started": None, "standing_still": 0, "deferred": 0},
    },
}
NEWEST = homes.CURRENT
VERSIONS = tuple(range(1, NEWEST + 1))
OLDER = VERSIONS[:-1]
MOST_BYTES = 100_000


def unpack(version: int, path: str | Path) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    Path(path).write_bytes(gzip.decompress((HERE / f"schema_{version}.db.gz").read_bytes()))


def kept(version: int) -> Rows:
    """Return the rows of a frozen board as they were."""
    found: Rows = json.loads((HERE / f"schema_{version}.json").read_text(encoding="utf-8"))
    return found


def expected(version: int) -> dict[str, list[dict[str, Any]]]:
    """Return the rows as they must be after the upgrade: every old value as it was, new columns as declared."""
    found = {
        name: [dict(zip(names, row, strict=True)) for row in rest] for name, (names, *rest) in kept(version).items()
    }
    for later in range(version + 1, NEWEST + 1):
        for table, columns in ADDED[later].items():
            found[table] = [row | columns for row in found[table]]
    return found


def stored(path: str | Path) -> dict[str, list[dict[str, Any]]]:
    return {name: [dict(zip(names, row, strict=True)) for row in rest] for name, (names, *rest) in rows(path).items()}


def about(path: str | Path) -> tuple[Any, ...]:
    """Return version, mark, integrity and everything that `.schema` shows."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        objects = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY 1, 2").fetchall()
        marks = [connection.pragma(name) for name in ("user_version", "application_id", "integrity_check")]
        return (*marks, connection.execute("PRAGMA foreign_key_check").fetchall(), objects)
    finally:
        connection.close()


@pytest.fixture(params=VERSIONS, ids=lambda version: f"schema {version}")
def board(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[int, str, Path]:
    """A home whose default board is the frozen one of a schema: version, file, home."""
    home = tmp_path / "home"
    path = homes.place(home).database
    unpack(request.param, path)
    return request.param, path, home


# --- the files ------------------------------------------------------------------------------------------------
def test_every_schema_has_its_frozen_files_and_none_was_altered() -> None:  # T10
    made = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in HERE.iterdir()}
    assert made == SUMS, "run tests/upgrades/freeze.py for a new schema; a frozen file is never made again"
    assert {f"schema_{version}.{kind}" for version in VERSIONS for kind in ("db.gz", "json")} == set(SUMS)
    assert set(ADDED) == set(VERSIONS[1:])
    assert all(path.stat().st_size < MOST_BYTES for path in HERE.iterdir())


@pytest.mark.parametrize("version", VERSIONS)
def test_a_frozen_board_is_of_its_schema_and_has_rows_of_every_kind(version: int, tmp_path: Path) -> None:  # T10
    path = tmp_path / "kanban.db"
    unpack(version, path)
    assert about(path)[:3] == (version, 0x484B_4231, "ok")
    assert rows(path) == kept(version)
    found = expected(version)
    assert all(found.values()), [name for name, rest in found.items() if not rest]
    assert {row["status"] for row in found["task_rows"]} == set(status.STATES)
    assert {row["outcome"] for row in found["task_runs"]} >= {*status.OUTCOMES, None} - {"scheduled"}
    assert {row["supervised"] for row in found["task_runs"]} == {0, 1}
    assert len({row["kind"] for row in found["task_events"]} & set(event.KINDS)) > 25
    assert any("\x1b" in (row["body"] or "") for row in found["task_rows"])
    for column in ("idempotency_key", "block_fields", "reviewer", "max_retries", "answer_comment_id", "eligible_at"):
        assert any(row[column] is not None for row in found["task_rows"]), column


def test_no_frozen_row_names_the_place_where_it_was_made() -> None:
    for version in VERSIONS:
        with gzip.open(HERE / f"schema_{version}.db.gz") as handle:
            data = handle.read()
        here = f"/{Path(__file__).resolve().parts[1]}/".encode()  # where this checkout is, too
    assert not [word for word in (b"/tmp/", b"/dev/", b"/root/", b"/hk", here) if word in data], version


# --- the upgrade ----------------------------------------------------------------------------------------------
def test_an_upgrade_keeps_every_row_and_column(board: tuple[int, str, Path]) -> None:  # T10, C106, C107
    version, path, home = board
    opened = homes.opened(home)
    assert opened.verify() == ()
    homes.store_of(opened).close()
    assert stored(path) == expected(version)


def test_an_upgraded_board_has_the_schema_of_a_new_one(board: tuple[int, str, Path], tmp_path: Path) -> None:  # T10
    _version, path, home = board
    homes.store_of(homes.opened(home)).close()
    assert about(path) == about(homes.make(tmp_path / "fresh").database)
    assert about(path)[2:4] == ("ok", [])


@pytest.mark.parametrize("version", OLDER)
@pytest.mark.parametrize("read_only", [False, True])
def test_the_backup_is_the_old_board_row_by_row(version: int, read_only: bool, tmp_path: Path) -> None:  # C109
    path = tmp_path / "kanban.db"
    unpack(version, path)
    for _ in range(2):
        homes.store(path, read_only=read_only).close()
    (backup,) = tmp_path.glob("*.before-*")
    assert backup.name == f"kanban.db.before-{NEWEST:04d}"
    assert backup.stat().st_mode & 0o777 == 0o600
    assert about(backup)[:3] == (version, 0x484B_4231, "ok")
    assert rows(backup) == kept(version)


def test_the_newest_board_is_opened_without_a_backup(tmp_path: Path) -> None:
    path = tmp_path / "kanban.db"
    unpack(NEWEST, path)
    homes.store(path).close()
    assert not list(tmp_path.glob("*.before-*"))
    assert rows(path) == kept(NEWEST)


@pytest.mark.parametrize("version", OLDER)
def test_a_second_upgrade_from_the_backup_is_the_same(version: int, tmp_path: Path) -> None:  # T10
    path = tmp_path / "kanban.db"
    unpack(version, path)
    homes.store(path).close()
    (backup,) = tmp_path.glob("*.before-*")
    again = tmp_path / "again" / "kanban.db"
    again.parent.mkdir()
    again.write_bytes(backup.read_bytes())
    homes.store(again).close()
    assert (rows(again), about(again)) == (rows(path), about(path))


# --- killed in the midst --------------------------------------------------------------------------------------
_KILLED = """
import os, signal, sys
import apsw
from hermes_kanban.store import migrate
from tests.store import homes
left = int(sys.argv[2])
def count(*_words):
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return True
begin = migrate.migrate
def traced(connection, *words):
    connection.exec_trace = count
    begin(connection, *words)
    connection.exec_trace = None
migrate.migrate = traced
homes.sqlite.migrate = migrate
homes.store(sys.argv[1]).close()
"""


@pytest.mark.parametrize("version", OLDER)
def test_an_upgrade_that_is_killed_leaves_the_old_board_or_the_new(version: int, tmp_path: Path) -> None:  # T10, T3
    """Real deaths at every third statement; `tests/crashes` looks at every one, and at every operation on a file."""
    code, step = -signal.SIGKILL, 0
    while code == -signal.SIGKILL:
        path = tmp_path / str(step) / "kanban.db"
        unpack(version, path)
        argv = [sys.executable, "-c", _KILLED, str(path), str(step)]
        code = subprocess.run(argv, check=False, timeout=60, cwd=HERE.parents[2]).returncode
        assert about(path)[2] == "ok"
        assert stored(path) in (expected(version), stored_as(version)), step
        homes.store(path).close()  # whoever comes next brings it forward
        assert stored(path) == expected(version), step
        step += 3
    assert code == 0
    assert step > 9, "it was never killed in the midst"


def stored_as(version: int) -> dict[str, list[dict[str, Any]]]:
    """Return the rows as they were before."""
    return {
        name: [dict(zip(names, row, strict=True)) for row in rest] for name, (names, *rest) in kept(version).items()
    }


def test_a_board_of_a_later_release_is_left_alone(tmp_path: Path) -> None:  # C106
    path = tmp_path / "kanban.db"
    unpack(NEWEST, path)
    connection = apsw.Connection(str(path))
    connection.pragma("user_version", NEWEST + 1)
    connection.close()
    with pytest.raises(StoreRefused) as refusal:
        homes.store(path)
    assert refusal.value.fields["needs"] == NEWEST + 1
    assert rows(path) == kept(NEWEST)


# --- work on ---------------------------------------------------------------------------------------------------
# For each verb about cards a call that it must do on the frozen board; `<title>` is the card of this title.
CALLS: dict[str, list[str]] = {
    "list": ["--archived"],
    "board": [],
    "inbox": [],
    "show": ["<running>"],
    "context": ["<plain>"],
    "runs": ["<done>"],
    "attachments": ["<ready>"],
    "why": ["<todo>"],
    "events": ["--limit", "1000"],
    "tail": ["<running>"],
    "watch": ["--since", "0"],
    "stats": [],
    "verify": [],
    "create": ["new", "--parent", "<ready>", "--idempotency-key", "new"],
    "apply": ["graph.json"],
    "edit": ["<plain>", "--body", "changed"],
    "assign": ["<ready>", "bot"],
    "link": ["<ready>", "<plain>"],
    "unlink": ["<parent>", "<todo>"],
    "archive": ["<done>"],
    "unarchive": ["<gone>"],
    "claim": ["<ready>"],
    "heartbeat": ["<running>", "--note", "on"],
    "comment": ["<running>", "a fact"],
    "attach": ["<ready>", "note.txt"],
    "attach-rm": ["<ready>", "1"],
    "complete": ["<ready>", "--summary", "made"],
    "request-review": ["<ready>", "--summary", "look", "--reviewer", "rev"],
    "request-changes": ["<reviewed>", "more tests"],
    "block": ["<ready>", "--kind", "needs_input", *FULL],
    "unblock": ["<asked>", "--answer", "A"],
    "promote": ["<triage>"],
    "schedule": ["<ready>", "--in", "2h"],
    "reclaim": ["<running>"],
    "reopen": ["<done>"],
}


def test_every_verb_about_cards_is_called() -> None:
    about_cards = {name for name, verb in BY_NAME.items() if verb.group in ("look", "cards", "work", "decide")}
    assert set(CALLS) == about_cards


@pytest.mark.parametrize("verb", CALLS)
def test_each_verb_works_on_an_upgraded_board(verb: str, board: tuple[int, str, Path], tmp_path: Path) -> None:  # T10
    version, path, home = board
    here = _ground(tmp_path, version)
    (home / "config.yaml").write_text("kanban:\n  external_assignees: [ann, bot, rev]\n", encoding="utf-8")
    caller = WORKER if verb == "heartbeat" else PERSON
    before = rows(path)
    seen = here.call([verb, *CALLS[verb]], {name: here.filled(value) for name, value in caller.items()})
    assert seen.code == 0, seen
    if "--json" not in seen.words and verb != "watch":
        harmless(seen.out)
    if BY_NAME[verb].writes:
        assert rows(path) != before
    opened = homes.opened(home)
    assert opened.verify() == ()
    homes.store_of(opened).close()


WORKER = CALLERS["worker"] | {"HERMES_KANBAN_TASK": "<running>"}


def _ground(root: Path, version: int) -> Ground:
    """The home as a place to call commands in."""
    found = stored_as(version)
    cards = {f"<{row['title']}>": row["id"] for row in found["task_rows"]}
    run = next(row for row in found["task_runs"] if row["task_id"] == cards["<running>"])
    here = Ground(root, cards | {"<run>": str(run["id"]), "<lock>": run["claim_lock"]})
    for folder in (here.cwd, root / "run", root / "tmp"):
        folder.mkdir(parents=True, mode=0o700)
    (here.cwd / "note.txt").write_text("a note\n", encoding="utf-8")
    graph = [
        {"name": "a", "title": "A", "idempotency_key": "a"},
        {"title": "B", "parents": ["a"], "idempotency_key": "b"},
    ]
    (here.cwd / "graph.json").write_text(json.dumps(graph), encoding="utf-8")
    return here


def test_the_schema_that_the_code_has_is_the_newest() -> None:
    assert sqlite.SCHEMA_VERSION == NEWEST
