"""The gateway: what wakes it, which boards it has, how it stops and comes back (D1, D4, D6, D9)."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_kanban.model import status as s
from tests.processes.around import Opens, beside, locked
from tests.processes.home import LANES, Gateway, Home, home, kill, worker

NEVER = (
    3600  # seconds: the longest interval of the safety net that config.yaml takes, so that nothing here waits for it
)


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Home]:
    with home(tmp_path, dispatch_interval_seconds=NEVER) as made:
        yield made


def at_work(here: Home, *words: str, **variables: str) -> Gateway:
    """Start a gateway that has done its first pass over the board, and has nothing to do."""
    made = here.gateway(*words, **variables)
    here.until(lambda: here.dispatcher() == made.pid)
    return made


# --- D1: what wakes it ------------------------------------------------------------------------------------------
def test_each_commit_is_noticed_without_the_safety_net(here: Home) -> None:  # D1
    gateway = at_work(here)
    parent = here.create("parent")
    child = here.create("child", "--parent", parent)
    idea = here.create("idea", "--triage")
    run = here.alive(parent)
    assert here.card(child).status == s.TODO
    here.hermes.ok("promote", idea)
    other = here.alive(idea)
    here.ask(run, "complete")  # the worker's own commit promotes the child
    here.alive(child)
    here.tell(other, "exit 0")
    assert len(gateway.said("pass")) >= 3


def test_an_exit_is_noticed_by_itself(tmp_path: Path) -> None:  # D1: no commit tells of it
    with home(
        tmp_path, LANES | {"fails": worker("exit 9")}, max_in_progress=1, dispatch_interval_seconds=NEVER
    ) as here:
        at_work(here)
        failing = here.create("fails twice", lane="fails")
        here.until(lambda: here.card(failing).status == s.BLOCKED)  # the second attempt follows the first one's exit
        assert [run.exit_code for run in here.board.runs(failing)] == [9, 9]
        first, second = here.create("first"), here.create("second")
        kill(here.alive(first).worker_pid or 0)
        here.until(lambda: len(here.board.runs(first)) == 2 or here.run(second))  # the one slot is free again
        assert here.board.runs(first)[0].outcome == s.CRASHED


def test_a_time_that_comes_is_noticed_by_itself(here: Home) -> None:  # D1: a start time, a pause's end
    here.configure(retry_backoff_seconds=2)
    at_work(here)
    card = here.create("later", "--at", "+2s")
    assert here.card(card).status == s.SCHEDULED
    kill(here.alive(card).worker_pid or 0)
    here.until(lambda: len(here.board.runs(card)) == 2)
    assert here.kinds(card)[:6] == ["created", "due", "claimed", "spawned", "crashed", "claimed"]
    first, second = here.board.runs(card)
    crash = next(event for event in here.board.events(task=card) if event.kind == "crashed")
    assert first.ended_at is not None
    assert first.ended_at < crash.payload["until"] <= second.started_at  # it did wait


def test_a_slot_is_free_before_its_end_is_told(here: Home) -> None:  # D1, D13: who is told of it may use it at once
    gateway = at_work(here)
    run = here.alive(here.create())
    assert here.slots() == 1
    gateway.send(signal.SIGSTOP)  # nobody takes the news, and the shim waits for an answer to it
    here.tell(run, "exit 0")
    here.until(lambda: here.slots() == 0)
    assert here.marked(run) == [run.shim_pid]
    assert here.locks() == [run.id]  # its liveness it gives up last
    gateway.send(signal.SIGCONT)
    here.until(lambda: here.find(run).process_state == s.ENDED)  # the next attempt may have begun already


# --- D4: boards come, go, break and heal ------------------------------------------------------------------------
def test_boards_that_come_and_go(here: Home) -> None:  # D4
    gateway = at_work(here)
    with beside(here, "later") as later:
        run = later.alive(later.create())
        later.ask(run, "complete")
        later.tell(run, "exit 0")
        later.ended(run.task_id)
        shutil.rmtree(later.place.folder)
        here.until(lambda: gateway.said("board_gone"))
    with beside(here, "later") as again:  # a new one of the same name is another board
        again.alive(again.create())
    here.alive(here.create("the others are not touched"))
    assert [fact["board"] for fact in gateway.said("board_gone")] == ["later"]
    assert not gateway.said("loop_restarted")


@pytest.mark.skipif(sys.platform != "linux", reason="what the gateway opens is watched by inotify")
def test_a_damaged_board_is_reported_once_and_comes_back(here: Home) -> None:  # D4
    here.hermes.ok("boards", "create", "bad")
    bad = here.hermes.set(HERMES_KANBAN_BOARD="bad")
    card = bad.create("card", "--assignee", "puppet")
    database = here.path / "kanban" / "boards" / "bad" / "kanban.db"
    whole = database.read_bytes()
    database.write_bytes(b"this is no board\n" * 4096)
    opens = Opens(str(database))
    gateway = at_work(here)
    here.until(lambda: gateway.said("board_trouble"))
    for _ in range(2):
        opens.wait()  # it is tried again, after a pause
    opens.close()
    here.alive(here.create("the others are not touched"))
    shown = here.hermes.run(["hermes", "gateway", "status", "--json"])
    assert shown.code == 0, shown
    errors = [(row["board"], row["error"]["reason"]) for row in shown.json["boards"] if row["error"]]
    assert errors == [("bad", "not_a_board")]
    database.write_bytes(whole)
    here.until(lambda: gateway.said("board_recovered"))
    here.until(lambda: bad.status(card) == s.RUNNING)
    assert [fact["board"] for fact in gateway.said("board_trouble")] == ["bad"]
    assert "not a board" in gateway.said("board_trouble")[0]["message"]
    assert not gateway.said("loop_restarted")


def test_a_board_that_breaks_under_a_gateway(here: Home) -> None:  # D4
    with beside(here, "bad") as bad:
        gateway = at_work(here)
        here.until(lambda: bad.dispatcher() == gateway.pid)
        whole = Path(bad.place.database).rename(here.path / "aside")
        Path(bad.place.database).mkdir()
        here.until(lambda: gateway.said("board_trouble"))
        here.alive(here.create("the others are not touched"))
        Path(bad.place.database).rmdir()
        whole.rename(bad.place.database)
        here.until(lambda: gateway.said("board_recovered"))
        bad.alive(bad.create())
        assert {fact["board"] for fact in gateway.said("board_trouble")} == {"bad"}


# --- D6: its end, and the next one ------------------------------------------------------------------------------
def test_workers_outlive_their_gateway_and_are_watched_by_the_next(here: Home) -> None:  # D6
    first = at_work(here)
    one, other = here.create("one"), here.create("other")
    runs = here.alive(one), here.alive(other)
    stopped = here.hermes.run(["hermes", "gateway", "stop", "--json"])
    assert stopped.code == 0, stopped
    assert stopped.json["stopped"] == [first.pid]
    assert {row["task_id"] for row in stopped.json["workers"]} == {one, other}
    assert first.process.wait() == 0
    here.ask(runs[0], "say still here")  # nobody ended it, and its card is its own
    second = at_work(here)
    here.ask(runs[0], "complete")
    here.tell(runs[0], "exit 0")
    card, run = here.ended(one)
    assert (card.status, run.outcome, run.exit_code, run.id) == (s.DONE, s.COMPLETED, 0, runs[0].id)
    kill(runs[1].worker_pid or 0)
    here.until(lambda: len(here.board.runs(other)) == 2)
    assert here.board.runs(other)[0].outcome == s.CRASHED
    assert here.alive(other).claimed_by == runs[1].claimed_by
    assert not second.said("loop_restarted")


def test_an_adopted_worker_is_told_what_its_own_was(here: Home) -> None:  # D6, D14b: closed, and it stays
    at_work(here).kill()
    card = here.create()
    here.dispatch()  # a single pass that starts it, and is gone
    run = here.alive(card)
    at_work(here)
    here.ask(run, "complete")
    done, run = here.ended(card)  # it would obey for ever: the new gateway told its shim, whose grace is a second
    assert (done.status, run.outcome, run.exit_kind) == (s.DONE, s.COMPLETED, "signal")
    here.until(lambda: here.marked(run) == [])


@pytest.mark.parametrize("way", ["--stop-workers", "stop --workers"])
def test_a_gateway_that_takes_its_workers_along(here: Home, way: str) -> None:  # D6
    gateway = at_work(here, *(["--stop-workers"] if way == "--stop-workers" else []))
    card = here.create()
    mark = here.alive(card)
    if way == "--stop-workers":
        assert gateway.stop() == 0
    else:
        answer = here.hermes.run(["hermes", "gateway", "stop", "--workers", "--json"])
        assert (answer.json["stopped"], answer.json["workers"]) == ([gateway.pid], [])
    found, run = here.ended(card)
    assert (run.id, run.outcome, run.end_reason) == (mark.id, s.RECLAIMED, "gateway_stop")
    assert (found.status, found.consecutive_failures) == (s.READY, 0)  # nobody's fault
    here.until(lambda: here.marked(run) == [])
    assert here.locks() == []


def test_a_gateway_that_is_stopped_claims_nothing_more(here: Home) -> None:  # D6
    here.configure(kill_grace_seconds=3)
    gateway = at_work(here, "--stop-workers")
    run = here.alive(here.create())
    here.ask(run, "stubborn")
    gateway.send(signal.SIGTERM)
    late = here.create("late")
    assert gateway.process.wait() == 0
    assert here.run(late) is None
    assert here.card(late).status == s.READY


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_stops_although_its_board_is_locked(here: Home, number: signal.Signals) -> None:  # D6
    here.configure(lock_wait_seconds=NEVER)
    gateway = at_work(here)
    run = here.alive(here.create())
    with locked(here.place.database):  # what it does next waits for the lock, and the lock is never given
        kill(run.worker_pid or 0)
        here.until(lambda: here.locks() == [run.id] and _writes(gateway))
        assert gateway.stop(number) == 0
    assert [fact["event"] for fact in gateway.said()][-1] == "gateway_stopped"
    at_work(here)
    here.until(lambda: len(here.board.runs(run.task_id)) == 2)  # what it could not book any more was booked


def _writes(gateway: Gateway) -> bool:
    """Whether a thread of the gateway waits in the queue for the board's lock (it has one that only waits)."""
    return len(os.listdir(f"/proc/{gateway.pid}/task")) > 2


