"""Whoever dies, and whenever: every card ends as it must, and never do two programs work on one card."""

from __future__ import annotations

import os
import random
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_kanban.lanes import proctable, runfiles
from hermes_kanban.model import status as s
from tests.bridge.bridges import (
    Pull,
    asks,
    caught_before_the_start,
    create,
    program,
    pulled,
    reason,
    shim_of,
    unwritable,
)
from tests.processes.home import Home, kill, until

SHORT = ("--ttl", "3")
# Takes a lock for as long as it works: the second of two at once would find it taken, and say so.
ALONE = """
import fcntl, os, sys, time
folder, work = sys.argv[1:3]
card = os.path.join(folder, os.environ["HERMES_KANBAN_TASK"])
lock = os.open(card + ".lock", os.O_RDWR | os.O_CREAT, 0o600)
def note(word):
    descriptor = os.open(card, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(descriptor, (word + "\\n").encode())
    os.close(descriptor)
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    note("two at once")
note("begins")
time.sleep(float(work))
note("ends")
"""


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Home]:
    with pulled(tmp_path) as made:
        yield made


def lives(pid: int) -> bool:
    found = proctable.entry_of(pid)
    return found is not None and found.lives


def all_done(here: Home, tasks: list[str]) -> bool:
    return all(here.card(task).status == s.DONE for task in tasks)


# --- claimed, and nobody has come alive yet -----------------------------------------------------------------------
def test_a_bridge_killed_before_the_start_leaves_it_to_the_shim(here: Home) -> None:  # D11, D13
    task = create(here)
    with caught_before_the_start(here, 1):
        bridge = Pull(here)
        asks(here, task)
        bridge.kill()
    run = here.alive(task)  # the shim asked by its report program
    here.tell(run, "exit 0")
    card, run = here.ended(task)
    assert (card.status, run.id, run.summary) == (s.DONE, 1, "it ended well (exit code 0) and said nothing")


def test_a_shim_killed_before_the_start_blocks_its_card(here: Home) -> None:  # D13
    task = create(here)
    with caught_before_the_start(here, 1):
        bridge = Pull(here, "--once")
        _, shim = asks(here, task)
        kill(shim)
    assert bridge.wait() == 0
    run = here.run(task)
    assert run is not None
    assert (here.card(task).status, run.outcome, run.exit_kind) == (s.BLOCKED, s.OUT_BLOCKED, "vanished")
    assert here.marked(run) == []


def test_a_bridge_and_a_shim_killed_before_the_start_leave_it_to_the_lease(here: Home) -> None:  # P10, P14c
    task = create(here)
    with caught_before_the_start(here, 1):
        bridge = Pull(here, *SHORT)
        run, shim = asks(here, task)
        bridge.kill()
        kill(shim)
        until(lambda: not lives(shim))
    again = Pull(here)
    here.tell(here.alive(task), "exit 0")
    assert here.ended(task)[0].status == s.DONE
    assert [one.outcome for one in here.board.runs(task)] == [s.RECLAIMED, s.COMPLETED]
    assert here.marked(run) == []
    assert again.stop() == 0


def test_a_start_that_comes_after_the_lease_is_refused(here: Home) -> None:  # D11, P14b
    task = create(here)
    bridge = Pull(here, "--ttl", "1")
    until(lambda: os.path.exists(runfiles.lock_path(here.place.runs, 1)))
    bridge.send(signal.SIGSTOP)  # it holds no lock of the board here, and its shim has not asked yet
    with here.hermes.script() as other:
        code, said = other("hermes kanban claim --next --assignee bot --wait 30 --ttl 600")
        assert code == 0, said
        bridge.send(signal.SIGCONT)
        bridge.hears("ended")
        until(lambda: not runfiles.held(here.place.runs, 1))
        assert not (here.path / "puppets" / "default.1").exists()  # its program never ran
        first, second = here.board.runs(task)
        assert (first.outcome, first.supervised, second.open) == (s.RECLAIMED, False, True)
        assert other(f"hermes kanban complete {task} --summary mine")[0] == 0
    assert bridge.stop() == 0
    assert here.card(task).status == s.DONE


# --- while it works -----------------------------------------------------------------------------------------------
def test_a_bridge_killed_at_work_leaves_the_end_to_the_shim(here: Home) -> None:  # D13, P45
    tasks = [create(here, f"card {n}") for n in range(3)]
    bridge = Pull(here, "--concurrency", "3")
    runs = [here.alive(task) for task in tasks]
    bridge.kill()
    for run, line in zip(runs, ("exit 0", "exit 1", "exit 75"), strict=True):
        here.tell(run, line)
    assert [here.ended(task)[0].status for task in tasks] == [s.DONE, s.BLOCKED, s.READY]
    assert "exit code 1" in reason(here, tasks[1])["what"]
    assert [len(here.board.runs(task)) for task in tasks] == [1] * 3


def test_the_next_bridge_counts_what_the_killed_one_left_at_work(here: Home) -> None:
    first, second = create(here, "first"), create(here, "second")
    former = Pull(here)
    run = here.alive(first)
    former.kill()
    bridge = Pull(here)
    assert bridge.hears("found")["run"] == run.id
    news = here.create("news", lane="ann")
    here.ask(run, f"hermes comment {news} seen")
    assert here.run(second) is None  # one at a time
    here.tell(run, "exit 0")
    assert bridge.hears("ended")["run"] == run.id
    here.tell(here.alive(second), "exit 0")
    here.ended(second)
    assert here.card(first).status == s.DONE
    assert bridge.stop() == 0


