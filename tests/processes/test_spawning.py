"""From a claimed card to its worker: what it gets, what cannot be started, where it works (D10 to D12, D20, D21)."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_kanban.lanes.environment import own_bin
from hermes_kanban.model import status as s
from hermes_kanban.model.run import Run
from tests.processes.around import beside, cards
from tests.processes.home import LANES, Home, home, worker

LOOK = """
import json, os, sys
found = {
    "argv": sys.argv[1:], "env": dict(os.environ), "cwd": os.getcwd(), "ids": [os.getpid(), os.getpgrp(), os.getsid(0)],
    "open": sorted(int(n) for n in os.listdir("/dev/fd") if os.path.exists(f"/dev/fd/{n}")), "read": sys.stdin.read(),
    "tty": [os.isatty(n) for n in (0, 1, 2)], "umask": os.umask(0o77),
}
print("seen on stdout", flush=True)
print("seen on stderr", file=sys.stderr, flush=True)
with open(f"{os.environ['HERMES_HOME']}/puppets/{os.environ['HERMES_KANBAN_RUN_ID']}.json", "w") as out:
    json.dump(found, out)
"""
GIT = """#!/bin/sh
echo >{folder}/asked
read -r go <{folder}/go
exec {git} "$@"
"""


def looking(*words: str, **keys: Any) -> dict[str, Any]:
    """Return a lane whose worker writes down what it sees and closes nothing; the lane does."""
    argv = [sys.executable, "-I", "-c", LOOK, *words]
    return {"argv": argv, "success_policy": "complete"} | keys


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Home]:
    with home(tmp_path, {**LANES, "look": looking()}) as made:
        yield made


def seen(here: Home, run: Run) -> dict[str, Any]:
    """Return what a worker wrote down."""
    found: dict[str, Any] = json.loads((here.path / "puppets" / f"{run.id}.json").read_text(encoding="utf-8"))
    return found


def looked(here: Home, task: str) -> tuple[Run, dict[str, Any]]:
    """Wait for the end of the attempt at a card; return it and what its worker saw."""
    card, run = here.ended(task)
    assert (card.status, run.outcome) == (s.DONE, s.COMPLETED), run
    return run, seen(here, run)


# --- D10: what a worker is started with ---------------------------------------------------------------------------
def test_a_worker_has_exactly_this_environment(here: Home) -> None:  # D10
    here.lanes["look"] = looking(env=["WANTED", "HERMES_KANBAN_NOTHING"])
    here.configure()
    outside = {
        "LC_TIME": "C",
        "TZ": "UTC",
        "TERM": "xterm",
        "WANTED": "passed on",
        "LANG": "C.UTF-8",
        "USER": "somebody",
    }
    secret = {"OPENAI_API_KEY": "sk-secret", "SOMETHING": "else", "PYTHONPATH": "/nowhere", "HERMES_TENANT": "mine"}
    here.hermes = here.hermes.set(**outside, **secret)
    task = here.create("card", "--tenant", "acme", lane="look")
    here.dispatch()
    run, found = looked(here, task)
    plain = {"HOME": str(here.path), "TMPDIR": str(here.path), "LOGNAME": _login()}
    plain["XDG_RUNTIME_DIR"] = here.hermes.env["XDG_RUNTIME_DIR"]
    plain["PATH"] = ":".join(dict.fromkeys([own_bin(), *here.hermes.env["PATH"].split(":")]))
    ours = {
        "HERMES_HOME": str(here.path),
        "HERMES_PROFILE": "look",
        "HERMES_TENANT": "acme",
        "HERMES_KANBAN_ROLE": "worker",
        "HERMES_KANBAN_TASK": task,
        "HERMES_KANBAN_BOARD": "default",
        "HERMES_KANBAN_DB": here.place.database,
        "HERMES_KANBAN_WORKSPACE": str(Path(here.place.workspaces, task)),
        "HERMES_KANBAN_WORKSPACES_ROOT": here.place.workspaces,
        "HERMES_KANBAN_RUN_ID": str(run.id),
        "HERMES_KANBAN_CLAIM_LOCK": run.claim_lock,
    }
    assert found["env"] == outside | plain | ours


def _login() -> str:
    return subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()


def test_a_worker_stands_alone_with_closed_input_and_its_log(here: Home) -> None:  # D10, D13
    task = here.create("card", lane="look")
    here.dispatch()
    run, found = looked(here, task)
    pid = run.worker_pid
    assert found["ids"] == [pid, pid, pid]  # a session and a group of its own
    assert (found["read"], found["tty"], found["open"]) == ("", [False] * 3, [0, 1, 2])
    assert found["cwd"] == run.workspace == found["env"]["HERMES_KANBAN_WORKSPACE"]
    log = Path(here.place.logs, f"{task}.log")
    assert str(log) == run.log_path
    here.until(lambda: "worker-exit" in log.read_text(encoding="utf-8"))
    first, *middle, last = log.read_text(encoding="utf-8").splitlines()
    assert first.startswith(f"[kanban-worker-start] run={run.id} pid={pid} at=")
    assert sorted(middle) == ["seen on stderr", "seen on stdout"]
    assert last == "[kanban-worker-exit] rc=0"
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    folders = [here.place.logs, here.place.runs, here.place.workspaces, run.workspace]
    assert [stat.S_IMODE(os.stat(folder or "").st_mode) for folder in folders] == [0o700] * 4


def test_each_attempt_is_appended_to_the_log_of_its_card(here: Home) -> None:  # D10
    here.lanes["fails"] = worker("say token sk-ant-api03-" + "a" * 80, "exit 4")
    here.configure(failure_limit=2)
    task = here.create(lane="fails")
    here.gateway()
    here.until(lambda: here.card(task).status == s.BLOCKED and len(here.board.watched()) == 0)
    text = Path(here.place.logs, f"{task}.log").read_text(encoding="utf-8")
    marks = [line.split(" pid=")[0] for line in text.splitlines() if line.startswith("[kanban")]
    runs = here.board.runs(task)
    ends = "[kanban-worker-exit] rc=4"
    assert marks == [f"[kanban-worker-start] run={runs[0].id}", ends, f"[kanban-worker-start] run={runs[1].id}", ends]
    assert "sk-ant" not in text  # P63
    assert all("sk-ant" not in (run.error or "") for run in runs)


def test_an_explicit_board_beats_an_inherited_file(here: Home) -> None:  # D10, C127
    with beside(here, "second") as second:
        inherited = here.hermes.set(HERMES_KANBAN_DB=here.place.database)
        for words in (["kanban", "--board", "second", "dispatch"], ["gateway", "start", "--board", "second"]):
            refused = inherited.run(["hermes", *words])
            assert refused.code == 2, refused  # a file given for one process that is another board's: never a guess
            assert here.place.database in refused.err
            assert second.place.database in refused.err
        task = second.create(lane="look")
        assert inherited.run(["hermes", "gateway", "status"]).code == 0
        here.gateway(HERMES_KANBAN_DB=here.place.database)  # it is the gateway of all boards all the same
        _, found = looked(second, task)
        assert found["env"]["HERMES_KANBAN_DB"] == second.place.database
        assert found["env"]["HERMES_KANBAN_BOARD"] == "second"
        other = second.alive(second.create())
        line = ["hermes", "kanban", "--board", "default", "create", "stray", "--idempotency-key", "stray"]
        second.ask(other, "hermes --board default comment " + other.task_id + " stray")
        assert here.board.last_event_id() == 0, line  # a worker of one board does not get to another one


# --- T7: what a card says is an argument, and never anything else ----------------------------------------------------
HOSTILE = (
    "$(touch pwned) `touch pwned`; touch pwned & touch pwned | touch pwned",
    "'\"; touch pwned #",
    "{task_id} {workspace} {prompt} {model} %(prompt)s ${HOME} $HOME",
    "--config=/etc/passwd --dangerously-skip-permissions",
    "\x1b]0;owned\x07\x1b[2J\x1b[31mred\x9b1m",
    "../../../../etc/cron.d/pwned",
    "line one\nline two\r\n\ttouch pwned\n",
    "\u202eevil\u2066\u200b \u2028 😀",
)


def test_hostile_cards_reach_the_worker_as_text_alone(here: Home) -> None:  # T7, D10
    here.lanes["look"] = looking("before", "{prompt}", "--prompt={prompt}", "{task_id}", "{workspace}", "after")
    here.configure()
    titles = [" ".join(text.split()) if text.isprintable() else "hostile" for text in HOSTILE]
    wanted = [{"title": title, "body": text, "assignee": "look"} for title, text in zip(titles, HOSTILE, strict=True)]
    made = here.apply([{"idempotency_key": f"key {number}", **one} for number, one in enumerate(wanted)])
    assert len(here.dispatch()["started"]) == len(HOSTILE)
    for task, text, title in zip(made, HOSTILE, titles, strict=True):
        run, found = looked(here, task)
        before, prompt, option, own, workspace, after = found["argv"]
        assert (before, after, own, workspace) == ("before", "after", task, run.workspace)
        assert option == f"--prompt={prompt}"
        told, data = prompt.split("<<<data ", 1)
        assert told.startswith(f"You work on card {task} of a Hermes Kanban board.")
        assert text.strip() in data  # it is there, as data, and what came in is not looked at again
        assert f"Title: {title}\n" in data
    assert not list(here.path.rglob("*pwned*"))


def test_a_name_is_never_a_path_nor_a_command(here: Home) -> None:  # T7
    for name in ("../../bin/sh", "$(id)", "-c", "look;id"):
        answer = here.hermes("create", "card", f"--assignee={name}", "--idempotency-key", f"key {name}")
        assert answer.code in (0, 7), answer
    report = here.dispatch()
    assert report["started"] == []
    assert here.board.watched() == ()


# --- D11: what cannot be started ------------------------------------------------------------------------------------
def test_what_cannot_be_started_ends_at_once_and_says_what_to_do(here: Home) -> None:  # D11, C47
    text, gone, plain = here.path / "text", here.path / "gone", here.path / "file"
    text.write_text("no program\n", encoding="utf-8")
    gone.write_text("#!/no/such/interpreter\n", encoding="utf-8")
    gone.chmod(0o755)
    plain.write_text("no folder", encoding="utf-8")
    here.lanes |= {
        "absent": {"argv": ["no-such-program", "{prompt}"]},
        "whole": {"argv": ["/no/such/program"]},
        "closed": {"argv": [str(text)]},
        "interpreter": {"argv": [str(gone)]},
    }
    here.configure(spawn_grace_seconds=3600, failure_limit=1)
    wanted = {
        "absent": ("the program no-such-program is not there", "install it, or name it by its full path"),
        "whole": ("the program /no/such/program is not there", "install it"),
        "closed": (f"the program {text} may not be executed", "chmod +x"),
        "interpreter": (f"the program {gone} names an interpreter that is not there", "install it, or mend"),
    }
    made = {lane: here.create(lane, lane=lane) for lane in wanted}
    for name, place, words in (
        ("missing", "/no/such/folder", ("/no/such/folder does not exist", "make the folder")),
        ("file", str(plain), (f"{plain} is not a folder", "name the folder")),
    ):
        made[name] = here.create(name, "--workspace", f"dir:{place}")
        wanted[name] = words
    here.dispatch()
    for name, task in made.items():
        card, run = here.ended(task)
        assert (card.status, run.outcome, run.end_reason, run.exit_kind) == (s.BLOCKED, s.GAVE_UP, "spawn", "spawn"), (
            run
        )
        for words in wanted[name]:
            assert words in (run.error or ""), name
            assert words in (card.last_failure_error or ""), name
            assert words in here.hermes.ok("show", task), name
        assert card.consecutive_failures == 1
    assert here.locks() == []
    here.until(lambda: here.slots() == 0)


def test_a_spawn_failure_is_tried_again_and_then_blocked(here: Home) -> None:  # D11, C58
    here.lanes["absent"] = {"argv": ["no-such-program"]}
    here.configure(failure_limit=3)
    task = here.create(lane="absent")
    here.gateway()
    here.until(lambda: here.card(task).status == s.BLOCKED)
    assert [run.outcome for run in here.board.runs(task)] == [s.SPAWN_FAILED, s.SPAWN_FAILED, s.GAVE_UP]
    card = here.card(task)
    assert "no-such-program" in (card.last_failure_error or "")
    assert [card.id for card in here.board.inbox()] == [task]  # a person looks at it


@pytest.fixture
def slow(here: Home, tmp_path: Path) -> Path:
    """A folder with a git that makes the file `asked`, and waits for a word from `go` before it does anything."""
    folder = tmp_path / "slow"
    folder.mkdir()
    git = shutil.which("git", path=here.hermes.env["PATH"])
    assert git is not None
    (folder / "git").write_text(GIT.format(folder=shlex.quote(str(folder)), git=git), encoding="utf-8")
    (folder / "git").chmod(0o755)
    os.mkfifo(folder / "go")
    return folder


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    made = tmp_path / "repository"
    script = "git init -q {0} && cd {0} && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m first"
    subprocess.run(["sh", "-c", script.format(shlex.quote(str(made)))], check=True)
    return made


def test_a_start_that_takes_long_delays_no_other_and_is_given_up_in_time(
    here: Home, slow: Path, repository: Path
) -> None:  # D2, D11, C8, C28
    first = here.gateway(PATH=f"{slow}:{here.hermes.env['PATH']}")
    task = here.create("slow", "--workspace", f"worktree:{repository}")
    here.until((slow / "asked").exists)
    here.alive(here.create("quick"))
    assert here.card(task).status == s.RUNNING
    run = here.run(task)
    assert run is not None
    assert run.process_state == s.STARTING
    first.kill()  # nobody will start it any more
    here.gateway()
    here.until(lambda: len(here.board.runs(task)) == 2)
    ended = here.board.runs(task)[0]
    assert (ended.id, ended.outcome, ended.end_reason) == (run.id, s.SPAWN_FAILED, "never_alive")
    assert (ended.ended_at or 0) - ended.started_at >= 3  # its grace
    assert "kanban.spawn_grace_seconds" in (ended.error or "")
    again = here.alive(task)
    assert here.card(task).consecutive_failures == 1
    assert Path(again.workspace or "", ".git").exists()


def test_a_gateway_that_is_stopped_hands_a_claim_back_that_it_cannot_start_any_more(
    here: Home, slow: Path, repository: Path
) -> None:  # D6
    gateway = here.gateway(PATH=f"{slow}:{here.hermes.env['PATH']}")
    task = here.create("slow", "--workspace", f"worktree:{repository}")
    here.until((slow / "asked").exists)
    assert gateway.stop() == 0
    card, run = here.ended(task)
    assert (card.status, card.consecutive_failures) == (s.READY, 0)
    assert (run.outcome, run.end_reason) == (s.RECLAIMED, "gateway_stop")
    assert here.locks() == []


def test_a_run_file_that_cannot_be_made_costs_the_card_nothing(here: Home) -> None:  # D2, D11
    runs = Path(here.place.runs)
    runs.mkdir(mode=0o700, exist_ok=True)
    runs.rename(here.path / "aside")
    runs.write_bytes(b"")
    gateway = here.gateway()
    task = here.create()
    here.until(lambda: gateway.said("board_trouble"))
    here.until(lambda: here.card(task).status == s.READY)
    assert here.card(task).consecutive_failures == 0
    runs.unlink()
    here.alive(task)


# --- D12 ---------------------------------------------------------------------------------------------------------
def test_the_host_may_be_called_otherwise(here: Home) -> None:  # D12
    here.hermes = here.hermes.set(HERMES_KANBAN_HOST="box-7")
    task = here.create(lane="look")
    here.dispatch()
    run, found = looked(here, task)
    assert run.host == "box-7"
    assert (run.claim_lock or "").startswith("box-7:")
    assert found["env"]["HERMES_KANBAN_HOST"] == "box-7"  # what it calls is on the same host
    assert here.board.events(task=task)[1].actor == "dispatcher:box-7"
    assert (run.boot_id, run.pid_namespace) != (None, None)


# --- D20, D21: where a worker works ---------------------------------------------------------------------------------
def test_a_scratch_folder_is_the_card_s_own_and_stays(here: Home) -> None:  # D20
    one, other = cards(here, "one", "other")
    here.dispatch()
    runs = here.alive(one), here.alive(other)
    for run in runs:
        place = Path(run.workspace or "")
        assert (place.parent, place.name) == (Path(here.place.workspaces), run.task_id)
        (place / "result.txt").write_text(run.task_id, encoding="utf-8")
    here.ask(runs[0], f"hermes complete {one} --summary done --artifact missing.txt")
    assert here.card(one).status == s.RUNNING  # a missing one refuses the completion
    here.ask(runs[0], f"hermes complete {one} --summary done --artifact result.txt")
    here.tell(runs[0], "exit 0")
    here.tell(runs[1], "exit 9")
    assert here.ended(one)[0].status == s.DONE
    here.ended(other)
    assert Path(runs[0].workspace or "", "result.txt").read_text(encoding="utf-8") == one  # never removed at once
    assert [found.name for found in here.board.attachments(one)] == ["result.txt"]
    here.dispatch()
    again = here.alive(other)
    assert again.workspace == runs[1].workspace
    assert Path(again.workspace or "", "result.txt").exists()  # a retry finds what was left


def test_a_folder_of_the_user_s_is_used_as_it_is(here: Home, tmp_path: Path) -> None:  # D20
    mine = tmp_path / "mine"
    mine.mkdir(mode=0o755)
    (mine / "kept").write_text("kept", encoding="utf-8")
    task = here.create("card", "--workspace", f"dir:{mine}", lane="look")
    here.dispatch()
    run, found = looked(here, task)
    assert found["cwd"] == found["env"]["HERMES_KANBAN_WORKSPACE"] == run.workspace == str(mine)
    assert {path.name for path in mine.iterdir()} == {"kept"}  # nothing of ours is put beside
    assert stat.S_IMODE(mine.stat().st_mode) == 0o755


def test_a_link_in_the_place_of_a_workspace_leads_nowhere(here: Home, tmp_path: Path) -> None:  # D21
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o755)
    (outside / "kept").write_text("kept", encoding="utf-8")
    here.configure(failure_limit=1)
    task = here.create()
    root = Path(here.place.workspaces)
    root.mkdir(mode=0o700, exist_ok=True)
    (root / task).symlink_to(outside)
    here.dispatch()
    card, run = here.ended(task)
    assert (card.status, run.outcome) == (s.BLOCKED, s.GAVE_UP)
    assert "leads out of the workspaces root" in (run.error or "")
    assert [path.name for path in outside.iterdir()] == ["kept"]
    assert stat.S_IMODE(outside.stat().st_mode) == 0o755
