"""The table of processes from psutil, where it is installed: the same words as from /proc (macOS)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hermes_kanban.base import process
from hermes_kanban.lanes import procset, proctable

pytest.importorskip("psutil")

UP = [sys.executable, "-I", "-c", "import time\nprint('up', flush=True)\nwhile True: time.sleep(60)"]


@pytest.fixture(autouse=True)
def _without_proc(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nowhere = str(tmp_path / "proc")
    monkeypatch.setattr(process, "PROC", nowhere)
    monkeypatch.setattr(proctable, "PROC", nowhere)


def test_this_process_is_in_the_table() -> None:  # D12
    mine = proctable.table()[os.getpid()]
    told = process.describe(os.getpid())
    assert told is not None
    assert mine.started == told.started
    assert (mine.parent, mine.group, mine.session) == (os.getppid(), os.getpgrp(), os.getsid(0))
    assert mine.lives
    assert mine.memory > 1_000_000
    assert mine.cpu > 0
    assert float(mine.started) <= proctable.start_token_now()
    assert proctable.later(5.0, 2) == 7.0
    assert proctable.entry_of(1 << 30) is None


def test_a_marked_process_is_found_and_ended() -> None:  # D13, D14b
    mark = f"host:1:{os.urandom(8).hex()}"
    child = subprocess.Popen(UP, env={"HERMES_KANBAN_CLAIM_LOCK": mark}, stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"up\n"
    found = proctable.entry_of(child.pid)
    assert found is not None
    assert not proctable.send(found.evolve(started="0"), signal.SIGKILL)
    assert [entry.pid for entry in procset.remains(mark, None)] == [child.pid]
    assert procset.destroy(mark, None, 5)
    assert not getattr(proctable.entry_of(child.pid), "lives", False)  # C22
    child.communicate()
