"""Who is calling, under a real dispatcher and a real shim: nobody gets out from below one (P70, P70b, P71, P14b)."""

from __future__ import annotations

import json
import os
import pty
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_kanban.base import settings
from hermes_kanban.base.record import Record, record
from hermes_kanban.dispatcher.control import control_path
from hermes_kanban.lanes.launch import socket_path
from hermes_kanban.model import status as s
from hermes_kanban.model.run import Run
from tests.processes.callers import (
    ORCHESTRATOR,
    WORKER,
    Line,
    Probe,
    Worker,
    callers_home,
    kanban,
    log,
    looks_like_the_shim,
    settled,
)
from tests.processes.home import Home
from tests.surfaces.hermes import Script

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="without a subreaper an orphan's run cannot be known")

LOST, FORBIDDEN = 5, 6
TALK = (
    "import socket, sys; s = socket.socket(socket.AF_UNIX); s.settimeout(20); s.connect(sys.argv[1]); "
    "s.sendall(sys.argv[2].encode() + b'\\n'); said = s.recv(65536); print(said); sys.exit(not said)"
)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """A home with a gateway that runs; whatever processes of its runs try, it stays as it is."""
    with callers_home(tmp_path_factory.mktemp("callers")) as made:
        yield made
        settled(made)


@pytest.fixture
def free(here: Home) -> Iterator[str]:
    """A card of nobody that no run holds; only comments may come to it."""
    task = here.hermes.create("of nobody")
    yield task
    assert {kind for kind, _, _ in log(here, task)} <= {"created", "commented"}
    assert here.card(task).status == s.READY


@pytest.fixture(scope="module")
def another(here: Home) -> Iterator[Worker]:
    """A run that goes on beside all others; nothing that those do may touch its card."""
    with Worker(here) as worker:
        yield worker
        assert here.alive(worker.task).id == worker.run.id


def attempts(task: str) -> list[Line]:
    """Return some lines that a worker of another card may not do."""
    return [
        kanban("complete", task, "--summary", "stolen"),
        kanban("archive", task),
        kanban("create", "a card of a worker's"),
        kanban("gateway", "stop", "--workers"),
        kanban("boards", "create", "sneaky"),
    ]


# --- every road out of a worker --------------------------------------------------------------------------------------
@record
class Road(Record):
    """A way on which something that a worker starts gets away from it.

    Args:
        line: the worker's line; `{probe}` is what goes that way.
        orphan: its parents have ended, so that the shim adopted it.
        tty: its standard input is a terminal.
        bare: it has lost every variable that named its run.
        called: the name that it gives itself.
    """

    line: str
    orphan: bool = False
    tty: bool = False
    bare: bool = False
    called: str = ""


_BARE = "unset $(env | sed -n 's/^\\(HERMES[A-Z_]*\\)=.*/\\1/p')"
_REAPER = "import ctypes, os, sys; ctypes.CDLL(None).prctl(36, 1, 0, 0, 0); os.system(sys.argv[1])"

ROADS = {
    "a child": Road("{probe}"),
    "a shell": Road("sh -c '{probe} && :'"),
    "a session of its own": Road("setsid -w {probe}"),
    "a double fork": Road("(setsid {probe} >/dev/null 2>&1 &)", orphan=True),
    "a double fork without an environment": Road("(env -i setsid {probe} >/dev/null 2>&1 &)", orphan=True, bare=True),
    "below a reaper that ends": Road(f'{{python}} -c "{_REAPER}" "(setsid {{probe}} >/dev/null 2>&1 &)"', orphan=True),
    "nohup": Road("nohup {probe} >/dev/null 2>&1 &"),
    "an empty environment": Road("env -i {probe}", bare=True),
    "variables unset": Road(f"({_BARE}; {{probe}})", bare=True),
    "the role of a person": Road(f"({_BARE}; HERMES_KANBAN_ROLE=human {{probe}})"),
    "script": Road("script -qec '{probe}' /dev/null >/dev/null", tty=True),
    "a tmux of its own": Road(
        "tmux -f /dev/null -S {folder}/tmux new-session -d 'env -i {probe}'", tty=True, bare=True
    ),
    "a process that renames itself": Road("{probe}", called="systemd"),
    "a process that calls itself a login": Road("(setsid {probe} >/dev/null 2>&1 &)", orphan=True, called="sshd"),
    "a second shim of its run": Road("echo '{probe}' | sh -s -- {own}"),
    "a second shim of another run": Road("echo 'env -i {probe}' | sh -s -- {another}", bare=True),
    "a second shim, detached": Road("(echo 'env -i {probe}' | setsid sh -s -- {another} &)", bare=True),
}


