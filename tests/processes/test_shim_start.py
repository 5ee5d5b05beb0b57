"""How a run starts under its shim: granted, refused, late, impossible; and what the worker is given (D10, D11, D13)."""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from hermes_kanban.lanes import channel, runfiles
from tests.processes.reports import Report
from tests.processes.shims import RUN, YES, alive, launch, py, shim, until

only_with_proc = pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="there is no /proc here")
not_for_root = pytest.mark.skipif(os.geteuid() == 0, reason="root may do everything")


def touch(path: Path) -> tuple[str, ...]:
    return ("sh", "-c", f"echo ran > {path}")


# --- granted, refused, unanswered -----------------------------------------------------------------------------
def test_the_worker_is_held_until_its_start_is_granted(tmp_path: Path) -> None:  # D11
    ran = tmp_path / "ran"
    with shim(tmp_path, touch(ran)) as s:
        s.say(**s.order)
        started = s.hear("started")
        assert (started["run"], started["lock"], started["shim"][0]) == (RUN, s.mark, s.pid)
        worker = started["worker"][0]
        assert alive(worker)
        until(lambda: os.getsid(worker) == os.getpgid(worker) == worker)  # D10
        assert not ran.exists()
        assert s.held()
        s.say(**YES)
        record = s.end()
    assert ran.exists()
    assert record is not None
    assert (record.code, record.signal, record.spawn_error, record.worker) == (0, None, None, tuple(started["worker"]))


@pytest.mark.parametrize("answer", [{"ok": False, "message": "too late"}, {"ok": True, "state": "closed"}, {"ok": 1}])
def test_a_refused_start_leaves_nothing(tmp_path: Path, answer: dict[str, object]) -> None:  # D11
    ran = tmp_path / "ran"
    with shim(tmp_path, touch(ran)) as s:
        started = s.begin(answer)
        assert s.end() is None
        assert s.status == 0
        assert not alive(started["worker"][0])
        assert [path.name for path in s.runs.iterdir()] == [f"{RUN}.lock"]
        assert not s.log.exists()
        assert not os.path.lexists(s.order["socket"])
        assert not s.held()
    assert not ran.exists()


@pytest.mark.parametrize("silent", [False, True], ids=["hung up", "silent"])
def test_without_an_answer_the_report_program_is_asked(tmp_path: Path, silent: bool) -> None:  # D11
    ran = tmp_path / "ran"
    report = Report(tmp_path, started=(0, YES), ended=(0, YES))
    with shim(tmp_path, touch(ran), report=report.argv, patience=0.2) as s:
        s.say(**s.order)
        s.hear("started")
        if not silent:
            s.hang_up()
        s.wait()
        record = s.record()
        assert record is not None
        assert (record.code, record.spawn_error) == (0, None)
        first = report.seen()[0]
        assert first["argv"] == ["/nowhere/kanban.db", str(RUN), "started"]
        assert first["message"]["lock"] == s.mark
    assert ran.exists()


def test_the_report_program_can_refuse_the_start(tmp_path: Path) -> None:  # D11
    ran = tmp_path / "ran"
    report = Report(tmp_path, started=(0, {"ok": False, "message": "the run was closed"}))
    with shim(tmp_path, touch(ran), report=report.argv) as s:
        s.say(**s.order)
        s.hear("started")
        s.hang_up()
        assert s.wait() == 0
        assert s.record() is None
    assert not ran.exists()


UNCLEAR = {
    "exit code": (1, YES),
    "no json": (0, "yes"),
    "another time": (0, {"ok": False, "retry": True}),
    "nothing": (0, ""),
}


@pytest.mark.parametrize("answer", UNCLEAR.values(), ids=UNCLEAR)
def test_only_a_clear_yes_starts_the_worker(tmp_path: Path, answer: tuple[int, object]) -> None:  # D11
    ran = tmp_path / "ran"
    report = Report(tmp_path, started=answer, ended=(0, YES))
    with shim(tmp_path, touch(ran), report=report.argv) as s:
        s.say(**s.order)
        s.hear("started")
        s.hang_up()
        s.wait()
        record = s.record()
        assert record is not None
        assert (record.code, record.signal) == (None, None)
        assert "nobody confirmed" in (record.spawn_error or "")
        assert record.hint
        assert [seen["argv"][2] for seen in report.seen()] == ["started", "ended"]
    assert not ran.exists()


