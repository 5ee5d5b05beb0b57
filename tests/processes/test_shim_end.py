"""How a run ends: by itself, asked, killed, out of time or memory; and that nothing of it is left (D13, D14, D14b)."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from hermes_kanban.lanes import procset, runfiles
from hermes_kanban.lanes.proctable import entry_of
from hermes_kanban.model.exits import ExitRecord
from tests.processes.shims import RUN, Shim, alive, pids_in, py, shim, until

FOREVER = "import time\nwhile True: time.sleep(60)\n"
DEAF = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
NOTE = "import os\nopen('pids', 'a').write(f'{os.getpid()}\\n')\n"
# A process that left its worker: own session, no environment, an orphan.
STRAY = """
import os, sys
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execve(sys.executable, [sys.executable, "-I", "-c", STRAY], {})
    os._exit(0)
os.wait()
"""


def leaving(stray: str, rest: str = "") -> tuple[str, ...]:
    """A worker that leaves a stray running this, waits until it is up, and goes on with the rest."""
    up = "import time\nwhile not os.path.exists('pids'): time.sleep(0.005)\n"
    return py(f"STRAY = {stray!r}\n{STRAY}{up}{rest}")


def known(s: Shim) -> set[int]:
    """Return whom the shim saw when it looked last."""
    roster = runfiles.read_roster(str(s.runs), RUN)
    return {pid for pid, _ in roster.known} if roster else set()


def ended(s: Shim) -> ExitRecord:
    record = s.end()
    assert record is not None
    assert s.left() == []
    assert not s.held()
    return record


# --- by itself ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("code", [0, 1, 75, 78, 255])
def test_the_exit_code_is_written_down(tmp_path: Path, code: int) -> None:  # C46
    with shim(tmp_path, ("sh", "-c", f"exit {code}")) as s:
        s.begin()
        record = ended(s)
        assert (record.code, record.signal, record.stop, record.overstayed) == (code, None, "", False)
        assert record.started_ms <= record.ended_ms
        assert (record.task, record.lock, record.policy) == ("t_ab", s.mark, "require_call")
        assert s.text().splitlines()[-1] == f"[kanban-worker-exit] rc={code}"


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL, signal.SIGTERM])
def test_a_signal_is_written_down(tmp_path: Path, number: int) -> None:
    with shim(tmp_path, py(f"import os\nos.kill(os.getpid(), {int(number)})\n{FOREVER}")) as s:
        s.begin()
        record = ended(s)
        assert (record.code, record.signal, record.stop) == (None, number, "")
        assert s.text().splitlines()[-1] == f"[kanban-worker-exit] rc={-number}"


def test_the_lock_is_held_until_nothing_is_left(tmp_path: Path) -> None:  # D13, P14c
    with shim(tmp_path, leaving(DEAF + NOTE + FOREVER), closing_grace=0.2, kill_grace=0.2) as s:
        worker = s.begin()["worker"][0]
        (stray,) = pids_in(tmp_path / "work" / "pids")
        until(lambda: not alive(worker))
        while True:
            held, record = s.held(), s.record()
            if not alive(stray):
                break
            assert held
            assert record is None  # its existence proves that nobody is left
            time.sleep(0.01)
        assert ended(s).code == 0


# --- what a worker leaves -------------------------------------------------------------------------------------
def test_what_a_worker_left_gets_the_closing_grace(tmp_path: Path) -> None:  # D14b, C17
    with shim(tmp_path, leaving(NOTE + FOREVER)) as s:
        s.begin()
        record = ended(s)
        assert (record.code, record.stop, record.overstayed) == (0, "", True)
        assert record.ended_ms - record.started_ms >= 500
    assert not alive(pids_in(tmp_path / "work" / "pids")[0])


def test_what_ends_within_the_grace_did_not_overstay(tmp_path: Path) -> None:  # D14b
    with shim(tmp_path, leaving(NOTE + "import time\ntime.sleep(0.1)\nprint('done')\n"), closing_grace=15) as s:
        s.begin()
        record = ended(s)
        assert (record.code, record.overstayed, record.tail) == (0, False, ("done",))


def test_after_a_bad_end_what_is_left_is_stopped_at_once(tmp_path: Path) -> None:  # D14b, C17
    with shim(tmp_path, leaving(NOTE + FOREVER, "os._exit(3)"), closing_grace=60) as s:
        s.begin()
        record = ended(s)
        assert (record.code, record.stop, record.overstayed) == (3, "", False)


# --- asked to end ---------------------------------------------------------------------------------------------
def test_a_worker_may_tidy_up_when_it_is_asked_to_end(tmp_path: Path) -> None:  # D14
    tidy = "import signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: (print('bye'), sys.exit(9)))\nprint('up')\n"
    with shim(tmp_path, py(tidy + FOREVER), kill_grace=15) as s:
        s.begin()
        until(lambda: "up" in s.text())
        s.say(do="stop", reason="stale")
        record = ended(s)
        assert (record.code, record.signal, record.stop, record.tail) == (9, None, "stale", ("up", "bye"))


def test_a_deaf_worker_is_killed_after_the_grace(tmp_path: Path) -> None:  # D14, C35
    with shim(tmp_path, py(DEAF + "print('up')\n" + FOREVER)) as s:
        s.begin()
        until(lambda: "up" in s.text())
        os.kill(s.pid, signal.SIGTERM)
        record = ended(s)
        assert (record.code, record.signal, record.stop) == (None, signal.SIGKILL, "signal")


STUCK = """
import signal, sys, threading
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
threading.Thread(target=threading.Event().wait).start()
print('up')
threading.Event().wait()
"""


def test_a_worker_that_cannot_finish_its_exit_is_booked_as_stopped(tmp_path: Path) -> None:  # C35
    with shim(tmp_path, py(STUCK)) as s:
        s.begin()
        until(lambda: "up" in s.text())
        s.say(do="stop", reason="gateway_stop")
        record = ended(s)
        assert (record.signal, record.stop) == (signal.SIGKILL, "gateway_stop")


def test_a_stopped_worker_can_still_be_asked_to_end(tmp_path: Path) -> None:  # D14
    tidy = "import signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(9))\nprint('up')\n"
    with shim(tmp_path, py(tidy + FOREVER), kill_grace=15) as s:
        worker = s.begin()["worker"][0]
        until(lambda: "up" in s.text())
        os.kill(worker, signal.SIGSTOP)
        until(lambda: getattr(entry_of(worker), "state", "") == "T")
        s.say(do="stop", reason="override")
        assert ended(s).code == 9


def test_processes_in_other_sessions_are_asked_too(tmp_path: Path) -> None:  # C17
    tidy = "import signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: (print('bye', flush=True), os._exit(0)))\n"
    with shim(tmp_path, leaving(tidy.replace("sys", "os") + NOTE + FOREVER, FOREVER), kill_grace=15) as s:
        s.begin()
        pids_in(tmp_path / "work" / "pids")
        s.say(do="stop", reason="override")
        assert "bye" in ended(s).tail


def test_the_first_reason_stands_and_unknown_ones_are_none(tmp_path: Path) -> None:
    with shim(tmp_path, py(DEAF + "print('up')\n" + FOREVER)) as s:
        s.begin()
        until(lambda: "up" in s.text())
        s.say(do="stop", reason="because")
        s.say(do="stop", reason="stale")
        assert ended(s).stop == "signal"


# --- closed ---------------------------------------------------------------------------------------------------
def test_a_worker_that_goes_on_after_its_card_was_closed_is_stopped(tmp_path: Path) -> None:  # D14b, C19
    with shim(tmp_path, py(DEAF + "print('up')\n" + FOREVER), closing_grace=0.3, kill_grace=0.2) as s:
        s.begin()
        until(lambda: "up" in s.text())
        s.say(do="close")
        s.say(do="close")
        record = ended(s)
        assert (record.signal, record.stop, record.overstayed) == (signal.SIGKILL, "", True)


def test_a_worker_may_say_its_last_words_after_closing(tmp_path: Path) -> None:  # D14b
    words = "import sys\nprint('up')\nopen('../go').read()\nprint('cost: 3 cents')\n"
    os.mkfifo(tmp_path / "go")
    with shim(tmp_path, py(words), closing_grace=60) as s:
        s.begin()
        until(lambda: "up" in s.text())
        s.say(do="close")
        (tmp_path / "go").write_text("")
        record = ended(s)
        assert (record.code, record.stop, record.overstayed) == (0, "", False)
        assert record.tail[-1] == "cost: 3 cents"


# --- out of time, out of memory -------------------------------------------------------------------------------
def test_max_runtime_ends_a_run(tmp_path: Path) -> None:  # D16, C29, C56
    with shim(tmp_path, py(FOREVER), max_runtime=0.3) as s:
        s.begin()
        record = ended(s)
        assert (record.signal, record.stop) == (signal.SIGTERM, "timed_out")
        assert record.ended_ms - record.started_ms >= 300


def test_memory_over_the_limit_ends_a_run(tmp_path: Path) -> None:  # C37
    with shim(tmp_path, py("x = b'x' * 80_000_000\n" + FOREVER), memory_limit=50_000_000) as s:
        s.begin()
        record = ended(s)
        assert record.stop == "memory"
        assert record.peak_memory > 80_000_000


def test_the_memory_of_all_processes_counts(tmp_path: Path) -> None:  # C37
    four = "import os\nfor _ in range(3): os.fork() or None\nx = b'x' * 10_000_000\n"
    with shim(tmp_path, py(four + FOREVER), memory_limit=70_000_000) as s:
        s.begin()
        assert ended(s).stop == "memory"


# --- launchers ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("launcher", "work", "code"), [(0, 0, 0), (0, 75, 75), (4, 0, 4), (4, 75, 4)])
def test_a_launchers_end_is_not_the_end(tmp_path: Path, launcher: int, work: int, code: int) -> None:  # C26
    worker = leaving(NOTE + f"import time\ntime.sleep(0.7)\nos._exit({work})", f"os._exit({launcher})")
    with shim(tmp_path, worker, wait_for="all", closing_grace=0.1) as s:
        s.begin()
        record = ended(s)
        assert (record.code, record.stop, record.overstayed) == (code, "", False)


def test_what_a_launcher_started_is_stopped_like_any_worker(tmp_path: Path) -> None:  # C26, D14
    with shim(tmp_path, leaving(NOTE + FOREVER), wait_for="all") as s:
        s.begin()
        pids_in(tmp_path / "work" / "pids")
        s.say(do="stop", reason="timed_out")
        record = ended(s)
        assert (record.code, record.stop) == (0, "timed_out")


# --- who resists ----------------------------------------------------------------------------------------------
HYDRA = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
def watch(left):
    while True:
        child = os.fork()
        if child == 0:
            os.setsid()
            if left: watch(left - 1)
            while True: time.sleep(60)
        os.waitpid(child, 0)
for _ in range(5):
    if os.fork() == 0: watch(5)
open('pids', 'w').write(f'{os.getpid()}\\n')
"""


