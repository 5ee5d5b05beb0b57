"""How a bridge's run can end, and what its card becomes: blocked for a person, or returned where only time helps."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_kanban.lanes.settling import Pauses
from hermes_kanban.model import exits
from hermes_kanban.model import status as s
from tests.bridge.bridges import Pull, create, program, pulled, reason, shim_of
from tests.processes.around import now
from tests.processes.home import Home, kill, until

TOKEN = "ghp_" + "a1B2" * 9


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Home]:
    with pulled(tmp_path) as made:
        yield made


# --- after the claim: a person must look --------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("actions", "cause", "told", "code", "kind"),
    [
        (("say the build is broken", "exit 1"), "environment", "failed: exit code 1 | the build is broken", 1, "exit"),
        (("say key revoked", "exit 78"), "auth missing", "key revoked", 78, exits.TERMINAL_PROVIDER),
        (("exit 42",), "environment", "exit code 42", 42, "exit"),
        (("die KILL",), "environment", "signal 9 ended it", -9, "signal"),
        (("die SEGV",), "environment", "signal 11 ended it", -11, "signal"),
    ],
)
def test_a_bad_end_blocks_the_card_with_all_that_is_known(
    here: Home, actions: tuple[str, ...], cause: str, told: str, code: int, kind: str
) -> None:  # P25, P45
    task = create(here)
    bridge = Pull(here, "--once", argv=program(*actions))
    assert bridge.wait() == 0  # the bridge itself did what it is for
    card, run = here.card(task), here.run(task)
    assert run is not None
    assert (card.status, card.hold_release, card.sticky) == (s.BLOCKED, s.BY_PERSON, False)
    assert (run.outcome, run.end_verb, run.exit_code, run.exit_kind) == (s.OUT_BLOCKED, "block", code, kind)
    assert (card.block_kind, card.block_recurrences, card.consecutive_failures) == (None, 0, 0)
    parts = reason(here, task)
    assert parts["cause"] == cause
    assert told in parts["what"]
    assert "\n" not in parts["what"]
    assert [option[:2] for option in parts["options"]] == ["A:", "B:"]
    blocked = next(event for event in here.board.events(task=task) if event.kind == "blocked")
    assert (blocked.actor, blocked.run_id) == ("bridge:bot", run.id)
    (ended,) = bridge.said("ended")
    assert (ended["status"], ended["exit_code"]) == (s.BLOCKED, code)
    here.hermes.ok("unblock", task, "--answer", "A")
    assert Pull(here, "--once", argv=program("exit 0")).wait() == 0
    assert here.card(task).status == s.DONE


def test_a_program_s_last_words_are_redacted_and_are_no_parts_of_the_reason(here: Home) -> None:  # P63
    task = create(here)
    words = f"say token {TOKEN}", "say recommendation: approve it", "say \x1b[31mred", "exit 1"
    assert Pull(here, "--once", argv=program(*words)).wait() == 0
    shown = here.hermes("show", task)
    assert shown.code == 0
    assert TOKEN not in shown.out
    assert "\x1b" not in shown.out
    parts = reason(here, task)
    assert "approve it" in parts["what"]
    assert "approve it" not in parts["recommendation"]
    assert TOKEN not in str(here.board.show(task))


def test_a_run_that_takes_too_long_is_ended_and_blocked(here: Home) -> None:
    task = create(here, "card", "--max-runtime", "1")
    assert Pull(here, "--once", argv=program("stubborn", "work 600000")).wait() == 0
    run = here.run(task)
    assert run is not None
    assert (run.outcome, run.exit_code, run.exit_kind) == (s.OUT_BLOCKED, -signal.SIGKILL, "stopped")
    assert "timed_out: it ran longer than its max_runtime" in reason(here, task)["what"]
    assert here.marked(run) == []


def test_a_program_that_is_gone_blocks_the_card_and_slows_the_bridge(here: Home) -> None:  # D11
    agent = here.path / "agent"
    agent.write_text("#!/bin/sh\nexit 0\n", encoding="utf-8")
    agent.chmod(0o700)
    first = create(here, "first")
    bridge = Pull(here, argv=(str(agent),))
    here.until(lambda: here.card(first).status == s.DONE)
    agent.unlink()
    tasks = [create(here, f"card {n}") for n in range(3)]
    here.until(lambda: here.card(tasks[1]).status == s.BLOCKED)
    assert "is not there" in reason(here, tasks[0])["what"]
    ends = [fact["at"] for fact in bridge.said("ended")[1:]]
    claims = [fact["at"] for fact in bridge.said("claimed")[1:]]
    assert claims[1] - ends[0] >= 1.0  # the next card would fare no better
    agent.write_text("#!/bin/sh\nexit 0\n", encoding="utf-8")
    agent.chmod(0o700)
    here.until(lambda: here.card(tasks[2]).status == s.DONE)
    assert bridge.stop() == 0


# --- only time helps --------------------------------------------------------------------------------------------
def test_a_rate_limit_returns_the_card_and_pauses_the_whole_lane(here: Home) -> None:  # P42, P44, C40
    task, second = create(here, "first"), create(here, "second")
    argv = program("say [kanban-retry-after] 600", "exit 75")
    bridge = Pull(here, "--once", argv=argv)
    assert bridge.wait() == 0
    card, run = here.card(task), here.run(task)
    assert run is not None
    assert (card.status, card.eligible_reason, card.consecutive_failures) == (s.READY, s.COOL_DOWN, 0)
    assert 590 <= (card.eligible_at or 0) - now(here) <= 600
    assert (run.outcome, run.exit_code) == (s.RATE_LIMITED, 75)
    assert here.run(second) is None  # the same account would only be refused again
    assert Pauses(str(here.path)).until("bot") == card.eligible_at
    assert Pull(here, "--once", argv=program("exit 0")).wait() == 0  # nothing to do: for cron that is no failure
    assert here.run(second) is None


def test_a_pause_that_is_over_is_noticed_by_itself(here: Home) -> None:
    here.configure(rate_limit_cooldown_seconds=1)
    task = create(here)
    once = here.path / "once"
    script = f'if mkdir "{once}" 2>/dev/null; then exit 75; fi'
    Pull(here, argv=("sh", "-c", script))
    here.until(lambda: here.card(task).status == s.DONE)
    assert [run.outcome for run in here.board.runs(task)] == [s.RATE_LIMITED, s.COMPLETED]


def test_a_shim_that_the_system_ends_returns_the_card(here: Home) -> None:
    task = create(here)
    bridge = Pull(here)
    run = here.alive(task)
    kill(shim_of(here, run), signal.SIGTERM)
    here.until(lambda: not here.find(run).open)
    found = here.find(run)
    assert (found.outcome, found.exit_kind) == (s.CRASHED, "stopped")
    again = here.alive(task)
    assert again.id > run.id
    here.tell(again, "exit 0")
    here.ended(task)
    assert bridge.stop() == 0


# --- the end of the bridge ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_leaves_the_workers_and_they_close_their_cards(here: Home, number: signal.Signals) -> None:  # D6
    tasks = [create(here, f"card {n}") for n in range(3)]
    bridge = Pull(here, "--concurrency", "2")
    runs = [here.alive(task) for task in tasks[:2]]
    began = time.monotonic()
    assert bridge.stop(number) == 0
    assert time.monotonic() - began < 30  # on a busy machine; the bound of the bridge itself is 5 s
    on = {(fact["task"], fact["run"], fact["pid"]) for fact in bridge.said("runs_on")}
    assert on == {(run.task_id, run.id, run.worker_pid) for run in runs}
    assert here.run(tasks[2]) is None
    here.tell(runs[0], "exit 0")
    here.tell(runs[1], "exit 1")
    assert here.ended(tasks[0])[0].status == s.DONE
    assert here.ended(tasks[1])[0].status == s.BLOCKED
    assert reason(here, tasks[1])["cause"] == "environment"
    actors = {event.kind: event.actor for event in here.board.events(task=tasks[0])}
    assert actors["completed"] == "bridge:bot"


def test_a_stop_with_its_workers_returns_their_cards(here: Home) -> None:
    task = create(here)
    bridge = Pull(here, "--stop-workers")
    run = here.alive(task)
    here.ask(run, "leave 2")
    assert bridge.stop() == 0
    card, run = here.ended(task)
    assert (card.status, card.reclaim_streak, card.eligible_at) == (s.READY, 0, None)
    assert (run.outcome, run.end_reason) == (s.RECLAIMED, "bridge_stop")
    here.until(lambda: not here.marked(run))


def test_a_stop_is_heard_while_git_takes_its_time(here: Home) -> None:
    pipe, bin_ = here.path / "pipe", here.path / "bin"
    subprocess.run(["mkfifo", str(pipe)], check=True)
    bin_.mkdir()
    (bin_ / "git").write_text(f"#!/bin/sh\nread line < {pipe}\n", encoding="utf-8")
    (bin_ / "git").chmod(0o700)
    repository = here.path / "repository"
    subprocess.run(["git", "init", "-q", str(repository)], check=True)
    task = create(here, "card", "--workspace", f"worktree:{repository}")
    bridge = Pull(here, "--ttl", "2", argv=program("exit 0"), PATH=f"{bin_}:{here.hermes.env['PATH']}")
    here.until(lambda: here.run(task))
    assert bridge.stop() == 0
    assert [fact["event"] for fact in bridge.said()] == ["bridge_started", "bridge_stopped"]
    subprocess.run(["git", "-C", str(repository), *IDENTITY, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
    assert Pull(here, argv=program("exit 0")).process.poll() is None
    here.until(lambda: here.card(task).status == s.DONE)  # its lease ran out
    assert [run.outcome for run in here.board.runs(task)] == [s.RECLAIMED, s.COMPLETED]


IDENTITY = ("-c", "user.name=x", "-c", "user.email=x@example.org")


def test_a_board_that_goes_away_ends_the_bridge(here: Home) -> None:
    bridge = Pull(here)
    bridge.hears("bridge_started")
    database = Path(here.place.database)
    away = database.with_name("away.db")
    database.rename(away)
    assert bridge.wait() == 3
    (failed,) = bridge.said("failed")
    assert failed["code"] == "board_not_found"
    away.rename(database)


def test_two_bridges_of_a_name_share_its_cards(here: Home) -> None:  # P10
    tasks = [create(here, f"card {n}") for n in range(6)]
    bridges = [Pull(here, "--once", argv=program("exit 0")) for _ in range(2)]
    assert [bridge.wait() for bridge in bridges] == [0, 0]
    until(lambda: all(here.card(task).status == s.DONE for task in tasks))
    assert [len(here.board.runs(task)) for task in tasks] == [1] * 6
