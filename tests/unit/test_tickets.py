"""Tickets find their owner: real shells, real deaths."""

from __future__ import annotations

import errno
import json
import os
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from hermes_kanban.base import process
from hermes_kanban.base.errors import DiskFull, InvalidValue, StoreIo
from hermes_kanban.base.process import ProcessInfo
from hermes_kanban.tickets import Ticket, TicketStore, new_ticket, owner

TASK = "t_ab12cd34"
NOW = 1_800_000_000.0
ON_LINUX = sys.platform == "linux"

# What `claim` and a later verb do with tickets, as commands of their own.
CLAIM = """
import sys
from hermes_kanban import tickets
from hermes_kanban.base import process
folder, task_id, run_id = sys.argv[1:]
above = process.ancestors()
tickets.TicketStore(folder).leave(tickets.new_ticket(task_id, int(run_id), "host:1:abc", "/srv/" + task_id, above))
print("claimed", file=sys.stderr)
print("/srv/" + task_id)
"""
MINE = """
import sys
from hermes_kanban import tickets
from hermes_kanban.base import process
folder, task_id = sys.argv[1:]
print("mine", *[t.run_id for t in tickets.TicketStore(folder).mine(task_id, process.lineage())])
"""


class Scene:
    """A folder for tickets, and scripts that find the two commands in $CLAIM and $MINE."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = TicketStore(str(folder / "tickets"))
        for name, code in (("claim.py", CLAIM), ("mine.py", MINE)):
            (folder / name).write_text(code)
        self.environment = {
            **os.environ,
            "CLAIM": f"{sys.executable} {folder}/claim.py {folder}/tickets {TASK}",
            "MINE": f"{sys.executable} {folder}/mine.py {folder}/tickets {TASK}",
            "PYTHON": sys.executable,
        }

    def start(self, *argv: str) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        return subprocess.Popen(argv, env=self.environment, stdin=pipe, stdout=pipe, stderr=pipe, text=True)

    def run(self, *argv: str) -> str:
        """Run a program to its end; return the lines of its standard output."""
        with self.start(*argv) as child:
            said, complaint = child.communicate()
        assert child.returncode == 0, complaint
        return said

    def ticket(self) -> Ticket:
        (found,) = self.store.of_task(TASK)
        return found


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def make(task_id: str = TASK, run_id: int = 7, *chain: tuple[int, str, str, bool]) -> Ticket:
    here = process.boot_id(), process.pid_namespace()
    return Ticket(task_id, run_id, "host:1:abc", "/srv", *here, chain)


def ours() -> tuple[int, str]:
    return process.lineage()[0].pid, process.lineage()[0].started


# --- scripts --------------------------------------------------------------------------------------------------
SCRIPTS = {
    "plain": "$CLAIM 7 >/dev/null; $MINE; true",
    "captured through a pipe": 'ws=$($CLAIM 7 | tail -1); [ "$ws" = /srv/t_ab12cd34 ] || exit 9; $MINE; true',
    "captured in backquotes": "ws=`$CLAIM 7`; $MINE; true",
    "last command in the shell's own place": "ws=$($CLAIM 7 | tail -1); $MINE",
    "last command by exec": "$CLAIM 7 >/dev/null; exec $MINE",
    "if": "if $CLAIM 7 >/dev/null; then $MINE; else exit 9; fi",
    "or": "$CLAIM 7 >/dev/null || exit 9; $MINE; true",
    "and": "$CLAIM 7 >/dev/null && $MINE && true",
    "subshells": "($CLAIM 7 >/dev/null; true); (cd /; $MINE; true)",
    "function": "f() { $CLAIM 7 >/dev/null; }; f; $MINE; true",
    "loop": "for n in 7; do $CLAIM $n >/dev/null; done; echo x | while read -r x; do $MINE; done",
    "background": "$CLAIM 7 >/dev/null & wait; $MINE; true",
    "shell in a shell": 'sh -c "$CLAIM 7 >/dev/null; true"; sh -c "$MINE; true"',
}


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS.keys())
def test_a_script_finds_its_claim_again(scene: Scene, script: str) -> None:  # P12b
    assert scene.run("sh", "-c", script) == "mine 7\n"


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS.keys())
def test_a_script_file_finds_its_claim_again(scene: Scene, script: str) -> None:  # P12b
    (scene.folder / "bridge.sh").write_text(f"set -eu\n{script}\n")
    assert scene.run("sh", str(scene.folder / "bridge.sh")) == "mine 7\n"


PROGRAMS = {
    "shell=True": """
        import os, subprocess
        subprocess.run(os.environ["CLAIM"] + " 7 | tail -1", shell=True, check=True, stdout=subprocess.DEVNULL)
        subprocess.run(os.environ["MINE"], shell=True, check=True)
    """,
    "argument lists": """
        import os, subprocess
        subprocess.run([*os.environ["CLAIM"].split(), "7"], check=True, stdout=subprocess.DEVNULL)
        subprocess.run(os.environ["MINE"].split(), check=True)
    """,
    "a session for each call": """
        import os, subprocess
        how = {"shell": True, "check": True, "start_new_session": True}
        subprocess.run(os.environ["CLAIM"] + " 7; true", stdout=subprocess.DEVNULL, **how)
        subprocess.run(os.environ["MINE"] + "; true", **how)
    """,
    "a login shell for each call": """
        import os, subprocess
        subprocess.run(["sh", "-lc", "$CLAIM 7"], check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["sh", "-lc", "cd / && $MINE"], check=True)
    """,
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS.keys())
def test_a_program_finds_its_claim_again(scene: Scene, program: str) -> None:  # P12b: an agent's shell per call
    assert scene.run(sys.executable, "-c", textwrap.dedent(program)) == "mine 7\n"


def test_another_script_does_not_find_it(scene: Scene) -> None:  # P12b
    first = scene.start("sh", "-c", "$CLAIM 7; read -r line; $MINE; true")
    assert first.stdout is not None
    assert first.stdout.readline() == f"/srv/{TASK}\n"
    assert scene.run("sh", "-c", "$MINE; true") == "mine\n"
    assert scene.store.mine(TASK, process.lineage()) == ()
    said, _ = first.communicate("go on\n")
    assert said == "mine 7\n"


def test_two_scripts_with_one_card_each_find_their_own(scene: Scene) -> None:  # P12b
    scripts = {run: scene.start("sh", "-c", f"$CLAIM {run}; read -r line; $MINE; true") for run in (7, 8)}
    for script in scripts.values():
        assert script.stdout is not None
        assert script.stdout.readline() == f"/srv/{TASK}\n"
    assert [t.run_id for t in scene.store.of_task(TASK)] == [8, 7]
    assert scripts[7].communicate("go on\n")[0] == "mine 7\n"
    assert scripts[8].communicate("go on\n")[0] == "mine 8 7\n"  # 7 is now its parent's, and the newest comes first


def test_when_the_owner_dies_the_next_one_above_inherits(scene: Scene) -> None:  # P12b
    middle = scene.start(
        "sh", "-c", 'sh -c "$CLAIM 7; read -r line; true"; echo inner ended; read -r line; $MINE; true'
    )
    assert middle.stdout is not None
    assert middle.stdin is not None
    middle.stdout.readline()
    inner, outer = scene.ticket().chain[:2]
    assert owner(scene.ticket()) == inner[:2]
    middle.stdin.write("end the inner one\n")
    middle.stdin.flush()
    assert middle.stdout.readline() == "inner ended\n"
    assert owner(scene.ticket()) == outer[:2]
    assert outer[0] == middle.pid
    assert middle.communicate("go on\n")[0] == "mine 7\n"
    assert owner(scene.ticket()) == ours()
    assert scene.store.mine(TASK, process.lineage()) == (scene.ticket(),)


def test_a_session_of_its_own_changes_nothing(scene: Scene) -> None:  # P12b: setsid
    program = "import os, sys; os.setsid(); os.execvp('sh', ['sh', '-c', sys.argv[1]])"
    assert scene.run(sys.executable, "-c", program, "$CLAIM 7 >/dev/null; $MINE; true") == "mine 7\n"
    assert owner(scene.ticket()) == ours()


# A program that adopts orphans, under the name of a service manager: what init is to a daemon.
ADOPTER = """
import ctypes, subprocess, sys
libc = ctypes.CDLL(None, use_errno=True)
PR_SET_NAME, PR_SET_CHILD_SUBREAPER = 15, 36
assert libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
assert libc.prctl(PR_SET_NAME, b"supervisord", 0, 0, 0) == 0
subprocess.run(["sh", "-c", "sh -c 'read -r line; $CLAIM 7; read -r line; exec $MINE' <&0 & exit 0"], check=True)
print("adopted", flush=True)
import os
os.wait()
print("daemon ended", flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(not ON_LINUX, reason="only Linux lets a test adopt orphans")
def test_a_daemon_owns_its_claim_and_its_adopter_does_not(scene: Scene) -> None:  # P12b: double fork
    adopter = scene.start(sys.executable, "-c", ADOPTER)
    assert adopter.stdout is not None
    assert adopter.stdin is not None

    def tell(line: str) -> str:
        assert adopter.stdin is not None
        assert adopter.stdout is not None
        adopter.stdin.write(f"{line}\n")
        adopter.stdin.flush()
        return adopter.stdout.readline()

    assert adopter.stdout.readline() == "adopted\n"
    assert tell("claim") == f"/srv/{TASK}\n"
    daemon, above = scene.ticket().chain[:2]
    assert above[0] == adopter.pid
    assert above[2:] == ("supervisord", True)
    assert owner(scene.ticket()) == daemon[:2]
    assert tell("look") == "mine 7\n"
    assert adopter.stdout.readline() == "daemon ended\n"
    assert owner(scene.ticket()) is None
    assert scene.store.mine(TASK, process.lineage(adopter.pid)) == ()
    adopter.communicate()


# --- owners ---------------------------------------------------------------------------------------------------
CHAIN = ((30, "3", "sh", False), (20, "2", "python3", False), (10, "1", "systemd", True), (1, "0", "systemd", True))


@pytest.mark.parametrize(
    ("living", "expected"),
    [
        ({30, 20, 10, 1}, (30, "3")),
        ({20, 10, 1}, (20, "2")),
        ({10, 1}, None),
        ({1}, None),
        (set(), None),
    ],
)
def test_the_nearest_one_alive_owns_unless_it_is_a_service_manager(
    living: set[int], expected: tuple[int, str] | None
) -> None:  # P12b
    assert owner(make(TASK, 7, *CHAIN), alive=lambda pid, started: pid in living) == expected


def test_nothing_is_looked_for_above_a_living_service_manager() -> None:  # P12b
    chain = ((40, "4", "cron", True), (30, "3", "sh", False))
    assert owner(make(TASK, 7, *chain), alive=lambda pid, started: True) is None


def test_another_start_time_is_another_process() -> None:  # D12
    pid, started = ours()
    assert owner(make(TASK, 7, (pid, started, "python3", False))) == (pid, started)
    assert owner(make(TASK, 7, (pid, started + "0", "python3", False))) is None


@pytest.mark.parametrize("field", ["boot", "namespace"])
def test_a_ticket_of_another_boot_or_namespace_has_no_owner(scene: Scene, field: str) -> None:  # D12, C25
    mine = make(TASK, 7, (*ours(), "python3", False))
    scene.store.leave(mine.evolve(**{field: "another"}))
    assert owner(scene.ticket()) is None
    assert scene.store.mine(TASK, process.lineage()) == ()


def test_a_new_ticket_marks_the_service_managers() -> None:  # P12b
    above = (ProcessInfo(9, "5", "sh", ("sh",)), ProcessInfo(8, "4", "sshd", ()), ProcessInfo(1, "0", "init", ()))
    ticket = new_ticket(TASK, 7, "host:1:abc", "/srv", above)
    assert ticket.chain == ((9, "5", "sh", False), (8, "4", "sshd", True), (1, "0", "init", True))
    assert (ticket.boot, ticket.namespace) == (process.boot_id(), process.pid_namespace())


# --- the folder -----------------------------------------------------------------------------------------------
def test_a_ticket_comes_back_as_it_was_left(scene: Scene) -> None:
    ticket = make(TASK, 7, (*ours(), "a ) b\n\x1b[31m", False)).evolve(workspace="/srv/ő \udcff")
    scene.store.leave(ticket)
    assert scene.store.of_task(TASK) == (ticket,)


def test_files_are_private(scene: Scene) -> None:  # P12b: 0600 in 0700
    scene.store.leave(make())
    folder = scene.folder / "tickets"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert [(p.name, stat.S_IMODE(p.stat().st_mode)) for p in folder.iterdir()] == [(f"{TASK}.7.json", 0o600)]


def test_newest_runs_come_first(scene: Scene) -> None:
    for run_id in (9, 10, 2):
        scene.store.leave(make(TASK, run_id))
    scene.store.leave(make("t_ab12cd345", 99))
    assert [t.run_id for t in scene.store.of_task(TASK)] == [10, 9, 2]


def test_all_tasks_of_a_chain(scene: Scene) -> None:
    me = (*ours(), "python3", False)
    for task_id, run_id, chain in ((TASK, 1, (me,)), ("t_00000000", 2, (me,)), ("t_11111111", 3, ())):
        scene.store.leave(make(task_id, run_id, *chain))
    assert [(t.task_id, t.run_id) for t in scene.store.tasks_of(process.lineage())] == [("t_00000000", 2), (TASK, 1)]
    assert scene.store.tasks_of(()) == ()


def test_a_missing_folder_is_empty_and_stays_missing(scene: Scene) -> None:
    assert scene.store.of_task(TASK) == ()
    assert scene.store.tasks_of(process.lineage()) == ()
    scene.store.forget(7)
    assert scene.store.sweep(0, NOW) == 0
    assert not (scene.folder / "tickets").exists()


RUBBISH = {
    "empty": b"",
    "half": b'{"task_id": "t_ab12',
    "not text": b"\xff\xfe\x00",
    "list": b"[1, 2]",
    "number": b"7",
    "missing fields": b'{"task_id": "t_ab12cd34", "run_id": 5}',
    "wrong chain": b'{"task_id":"t_ab12cd34","run_id":5,"lock":"","workspace":"","boot":"","namespace":"","chain":[7]}',
    "endless": json.dumps(make(TASK, 5).as_dict() | {"run_id": float("inf")}).encode(),
    "deep": b"[" * 100_000,
    "of another run": json.dumps(make(TASK, 6).as_dict()).encode(),
    "of another task": json.dumps(make("t_ffffffff", 5).as_dict()).encode(),
}


@pytest.mark.parametrize("content", RUBBISH.values(), ids=RUBBISH.keys())
def test_files_that_are_no_tickets_are_passed_over(scene: Scene, content: bytes) -> None:
    scene.store.leave(make())
    (scene.folder / "tickets" / f"{TASK}.5.json").write_bytes(content)
    assert [t.run_id for t in scene.store.of_task(TASK)] == [7]


def test_links_pipes_and_folders_are_passed_over(scene: Scene) -> None:
    scene.store.leave(make())
    folder = scene.folder / "tickets"
    elsewhere = scene.folder / "elsewhere.json"
    elsewhere.write_text(json.dumps(make(TASK, 4).as_dict()))
    (folder / f"{TASK}.4.json").symlink_to(elsewhere)
    os.mkfifo(folder / f"{TASK}.3.json")
    (folder / f"{TASK}.2.json").mkdir()
    (folder / f"{TASK}.x.json").write_text("{}")
    (folder / "notes.txt").write_text("mine")
    assert [t.run_id for t in scene.store.of_task(TASK)] == [7]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's file")
def test_a_file_of_another_user_is_passed_over(scene: Scene) -> None:
    scene.store.leave(make())
    os.chown(scene.folder / "tickets" / f"{TASK}.7.json", 12345, -1)
    assert scene.store.of_task(TASK) == ()


def test_reading_writes_nothing(scene: Scene) -> None:
    scene.store.leave(make())
    (scene.folder / "tickets" / f"{TASK}.5.json").write_text("rubbish")
    folder = scene.folder / "tickets"

    def state() -> list[tuple[str, int, int]]:
        return sorted((p.name, p.stat().st_mtime_ns, p.stat().st_size) for p in (folder, *folder.iterdir()))

    before = state()
    scene.store.of_task(TASK)
    scene.store.mine(TASK, process.lineage())
    scene.store.tasks_of(process.lineage())
    assert state() == before


@pytest.mark.parametrize(
    "task_id", ["", "t_", "../t_ab12cd34", "t_ab/../x", "t_AB", "t_xyz", "t_" + "a" * 300, "t_a\0"]
)
def test_only_task_ids_become_file_names(scene: Scene, task_id: str) -> None:  # T7
    with pytest.raises(InvalidValue) as refused:
        scene.store.leave(make(task_id))
    assert refused.value.fields["argument"] == "task_id"
    with pytest.raises(InvalidValue):
        scene.store.of_task(task_id)
    assert not (scene.folder / "tickets").exists()


@pytest.mark.parametrize("run_id", [0, -1])
def test_a_run_id_is_a_positive_number(scene: Scene, run_id: int) -> None:
    with pytest.raises(InvalidValue):
        scene.store.leave(make(TASK, run_id))


def test_a_full_disk_leaves_no_half_ticket(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:  # T4
    scene.store.leave(make(TASK, 6))

    def full(descriptor: int, text: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(DiskFull):
        scene.store.leave(make(TASK, 7))
    monkeypatch.undo()
    assert os.listdir(scene.folder / "tickets") == [f"{TASK}.6.json"]


def test_a_short_write_is_continued(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, text: write(descriptor, text[:10]))
    scene.store.leave(make())
    assert scene.store.of_task(TASK) == (make(),)


def test_a_folder_that_cannot_be_made_is_refused_in_words(scene: Scene) -> None:  # T4
    (scene.folder / "tickets").write_text("a file is in the way")
    with pytest.raises(StoreIo) as refused:
        scene.store.leave(make())
    assert str(scene.folder / "tickets") in refused.value.message
    assert refused.value.hint


def test_forget_removes_one_run(scene: Scene) -> None:
    for run_id in (1, 11):
        scene.store.leave(make(TASK, run_id))
    scene.store.forget(1)
    scene.store.forget(99)
    assert [t.run_id for t in scene.store.of_task(TASK)] == [11]


def test_sweep_removes_what_is_old_and_ours(scene: Scene) -> None:
    folder = scene.folder / "tickets"
    ages = {1: 100, 2: 101, 3: 0}
    for run_id, age in ages.items():
        scene.store.leave(make(TASK, run_id))
        os.utime(folder / f"{TASK}.{run_id}.json", (NOW - age, NOW - age))
    for name in (f".{TASK}.4.json.0123.tmp", "notes.json", "notes.txt"):
        (folder / name).write_text("x")
        os.utime(folder / name, (0, 0))
    assert scene.store.sweep(100, NOW) == 2
    assert sorted(os.listdir(folder)) == ["notes.json", "notes.txt", f"{TASK}.1.json", f"{TASK}.3.json"]
