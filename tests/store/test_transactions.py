"""Transactions: all or nothing, durable as promised, one process each; and reads that write nothing."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import apsw
import pytest

from hermes_kanban import compose
from hermes_kanban.base.errors import Busy, StoreRefused
from hermes_kanban.kernel.board import Board
from hermes_kanban.kernel.caller import Ticket
from hermes_kanban.kernel.finish import Handoff
from hermes_kanban.kernel.query import Filter
from hermes_kanban.store import sqlite
from tests.store import homes
from tests.store.processes import Process, ask, process


# --- all or nothing ------------------------------------------------------------------------------------------
def test_an_error_inside_changes_nothing(home: Path, database: str) -> None:
    board = homes.opened(home)
    store = homes.store_of(board)
    with pytest.raises(ZeroDivisionError):
        _half(store)
    with store.read() as tx:
        assert tx.one("schema.meta", key="half") is None
    homes.card(board, "still works")


def test_the_true_error_is_seen_when_the_transaction_has_ended_already(database: str) -> None:  # C119
    store = homes.store(database)
    with pytest.raises(ZeroDivisionError, match="mine"):
        _half(store, ended=True)
    with store.write() as tx:
        tx.run("schema.set_meta", key="after", value="fine")
    store.close()


def _half(store: sqlite.SqliteStore, *, ended: bool = False) -> None:
    """Fail in the middle of a write; the transaction itself may have ended before."""
    with store.write() as tx:
        tx.run("schema.set_meta", key="half", value="done")
        if ended:
            tx.run("schema.rollback")
        raise ZeroDivisionError("mine")


class Shaky(apsw.Connection):
    """A connection whose roll-back fails."""

    def execute(self, statement: str, *values: Any, **options: Any) -> apsw.Cursor:
        if statement.startswith("ROLLBACK"):
            raise apsw.IOError("the roll-back failed too")
        return super().execute(statement, *values, **options)


def test_the_true_error_is_seen_when_the_roll_back_fails(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:  # C119
    monkeypatch.setattr(sqlite.apsw, "Connection", Shaky)
    store = homes.store(database)
    with pytest.raises(ZeroDivisionError, match="mine"), store.write():
        raise ZeroDivisionError("mine")
    store.close()
    monkeypatch.undo()
    other = homes.store(database, wait_seconds=0)
    with other.write() as tx:  # nobody holds the queue or the lock
        assert tx.now > 0
    other.close()


def test_a_refused_wait_leaves_the_store_usable(home: Path, database: str) -> None:  # C112
    store = homes.store(database, wait_seconds=0.05)
    with process("hold", f"{database}.lock") as holder:
        assert holder.line() == "in"
        for _ in range(2):
            with pytest.raises(Busy) as refusal, store.write():
                pytest.fail("it was held")
            assert f"(pid {holder.pid})" in refusal.value.message
        with store.read() as tx:
            assert tx.one("schema.meta", key="slug") == ("default",)
        holder.go()
        assert holder.line() == "out"
    patient = homes.store(database)
    with patient.write() as tx:
        assert tx.now > 0
    patient.close()
    store.close()


def test_a_forked_child_is_refused_and_harms_nobody(home: Path, database: str) -> None:
    said = ask("fork", home)
    assert said["child"] == ["unexpected"] * 4
    assert said["cards"] == ["card after", "card before"]
    assert said["verify"] == []


def test_two_thousand_operations_leave_no_open_file(home: Path, database: str) -> None:  # C110
    board = homes.opened(home)
    known = homes.card(board, "first")
    _one_round(home, board, known)  # SQLite keeps a file that another connection of the process has locked
    before = homes.handles()
    for _ in range(200):
        _one_round(home, board, known)
    assert homes.handles() == before


def _one_round(home: Path, board: Board, task: str) -> None:
    """Ten operations, with connections that come and go beside one that stays."""
    for _ in range(3):
        board.show(task)
    board.comment(task, "a fact")
    reader = homes.opened(home, write=False)
    feed = reader.feed()
    reader.list(Filter(limit=5))
    feed.wait(0)
    feed.close()
    homes.store_of(reader).close()
    writer = homes.opened(home)
    writer.comment(task, "another fact")
    homes.store_of(writer).close()
    with pytest.raises(StoreRefused):
        homes.store(__file__)


# --- durability ----------------------------------------------------------------------------------------------
class CountingFile(apsw.VFSFile):
    """Counts the flushes of a log."""

    flushes = 0

    def __init__(self, name: Any, flags: list[int]) -> None:
        super().__init__("", name, flags)
        self._log = bool(flags[0] & apsw.SQLITE_OPEN_WAL)

    def xSync(self, flags: int) -> None:
        CountingFile.flushes += self._log
        super().xSync(flags)


class CountingVfs(apsw.VFS):
    def __init__(self) -> None:
        super().__init__("counting", "")

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        return CountingFile(name, flags)


@pytest.fixture
def counting() -> Iterator[str]:
    vfs = CountingVfs()
    yield "counting"
    vfs.unregister()


def flushes(action: Any) -> int:
    """Return how often the log was flushed to the disk by an action."""
    before = CountingFile.flushes
    action()
    return CountingFile.flushes - before


def test_what_somebody_relies_on_is_flushed_and_a_heartbeat_is_not(home: Path, database: str, counting: str) -> None:
    board = _counted(home, database, counting, full=True)
    task = homes.card(board, "one")
    assert flushes(lambda: homes.card(board, "two")) >= 1
    claims: list[Any] = []
    assert flushes(lambda: claims.append(board.claim(task))) >= 1
    run = claims[0].run
    holder = _with_ticket(board, Ticket(task, run.id, run.claim_lock or ""))
    assert flushes(lambda: holder.heartbeat(task, "alive")) == 0
    assert flushes(lambda: holder.comment(task, "a fact")) >= 1
    assert flushes(lambda: holder.complete(task, Handoff("done"))) >= 1
    homes.store_of(board).close()


def test_a_setting_makes_all_writes_normal(home: Path, database: str, counting: str) -> None:
    board = _counted(home, database, counting, full=False)
    homes.card(board, "zero")  # the head of a new log is flushed once
    assert flushes(lambda: homes.card(board, "one")) == 0
    homes.store_of(board).close()
    normal = homes.environment(home)
    assert compose.store_options(normal).full_durability is True
    home.joinpath("config.yaml").write_text("kanban: {durability: normal}\n", encoding="utf-8")
    assert compose.store_options(homes.environment(home)).full_durability is False


def test_the_mode_switches_from_write_to_write(database: str) -> None:
    store = homes.store(database)
    seen = []
    for durable in (True, False, False, True):
        with store.write(durable=durable):
            seen.append(store._connection.pragma("synchronous"))
    assert seen == [2, 1, 1, 2]  # FULL, NORMAL
    assert store._connection.pragma("journal_mode") == "wal"
    assert store._connection.pragma("foreign_keys") == 1
    store.close()


def _counted(home: Path, database: str, vfs: str, *, full: bool) -> Board:
    board = homes.opened(home)
    homes.store_of(board).close()
    board._store = homes.store(database, vfs=vfs, full_durability=full)
    return board


def _with_ticket(board: Board, ticket: Ticket) -> Board:
    return Board(board._store, board._settings, board._caller.evolve(tickets=(ticket,)), board._ports)


# --- reads write nothing -------------------------------------------------------------------------------------
@pytest.mark.parametrize("left", ["closed", "a log"])
def test_reading_changes_no_byte(home: Path, database: str, left: str) -> None:
    board = homes.opened(home)
    parent = homes.card(board, "one", body="text")
    homes.card(board, "two", parents=(parent,))
    board.comment(parent, "a fact")
    homes.store_of(board).close()
    if left == "a log":
        with process("leave_log", home) as writer:
            assert writer.line()
            writer.end()
        assert os.path.getsize(f"{database}-wal")
    before = homes.content(database), os.stat(database).st_mtime_ns, _listing(home)
    for _ in range(2):
        _read_everything(home, parent)
    assert (homes.content(database), os.stat(database).st_mtime_ns) == before[:2]
    assert set(_listing(home)) - set(before[2]) <= {"kanban.db-wal", "kanban.db-shm"}


def _listing(home: Path) -> list[str]:
    return sorted(str(Path(folder, name).relative_to(home)) for folder, _, names in os.walk(home) for name in names)


def _read_everything(home: Path, task: str) -> None:
    board = homes.opened(home, write=False)
    board.list(Filter())
    board.list(Filter(search="text", archived=True))
    board.show(task)
    board.context(task)
    board.runs(task)
    board.events()
    board.columns()
    board.stats()
    board.inbox()
    board.why(task)
    board.find_id(task)
    board.last_event_id()
    assert board.verify() == ()
    feed = board.feed()
    feed.wait(0)
    feed.close()
    homes.store_of(board).close()


def test_a_board_that_was_opened_to_look_cannot_be_written(home: Path, database: str) -> None:
    reader = homes.opened(home, write=False)
    before = reader.last_event_id()
    with pytest.raises(Exception, match="may not be written"), homes.store_of(reader).write() as tx:
        tx.run("schema.set_meta", key="x", value="y")
    assert reader.last_event_id() == before


# --- acknowledged means kept ---------------------------------------------------------------------------------
def test_acknowledged_writes_survive_any_kill(home: Path, database: str) -> None:  # T1b, small
    """A long-lived writer, short ones that open and close beside it, a reader; each is killed at random."""
    chance = random.Random(7)
    acknowledged: list[str] = []
    with ExitStack() as stack:

        def start(role: str) -> Process:
            return stack.enter_context(process(role, home))

        roles = ["write_on", "open_and_close", "open_and_close", "look_on"]
        living = {role_number: start(role) for role_number, role in enumerate(roles)}
        for _ in range(24):
            for number in (0, 1, 2):  # each of them makes progress before somebody dies
                acknowledged += [living[number].line() for _ in range(chance.randrange(1, 6))]
            victim = chance.randrange(len(roles))
            living[victim].kill()
            if roles[victim] != "look_on":
                acknowledged += living[victim].rest()
            living[victim] = start(roles[victim])
        for number, one in living.items():
            one.kill()
            acknowledged += one.rest() if roles[number] != "look_on" else []
    board = homes.opened(home)
    there = {event.task_id for event in _all_events(board) if event.kind == "created"}
    assert "" not in acknowledged
    assert len(acknowledged) == len(set(acknowledged)) >= 24 * 3
    assert set(acknowledged) <= there
    assert board.verify() == ()


def _all_events(board: Board) -> list[Any]:
    found: list[Any] = []
    while page := board.events(found[-1].id if found else 0, 1000):
        found += page
    return found