@pytest.mark.parametrize("name", ROADS)
def test_no_road_leads_out_of_a_run(here: Home, free: str, another: Worker, name: str) -> None:  # P70, P70b, T8
    road, before = ROADS[name], log(here, another.task)
    program = road.line.split()[0]
    if road.tty and shutil.which(program) is None:
        pytest.skip(f"not installed: {program}")
    with Worker(here) as worker:
        lines = [kanban("comment", worker.task, name), *attempts(free), attempts(another.task)[0]]
        lines.append(kanban("complete", worker.task, "--summary", "x"))
        probe = Probe(here, lines, worker.shim if road.orphan else 0, road.called)
        worker(
            road.line.format(
                probe=probe.command,
                python=sys.executable,
                folder=here.path,
                own=shlex.join(looks_like_the_shim(here, worker.run.id)),
                another=shlex.join(looks_like_the_shim(here, another.run.id)),
            )
        )
        answer = probe.answer()
    assert (answer["tty"], not answer["marks"]) == (road.tty, road.bare)
    assert not road.orphan or answer["parent"] == worker.shim
    assert answer["codes"] == [0, *[FORBIDDEN] * (len(lines) - 2), 0], answer
    done = [event for event in log(here, worker.task) if event[0] in ("commented", "completed")]
    assert done == [("commented", "worker:bot", worker.run.id), ("completed", "worker:bot", worker.run.id)]
    assert log(here, another.task) == before


def test_a_daemon_of_a_run_works_for_it_whoever_gives_it_jobs(here: Home, free: str) -> None:  # P70
    jobs = here.path / "jobs"
    os.mkfifo(jobs, 0o600)
    with Worker(here) as worker:
        worker(f"(env -i PATH=$PATH setsid sh -c 'exec sh <{jobs}' >/dev/null 2>&1 &)")
        probe = Probe(here, [*attempts(free), kanban("complete", worker.task, "--summary", "by its cron")])
        jobs.write_text(f"{probe.command}\n", encoding="utf-8")
        assert probe.answer()["codes"] == [*[FORBIDDEN] * len(attempts(free)), 0]
    assert ("completed", "worker:bot", worker.run.id) in log(here, worker.task)


@pytest.mark.skipif(shutil.which("tmux") is None, reason="not installed: tmux")
def test_what_a_tmux_from_before_is_given_is_out_of_reach(here: Home) -> None:  # P70b, decision 0005
    task = here.hermes.create("of a person")
    tmux = ["tmux", "-f", "/dev/null", "-S", str(here.path / "outside")]
    subprocess.run([*tmux, "new-session", "-d", "sleep 600"], env={"PATH": os.environ["PATH"]}, check=True)
    try:
        with Worker(here) as worker:
            probe = Probe(here, [kanban("edit", task, "--priority", "3")])
            worker(f"{shlex.join(tmux)} new-session -d {shlex.quote(f'env -i {probe.command}')}")
            assert probe.answer()["codes"] == [0]
            worker.kanban("complete", worker.task, "--summary", "x")
    finally:
        subprocess.run([*tmux, "kill-server"], env={"PATH": os.environ["PATH"]}, check=True)
    (_, me, _), (kind, actor, _) = log(here, task)
    assert (kind, actor) == ("reprioritized", me)


# --- namespaces, other boards ----------------------------------------------------------------------------------------
def test_who_cannot_see_who_started_it_is_nobody(here: Home, free: str) -> None:  # P70: fails closed
    with Worker(here) as worker:
        if worker("unshare -Upf true")[0]:
            pytest.skip("no namespaces here")
        probe = Probe(here, [*attempts(free), kanban("heartbeat", worker.task)])
        worker(f"env -i unshare -Upf {probe.command}")
        assert set(probe.answer()["codes"]) == {FORBIDDEN}
        sees = Probe(here, [*attempts(free), kanban("complete", worker.task, "--summary", "x")])
        worker(f"unshare -Upf --mount-proc {sees.command}")  # a sandbox: its environment says whose it is
        assert sees.answer()["codes"] == [*[FORBIDDEN] * len(attempts(free)), 0]
    assert ("completed", "worker:bot", worker.run.id) in log(here, worker.task)


def test_on_another_board_a_worker_has_no_card(here: Home) -> None:  # P70
    here.hermes.ok("boards", "create", "elsewhere")
    there = here.hermes.set(HERMES_KANBAN_BOARD="elsewhere")
    task = there.create("of another board")
    with Worker(here, ORCHESTRATOR) as worker:
        for line in (f"complete {task} --summary x", "create x", f"archive {task}", f"claim {task}"):
            code, said = worker(f"env -u HERMES_KANBAN_DB hermes kanban --board elsewhere {line}")
            assert code == FORBIDDEN, said
            bare = "env -i HERMES_HOME=$HERMES_HOME $(command -v hermes) kanban --board elsewhere"
            assert worker(f"{bare} {line}")[0] == FORBIDDEN
        assert worker("HERMES_HOME=$PWD/home hermes kanban init")[0] == FORBIDDEN
        worker.kanban("complete", worker.task, "--summary", "x")
    assert there.kinds(task) == ["created"]


