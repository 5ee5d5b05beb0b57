"""Faults that boards of this kind have had, each with real processes and by its number (C4 …): claims, and ends.

C31 to C59 and C142 are in test_more_faults, C8 C28 C47 C58 in test_spawning too, C38 C115 C116 C118 C133 C134 C136 C137
C139 C140 in test_dispatch, C46 in test_deaths; C44's reminder and C61 belong to the built-in agent.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_kanban import compose
from hermes_kanban.base import process
from hermes_kanban.dispatcher.slots import Held, Slots
from hermes_kanban.model import status as s
from hermes_kanban.model.claim import Caps
from hermes_kanban.model.run import Run
from tests.processes.around import change, gone, now, outcomes, shell
from tests.processes.home import FAKE, HERMES, Home, home, kill, until

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="namespaces of processes are Linux's")
CLONE_NEWPID = 0x20000000

# Its first child is the init of a namespace of processes of its own; the pid is written down for the test.
INIT = """
import ctypes, os, signal
assert ctypes.CDLL(None).unshare(0x20000000) == 0
pid = os.fork()
if pid == 0:
    signal.pause()
with open(f"{os.environ['HERMES_HOME']}/puppets/init", "w") as out:
    out.write(f"{pid}\\n")
signal.pause()
"""


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Home]:
    with home(tmp_path) as made:
        yield made


def late(here: Home, run: Run, *words: str) -> int:
    """Do a verb as the worker of a run that may be over, from outside of any shim; return the exit code."""
    shown = {"HERMES_KANBAN_TASK": run.task_id, "HERMES_KANBAN_RUN_ID": str(run.id)}
    return here.hermes.set(HERMES_KANBAN_CLAIM_LOCK=run.claim_lock or "", **shown)(*words).code


# --- claims and leases ----------------------------------------------------------------------------------------------
def test_only_the_end_of_its_process_frees_a_card(here: Home) -> None:  # C4
    here.configure(closing_grace_seconds=60, claim_ttl_seconds=1, quarantine_seconds=1)
    here.gateway()
    task = here.create()
    run = here.alive(task)
    here.ask(run, "say out of iterations")
    here.ask(run, "block")  # it gives its card back, and is not gone
    here.hermes.ok("unblock", task)
    closed = here.run(task)
    assert closed is not None
    here.until(lambda: now(here) > closed.claim_expires + 2)  # nor does time free it while that is known (P14c)
    other = here.alive(here.create("the dispatcher looks at the board"))
    assert here.card(task).status == s.READY
    assert [found.id for found in here.board.runs(task)] == [run.id]
    assert late(here, run, "claim", task) != 0  # nor does anybody else get it
    here.tell(run, "exit 0")
    again = here.alive(task)
    assert again.id > other.id
    assert gone(here, run)


def test_a_late_clean_up_names_its_own_attempt_and_touches_no_other(here: Home) -> None:  # C5
    task = here.create()
    here.dispatch()
    first = here.alive(task)
    here.hermes.ok("reclaim", task)
    before = here.board.last_event_id()
    here.ask(first, "block")  # it does not know yet that it lost its claim
    assert here.run(task) is not None
    assert [event.kind for event in here.board.events(since=before)] == ["refused"]
    here.gateway()  # tells its shim to end it
    second = here.alive(task) if here.run(task) != first else first
    here.until(lambda: len(here.board.runs(task)) == 2)
    second = here.alive(task)
    assert gone(here, first)
    for words in (
        ["block", task, "--kind", "transient", "--cause", "late", "--what", "out of iterations"],
        ["complete", task, "--summary", "late"],
        ["heartbeat", task],
    ):
        assert late(here, first, *words) == 5  # its claim is lost
    assert here.run(task) == here.alive(task)
    assert (second.id, here.card(task).status) == (here.card(task).current_run_id, s.RUNNING)
    here.ask(second, "complete")
    assert here.card(task).status == s.DONE


def test_claims_whose_workers_never_come_alive_end(here: Home) -> None:  # C8, C14
    here.configure(spawn_grace_seconds=1, failure_limit=2)
    task = here.create()
    board = compose.open_supervision(here.env, here.place)
    here.lanes.clear()  # who looks afterwards starts nothing
    here.configure()
    for _ in range(2):  # a dispatcher that claims and is gone
        board.claim_for_dispatch(task, ttl=900, lane="puppet", name="puppet", caps=Caps())
        here.until(lambda: here.dispatch()["ended"])
    assert outcomes(here, task) == [s.SPAWN_FAILED, s.GAVE_UP]
    assert here.card(task).status == s.BLOCKED
    assert here.kinds(task)[-1] == "gave_up"


def test_a_silent_worker_is_not_killed_before_its_time_is_over(here: Home) -> None:  # C29, D15
    here.configure(claim_ttl_seconds=1)
    here.gateway()
    task = here.create("silent", "--max-runtime", "5")
    first = here.alive(task)
    here.until(lambda: (run := here.run(task)) and run.claim_expires >= first.started_at + 4)  # three leases
    run = here.run(task)
    assert run is not None
    assert (run.id, run.open) == (first.id, True)
    here.until(lambda: len(here.board.runs(task)) == 2)
    ended = here.board.runs(task)[0]
    assert (ended.outcome, ended.end_reason) == (s.TIMED_OUT, "timed_out")
    assert (ended.ended_ms or 0) - ended.started_ms >= 5000
    kinds = [kind for kind in here.kinds(task) if kind != "claim_extended"]  # of a shim that renewed late
    assert kinds[:4] == ["created", "claimed", "spawned", "timed_out"]
    assert gone(here, first)


# --- the end of a process -----------------------------------------------------------------------------------------
@LINUX
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may make a process that survives SIGKILL")
def test_a_worker_that_survives_sigkill_keeps_its_card(here: Home) -> None:  # C16, D14
    here.lanes["puppet"] = {"argv": [sys.executable, "-I", "-c", INIT]}
    here.configure(kill_grace_seconds=0)
    here.gateway()
    task = here.create("cannot be killed", "--max-runtime", "100")
    run = here.alive(task)
    told = here.path / "puppets" / "init"
    until(lambda: told.exists() and told.read_text(encoding="utf-8").endswith("\n"))
    init = int(told.read_text(encoding="utf-8"))
    release_it = hold(init)
    try:
        kill(init)  # it stays: a process of its namespace has a parent outside, which does not collect it
        assert change(here, "UPDATE task_runs SET started_at = started_at - 1000 WHERE id = ?", run.id) == 1
        here.until(lambda: "reclaim_deferred" in here.kinds(task))
        assert process.describe(init) is not None
        assert here.locks() == [run.id]
        assert here.slots() == 1
        card, found = here.card(task), here.run(task)
        assert found is not None
        assert (card.status, found.id, found.open) == (s.RUNNING, run.id, True)
        assert here.kinds(task).count("claimed") == 1  # nobody else was started
        assert late(here, run, "claim", task) != 0
    finally:
        release_it()
    here.until(lambda: outcomes(here, task)[0] == s.TIMED_OUT)
    here.until(lambda: init not in here.marked(run))


def hold(init: int) -> Callable[[], None]:
    """Keep a process in the namespace of another from being collected, until what is returned is called."""
    libc = ctypes.CDLL(None, use_errno=True)
    says, said = os.pipe()
    namespace = os.open(f"/proc/{init}/ns/pid", os.O_RDONLY)
    holder = os.fork()
    if holder == 0:
        code = libc.setns(namespace, CLONE_NEWPID)
        if code == 0 and os.fork() == 0:
            signal.pause()
        os.write(said, b"no" if code else b"in")
        signal.pause()
    assert os.read(says, 2) == b"in"
    for descriptor in (says, said, namespace):
        os.close(descriptor)

    def let_go() -> None:
        kill(holder)
        os.waitpid(holder, 0)

    return let_go


def test_nothing_of_an_attempt_is_left_when_the_next_one_starts(here: Home) -> None:  # C17, C56
    here.gateway()
    task = here.create("leaves others", "--max-runtime", "2")
    first = here.alive(task)
    here.ask(first, "leave 2")  # in sessions of their own, deaf to SIGTERM
    assert len(here.marked(first)) == 4
    here.until(lambda: len(here.board.runs(task)) == 2)
    assert gone(here, first)
    second = here.alive(task)
    assert outcomes(here, task) == [s.TIMED_OUT, None]
    here.ask(second, "say still here")  # the time is counted from this attempt's own start
    here.until(lambda: here.card(task).status == s.BLOCKED)
    ended = here.board.runs(task)[1]
    assert (ended.ended_ms or 0) - ended.started_ms >= 2000
    assert gone(here, second)


def test_a_worker_that_goes_on_after_it_completed_is_stopped(here: Home) -> None:  # C19, D14b
    here.configure(closing_grace_seconds=2)
    here.gateway()
    task = here.create()
    run = here.alive(task)
    here.ask(run, "stubborn")
    here.ask(run, "leave 1")
    here.ask(run, "complete")
    closing = here.run(task)
    assert closing is not None
    assert (here.card(task).status, closing.process_state, closing.worker_pid) == (s.DONE, s.CLOSING, run.worker_pid)
    shown = here.hermes.run([HERMES, "gateway", "status", "--json"]).json["boards"][0]["workers"]
    assert [(row["id"], row["worker_pid"]) for row in shown] == [(run.id, run.worker_pid)]
    card, ended = here.ended(task)
    assert (card.status, ended.outcome, ended.end_verb) == (s.DONE, s.COMPLETED, "complete")
    assert gone(here, run)


@pytest.mark.parametrize("verb", ["archive", "block", "schedule"])
def test_no_verb_orphans_a_worker(here: Home, verb: str) -> None:  # C20
    here.gateway()
    task = here.create()
    run = here.alive(task)
    words = {"archive": [], "block": ["--kind", "needs_input", "--what", "stop"], "schedule": ["--in", "2h"]}[verb]
    refused = here.hermes(verb, task, *words)
    assert refused.code != 0
    assert here.card(task).status == s.RUNNING
    assert gone(here, run) is False
    here.hermes.ok(verb, task, *words, "--override")
    here.until(lambda: here.board.watched() == ())
    ended = here.board.runs(task)[0]
    assert (ended.id, ended.outcome, ended.end_reason) == (run.id, s.RECLAIMED, f"override:{verb}")
    assert gone(here, run)
    assert [found.id for found in here.board.runs(task) if found.role != s.MANUAL] == [run.id]


def test_a_zombie_is_no_live_process_and_holds_no_slot(tmp_path: Path) -> None:  # C22, C23
    slots = Slots(str(tmp_path / "slots"))
    taken = slots.take((("host", 1),))
    assert isinstance(taken, list)
    says, said = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(said, b"!")
        signal.pause()
    Held(taken).close()  # the child has it, as a shim would
    os.read(says, 1)
    me = process.describe(pid)
    assert me is not None
    assert process.alive(pid, me.started)
    assert slots.take((("host", 1),)) == "host"
    kill(pid)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # it has ended, and is not collected
    assert not process.alive(pid, me.started)
    granted = slots.take((("host", 1),))
    assert isinstance(granted, list)
    Held(granted).close()
    os.waitpid(pid, 0)
    os.close(says)
    os.close(said)


@LINUX
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may make a namespace of processes")
def test_a_dispatcher_in_another_container_takes_no_live_worker_for_dead(here: Home) -> None:  # C25, D12
    task = here.create()
    here.dispatch()
    run = here.alive(task)

    def inside(*words: str) -> dict[str, Any]:
        """One command among processes of which none of ours is one: the same host's name, other numbers."""
        answer = here.hermes.run(["unshare", "--pid", "--fork", "--mount-proc", HERMES, "kanban", *words, "--json"])
        assert answer.code == 0, answer
        found: dict[str, Any] = json.loads(answer.out)
        return found

    assert inside("dispatch")["ended"] == []
    assert change(here, "UPDATE task_runs SET claim_expires = claim_expires - 5000 WHERE id = ?", run.id) == 1
    assert inside("dispatch")["ended"] == []  # the lock is held: that is seen from everywhere
    assert here.kinds(task) == ["created", "claimed", "spawned", "claim_extended"]
    here.ask(run, "complete")
    here.tell(run, "exit 0")
    assert here.ended(task)[1].outcome == s.COMPLETED


@pytest.mark.parametrize("wait_for", ["all", "leader"])
def test_a_launcher_that_ends_at_once_is_no_crash(here: Home, wait_for: str) -> None:  # C26
    line = f"{sys.executable} -I {FAKE} obey & exit 0"
    here.lanes["puppet"] = shell(line, wait_for=wait_for)
    here.configure(closing_grace_seconds=3600 if wait_for == "all" else 1, protocol_violation_limit=1)
    here.gateway()
    task = here.create()
    run = here.alive(task)
    if wait_for == "all":
        launcher = run.worker_pid or 0
        until(lambda: process.describe(launcher) is None or not process.alive(launcher, run.worker_started or ""))
        here.ask(run, "complete")
        here.tell(run, "exit 0")
        card, ended = here.ended(task)
        assert (card.status, ended.outcome, ended.exit_code) == (s.DONE, s.COMPLETED, 0)
    else:  # where it is not said that the launcher is one, what it leaves has the closing grace
        card, ended = here.ended(task)
        assert (card.status, ended.exit_code, ended.exit_kind) == (s.BLOCKED, 0, "exit")
        assert "protocol_violation" in (ended.end_reason or "") or "without closing" in (ended.error or "")
    assert gone(here, run)
