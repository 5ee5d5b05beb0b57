"""The matrix of worker deaths: every end gets its verdict, the same whoever notices it (T5, P45)."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hermes_kanban.lanes import proctable
from hermes_kanban.model import status as s
from tests.processes import deaths
from tests.processes.deaths import COLUMNS, DEATHS, Column, Scene, Verdict
from tests.processes.home import Home, home, kill


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with deaths.adopting(), home(tmp_path, deaths.LANES, **deaths.VALUES) as here:
        made = Scene(here)
        try:
            yield made
        finally:
            for stranger in made.strangers:
                stranger.kill()
                stranger.wait()


@pytest.mark.parametrize("column", COLUMNS.values(), ids=COLUMNS.keys())
def test_every_end_gets_its_verdict_whoever_notices(scene: Scene, column: Column) -> None:  # P45, C46, D13
    here = scene.home
    deaths.play(scene, column)
    here.until(lambda: all(scene.booked(name) for name in column.deaths))
    assert {name: scene.verdict(name) for name in column.deaths} == {
        name: DEATHS[name].verdict for name in column.deaths
    }
    assert {name: here.marked(run) for name, run in scene.runs.items() if here.marked(run)} == {}  # D14b
    assert [one.poll() for one in scene.strangers] == [None] * len(scene.strangers)  # D12
    here.until(lambda: not here.locks() and not here.slots())
    assert here.board.verify() == ()
    if "shim SIGKILL" in column.deaths:  # its gateway collects it; whoever else noticed it found a zombie (C22)
        shim = proctable.entry_of(scene.shim_of(scene.runs["shim SIGKILL"]))
        assert (shim and shim.state) == (None if column.by_gateway and not column.killed else "Z")


# --- workers of another host ----------------------------------------------------------------------------------
TTL, QUARANTINE = 4, 2  # seconds
OTHER = {"HERMES_KANBAN_HOST": "other"}
SILENT = Verdict(s.READY, s.RECLAIMED, None, "unknown", reclaims=1)


def a_gateway(here: Home, _task: str) -> None:
    here.gateway()


def a_pass(here: Home, _task: str) -> None:
    assert here.dispatch()["ended"] == []  # not yet
    _pass_time(TTL + QUARANTINE)
    here.dispatch()


def a_claimer(here: Home, task: str) -> None:
    assert here.hermes("claim", task).code == deaths.NOT_CLAIMABLE
    _pass_time(TTL + QUARANTINE)
    assert here.hermes.ok("claim", "--next").startswith(task)


NOTICERS = {"a gateway": a_gateway, "a single pass": a_pass, "a claimer": a_claimer}


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Scene]:
    """A home in which another host has started a worker, and dispatches no more."""
    values = deaths.VALUES | {"claim_ttl_seconds": TTL, "quarantine_seconds": QUARANTINE}
    with home(tmp_path, deaths.LANES, **values) as here:
        made = Scene(here)
        made.begin({"away": DEATHS["vanished"]})
        assert len(here.hermes.set(**OTHER).ask("dispatch")["started"]) == 1
        made.prepare({})
        yield made


@pytest.mark.parametrize("notice", NOTICERS.values(), ids=NOTICERS.keys())
def test_a_host_that_fell_silent_is_judged_by_time_alone(
    other: Scene, notice: Callable[[Home, str], None]
) -> None:  # D3, P14c, C25, C46
    here, run = other.home, other.runs["away"]
    deaths.vanished(other, run)
    notice(here, run.task_id)
    here.until(lambda: other.booked("away"))
    assert other.verdict("away").evolve(status=s.READY) == SILENT
    assert here.board.verify() == ()