# --- who only says so ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("known", [True, False])
def test_a_poser_outside_has_no_rights(here: Home, free: str, another: Worker, known: bool) -> None:  # P70, C145
    run = another.run.id if known else another.run.id + 10_000
    before = log(here, another.task)
    with Script(here.hermes.env, *looks_like_the_shim(here, run)) as poser:
        for line in (*attempts(free), attempts(another.task)[0], kanban("heartbeat", another.task), kanban("dispatch")):
            code, said = poser(shlex.join(line))
            assert (code, "hint: " in said) == (FORBIDDEN, True), said
        assert poser(f"hermes kanban show {another.task}")[0] == 0
    assert log(here, another.task) == before


# --- after the end ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("lane", [WORKER, ORCHESTRATOR])
def test_what_a_closed_run_left_running_only_reads(here: Home, free: str, lane: str) -> None:  # P14b
    held = here.hermes.create("held", "--status", "blocked", "--reason", "wait")
    with Worker(here, lane) as worker:
        probe = Probe(
            here,
            [
                *[kanban("comment", task, "late") for task in (worker.task, free)],
                *[kanban("heartbeat", worker.task), kanban("block", worker.task, "late"), kanban("create", "late")],
                *[kanban("attach", worker.task, "/etc/hostname"), kanban("unblock", held), kanban("link", free, held)],
                *[kanban("archive", free), kanban("complete", worker.task, "--summary", "x"), kanban("show", free)],
            ],
            worker.shim,
        )
        assert worker.kanban("complete", worker.task, "--summary", "x")[0] == 0
        before = here.card(worker.task), here.run(worker.task)
        worker(f"(env -i setsid {probe.command} >/dev/null 2>&1 &)")
        assert probe.answer()["codes"] == [*[LOST] * 9, 0, 0], probe.answer()  # P12: the closing call may be repeated
        assert (here.card(worker.task), here.run(worker.task)) == before
    assert {kind for kind, _, _ in log(here, worker.task)[-3:]} <= {"completed", "refused"}
    assert [kind for kind, _, _ in log(here, free)] == ["created"]
    assert here.card(held).status == s.BLOCKED


def test_a_run_that_a_person_ended_has_no_rights_left(here: Home, free: str) -> None:  # P12c, P14b
    with Worker(here, ORCHESTRATOR) as worker:
        worker("trap '' TERM")
        here.hermes.ok("assign", here.hermes.ok("reclaim", worker.task, "-q"), "none")
        done = worker.does(
            kanban("complete", worker.task, "--summary", "late"),
            kanban("create", "late"),
            kanban("comment", free, "late"),
        )
        assert done == [LOST] * 3
    assert here.card(worker.task).status == s.READY


# --- children, reviewers, people -------------------------------------------------------------------------------------
@pytest.mark.parametrize("lane", [WORKER, ORCHESTRATOR])
def test_a_delegated_child_only_reads(here: Home, free: str, lane: str) -> None:  # P71
    with Worker(here, lane) as worker:
        before = log(here, worker.task)
        writes = [kanban(*words, worker.task, "x") for words in (["comment"], ["block"])]
        writes += [kanban("heartbeat", worker.task), kanban("create", "x"), kanban("init"), attempts(worker.task)[0]]
        for hidden in ({}, {"HERMES_KANBAN_TASK": ""}):  # whatever else it has lost
            codes = worker.does(*writes, kanban("show", free), HERMES_DELEGATED_CHILD_CONTEXT="1", **hidden)
            assert codes == [*[FORBIDDEN] * len(writes), 0]
        assert log(here, worker.task) == before
        _, said = worker(f"HERMES_DELEGATED_CHILD_CONTEXT=1 hermes kanban heartbeat {worker.task}")
        assert "dispatcher" in said
        assert "HERMES_DELEGATED" not in said
        assert worker.kanban("complete", worker.task, "--summary", "x")[0] == 0


def test_a_reviewer_s_processes_judge_its_card_alone(here: Home) -> None:  # P70, P30
    task = here.hermes.create("to be judged", "--assignee", "ann")
    here.hermes.ok("request-review", task, "--summary", "please", "--reviewer", WORKER)
    with Worker(here, WORKER, task) as worker:
        probe = Probe(here, [kanban("request-changes", task, "again")], worker.shim)
        worker(f"(env -i setsid {probe.command} >/dev/null 2>&1 &)")
        assert probe.answer()["codes"] == [0]
    assert ("changes_requested", "worker:bot", worker.run.id) in log(here, task)