def test_processes_that_replace_the_killed_ones_are_ended(tmp_path: Path) -> None:  # D14b
    with shim(tmp_path, py(HYDRA + FOREVER), kill_grace=0.1) as s:
        s.begin()
        until(lambda: len(s.left()) >= 30)
        s.say(do="stop", reason="override")
        ended(s)


COMET = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open('pids', 'w').write(f'{os.getpid()}\\n')
while True:
    if os.fork(): os._exit(0)
    %s
    time.sleep(0.001)
"""


@pytest.mark.parametrize("leave", ["pass", "os.setsid()"], ids=["in its group", "in new sessions"])
def test_a_process_that_is_always_another_one_is_ended(tmp_path: Path, leave: str) -> None:  # D14b
    with shim(tmp_path, leaving(COMET % leave, FOREVER), kill_grace=0.1) as s:
        s.begin()
        pids_in(tmp_path / "work" / "pids")
        s.say(do="stop", reason="override")
        ended(s)


FREEZER = Path("/sys/fs/cgroup/freezer")


@pytest.mark.skipif(not os.access(FREEZER / "tasks", os.W_OK), reason="no process can be frozen here")
def test_the_run_goes_on_while_a_killed_process_does_not_die(tmp_path: Path) -> None:  # D14, C16
    cell = FREEZER / f"kanban-test-{os.getpid()}"
    cell.mkdir()
    try:
        with shim(tmp_path, py("print('up')\n" + FOREVER), kill_grace=0.1, beat=0.2) as s:
            worker = s.begin()["worker"][0]
            until(lambda: "up" in s.text())
            (cell / "tasks").write_text(str(worker))
            (cell / "freezer.state").write_text("FROZEN")
            s.say(do="stop", reason="override")
            for _ in range(5):  # beats go on: the lease is renewed, so nobody else starts the card
                s.hear("beat")
                s.say(ok=True, state="closed", by_owner=False)
            assert alive(worker)
            assert s.held()
            assert s.record() is None
            (cell / "freezer.state").write_text("THAWED")
            assert ended(s).stop == "override"
    finally:
        (cell / "freezer.state").write_text("THAWED")
        until(lambda: not (cell / "tasks").read_text())
        cell.rmdir()


# --- without a subreaper --------------------------------------------------------------------------------------
NO_SUBREAPER = """
import sys
from hermes_kanban.lanes import shim, start
start.become_subreaper = lambda: False
sys.exit(shim.main(sys.argv[1:]))
"""
WITHOUT = ("-c", NO_SUBREAPER)
MARKED = STRAY.replace("{})", "{'HERMES_KANBAN_CLAIM_LOCK': os.environ['HERMES_KANBAN_CLAIM_LOCK']})")


def test_orphans_are_found_by_their_mark(tmp_path: Path) -> None:  # D14b
    worker = py(leaving(DEAF + NOTE + FOREVER)[-1].replace(STRAY, MARKED))
    with shim(tmp_path, worker, program=WITHOUT) as s:
        started = s.begin()
        (stray,) = pids_in(tmp_path / "work" / "pids")
        until(lambda: not alive(started["worker"][0]))
        assert s.held()
        record = ended(s)
        assert (record.code, record.overstayed) == (0, True)
    assert not alive(stray)


def test_orphans_that_were_seen_before_are_found(tmp_path: Path) -> None:  # D14b
    rest = "open('../go').read()\n"
    os.mkfifo(tmp_path / "go")
    here = "import subprocess, sys\n"
    here += f"subprocess.Popen([sys.executable, '-I', '-c', {DEAF + NOTE + FOREVER!r}], env={{}})\n"
    with shim(tmp_path, py(here + rest), program=WITHOUT) as s:
        s.begin()
        (stray,) = pids_in(tmp_path / "work" / "pids")
        until(lambda: stray in known(s))
        (tmp_path / "go").write_text("")
        assert ended(s).overstayed
    assert not alive(stray)


# --- a killed shim --------------------------------------------------------------------------------------------
def kill_shim(s: Shim) -> None:
    os.kill(s.pid, signal.SIGKILL)
    s.wait()


def test_a_worker_dies_with_its_shim(tmp_path: Path) -> None:  # D13
    with shim(tmp_path, py(DEAF + "print('up')\n" + FOREVER)) as s:
        worker = s.begin()["worker"][0]
        until(lambda: "up" in s.text())
        kill_shim(s)
        until(lambda: not alive(worker))
        assert not s.held()
        assert s.record() is None


def test_a_held_worker_dies_with_its_shim(tmp_path: Path) -> None:  # D11, D13
    ran = tmp_path / "ran"
    with shim(tmp_path, ("touch", str(ran))) as s:
        s.say(**s.order)
        worker = s.hear("started")["worker"][0]
        kill_shim(s)
        until(lambda: not alive(worker))
        assert not s.held()
    assert not ran.exists()


def test_what_a_killed_shim_leaves_is_found_by_its_roster(tmp_path: Path) -> None:  # D13, D14b
    with shim(tmp_path, leaving(DEAF + NOTE + FOREVER, FOREVER)) as s:
        s.begin()
        (stray,) = pids_in(tmp_path / "work" / "pids")
        assert stray not in s.left()  # it carries no mark

        until(lambda: stray in known(s))
        kill_shim(s)
        roster = runfiles.read_roster(str(s.runs), RUN)
        until(lambda: [entry.pid for entry in procset.remains(s.mark, roster)] == [stray])
        assert procset.destroy(s.mark, roster, 0.1)
        assert not alive(stray)
        assert procset.remains(s.mark, roster) == ()


def test_what_was_started_after_the_last_look_is_found_by_its_session(tmp_path: Path) -> None:  # D14b
    late = "import subprocess, sys\nopen('../go').read()\n"
    late += f"subprocess.Popen([sys.executable, '-I', '-c', {NOTE + FOREVER!r}], env={{}})\n"
    os.mkfifo(tmp_path / "go")
    with shim(tmp_path, py(late + FOREVER)) as s:
        worker = s.begin()["worker"][0]

        def sessions() -> tuple[int, ...]:
            roster = runfiles.read_roster(str(s.runs), RUN)
            return roster.sessions if roster else ()

        until(lambda: worker in sessions())
        (tmp_path / "go").write_text("")
        (stray,) = pids_in(tmp_path / "work" / "pids")
        kill_shim(s)
        until(lambda: not alive(worker))
        roster = runfiles.read_roster(str(s.runs), RUN)
        assert [entry.pid for entry in procset.remains("", roster)] == [stray]
        assert procset.destroy(s.mark, roster, 5)
        assert not alive(stray)
