"""What goes wrong beneath a board: disks, rights, locks; a clear refusal, nothing lost, usable again after."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hermes_kanban.base.clock import SystemClock
from hermes_kanban.base.errors import Busy
from hermes_kanban.kernel.query import Filter
from hermes_kanban.store import sqlite
from hermes_kanban.store.turnstile import Turnstile
from tests.store import homes
from tests.store.processes import ask, in_namespace, process


def test_a_read_only_disk_is_read_and_says_why_it_cannot_be_written(tmp_path: Path) -> None:  # T4
    said = in_namespace("read_only", tmp_path)
    assert said["closed"]["titles"] == ["card first"]
    assert said["log"]["titles"] == ["card first", "card left"]  # what is in the log only counts too
    for state in (said["closed"], said["log"]):
        assert state["shown"] == "card first"
        assert state["context"] > 0
        for verb in ("write", "init", "switch", "new_board", "upgrade"):
            assert (state[verb]["reason"], state[verb]["exit_code"]) == ("read_only", 9), verb
        assert "read-only" in state["write"]["message"]
        assert "upgrade" in state["upgrade"]["message"]
    assert said["after"] == {"titles": ["card first", "card last", "card left"], "verify": []}


def test_a_full_disk_refuses_writes_and_keeps_what_was_acknowledged(tmp_path: Path) -> None:  # T4
    said = in_namespace("full_disk", tmp_path)
    assert 0 < said["kept"] < 1000
    assert said["full"]["titles"] == said["kept"]  # reads go on
    for verb in ("write", "again", "switch", "new_board"):
        assert (said["full"][verb]["code"], said["full"][verb]["exit_code"]) == ("disk_full", 8), verb
    assert said["after"] == {"titles": said["kept"] + 1, "verify": [], "left": []}


def test_commands_that_start_on_a_full_disk_leave_no_halves(tmp_path: Path) -> None:  # T4, C109
    said = in_namespace("full_disk_at_start", tmp_path)
    for verb in ("write", "upgrade", "switch"):
        assert (said[verb]["code"], said[verb]["exit_code"]) == ("disk_full", 8), verb
    assert said["pointer"] == "default"
    assert said["titles"] == ["card one", "card three"]
    assert said["verify"] == said["left"] == []
    assert said["version"] == homes.EXTENDED[-1][0]


def test_a_board_of_somebody_else_is_refused(home: Path, database: str) -> None:  # T4
    if os.getuid() != 0:
        pytest.skip("only root can become somebody else")
    os.chmod(home.parent, 0o755)
    for mode in (0o700, 0o755):  # the folder closed; the folder open, its files closed
        os.chmod(home, mode)
        said = ask("unprivileged", home)
        assert all(refusal["exit_code"] == 9 for refusal in said.values()), said
        assert all(refusal["hint"] for refusal in said.values())


def test_folders_and_files_are_the_users_alone(home: Path) -> None:
    for path, mode in ask("modes", home).items():
        assert mode in (0o600, 0o700), path


def test_a_locked_board_answers_within_the_wait_and_reads_go_on(home: Path, database: str) -> None:  # C112
    board = homes.opened(home)
    homes.card(board, "one")
    with process("lock_raw", database) as holder:
        assert holder.line() == "in"
        hasty = homes.store(database, wait_seconds=0.05)
        with pytest.raises(Busy) as refusal, hasty.write():
            pytest.fail("it was locked")
        assert "locked" in refusal.value.message
        assert len(board.list(Filter()).cards) == 1
        holder.go()
        assert holder.line() == "out"
        with hasty.write() as tx:
            assert tx.now > 0
        hasty.close()


class Leaping(SystemClock):
    """Each look at this clock finds the whole wait over."""

    seconds = 0.0

    def monotonic(self) -> float:
        self.seconds += 10_000
        return self.seconds


class SlowQueue(Turnstile):
    """A queue in which there is always somebody ahead."""

    def enter(self, seconds: float) -> bool:
        super().enter(seconds)
        return True


def test_the_queue_and_the_lock_share_one_wait(database: str, monkeypatch: pytest.MonkeyPatch) -> None:  # C112
    monkeypatch.setattr(sqlite, "Turnstile", SlowQueue)
    options = sqlite.SqliteOptions(wait_seconds=3600)
    patient = sqlite.SqliteStore(database, options, Leaping(), read_only=False)
    with process("lock_raw", database) as raw:
        assert raw.line() == "in"
        with pytest.raises(Busy), patient.write():  # it does not wait an hour more
            pytest.fail("it was locked")
    patient.close()


def test_two_boards_have_two_queues(home: Path, database: str) -> None:  # C118
    other = homes.make(home, "other")
    with process("hold", f"{database}.lock") as holder:
        assert holder.line() == "in"
        free = homes.store(other.database, wait_seconds=0)
        with free.write() as tx:
            assert tx.now > 0
        free.close()


def test_one_board_has_one_queue_however_it_is_named(database: str, tmp_path: Path) -> None:  # C118
    link = tmp_path / "link.db"
    link.symlink_to(database)
    with process("hold", f"{database}.lock") as holder:
        assert holder.line() == "in"
        same = homes.store(link, wait_seconds=0)
        with pytest.raises(Busy) as refusal, same.write():
            pytest.fail("it was held")
        assert f"(pid {holder.pid})" in refusal.value.message
        same.close()
