"""Who hangs at its birth is ended in time."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_kanban.base import process
from hermes_kanban.lanes import runfiles
from hermes_kanban.model import status as s
from hermes_kanban.model.run import Run
from tests.processes.around import change
from tests.processes.home import Home, home, kill, until


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Home]:
    with home(tmp_path, failure_limit=1) as made:
        yield made


def shims(here: Home) -> list[int]:
    """Return the shims that live, however young."""
    found = ((one.pid, process.describe(one.pid)) for one in here.processes())
    return [pid for pid, about in found if about and process.SHIM[1] in about.argv]


def stopped_at_birth(here: Home) -> Run:
    """Stop a shim before it has said that its worker lives; one that was quicker is killed, and another one tried."""
    for _ in range(20):
        task = here.create()
        until(lambda: shims(here))
        pid = shims(here)[0]
        kill(pid, signal.SIGSTOP)
        run = here.run(task)
        assert run is not None
        if run.process_state == s.STARTING:
            return run
        kill(pid)
        here.ended(task)
    pytest.fail("every shim was quicker")


def test_a_shim_that_is_stopped_at_its_birth_is_ended_and_counted(here: Home) -> None:  # D11, C8
    here.gateway()
    run = stopped_at_birth(here)
    task = run.task_id
    assert runfiles.held(here.place.runs, run.id)
    assert change(here, "UPDATE task_runs SET started_at = started_at - ? WHERE id = ?", 1000, run.id) == 1
    card, ended = here.ended(task)
    assert (card.status, ended.outcome, ended.end_reason) == (s.BLOCKED, s.GAVE_UP, "never_alive")
    assert "kanban.spawn_grace_seconds" in (ended.error or "")
    assert here.marked(run) == []
    assert not runfiles.held(here.place.runs, run.id)