def test_a_signal_before_the_start_ends_the_run(tmp_path: Path) -> None:  # C35
    ran = tmp_path / "ran"
    with shim(tmp_path, touch(ran)) as s:
        s.say(**s.order)
        s.hear("started")
        os.kill(s.pid, signal.SIGTERM)
        s.hear("ended")
        s.say(**YES)
        record = s.end()
        assert record is not None
        assert (record.stop, record.code) == ("signal", None)
    assert not ran.exists()


# --- orders that cannot be followed ---------------------------------------------------------------------------
def refusal(sent: bytes, folder: Path) -> dict[str, object]:
    """Start a shim, send it this, and return what it says before it gives up."""
    with shim(folder, ("true",)) as s:
        s.channel.sendall(sent)
        s.channel.shutdown(socket.SHUT_WR)
        found = s.hear("refused")
        assert s.end() is None
        assert s.status == 2
    return found


def test_an_order_that_is_none_is_refused(tmp_path: Path) -> None:
    assert "no JSON" in str(refusal(b"start it\n", tmp_path)["message"])
    assert "lacks" in str(refusal(b'{"run": 7}\n', tmp_path)["message"])
    assert "no order came" in str(refusal(b"", tmp_path)["message"])


def test_another_runs_order_is_refused(tmp_path: Path) -> None:
    with shim(tmp_path, ("true",), run=8) as s:
        s.say(**s.order)
        assert "run 8, not 7" in s.hear("refused")["message"]
        assert s.end() is None


def test_a_shim_without_its_lock_does_not_start(tmp_path: Path) -> None:  # D13
    with shim(tmp_path, ("true",)) as s:
        (s.runs / f"{RUN}.lock").rename(s.runs / "elsewhere")
        (s.runs / f"{RUN}.lock").touch()
        s.say(**s.order)
        assert "is not the lock" in s.hear("refused")["message"]
        assert s.end() is None


# --- workers that cannot be started ---------------------------------------------------------------------------
def script(folder: Path, text: str, mode: int = 0o755) -> str:
    path = folder / "program"
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def spawn_error(folder: Path, argv: tuple[str, ...], **changes: object) -> tuple[str, str]:
    with shim(folder, argv, **changes) as s:
        s.begin()
        record = s.end()
        assert record is not None
        assert (record.code, record.signal, record.stop) == (None, None, "")
        assert s.text().splitlines()[-1] == "[kanban-worker-exit] rc=127"
        assert record.spawn_error
        assert record.spawn_error in s.text()
        assert record.hint
        return record.spawn_error, record.hint


def test_a_missing_program_is_said(tmp_path: Path) -> None:  # D11
    error, hint = spawn_error(tmp_path, ("no-such-agent", "-p"))
    assert error == "the program no-such-agent is not there"
    assert "PATH" in hint


def test_a_missing_workspace_is_said(tmp_path: Path) -> None:  # D11
    error, _ = spawn_error(tmp_path, ("true",), workspace=str(tmp_path / "gone"))
    assert error == f"the workspace {tmp_path / 'gone'} is not there"


def test_a_program_that_may_not_run_is_said(tmp_path: Path) -> None:  # D11, C58
    error, hint = spawn_error(tmp_path, (script(tmp_path, "#!/bin/sh\n", 0o644),))
    assert error.endswith("may not be executed")
    assert "chmod +x" in hint


def test_a_missing_interpreter_is_said(tmp_path: Path) -> None:  # D11
    error, _ = spawn_error(tmp_path, (script(tmp_path, "#!/no/such/interpreter\n"),))
    assert "interpreter" in error


def test_what_is_no_program_is_said(tmp_path: Path) -> None:  # D11
    error, _ = spawn_error(tmp_path, (script(tmp_path, "\0\1\2"),))
    assert "nothing that this system can run" in error


def test_too_long_a_command_line_is_said(tmp_path: Path) -> None:  # D11
    error, hint = spawn_error(tmp_path, ("true", "x" * 900_000))
    assert "too long (900004 characters)" in error
    assert "file" in hint


