"""SQLite's own bounds: a crowd of writers of which none starves, and processes that hold no more at the end.

The same at length: `python -m tests.bounds.crowd --seconds 60` and `python -m tests.bounds.steady --operations 100000`.
`HERMES_TEST_CROWD_SECONDS` (default 10) and `HERMES_TEST_STEADY_OPERATIONS` (default 10000) widen what is done here.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hermes_kanban.model import status as s
from tests.bounds.crowd import crowd
from tests.bounds.meter import BOUNDS, Bound, handles_of
from tests.bounds.steady import steady
from tests.processes.home import Home, home

PROCESSES = 32
POOREST = 0.2  # of what a process writes on average; 0.6 and more was measured, also on a busy machine
WORKERS = 50
PLAIN = {"plain": {"type": "command", "argv": ["true"], "success_policy": "complete"}}


@pytest.mark.alone
@pytest.mark.timeout(900)
def test_a_crowd_of_writers_has_no_error_and_nobody_starves(tmp_path: Path) -> None:  # S3, P10, T1b
    found = crowd(str(tmp_path), PROCESSES, float(os.environ.get("HERMES_TEST_CROWD_SECONDS", "10")), seed=1)
    assert found.faults == []
    assert len(found.told) == PROCESSES
    assert all(one["errors"] == 0 and one["writes"] > 0 for one in found.told)
    assert found.poorest >= POOREST, found.text()


@pytest.mark.timeout(900)
def test_a_process_that_works_for_long_holds_no_more_at_its_end(tmp_path: Path) -> None:
    found = steady(str(tmp_path), int(os.environ.get("HERMES_TEST_STEADY_OPERATIONS", "10000")), seed=1)
    assert found.faults == [], found.text()
    assert {"fork", "refusal", "feed", "attach", "open", "settle"} <= set(found.done)


def test_what_grows_is_seen() -> None:
    assert Bound(0.01, 10.0).holds(1000.0, 1020.0)
    assert not Bound(0.01, 10.0).holds(1000.0, 1021.0)
    assert not BOUNDS["handles"].holds(18.0, 19.0)


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="another process's handles cannot be counted here")
def test_a_gateway_holds_no_more_handles_after_many_workers(tmp_path: Path) -> None:
    with home(tmp_path, PLAIN) as here:
        gateway = here.gateway()
        _work(here, 5)
        before = handles_of(gateway.pid)
        _work(here, WORKERS)
        here.until(lambda: handles_of(gateway.pid) <= before)
        assert here.board.verify() == ()


def _work(here: Home, number: int) -> None:
    """Let the gateway bring so many cards to their end, and prove that nothing of them is left."""
    cards = here.apply([{"title": f"card {count}", "assignee": "plain"} for count in range(number)])
    here.until(lambda: all(here.card(card).status == s.DONE for card in cards))
    here.until(lambda: not here.board.watched())
