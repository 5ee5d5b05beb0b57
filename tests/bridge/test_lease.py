"""A bridge's worker whose bridge died and whose shim hangs: somebody ends it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_kanban.lanes import runfiles
from hermes_kanban.model import status as s
from tests.bridge.bridges import Pull, create, pulled, reason, shim_of
from tests.processes.around import change
from tests.processes.home import Home, kill


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Home]:
    with pulled(tmp_path) as made:
        yield made


def test_a_gateway_ends_what_a_dead_bridge_left_under_a_shim_that_hangs(here: Home) -> None:  # D14, D16
    task = create(here)
    bridge = Pull(here)
    run = here.alive(task)
    kill(shim_of(here, run), signal.SIGSTOP)
    here.gateway()
    here.until(here.dispatcher)
    assert change(here, "UPDATE task_runs SET started_at = started_at - ? WHERE id = ?", 1_000_000, run.id) == 1
    here.dispatch()
    assert here.find(run).open  # while the bridge lives, its runs are its own
    bridge.kill()
    card, ended = here.ended(task)
    assert (card.status, ended.exit_kind) == (s.BLOCKED, "stopped")  # a bridge's card waits for a person then
    assert "longer than its max_runtime" in reason(here, task)["what"]
    assert here.marked(run) == []
    assert not runfiles.held(here.place.runs, run.id)