def test_a_nul_in_the_command_line_is_said(tmp_path: Path) -> None:  # D11
    assert "NUL" in spawn_error(tmp_path, ("true", "a\0b"))[0]


# --- what the worker is given ---------------------------------------------------------------------------------
LOOK_AROUND = """
import json, os, signal, sys
fds = [int(n) for n in os.listdir("/dev/fd")]
fds = [fd for fd in fds if fd > 2 and os.path.exists(f"/dev/fd/{fd}")]
status = dict(line.split(":", 1) for line in open("/proc/self/status")) if os.path.exists("/proc/self/status") else {}
json.dump({
    "env": dict(os.environ), "cwd": os.getcwd(), "fds": fds, "argv": sys.argv[1:],
    "ids": [os.getpid(), os.getpgrp(), os.getsid(0)], "stdin": sys.stdin.read(), "umask": os.umask(0),
    "blocked": len(signal.pthread_sigmask(signal.SIG_BLOCK, ())), "ignored": status.get("SigIgn", "0").strip(),
}, open("seen", "w"))
"""


def test_the_worker_gets_what_the_starter_gave_and_nothing_of_the_shim(tmp_path: Path) -> None:  # D10
    argv = ("python3-of-test", "-I", "-c", LOOK_AROUND, "a b", "$HOME", "caf\u00e9", "\udcff")
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    (bin_folder / argv[0]).symlink_to(os.path.realpath("/proc/self/exe"))
    given = {"PATH": str(bin_folder), "HERMES_KANBAN_TASK": "t_ab", "ODD": "a=b"}
    with shim(tmp_path, argv, given) as s:
        s.begin()
        record = s.end()
        assert record is not None, s.text()
        assert record.code == 0, s.text()
        seen = json.loads((tmp_path / "work" / "seen").read_text())
        env = {name: value for name, value in seen["env"].items() if name != "LC_CTYPE"}  # made by the worker's Python
        assert env == {**given, "HERMES_KANBAN_CLAIM_LOCK": s.mark}
        assert seen["cwd"] == str(tmp_path / "work")
        assert seen["fds"] == []
        assert seen["argv"] == ["a b", "$HOME", "caf\u00e9", "\udcff"]
        assert seen["ids"] == [record.worker[0]] * 3 if record.worker else False
        assert (seen["stdin"], seen["blocked"]) == ("", 0)
        former = os.umask(0)
        os.umask(former)
        assert seen["umask"] == former


@only_with_proc
def test_the_environment_is_exactly_the_given_one(tmp_path: Path) -> None:  # D10
    with shim(tmp_path, ("sh", "-c", "tr '\\0' '\\n' < /proc/self/environ"), {"A": "1"}) as s:
        s.begin()
        s.end()
        names = {line.partition("=")[0] for line in s.text().splitlines() if not line.startswith("[kanban-")}
    assert names - {"PWD", "OLDPWD", "SHLVL", "_"} == {"PATH", "A", "HERMES_KANBAN_CLAIM_LOCK"}


@only_with_proc
def test_no_signal_is_ignored_or_blocked_in_the_worker(tmp_path: Path) -> None:  # D10
    with shim(tmp_path, ("grep", "^Sig[BI]", "/proc/self/status")) as s:
        s.begin()
        s.end()
        masks = [line.split()[1] for line in s.text().splitlines() if line.startswith("Sig")]
    of_programs = (1 << 31) - 1  # the two above are the C library's own
    assert [int(mask, 16) & of_programs for mask in masks] == [0, 0]


@only_with_proc
def test_short_of_memory_the_kernel_takes_the_worker_first(tmp_path: Path) -> None:  # C37
    mine = int(Path("/proc/self/oom_score_adj").read_text())
    with shim(tmp_path, ("cat", "/proc/self/oom_score_adj")) as s:
        s.begin()
        record = s.end()
    assert record is not None
    assert record.tail == (str(min(1000, mine + 500)),)


