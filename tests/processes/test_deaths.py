"""The matrix of worker deaths: every end gets its verdict, the same whoever notices it (T5, P45)."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from hermes_kanban.lanes import proctable
from hermes_kanban.model import status as s
from hermes_kanban.model.run import Run
from tests.processes import deaths
from tests.processes.deaths import COLUMNS, DEATHS, Column, Scene, Verdict
from tests.processes.home import Home, home, kill, until

REFUSED_BY_STATE = 4  # exit code
ESCAPES = 6  # tries; before somebody looked for them, one in ten got away


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
    here.until(lambda: not here.locks() and not here.slots())
    here.until(lambda: not any(here.marked(run) for run in scene.runs.values()))  # D14b: what stayed would stay
    assert [one.poll() for one in scene.strangers] == [None] * len(scene.strangers)  # D12
    assert here.board.verify() == ()
    if "shim SIGKILL" in column.deaths:  # its gateway collects it; whoever else noticed it found a zombie (C22)
        shim = proctable.entry_of(scene.shim_of(scene.runs["shim SIGKILL"]))
        assert (shim and shim.state) == (None if column.by_gateway and not column.killed else "Z")


def test_nobody_escapes_a_dead_shim_by_forking(scene: Scene) -> None:  # D13, D14b
    here = scene.home
    here.gateway()
    for _ in range(ESCAPES):
        run = here.alive(here.create())
        here.tell(run, "bomb 3 200")
        until(partial(_has_forked, here, run))
        kill(scene.shim_of(run))
        here.ended(run.task_id)
        assert here.marked(run) == []


def _has_forked(here: Home, run: Run) -> bool:
    return len(here.marked(run)) > len(("shim", "worker"))


# --- workers of another host ----------------------------------------------------------------------------------
TTL, QUARANTINE = 4, 2  # seconds
OTHER = {"HERMES_KANBAN_HOST": "other"}
SILENT = Verdict(s.READY, s.RECLAIMED, None, "unknown", reclaims=1)


def a_gateway(here: Home, _run: Run) -> None:
    here.gateway()


def a_pass(here: Home, run: Run) -> None:
    assert here.dispatch()["ended"] == []  # its lease is not over
    _fall_silent(here, run)
    assert len(here.dispatch()["ended"]) == 1


def a_claimer(here: Home, run: Run) -> None:
    assert here.hermes("claim", run.task_id).code == REFUSED_BY_STATE
    _fall_silent(here, run)
    assert here.hermes.ok("claim", "--next").startswith(run.task_id)


NOTICERS = {"a gateway": a_gateway, "a single pass": a_pass, "a claimer": a_claimer}


def _fall_silent(here: Home, run: Run) -> None:
    """Wait until the last sign of life of a run is too long ago, which the clock alone decides."""
    here.until(lambda: time.time() > here.find(run).claim_expires + QUARANTINE)


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Scene]:
    """A home in which another host started a worker, which runs on while nobody dispatches."""
    values = deaths.VALUES | {"claim_ttl_seconds": TTL, "quarantine_seconds": QUARANTINE}
    with home(tmp_path, deaths.LANES, **values) as here:
        made = Scene(here)
        made.begin({"away": DEATHS["vanished"]})
        assert len(here.hermes.set(**OTHER).ask("dispatch")["started"]) == 1
        made.prepare()
        yield made


@pytest.mark.parametrize("notice", NOTICERS.values(), ids=NOTICERS.keys())
def test_a_host_that_fell_silent_is_judged_by_time_alone(  # D3, P14c, C25, C46
    other: Scene, notice: Callable[[Home, Run], None]
) -> None:
    here, run = other.home, other.runs["away"]
    deaths.vanished(other, run)
    notice(here, run)
    here.until(lambda: other.booked("away"))
    assert replace(other.verdict("away"), status=s.READY) == SILENT
    assert here.board.verify() == ()


def test_a_live_worker_of_another_host_is_left_alone(other: Scene) -> None:  # D3, D13, C25
    here, run = other.home, other.runs["away"]
    here.gateway()
    _outlive(here, run)
    assert here.hermes("claim", run.task_id).code == REFUSED_BY_STATE
    here.tell(run, "exit 1")  # its shim reports that by itself
    here.until(lambda: other.booked("away"))
    assert other.verdict("away") == DEATHS["1"].verdict
    assert here.board.verify() == ()


def _outlive(here: Home, run: Run) -> None:
    """Wait until a run was renewed so often that without it somebody else would have it by now."""
    until = run.claim_expires + QUARANTINE + 1
    here.until(lambda: time.time() > until)


def test_a_sleeper_that_lost_its_card_is_sent_home_when_it_wakes(other: Scene) -> None:  # D11, P12c, P14
    here, run = other.home, other.runs["away"]
    everybody = here.marked(run)
    for pid in everybody:
        kill(pid, signal.SIGSTOP)
    _fall_silent(here, run)
    here.hermes.ok("claim", "--next")
    taken = here.card(run.task_id)
    for pid in everybody:
        kill(pid, signal.SIGCONT)
    here.until(lambda: not here.marked(run))
    assert here.card(run.task_id) == taken
    assert here.board.verify() == ()
