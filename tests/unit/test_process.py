"""Who stands above us, who still lives: asked of real processes."""

from __future__ import annotations

import os
import pwd
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from hermes_kanban.base import process
from hermes_kanban.base.errors import Retryable, Unexpected
from hermes_kanban.base.process import ProcessInfo, Stat

HAS_PROC = os.path.exists("/proc/self/stat")
only_with_proc = pytest.mark.skipif(not HAS_PROC, reason="there is no /proc here")

PRINT_CHAIN = "from hermes_kanban.base import process; print(*[p.pid for p in process.ancestors()])"
WAIT = "import sys; print('up', flush=True); sys.stdin.read()"


def run_shell(text: str, *arguments: str) -> str:
    """Run a script of `sh`, whose $1 is this Python, and return what it printed."""
    argv = ["sh", "-c", text, "sh", sys.executable, *arguments]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


def waiting_child(*argv: str) -> subprocess.Popen[str]:
    """Start a child that lives until its standard input is closed, and wait until it is up."""
    child = subprocess.Popen(
        argv or (sys.executable, "-c", WAIT), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "up\n"
    return child


@contextmanager
def exits() -> Iterator[Callable[[], object]]:
    """Give a way to wait until a child has exited without collecting it (macOS has no `waitid`)."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    former = signal.signal(signal.SIGCHLD, lambda *_: None)
    woken = signal.set_wakeup_fd(writer)
    try:
        yield lambda: os.read(reader, 1)
    finally:
        signal.set_wakeup_fd(woken)
        signal.signal(signal.SIGCHLD, former)
        os.close(reader)
        os.close(writer)


def end(child: subprocess.Popen[str]) -> None:
    child.communicate()


# --- the chain ------------------------------------------------------------------------------------------------
def test_the_chain_is_nearest_first_without_the_process_itself() -> None:  # P12b, P70
    shell, *chain = run_shell('echo $$; "$1" -c "$2"; true', PRINT_CHAIN).split()
    ours = [str(p.pid) for p in process.ancestors()]
    assert chain == [shell, str(os.getpid()), *ours]


def test_the_chain_ends_at_the_first_process() -> None:
    assert process.ancestors()[-1].pid == 1


def test_the_chain_of_another_process_is_read_from_outside() -> None:
    child = waiting_child()
    assert process.ancestors(child.pid) == process.lineage()
    assert process.lineage(child.pid)[0] == process.describe(child.pid)
    end(child)


def test_a_process_that_is_gone_has_no_chain() -> None:
    child = waiting_child()
    end(child)
    assert process.ancestors(child.pid) == ()
    assert process.lineage(child.pid) == ()
    assert process.describe(child.pid) is None


def test_the_chain_holds_arguments_and_names() -> None:
    child = waiting_child()
    found = process.describe(child.pid)
    assert found is not None
    assert found.argv == (sys.executable, "-c", WAIT)
    assert found.name == (process.describe(os.getpid()) or found).name
    end(child)


def table(*rows: tuple[int, int, int]) -> dict[int, Stat]:
    """Return processes from (pid, parent, start)."""
    return {pid: Stat(f"p{pid}", "S", parent, str(start)) for pid, parent, start in rows}


def test_a_parent_that_dies_in_the_middle_is_replaced_by_who_took_its_child() -> None:  # P70
    before = table((9, 8, 30), (5, 1, 20), (1, 0, 0))
    after = table((9, 5, 30), (5, 1, 20), (1, 0, 0))
    answers = iter([before[9], None, after[9]])

    def stat_of(pid: int) -> Stat | None:
        return next(answers, after.get(pid)) if pid in (9, 8) else after.get(pid)

    chain, whole = process._walk(9, stat_of)
    assert whole
    assert [pid for pid, _ in chain] == [5, 1]


def test_a_stranger_with_the_pid_of_a_dead_parent_is_not_believed() -> None:  # D12, P70
    reused = table((9, 8, 30), (8, 1, 99), (5, 1, 20), (1, 0, 0))
    after = table((9, 5, 30), (8, 1, 99), (5, 1, 20), (1, 0, 0))
    first = iter([reused[9]])
    chain, _ = process._walk(9, lambda pid: next(first, after[9]) if pid == 9 else after.get(pid))
    assert [pid for pid, _ in chain] == [5, 1]


def test_a_chain_that_was_cut_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:  # P70
    whole = table((9, 8, 30), (8, 7, 20), (7, 1, 10), (1, 0, 0))
    after = table((9, 7, 30), (7, 1, 10), (1, 0, 0))
    answers = iter([whole[9], whole[8], None, None])  # 8 was there, then 7 could not be read, since 8 had ended
    monkeypatch.setattr(process, "_door", lambda: (lambda pid: next(answers, after.get(pid)), lambda pid: ()))
    assert [p.pid for p in process.ancestors(9)] == [7, 1]


def test_a_chain_that_can_never_be_read_whole_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:  # P70: fails closed
    seen: list[int] = []

    def stat_of(pid: int) -> Stat | None:
        seen.append(pid)
        if pid == 9:
            return Stat("child", "S", 8, "30")
        return Stat("parent", "S", 7, "20") if pid == 8 and seen[-2] == 9 else None

    monkeypatch.setattr(process, "_door", lambda: (stat_of, lambda pid: ()))
    with pytest.raises(Retryable):
        process.ancestors(9)


def test_a_hidden_parent_ends_the_chain() -> None:
    hidden = table((9, 8, 30), (8, 7, 20))
    chain, whole = process._walk(9, hidden.get)
    assert whole
    assert [pid for pid, _ in chain] == [8]


# --- one process ----------------------------------------------------------------------------------------------
def test_alive_needs_the_same_start() -> None:  # D12
    child = waiting_child()
    found = process.describe(child.pid)
    assert found is not None
    assert process.alive(child.pid, found.started)
    assert not process.alive(child.pid, found.started + "1")
    end(child)
    assert not process.alive(child.pid, found.started)


def test_a_zombie_counts_as_exited() -> None:  # C22
    child = waiting_child()
    found = process.describe(child.pid)
    assert found is not None
    assert child.stdin is not None
    with exits() as wait_for_one:
        child.stdin.close()
        wait_for_one()  # it has exited, and nobody has collected it
    left = process.describe(child.pid)
    assert left is not None
    assert left.started == found.started
    assert not process.alive(child.pid, found.started)
    child.stdin = None
    end(child)


@only_with_proc
@pytest.mark.parametrize("name", ["a b", "x) S 1 (", "((", "))", "új ő"])
def test_names_may_hold_blanks_and_brackets(tmp_path: os.PathLike[str], name: str) -> None:
    script = os.path.join(tmp_path, name)
    with open(script, "w", encoding="utf-8") as file:
        file.write("#!/bin/sh\necho up\nread -r line\n")
    os.chmod(script, 0o700)
    child = waiting_child(script)
    found = process.describe(child.pid)
    assert found is not None
    assert found.name == name
    assert process.ancestors(child.pid)[0].pid == os.getpid()
    assert process.alive(child.pid, found.started)
    end(child)


@only_with_proc
def test_empty_arguments_are_kept() -> None:
    child = waiting_child(sys.executable, "-c", WAIT, "", "x", "")
    found = process.describe(child.pid)
    end(child)
    assert found is not None
    assert found.argv == (sys.executable, "-c", WAIT, "", "x", "")


def test_both_readers_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("psutil", reason="psutil is installed only where there is no /proc")
    usual = process.lineage()
    monkeypatch.setattr(process, "PROC", "/nowhere")
    other = process.lineage()
    assert [(p.pid, p.name, p.argv) for p in other] == [(p.pid, p.name, p.argv) for p in usual]
    assert process.alive(other[0].pid, other[0].started)
    assert not process.alive(other[0].pid, "0")
    assert process.describe(2**31 - 1) is None


def test_without_proc_and_psutil_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "PROC", "/nowhere")
    monkeypatch.setitem(sys.modules, "psutil", None)
    with pytest.raises(Unexpected) as refused:
        process.ancestors()
    assert "psutil" in refused.value.hint


# --- service managers -----------------------------------------------------------------------------------------
def named(pid: int, name: str) -> ProcessInfo:
    return ProcessInfo(pid, "1", name, (name,))


@pytest.mark.parametrize("name", ["init", "systemd", "launchd", "tini", "dumb-init", "docker-init", "catatonit"])
def test_an_init_as_the_first_process_owns_nothing(name: str) -> None:  # P12b
    assert process.is_service_manager(named(1, name))


@pytest.mark.parametrize("name", ["s6-svscan", "runit", "init(Ubuntu)", "supervisord", "pause"])
def test_other_first_processes_that_own_nothing(name: str) -> None:  # P12b
    assert process.is_service_manager(named(1, name))


@pytest.mark.parametrize("name", ["sh", "bash", "python3", "node", "claude", "codex", "hermes", "(sh"])
def test_a_shell_or_an_agent_as_the_first_process_is_an_owner(name: str) -> None:  # P12b: containers
    assert not process.is_service_manager(named(1, name))


@pytest.mark.parametrize("name", ["systemd", "supervisord", "runsv", "s6-supervise", "cron", "crond", "CRON", "atd"])
def test_service_managers_own_nothing_at_any_pid(name: str) -> None:  # P12b
    assert process.is_service_manager(named(4711, name))


@pytest.mark.parametrize("name", ["sshd", "sshd-session", "launchd"])
def test_logins_own_nothing(name: str) -> None:  # P12b
    assert process.is_service_manager(named(4711, name))


@pytest.mark.parametrize("name", ["init", "tini", "bash", "cron.py", "sshd-agent", ""])
def test_other_processes_are_owners(name: str) -> None:  # P12b
    assert not process.is_service_manager(named(4711, name))


# --- the machine ----------------------------------------------------------------------------------------------
def test_the_machine_and_the_user_have_names() -> None:
    assert process.host_id() == os.uname().nodename
    assert process.login_name() == pwd.getpwuid(os.getuid()).pw_name


def test_a_user_without_a_name_is_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 2_000_000_011)
    assert process.login_name() == "uid2000000011"


@only_with_proc
def test_boot_and_namespace_are_the_same_in_every_process() -> None:  # D12
    code = "from hermes_kanban.base import process; print(process.boot_id(), process.pid_namespace())"
    boot, namespace = run_shell('"$1" -c "$2"', code).split()
    assert boot == process.boot_id() != ""
    assert namespace == process.pid_namespace() != ""


def test_boot_and_namespace_are_empty_where_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "PROC", "/nowhere")
    assert process.boot_id() == ""
    assert process.pid_namespace() == ""


@only_with_proc
def test_the_import_stays_light() -> None:
    code = "import sys, hermes_kanban.base.process as p; p.ancestors(); print(*sys.modules)"
    loaded = set(run_shell('"$1" -S -c "$2"', f"import sys; sys.path[:0] = {sys.path!r}; {code}").split())
    assert "hermes_kanban.base.process" in loaded
    assert not loaded & {"typing", "dataclasses", "pathlib", "subprocess", "re", "socket", "inspect", "psutil"}