def test_slots_stay_taken_until_the_run_is_over(tmp_path: Path) -> None:  # P15
    slot = tmp_path / "slot"
    descriptor = os.open(slot, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    runs = tmp_path / "runs"
    with shim(tmp_path, py("import sys, socket; sys.exit(0)")) as other:  # only for its order
        order = {**other.order, "folder": str(runs), "argv": ["sh", "-c", "read x < ../go"]}
        other.channel.shutdown(socket.SHUT_WR)
        other.wait()
    os.mkfifo(tmp_path / "go")
    pid, ours = launch(runs, {"PATH": os.environ["PATH"]}, (descriptor,))
    os.close(descriptor)
    try:
        channel.send(ours, order)
        assert select.select([ours], [], [], 20)[0]
        ours.recv(65_536)
        channel.send(ours, YES)
        with open(slot, "rb") as again, open(tmp_path / "go", "w") as go:
            with pytest.raises(BlockingIOError):
                fcntl.flock(again, fcntl.LOCK_SH | fcntl.LOCK_NB)
            go.write("x\n")
            go.flush()
            assert select.select([ours], [], [], 20)[0]
            ours.recv(65_536)
            channel.send(ours, YES)
            os.waitpid(pid, 0)
            fcntl.flock(again, fcntl.LOCK_SH | fcntl.LOCK_NB)
    finally:
        ours.close()
    assert runfiles.read_exit(str(runs), RUN)


def test_the_runs_socket_is_for_its_owner_only(tmp_path: Path) -> None:
    with shim(tmp_path, ("cat", str(tmp_path / "go"))) as s:
        os.mkfifo(tmp_path / "go")
        s.begin()
        until(lambda: os.path.exists(s.order["socket"]))
        assert os.stat(s.order["socket"]).st_mode & 0o777 == 0o600
        (tmp_path / "go").write_text("")
        s.end()
        assert not os.path.lexists(s.order["socket"])
        assert all(path.stat().st_mode & 0o777 == 0o600 for path in s.runs.iterdir())
        assert s.runs.stat().st_mode & 0o777 == 0o700


def test_a_socket_that_cannot_be_made_does_not_keep_a_run_from_starting(tmp_path: Path) -> None:
    with shim(tmp_path, ("true",), socket=str(tmp_path / ("x" * 120))) as s:
        s.begin()
        record = s.end()
    assert record is not None
    assert record.code == 0


# --- what a shim costs ----------------------------------------------------------------------------------------
NEVER = {
    "subprocess",
    "asyncio",
    "logging",
    "typing",
    "dataclasses",
    "pathlib",
    "datetime",
    "tempfile",
    "apsw",
    "psutil",
}


def test_a_shim_imports_next_to_nothing() -> None:  # D13
    program = "import hermes_kanban.lanes.shim, sys; print(*sys.modules)"
    argv = [sys.executable, "-I", "-c", program]
    modules = set(subprocess.run(argv, check=True, capture_output=True, text=True).stdout.split())
    assert modules & NEVER == set()
    ours = {name.split(".")[1] for name in modules if name.startswith("hermes_kanban.")}
    assert ours == {"base", "model", "lanes"}


@only_with_proc
def test_a_shim_is_small(tmp_path: Path) -> None:  # S9
    with shim(tmp_path, ("cat", str(tmp_path / "go")), beat=0.1) as s:
        os.mkfifo(tmp_path / "go")
        s.begin()
        s.hear("beat")
        (resident,) = [
            line for line in Path(f"/proc/{s.pid}/status").read_text().splitlines() if line.startswith("VmRSS")
        ]
        assert int(resident.split()[1]) * 1024 <= 20_000_000
        (tmp_path / "go").write_text("")
        s.end()


def test_a_fault_of_the_shim_ends_its_run_and_says_so(tmp_path: Path) -> None:  # D13
    broken = "import sys\nfrom hermes_kanban.lanes import shim, supervisor\n"
    broken += "supervisor.ALARMS['beat'] = lambda *_: 1 / 0\nsys.exit(shim.main(sys.argv[1:]))\n"
    worker = py("import time\nwhile True: time.sleep(60)\n")
    with shim(tmp_path, worker, program=("-c", broken), beat=0.1) as s:
        started = s.begin()
        assert s.wait() == 70
        assert s.record() is None
        assert not s.held()
        until(lambda: not alive(started["worker"][0]))
        assert s.text().splitlines()[-1].endswith("ended this run: ZeroDivisionError: division by zero")
