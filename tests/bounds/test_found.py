"""What working for long found, kept as short stories."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hermes_kanban.base.errors import Busy
from hermes_kanban.store.turnstile import Turnstile
from tests.store.processes import PATIENCE, process, until, waits_for_lock


def test_a_child_that_was_forked_during_an_abandoned_wait_keeps_no_turn(tmp_path: Path) -> None:  # C110, C112
    path = str(tmp_path / "board.lock")
    late = Turnstile(path)
    with process("hold", path) as holder:
        assert holder.line() == "in"
        with pytest.raises(Busy):
            late.enter(0.01)
        until(lambda: waits_for_lock(os.getpid()))  # its helper stands in the queue still
        told, tell = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(tell)
            os.read(told, 1)  # it lives on with a copy of the helper's descriptor
            os._exit(0)
        try:
            holder.go()
            assert holder.line() == "out"
            with process("hold", path) as other:
                assert other.line() == "in"
            late.enter(PATIENCE)
            late.leave()
        finally:
            os.close(tell)
            os.close(told)
            os.waitpid(child, 0)
