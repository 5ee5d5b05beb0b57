"""The files of a run: its lock, its roster, its exit record, and what damaged ones are worth (D13, P45)."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes_kanban.base.errors import DiskFull, Retryable, StoreIo
from hermes_kanban.lanes import runfiles
from hermes_kanban.lanes.runfiles import Roster
from hermes_kanban.model.exits import ExitRecord

FULL = ExitRecord(
    **{"run": 7, "task": "t_ab", "lock": "host:1:x", "code": None, "signal": 9, "started_ms": 5, "ended_ms": 9},
    **{"stop": "memory", "overstayed": True, "spawn_error": None, "hint": "", "policy": "complete"},
    **{"tail": ("one", "caf\u00e9 \ud83d"), "retry_after": 30, "output_bytes": 12, "worker": (44, "123")},
    peak_memory=1 << 40,
)
ROSTER = Roster(7, "boot/ns", 12.5, (1, "10"), (2, "11"), ((2, "11"), (3, "12")), (2, 3))


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(tmp_path / "runs")


# --- the lock -------------------------------------------------------------------------------------------------
def test_a_lock_is_held_until_its_last_copy_is_closed(folder: str) -> None:  # D13
    assert not runfiles.held(folder, 7)
    descriptor = runfiles.take_lock(folder, 7)
    copy = os.dup(descriptor)
    assert runfiles.held(folder, 7)
    assert not runfiles.held(folder, 8)
    os.close(descriptor)
    assert runfiles.held(folder, 7)
    os.close(copy)
    assert not runfiles.held(folder, 7)


def test_looking_makes_nothing(folder: str) -> None:
    assert not runfiles.held(folder, 7)
    assert runfiles.read_roster(folder, 7) is None
    assert runfiles.read_exit(folder, 7) is None
    assert not os.path.exists(folder)


def test_only_one_may_have_it(folder: str) -> None:  # D13
    descriptor = runfiles.take_lock(folder, 7)
    with pytest.raises(Retryable, match="run 7 has a shim"):
        runfiles.take_lock(folder, 7)
    os.close(descriptor)
    os.close(runfiles.take_lock(folder, 7))


def test_a_look_does_not_keep_a_run_from_starting(folder: str) -> None:
    os.close(runfiles.take_lock(folder, 7))
    looking = os.open(runfiles.lock_path(folder, 7), os.O_RDONLY)
    fcntl.flock(looking, fcntl.LOCK_SH)
    timer = threading.Timer(0.05, os.close, (looking,))
    timer.start()
    os.close(runfiles.take_lock(folder, 7))
    timer.join()


def test_the_files_are_for_their_owner_only(folder: str) -> None:
    os.close(runfiles.take_lock(folder, 7))
    runfiles.write_exit(folder, FULL)
    assert os.stat(folder).st_mode & 0o777 == 0o700
    assert sorted(os.listdir(folder)) == ["7.exit", "7.lock"]
    assert all(os.stat(os.path.join(folder, name)).st_mode & 0o777 == 0o600 for name in os.listdir(folder))


def test_a_lock_that_cannot_be_opened_is_an_error_and_no_verdict(folder: str) -> None:  # D14
    os.makedirs(folder)
    os.symlink("elsewhere", runfiles.lock_path(folder, 7))
    with pytest.raises(StoreIo):
        runfiles.held(folder, 7)
    with pytest.raises(StoreIo):
        runfiles.take_lock(folder, 7)


# --- roster and record ----------------------------------------------------------------------------------------
def test_a_roster_comes_back_as_it_went(folder: str) -> None:
    descriptor = runfiles.take_lock(folder, 7)
    assert runfiles.read_roster(folder, 7) is None
    for roster in (ROSTER, ROSTER.evolve(known=(), worker=None), ROSTER):
        runfiles.write_roster(descriptor, roster)
        assert runfiles.read_roster(folder, 7) == roster
    os.close(descriptor)


def test_a_roster_is_read_while_a_longer_one_is_cut_off(folder: str) -> None:
    descriptor = runfiles.take_lock(folder, 7)
    runfiles.write_roster(descriptor, ROSTER)
    os.pwrite(descriptor, b'[1, "2"]]}\n', os.fstat(descriptor).st_size)
    assert runfiles.read_roster(folder, 7) == ROSTER
    os.close(descriptor)


@pytest.mark.parametrize("reserved", [False, True])
@pytest.mark.parametrize("record", [FULL, ExitRecord(run=7, task="t", lock="l", code=0)])
def test_a_record_comes_back_as_it_went(folder: str, record: ExitRecord, reserved: bool) -> None:  # P45
    os.makedirs(folder)
    if reserved:
        runfiles.reserve(folder, 7)
        assert runfiles.read_exit(folder, 7) is None
    runfiles.write_exit(folder, record)
    assert runfiles.read_exit(folder, 7) == record
    assert os.listdir(folder) == ["7.exit"]


def test_what_was_reserved_can_be_given_back(folder: str) -> None:
    os.makedirs(folder)
    runfiles.reserve(folder, 7)
    runfiles.give_back(folder, 7)
    runfiles.give_back(folder, 7)
    assert os.listdir(folder) == []


DAMAGED = [
    *(b"", b"{", b"[]", b"null", b"{}", b"\0" * 99, b"\xff\n", b"[" * 100_000),
    b'{"run":"7","task":"t","lock":"l"}',
    b'{"run":7,"task":"t","lock":"l","code":"0"}',
    b'{"run":7,"task":"t","lock":"l","code":true}',
    b'{"run":7,"task":"t","lock":"l","tail":5}',
    b'{"run":7,"task":"t","lock":"l","worker":[1]}',
    b'{"run":7,"boot":"b","looked":0,"shim":[1,"2"],"worker":null,"known":[1],"sessions":[]}',
]


@pytest.mark.parametrize("data", DAMAGED)
@pytest.mark.parametrize("read", [runfiles.read_exit, runfiles.read_roster])
def test_a_damaged_file_is_none(folder: str, data: bytes, read: Callable[[str, int], object]) -> None:
    os.makedirs(folder)
    for path in (runfiles.exit_path(folder, 7), runfiles.lock_path(folder, 7)):
        Path(path).write_bytes(data)
    assert read(folder, 7) is None


def test_a_record_with_more_than_we_know_is_read(folder: str) -> None:
    os.makedirs(folder)
    Path(runfiles.exit_path(folder, 7)).write_bytes(b'{"run":7,"task":"t","lock":"l","code":3,"colour":"red"}')
    assert runfiles.read_exit(folder, 7) == ExitRecord(run=7, task="t", lock="l", code=3)


@pytest.mark.parametrize(("number", "kind"), [(28, DiskFull), (5, StoreIo)])
def test_a_record_that_cannot_be_written_leaves_none(
    folder: str, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[Exception]
) -> None:
    os.makedirs(folder)

    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(kind):
        runfiles.write_exit(folder, FULL)
    assert runfiles.read_exit(folder, 7) is None
    monkeypatch.undo()
    runfiles.write_exit(folder, FULL)
    assert runfiles.read_exit(folder, 7) == FULL