def test_a_person_beside_it_stays_a_person(here: Home, another: Worker) -> None:  # P70
    here.hermes.ok("edit", another.task, "--priority", "1")
    me = log(here, another.task)[-1][1]
    assert me.startswith("human:")
    refused = here.hermes("complete", another.task, "--summary", "mine")
    assert refused.code == LOST, refused
    with Worker(here) as worker, here.hermes.script() as shell:
        assert shell(f"hermes kanban edit {worker.task} --priority 2")[0] == 0
        assert shell(f"hermes kanban complete {worker.task} --summary mine --override")[0] == 0
    assert ("completed", me) in [event[:2] for event in log(here, worker.task)]


def test_a_person_at_a_terminal_stays_one_too(here: Home) -> None:  # P70
    def typed(*words: str) -> int:
        master, slave = pty.openpty()
        process = here.hermes.set(HERMES_KANBAN_NAME="ann").start(*words, stdin=slave)
        os.close(slave)
        process.communicate(timeout=60)
        os.close(master)
        return process.returncode

    with Worker(here) as worker:
        assert typed("edit", worker.task, "--priority", "3") == 0
        assert typed("heartbeat", worker.task) == LOST
        assert typed("complete", worker.task, "--summary", "mine", "--override") == 0
    assert [actor for kind, actor, _ in log(here, worker.task) if kind in ("reprioritized", "completed")] == [
        "human:ann"
    ] * 2


# --- the doors beside the command line -------------------------------------------------------------------------------
def talk(worker: Worker, path: str, **message: str) -> tuple[int, str]:
    """Say something on a socket from inside of a run; the exit code is 0 when it was answered."""
    return worker(shlex.join([sys.executable, "-I", "-c", TALK, path, json.dumps(message)]))


def test_the_dispatcher_takes_no_orders_from_a_worker(here: Home, another: Worker) -> None:  # P70
    path = control_path(settings.runtime_folder(here.hermes.env), here.place.database)
    code, said = talk(another, path, op="pass")
    assert code != 0, said


def test_a_worker_cannot_end_a_run_through_its_shim(here: Home, another: Worker) -> None:  # T8, C143
    with Worker(here) as worker:
        runtime = settings.runtime_folder(here.hermes.env)
        for run in (another.run.id, worker.run.id):
            code, said = talk(another, socket_path(runtime, here.place.database, run), do="stop", reason="override")
            assert code != 0, (run == another.run.id, said)
        assert worker.kanban("complete", worker.task, "--summary", "x")[0] == 0


def report(here: Home, run: Run, lock: str, op: str) -> str:
    """Return lines of a shell that give the run's end to the report program, as if the shell were the run's shim."""
    ended = {"run": run.id, "task": run.task_id, "lock": lock, "code": 1, "started_ms": 1, "ended_ms": 2}
    return "\n".join(
        (
            f"printf %s {shlex.quote(json.dumps(ended))} >{here.path}/half && "
            f"mv {here.path}/half {here.place.runs}/{run.id}.exit",
            """started=$(cut -d' ' -f22 "/proc/$$/stat")""",
            f"""printf '{{"run": {run.id}, "lock": "{lock}", "shim": [%s, "%s"]}}' "$$" "$started" | """
            f"HERMES_KANBAN_DB={here.place.database} HERMES_HOME={here.path} "
            f"{sys.executable} -I -m hermes_kanban.lanes.report {here.place.database} {run.id} {op}; exit $?",
        )
    )


@pytest.mark.parametrize("looks", [True, False])
def test_the_report_program_serves_no_worker(here: Home, tmp_path: Path, looks: bool) -> None:  # T8, D13
    pulled = here.hermes.create("pulled from outside")
    here.hermes.ok("claim", pulled, "--assignee", "ann", "--ttl", "600")
    script = tmp_path / "script"
    with Worker(here) as worker:
        for task in (pulled, worker.task):
            run = here.run(task)
            assert run is not None
            script.write_text(report(here, run, run.claim_lock or "", "ended"), encoding="utf-8")
            words = shlex.join(looks_like_the_shim(here, run.id)) if looks else ""
            code, said = worker(f"sh -s -- {words} <{script}")
            assert (here.run(task), code) == (run, FORBIDDEN), said
            Path(here.place.runs, f"{run.id}.exit").unlink()
        worker.kanban("complete", worker.task, "--summary", "x")
