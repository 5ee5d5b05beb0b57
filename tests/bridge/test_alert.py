"""When the board itself cannot be told: the alert channel, an exit code, and the outcome kept for the next bridge."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from hermes_kanban.bridge import alert
from hermes_kanban.lanes import runfiles
from hermes_kanban.model import status as s
from tests.bridge.bridges import Pull, alerts, create, keeper, program, pulled, unwritable
from tests.processes.home import Home, until


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Home]:
    with pulled(tmp_path) as made:
        yield made


def newer(here: Home, number: int) -> int:
    """Give the board's file another schema number; return the one that it had."""
    connection = apsw.Connection(here.place.database)
    had = int(connection.pragma("user_version"))
    connection.pragma("user_version", number)
    connection.close()
    return had


def delivered(here: Home, task: str, status: str) -> None:
    """Start the next bridge: it books the end before it does anything else."""
    later = Pull(here, "--once", argv=program("exit 0"))
    assert later.wait() == 0
    (fact,) = later.said("delivered")
    assert (fact["task"], fact["status"]) == (task, status)
    assert here.card(task).status == status
    assert len(here.board.runs(task)) == 1


@pytest.mark.parametrize(("code", "status", "outcome"), [(0, s.DONE, "complete"), (1, s.BLOCKED, s.FAILED)])
def test_a_board_that_refuses_the_end(here: Home, code: int, status: str, outcome: str) -> None:
    task = create(here)
    command, kept = keeper(here)
    bridge = Pull(here, "--alert-cmd", command)
    run = here.alive(task)
    had = newer(here, 1000)
    here.tell(run, f"exit {code}")
    assert bridge.wait() == 9  # store_refused
    (told,) = alerts(kept)
    record = runfiles.exit_path(here.place.runs, run.id)
    assert {name: told[name] for name in ("board", "task", "run", "outcome", "record")} == {
        "board": "default",
        "task": task,
        "run": run.id,
        "outcome": outcome,
        "record": record,
    }
    assert told["error"].startswith("store_refused: ")
    assert set(told) == {"board", "task", "run", "outcome", "record", "error"}
    assert (run.claim_lock or "?") not in json.dumps(told)
    until(lambda: not runfiles.held(here.place.runs, run.id))
    assert os.path.exists(record)
    newer(here, had)
    delivered(here, task, status)


def test_a_board_that_stays_locked_is_tried_three_times(here: Home) -> None:
    here.configure(lock_wait_seconds=1)
    task = create(here)
    command, kept = keeper(here)
    bridge = Pull(here, "--alert-cmd", command)
    run = here.alive(task)
    with unwritable(here):
        here.tell(run, "exit 0")
        assert bridge.wait() == 8
        assert len(bridge.said("not_booked")) == 2
        until(lambda: not runfiles.held(here.place.runs, run.id))
    (told,) = alerts(kept)
    assert (told["task"], told["error"].partition(":")[0]) == (task, "busy")
    delivered(here, task, s.DONE)


def test_a_board_that_is_locked_for_a_moment_is_no_alert(here: Home) -> None:
    here.configure(lock_wait_seconds=0)
    task = create(here)
    command, kept = keeper(here)
    bridge = Pull(here, "--alert-cmd", command)
    run = here.alive(task)
    with unwritable(here):
        here.tell(run, "exit 0")
        bridge.hears("not_booked")
    assert here.ended(task)[0].status == s.DONE
    assert bridge.stop() == 0
    assert alerts(kept) == []


def test_a_board_that_cannot_be_claimed_from_is_waited_for(here: Home) -> None:
    here.configure(lock_wait_seconds=0)
    command, kept = keeper(here)
    bridge = Pull(here, "--alert-cmd", command, argv=program("exit 0"))
    bridge.hears("bridge_started")
    task = create(here)
    # What follows holds whether the bridge was quicker than the lock or not.
    with unwritable(here):
        if here.run(task) is None:
            assert bridge.hears("waits")["code"] == "busy"
    here.until(lambda: here.card(task).status == s.DONE)
    assert alerts(kept) == []


def test_a_board_that_refuses_a_claim_ends_the_bridge(here: Home) -> None:
    command, kept = keeper(here)
    bridge = Pull(here, "--alert-cmd", command)
    bridge.hears("bridge_started")
    task = create(here)
    run = here.alive(task)
    newer(here, 1000)
    here.tell(run, "exit 0")
    assert bridge.wait() == 9
    later = Pull(here, "--alert-cmd", command)
    assert later.wait() == 9
    assert [told["task"] for told in alerts(kept)] == [task, None]
    assert later.said("failed")[0]["hint"]


def test_once_gives_up_on_a_board_that_stays_locked(here: Home) -> None:
    here.configure(lock_wait_seconds=0)
    task = create(here)
    with unwritable(here):
        bridge = Pull(here, "--once", argv=program("exit 0"))
        assert bridge.wait() == 8
    assert [fact["seconds"] for fact in bridge.said("waits")] == [1, 2, 4]
    assert here.run(task) is None


def test_an_alert_that_fails_is_only_logged(here: Home) -> None:
    task = create(here)
    loud = f"{sys.executable} -I -c \"import sys; print('secret'); print('secret', file=sys.stderr); sys.exit(4)\""
    bridge = Pull(here, "--alert-cmd", loud)
    run = here.alive(task)
    had = newer(here, 1000)
    here.tell(run, "exit 0")
    assert bridge.wait() == 9
    assert bridge.said("alert_failed")[0]["message"] == "the alert command ended with 4"
    assert "secret" not in bridge.log.read_text(encoding="utf-8")
    until(lambda: not runfiles.held(here.place.runs, run.id))
    newer(here, had)
    delivered(here, task, s.DONE)


# --- the channel itself -------------------------------------------------------------------------------------------
def test_an_alert_that_hangs_is_killed_with_what_it_started(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = f"sleep 600 & echo $! > {pids}; echo $$ >> {pids}; wait"
    assert "longer than" in alert.send(("sh", "-c", script), {}, seconds=1)
    for pid in pids.read_text(encoding="utf-8").split():
        until(lambda: not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text().split()[2])  # noqa: B023


@pytest.mark.parametrize(
    ("argv", "trouble"),
    [((), ""), (("true",), ""), (("false",), "ended with 1"), (("/nonexistent/program",), "cannot be run")],
)
def test_what_an_alert_may_come_to(argv: tuple[str, ...], trouble: str) -> None:
    found = alert.send(argv, {"board": "x"})
    assert trouble in found
    assert bool(found) == bool(trouble)


def test_no_shell_reads_an_alert_s_words(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    program_ = "import sys; open(sys.argv[1], 'w').write(repr(sys.argv[2:]))"
    assert alert.send((sys.executable, "-I", "-c", program_, str(kept), "$(touch x)", ";", "*"), {}) == ""
    assert kept.read_text(encoding="utf-8") == "['$(touch x)', ';', '*']"
