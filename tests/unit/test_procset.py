"""Which processes a run has: the rules on made-up tables, and the end of real ones that no shim watches (D12, D14b)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hermes_kanban.base import process
from hermes_kanban.lanes import procset, proctable
from hermes_kanban.lanes.proctable import Entry
from hermes_kanban.lanes.runfiles import Roster

BIRTH = "import sys, time\nprint('up', flush=True)\nwhile True: time.sleep(60)\n"
DEAF = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"


def entry(pid: int, parent: int, session: int = 0, started: str = "1", state: str = "S") -> Entry:
    return Entry(pid, parent, session, session, started, state, 0, 0.0)


def table(*rows: tuple[int, ...]) -> dict[int, Entry]:
    return {row[0]: entry(*row) for row in rows}


def roster(*known: Entry, looked: float = 0.0, boot: str = "", sessions: tuple[int, ...] = ()) -> Roster:
    """A roster that knows these; the shim and the worker are gone."""
    return Roster(
        run=1,
        boot=boot or proctable.here(),
        looked=looked,
        shim=(1, "no such"),
        worker=(2, "no such"),
        known=tuple(e.identity for e in known),
        sessions=sessions,
    )


class Started:
    """Processes that a test started; whatever is left of them ends with it."""

    def __init__(self) -> None:
        self.all: list[subprocess.Popen[str]] = []

    def __call__(self, text: str = "", mark: str | None = None, **more: Any) -> Entry:
        environment = {} if mark is None else {"HERMES_KANBAN_CLAIM_LOCK": mark}
        argv = [sys.executable, "-I", "-c", text + BIRTH]
        child = subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE, text=True, **more)
        assert child.stdout is not None
        assert child.stdout.readline() == "up\n"
        self.all.append(child)
        found = proctable.entry_of(child.pid)
        assert found is not None
        return found

    def end(self) -> None:
        while self.all:
            child = self.all.pop()
            child.kill()
            child.communicate()


@pytest.fixture
def started() -> Iterator[Started]:
    made = Started()
    yield made
    made.end()


@pytest.fixture
def mark() -> str:
    return f"host:1:{uuid.uuid4()}"


def pids(found: tuple[Entry, ...]) -> set[int]:
    return {e.pid for e in found}


def until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.005)


# --- rules ----------------------------------------------------------------------------------------------------
def test_descendants_are_children_and_theirs() -> None:
    everybody = table((1, 0), (10, 1), (11, 10), (12, 11), (20, 1), (21, 20))
    assert proctable.descendants(everybody, {10}) == {11, 12}
    assert proctable.descendants(everybody, {10, 20}) == {11, 12, 21}
    assert proctable.descendants(everybody, {99}) == set()


def test_a_circle_of_parents_is_survived() -> None:
    """Parents are read one after the other, so reused pids can look like one."""
    assert proctable.descendants(table((5, 6), (6, 5)), {5}) == {6}


def test_a_session_counts_when_a_member_leads_it_or_it_is_known() -> None:  # D14b
    everybody = table((1, 0, 1), (10, 1, 10), (11, 1, 10), (12, 11, 12), (13, 1, 12), (20, 1, 20), (30, 1, 30))
    assert proctable.closure(everybody, {10}, set()) == {10, 11, 12, 13}
    assert proctable.closure(everybody, {11}, set()) == {11, 12, 13}  # a stranger may lead session 10
    assert proctable.closure(everybody, set(), {30}) == {30}
    assert proctable.closure(everybody, {99}, set()) == set()


def test_this_process_is_in_the_table() -> None:
    mine = proctable.table()[os.getpid()]
    told = process.describe(os.getpid())
    assert told is not None
    assert mine.started == told.started  # one form of start tokens everywhere (D12)
    assert (mine.parent, mine.group, mine.session) == (os.getppid(), os.getpgrp(), os.getsid(0))
    assert mine.lives
    assert mine.memory > 1_000_000
    assert mine.cpu > 0
    assert float(mine.started) < proctable.start_token_now() <= proctable.later(float(mine.started), 86_400)


def test_a_zombie_does_not_live() -> None:  # C22
    child = subprocess.Popen(["true"])
    until(lambda: not getattr(proctable.entry_of(child.pid), "lives", True))
    child.wait()
    assert proctable.entry_of(child.pid) is None


# --- signals --------------------------------------------------------------------------------------------------
def test_a_signal_reaches_only_the_process_that_was_meant(started: Started) -> None:  # D12
    found = started()
    other = found.evolve(started="0")  # the same pid at another time
    assert not proctable.send(other, signal.SIGKILL)
    assert process.alive(found.pid, found.started)
    assert proctable.send(found, signal.SIGKILL)
    until(lambda: not process.alive(found.pid, found.started))


def test_without_pidfds_signals_go_the_plain_way(started: Started, monkeypatch: pytest.MonkeyPatch) -> None:  # D12
    monkeypatch.delattr(os, "pidfd_open", raising=False)
    found = started()
    assert not proctable.send(found.evolve(started="0"), signal.SIGKILL)
    assert proctable.send(found, signal.SIGKILL)
    until(lambda: not process.alive(found.pid, found.started))
    started.end()
    assert not proctable.send(found, signal.SIGKILL)


# --- what a dead shim left ------------------------------------------------------------------------------------
def test_a_marked_process_is_found_and_others_are_not(started: Started, mark: str) -> None:  # D13
    found, other = started(mark=mark), started(mark=f"{mark}0")
    assert pids(procset.remains(mark, None)) == {found.pid}
    assert procset.remains("", None) == ()
    assert procset.destroy(mark, None, 5)
    assert not process.alive(found.pid, found.started)
    assert process.alive(other.pid, other.started)


def test_pid_and_start_must_both_fit(started: Started, mark: str) -> None:  # D12
    found = started()
    assert procset.remains(mark, roster(found.evolve(started="0"))) == ()
    assert pids(procset.remains(mark, roster(found))) == {found.pid}


def test_the_pids_of_another_boot_mean_nothing(started: Started, mark: str) -> None:  # D12, C25
    found = started(start_new_session=True)
    late = proctable.later(proctable.start_token_now(), 60)
    theirs = roster(found, boot="another/", looked=late, sessions=(found.pid,))
    assert procset.remains(mark, theirs) == ()
    assert procset.destroy(mark, theirs, 0)
    assert process.alive(found.pid, found.started)


def test_children_and_sessions_of_the_known_are_found(started: Started, mark: str) -> None:  # D14b
    parent = started("import os\nif os.fork() == 0: os.setsid()\n", start_new_session=True)
    until(lambda: len(procset.remains(mark, roster(parent, sessions=(parent.pid,)))) == 2)
    stranger = started()
    assert procset.destroy(mark, roster(parent, sessions=(parent.pid,)), 5)
    assert not process.alive(parent.pid, parent.started)
    assert process.alive(stranger.pid, stranger.started)


def test_a_session_that_began_later_is_a_strangers(started: Started, mark: str) -> None:  # D12
    found = started(start_new_session=True)
    before = float(found.started) - proctable.later(0, procset.UNSEEN_SECONDS) - 1
    assert procset.remains(mark, roster(looked=before, sessions=(found.pid,))) == ()
    assert pids(procset.remains(mark, roster(looked=before + 2, sessions=(found.pid,)))) == {found.pid}


def test_a_deaf_process_is_killed_after_the_grace(started: Started, mark: str) -> None:  # D14
    found = started(DEAF, mark)
    assert procset.destroy(mark, None, 0.1)
    assert not process.alive(found.pid, found.started)


def test_the_grace_is_given(started: Started, mark: str) -> None:  # D14
    tidy = "import signal, time, os\nsignal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.2), os._exit(7)))\n"
    found = started(tidy, mark)
    assert procset.destroy(mark, None, 20)
    assert started.all[0].wait() == 7
    assert not process.alive(found.pid, found.started)


def test_who_asks_is_never_ended(started: Started, mark: str) -> None:
    mine = proctable.entry_of(os.getpid())
    assert mine is not None
    child = started(mark=mark)
    known = roster(mine, child)
    found = pids(procset.remains(mark, known))  # other tests of this process may have left children of it
    assert child.pid in found
    assert os.getpid() not in found
    assert procset.destroy(mark, known, 0)


ASK = """
import os, sys
from hermes_kanban.lanes import procset
mark = os.environ["HERMES_KANBAN_CLAIM_LOCK"]
print(os.getppid() in [e.pid for e in procset.remains(mark, None)], procset.destroy(mark, None, 0))
"""


def test_those_above_who_asks_are_seen_but_not_ended(mark: str) -> None:  # P14c
    """A leftover that claims its card again is told that its run is not over."""
    above = f"import subprocess, sys\nsys.exit(subprocess.run([sys.executable, '-I', '-c', {ASK!r}]).returncode)"
    environment = {**os.environ, "HERMES_KANBAN_CLAIM_LOCK": mark}
    argv = [sys.executable, "-I", "-c", above]
    told = subprocess.run(argv, env=environment, capture_output=True, text=True, check=True)
    assert told.stdout == "True False\n"


def test_a_system_without_descriptors_is_no_proof(mark: str) -> None:  # D14
    program = f"""
import os, resource
from hermes_kanban.base.errors import Retryable
from hermes_kanban.lanes import procset
held = procset.ProcessSet(os.getpid(), {mark!r}, subreaper=False)
child = os.fork()
if not child:
    os.execv("/bin/sleep", ["sleep", "60"])
assert [e.pid for e in held.look().members] == [child]
resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
for ask in (procset.remains, lambda *of: procset.destroy(*of, 0)):
    try:
        print(ask({mark!r}, None))
    except Retryable as error:
        print(error.code)
print([e.pid for e in held.look().members] == [child], held.proven_empty(childless=True))
os.kill(child, 9)
"""
    told = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True)
    assert told.stdout.split() == ["retry", "retry", "True", "False"]