# --- D9: loops that die, and a gateway that is down ---------------------------------------------------------------
@pytest.mark.skipif(sys.platform != "linux", reason="the limits of another process are set by prlimit")
def test_a_loop_that_dies_is_started_again(here: Home) -> None:  # D9
    with beside(here, "other") as other:
        gateway = at_work(here)
        here.until(lambda: other.dispatcher() == gateway.pid)
        before = resource.prlimit(gateway.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(gateway.pid, resource.RLIMIT_NOFILE, (3, before[1]))  # not one descriptor more
        late = here.create("late")
        here.until(lambda: gateway.said("gateway_trouble"))  # the loop has died, and a new one cannot be had
        resource.prlimit(gateway.pid, resource.RLIMIT_NOFILE, before)
        here.until(lambda: gateway.said("gateway_recovered"))
        here.alive(late)
        other.alive(other.create())
        assert [fact["board"] for fact in gateway.said("loop_restarted")] == ["default"]
        assert "Too many open files" in gateway.said("loop_restarted")[0]["error"]
        assert not gateway.said("board_gone")  # what could not be looked at is not gone
        assert gateway.stop() == 0


def test_a_loop_that_dies_of_the_same_again_and_again_is_reported_once(here: Home) -> None:  # D9
    (here.path / "kanban" / "slots").write_bytes(b"")  # in the place of a folder
    gateway = at_work(here)
    card = here.create()
    entry = here.path / "kanban" / "dispatcher.lock"
    here.until(lambda: gateway.said("loop_restarted"))
    opens = Opens(str(entry))
    for _ in range(3):
        opens.wait()  # a new loop takes the lease
    opens.close()
    (here.path / "kanban" / "slots").unlink()
    here.alive(card)
    assert len(gateway.said("loop_restarted")) == 1


def test_status_and_stop_with_no_gateway(here: Home) -> None:  # D6, D9
    def gateway(word: str) -> tuple[int, str]:
        answer = here.hermes.run(["hermes", "gateway", word])
        return answer.code, answer.out.strip()

    assert gateway("status") == (0, "no gateway runs\ndefault: nobody dispatches it")
    assert gateway("stop") == (0, "no gateway runs")
    card = here.create()
    here.dispatch()
    run = here.alive(card)
    code, text = gateway("status")
    assert code == 0
    assert f"{card} run {run.id} puppet pid {run.worker_pid} alive" in text
    assert gateway("stop") == (
        0,
        f"no gateway runs\nruns on: {card} run {run.id} on board default, pid {run.worker_pid}",
    )
    at_work(here).kill()  # its entry stays behind, and says nothing
    assert gateway("status")[1].startswith("no gateway runs\ndefault: nobody dispatches it")
    assert gateway("stop")[1].startswith("no gateway runs\n")


def test_status_tells_how_long_ago_the_last_pass_was(here: Home) -> None:  # D9
    gateway = at_work(here)
    stranger = here.create("nobody's", lane="nobody-of-this-host")
    row = here.hermes.run(["hermes", "gateway", "status", "--json"]).json
    assert [one["pid"] for one in row["gateways"]] == [gateway.pid]
    here.until(lambda: _holder(here).get("skipped_nonspawnable"))
    found = _holder(here)
    assert found["pid"] == gateway.pid
    assert found["last_pass_ms"] > gateway.said("gateway_started")[0]["at"] * 1000
    assert found["skipped_nonspawnable"][0]["name"] == "nobody-of-this-host"
    text = here.hermes.run(["hermes", "gateway", "status"]).out
    assert f"default: dispatched by {gateway.pid}, last pass " in text
    assert here.card(stranger).status == s.READY  # D5


def _holder(here: Home) -> dict[str, object]:
    found: dict[str, object] = here.hermes.run(["hermes", "gateway", "status", "--json"]).json["boards"][0][
        "dispatcher"
    ]
    return found


@pytest.mark.parametrize("way", ["option", "setting", "variable"])
def test_a_gateway_without_the_dispatcher(here: Home, way: str) -> None:
    if way == "setting":
        here.configure(dispatch_in_gateway=False)
    variables = {"HERMES_KANBAN_DISPATCH_IN_GATEWAY": "0"} if way == "variable" else {}
    gateway = here.gateway(*(["--no-dispatch"] if way == "option" else []), **variables)
    assert gateway.said("gateway_started")[0]["dispatch"] is False
    card = here.create()
    report = here.dispatch()  # nobody has the board: a single pass does it itself
    assert [row["task"] for row in report["started"]] == [card]
    run = here.alive(card)
    assert run.claim_lock is not None
    assert run.claim_lock.split(":")[1] != str(gateway.pid)
    assert gateway.stop() == 0


def test_the_old_word_daemon_works_and_says_what_replaced_it(here: Home) -> None:
    log = here.path / "daemon.log"
    with log.open("wb") as out:
        daemon = here.hermes.start("daemon", stdout=out, stderr=out)
    here.alive(here.create())
    daemon.terminate()
    assert daemon.wait() == 0
    assert (
        log.read_text(encoding="utf-8")
        .splitlines()[0]
        .startswith("note: `daemon` is an old word; `hermes gateway start`")
    )