def test_a_shim_killed_at_work_blocks_its_card_and_leaves_nothing(here: Home) -> None:  # D13, D14b, C17
    task = create(here)
    bridge = Pull(here, "--once")
    run = here.alive(task)
    here.ask(run, "leave 2")
    kill(shim_of(here, run))
    assert bridge.wait() == 0
    run = here.find(run)
    assert (here.card(task).status, run.outcome, run.exit_kind) == (s.BLOCKED, s.OUT_BLOCKED, "vanished")
    assert f"pid {run.worker_pid} not alive" in reason(here, task)["what"]
    assert here.marked(run) == []


def test_what_was_left_by_both_is_booked_by_the_next_bridge(here: Home) -> None:  # D13
    task = create(here)
    bridge = Pull(here)
    run = here.alive(task)
    here.ask(run, "leave 2")
    bridge.kill()
    kill(shim_of(here, run))
    until(lambda: not runfiles.held(here.place.runs, run.id))
    later = Pull(here, "--once", argv=program("exit 0"))
    assert later.wait() == 0
    assert [fact["run"] for fact in later.said("delivered")] == [run.id]
    assert here.card(task).status == s.BLOCKED
    assert here.marked(run) == []


def test_a_gateway_beside_books_what_a_killed_bridge_left(here: Home) -> None:  # P45: whoever notices, the same verdict
    tasks = [create(here, f"card {n}") for n in range(3)]
    gateway = here.gateway()
    bridge = Pull(here, "--concurrency", "3")
    runs = [here.alive(task) for task in tasks]
    bridge.kill()
    here.tell(runs[0], "exit 0")
    here.tell(runs[1], "exit 1")
    kill(shim_of(here, runs[2]))  # nobody but the gateway is left that could notice
    assert [here.ended(task)[0].status for task in tasks] == [s.DONE, s.BLOCKED, s.BLOCKED]
    assert [event.actor for event in here.board.events(task=tasks[2])][-1] == "bridge:bot"
    assert gateway.stop() == 0


def test_a_program_killed_at_work_blocks_its_card(here: Home) -> None:
    task = create(here)
    Pull(here)
    run = here.alive(task)
    kill(run.worker_pid or 0)
    card, run = here.ended(task)
    assert (card.status, run.exit_code) == (s.BLOCKED, -9)


def test_a_stopped_bridge_loses_no_lease(here: Home) -> None:  # P13, D13
    task = create(here)
    bridge = Pull(here, "--ttl", "6")
    bridge.hears("started")  # it waits now, and holds no lock of the board
    bridge.send(signal.SIGSTOP)
    run = here.alive(task)
    until(lambda: here.find(run).claim_expires >= run.claim_expires + 8)  # renewed for twice its length by others
    answer = here.hermes("claim", "--next", "--assignee", "bot")
    assert answer.code == 4, answer
    here.tell(run, "exit 0")
    assert here.ended(task)[0].status == s.DONE  # booked without it
    bridge.send(signal.SIGCONT)
    assert bridge.hears("ended")["run"] == run.id
    second = create(here, "second")
    here.tell(here.alive(second), "exit 0")
    here.ended(second)
    assert bridge.stop() == 0


# --- ended, and not booked yet --------------------------------------------------------------------------------------
def test_an_end_that_nobody_could_book_is_delivered_by_the_next_bridge(here: Home) -> None:  # P45
    here.configure(lock_wait_seconds=0)
    tasks = [create(here, f"card {n}") for n in range(2)]
    bridge = Pull(here, "--concurrency", "2")
    runs = [here.alive(task) for task in tasks]
    until(lambda: all(here._pipe(run).exists() for run in runs))  # their shims have had their answers
    bridge.send(signal.SIGSTOP)
    with unwritable(here):
        for run, code in zip(runs, (0, 1), strict=True):
            here.tell(run, f"exit {code}")
        until(lambda: not any(runfiles.held(here.place.runs, run.id) for run in runs))  # the shims gave up
        bridge.kill()
        assert [here.card(task).status for task in tasks] == [s.RUNNING] * 2
    here.configure(lock_wait_seconds=10)
    later = Pull(here, "--once", argv=program("exit 0"))
    assert later.wait() == 0
    assert sorted(fact["run"] for fact in later.said("delivered")) == [run.id for run in runs]
    assert [here.card(task).status for task in tasks] == [s.DONE, s.BLOCKED]
    assert [len(here.board.runs(task)) for task in tasks] == [1, 1]


# --- anywhere -----------------------------------------------------------------------------------------------------
def test_a_bridge_killed_anywhere_loses_nothing_and_doubles_nothing(here: Home) -> None:
    folder = here.path / "alone"
    folder.mkdir()
    tasks = [create(here, f"card {n}") for n in range(8)]
    argv = (sys.executable, "-I", "-c", ALONE, str(folder), "0.3")
    chance = random.Random(7)
    for _ in range(8):
        bridge = Pull(here, "--concurrency", "3", "--ttl", "10", argv=argv)
        word, times = chance.choice(("bridge_started", "claimed", "started", "ended")), chance.choice((1, 1, 2))
        here.until(lambda: len(bridge.said(word)) >= times or all_done(here, tasks))  # noqa: B023 - called at once
        bridge.kill()
    last = Pull(here, "--concurrency", "3", argv=argv)
    here.until(lambda: all_done(here, tasks))
    for task in tasks:
        lines = (folder / task).read_text(encoding="utf-8").split("\n")[:-1]
        assert "two at once" not in lines
        assert lines == ["begins", "ends"] * (len(lines) // 2)
        done = [run for run in here.board.runs(task) if run.outcome == s.COMPLETED]
        assert len(done) == 1
    assert here.board.verify() == ()
    last.hears("bridge_started")
    assert last.stop() == 0
