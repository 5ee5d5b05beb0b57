"""Who is calling is seen from facts: ancestors, tickets, marks of the environment (P70, P71, C143)."""

from __future__ import annotations

import os
import pty
from contextlib import ExitStack

import pytest

from hermes_kanban import boards, compose
from hermes_kanban.base import process
from hermes_kanban.base.errors import ClaimLost
from hermes_kanban.base.settings import Settings
from hermes_kanban.kernel.supervise import Process
from hermes_kanban.kernel.supervision import Supervision
from hermes_kanban.model import status as s
from hermes_kanban.model.claim import Caps
from tests.surfaces.hermes import Hermes, Script

Held = tuple[str, int]  # a card, and the run that holds it


def supervision(hermes: Hermes) -> Supervision:
    """Open the home's board as its dispatcher."""
    variables = {"HERMES_HOME": str(hermes.home)}
    env = compose.Environment(variables, str(hermes.home), Settings())
    return compose.open_supervision(env, boards.place(str(hermes.home), boards.DEFAULT, variables))


def poser(hermes: Hermes, database: str, run: int) -> Script:
    """Start a shell whose command line is that of a shim; the board does not know it."""
    return Script(hermes.env, "-m", "hermes_kanban.lanes.shim", database, str(run))


def come_alive(hermes: Hermes, run: int, shim: int) -> None:
    """Tell the board, as a shim does, that the process with this pid runs the work of that run (D11)."""
    found = process.describe(shim)
    assert found is not None
    board = supervision(hermes)
    itself = (found.pid, found.started)
    board.started(run, board.run(run).claim_lock or "", Process(itself, itself, "boot", "1"))


def inside_of(hermes: Hermes, run: int) -> Script:
    """Start a shell that stands for the shim of a run: what it starts is inside of that run."""
    script = poser(hermes, f"{hermes.home}/kanban.db", run)
    come_alive(hermes, run, script.process.pid)
    return script


@pytest.fixture
def held(hermes: Hermes) -> Held:
    """A card and the run that holds it, claimed as the dispatcher claims; no shim has come alive yet."""
    task = hermes.create("held")
    board = supervision(hermes)
    return task, board.claim_for_dispatch(task, ttl=600, lane="lane", name="bot", caps=Caps())[1].id


@pytest.fixture
def pulled(hermes: Hermes) -> Held:
    """A card and the run that holds it, claimed from outside."""
    task = hermes.create("pulled")
    return task, int(hermes.ask("claim", task, "--assignee", "bot", "--ttl", "600")["run_id"])


def test_words_behind_a_command_make_no_shim(hermes: Hermes, held: Held) -> None:  # P70
    task, run = held
    words = ["-m", "hermes_kanban.lanes.shim", f"{hermes.home}/kanban.db", str(run)]
    assert hermes("comment", task, "x", "--", *words).code == 0
    assert hermes.ask("events", "--task", task)[-1]["actor"].startswith("human:")
    assert hermes("complete", task, "--summary", "x", "--", *words).code != 0
    forged = hermes.run(["sh", "-c", f"hermes kanban complete {task} --summary stolen; exit $?", *words])
    assert forged.code == 5, forged
    assert hermes.status(task) == s.RUNNING


def test_nobody_gets_out_from_below_a_shim_by_forging_another(hermes: Hermes, held: Held) -> None:
    other = hermes.create("other")  # P70, C143
    shown = hermes.home / "kanban.db"
    with inside_of(hermes, held[1]) as inside:
        line = f"hermes kanban complete {other} --summary stolen"
        assert inside(f"echo '{line}' | sh -s -- -m hermes_kanban.lanes.shim {shown} 99")[0] == 6
    assert hermes.status(other) == s.READY


def test_a_shim_says_nothing_about_a_pull_claim(hermes: Hermes, pulled: Held) -> None:  # P70
    task, run = pulled
    with poser(hermes, f"{hermes.home}/kanban.db", run) as inside:
        assert inside(f"hermes kanban complete {task} --summary stolen")[0] == 6
    assert hermes.status(task) == s.RUNNING


@pytest.mark.parametrize("known", ["no shim", "another shim"])
def test_who_only_calls_itself_a_shim_has_no_rights(hermes: Hermes, held: Held, known: str) -> None:  # P70, C145
    task, run = held
    with ExitStack() as stack:
        if known == "another shim":
            stack.enter_context(inside_of(hermes, run))
        forged = stack.enter_context(poser(hermes, f"{hermes.home}/kanban.db", run))
        before = hermes.kinds(task)
        for line in (f"complete {task} --summary stolen", f"heartbeat {task}", f"archive {task}", "create x"):
            code, said = forged(f"hermes kanban {line}")
            assert code == 6, said
        assert forged(f"hermes kanban show {task}")[0] == 0
    assert hermes.kinds(task) == before
    assert hermes.status(task) == s.RUNNING


def test_a_run_is_one_shim_s_for_ever(hermes: Hermes, held: Held) -> None:  # P70, D11
    task, run = held
    with poser(hermes, f"{hermes.home}/kanban.db", run) as late, inside_of(hermes, run) as inside:
        with pytest.raises(ClaimLost):
            come_alive(hermes, run, late.process.pid)
        assert late(f"hermes kanban complete {task} --summary stolen")[0] == 6
        assert inside(f"hermes kanban complete {task} --summary done")[0] == 0


def test_what_runs_below_a_shim_is_its_run_s_worker_whatever_it_says(hermes: Hermes, held: Held) -> None:
    task, run = held  # P70
    other = hermes.create("other")
    with inside_of(hermes, run) as inside:
        assert inside("unset HERMES_KANBAN_TASK; export HERMES_KANBAN_ROLE=human")[0] == 0
        for line in (f"archive {other}", f"assign {other} ann", f"complete {other} --summary x", "create x", "init"):
            code, said = inside(f"hermes kanban {line}")
            assert code == 6, said
            assert "hint: " in said
        assert inside(f"hermes kanban archive {task}")[0] == 6
        assert inside("hermes kanban boards create x")[0] == 6
        assert inside("hermes kanban list")[0] == 0
        assert inside(f"hermes kanban comment {other} 'a fact'")[0] == 0
        assert inside(f"hermes kanban heartbeat {task} --note x")[0] == 0
        code, said = inside(f"hermes kanban complete {task} --summary x")
        assert (code, said.splitlines()[-1]) == (0, f"{task} {s.DONE}")
    events = hermes.ask("events", "--task", task)
    assert [event["actor"] for event in events if event["kind"] in ("heartbeat", "completed")] == ["worker:bot"] * 2
    assert hermes.status(other) == s.READY
    assert hermes.kinds(other)[-1] == "commented"


def test_a_shim_of_another_board_makes_a_worker_without_a_card(hermes: Hermes, held: Held) -> None:
    task, run = held
    hermes.ok("boards", "create", "b")
    with poser(hermes, f"{hermes.home}/kanban/boards/b/kanban.db", run) as inside:
        come_alive(hermes, run, inside.process.pid)
        assert inside(f"hermes kanban complete {task} --summary x")[0] == 6
        assert inside(f"hermes kanban show {task}")[0] == 0
    assert hermes.status(task) == s.RUNNING


def test_a_worker_may_not_touch_another_s_card(hermes: Hermes, held: Held) -> None:  # C143
    task, run = held
    other = hermes.create("other")
    lock = hermes.ask("show", task)["claim_lock"]
    worker = hermes.set(HERMES_KANBAN_TASK=task, HERMES_KANBAN_RUN_ID=str(run), HERMES_KANBAN_CLAIM_LOCK=lock)
    for words in (
        ["complete", other, "--summary", "x"],
        ["block", other, "x"],
        ["heartbeat", other],
        ["archive", task],
    ):
        answer = worker(*words, "--json")
        assert (answer.code, answer.json["error"]["code"]) == (6, "forbidden")
    assert worker("create", "x").code == 6
    assert worker("init").code == 6
    assert hermes.kinds(other) == ["created"]
    assert worker.ok("complete", task, "--summary", "x") == f"{task} {s.DONE}"


def test_a_delegated_child_may_only_read(hermes: Hermes, held: Held) -> None:  # P71
    task, run = held
    lock = hermes.ask("show", task)["claim_lock"]
    child = hermes.set(
        HERMES_DELEGATED_CHILD_CONTEXT="1",
        HERMES_KANBAN_TASK=task,
        HERMES_KANBAN_RUN_ID=str(run),
        HERMES_KANBAN_CLAIM_LOCK=lock,
    )
    assert child("show", task).code == 0
    for words in (
        ["heartbeat", task],
        ["complete", task, "--summary", "x"],
        ["block", task, "x"],
        ["comment", task, "x"],
    ):
        answer = child(*words, "--json")
        assert answer.code == 6
        assert "unset" not in answer.json["error"]["hint"]
    assert child("boards", "create", "x").code == 6
    assert hermes.status(task) == s.RUNNING


@pytest.mark.parametrize("role", ["bridge", "orchestrator", "worker", "dispatcher"])
def test_the_life_of_boards_is_a_person_s(bare: Hermes, role: str) -> None:  # P70
    agent = bare.set(HERMES_KANBAN_ROLE=role)
    for words in (["init"], ["boards", "create", "x"], ["boards", "switch", "x"]):
        answer = agent(*words, "--json")
        assert (answer.code, answer.json["error"]["code"]) == (6, "forbidden")
    assert not bare.home.exists()


def test_a_bridge_may_do_its_verbs_and_no_other(hermes: Hermes) -> None:
    bridge = hermes.set(HERMES_KANBAN_ROLE="bridge", HERMES_KANBAN_NAME="bot")
    task = bridge.create("x")
    assert hermes.ask("show", task)["created_by"] == "bridge:bot"
    for words in (["edit", task, "--title", "y"], ["promote", task], ["reclaim", task], ["link", task, task]):
        answer = bridge(*words, "--json")
        assert (answer.code, answer.json["error"]["code"]) == (6, "forbidden")
    with bridge.script() as script:
        assert script(f"hermes kanban claim {task}")[0] == 0
        assert script(f"hermes kanban complete {task} --summary x")[0] == 0
    assert hermes.ask("runs", task)[0]["profile"] == "bot"


def test_a_person_at_a_terminal_stays_a_person_with_a_claim(hermes: Hermes) -> None:  # P70
    def typed(*words: str) -> tuple[int, bytes, bytes]:
        master, slave = pty.openpty()
        process = hermes.set(HERMES_KANBAN_NAME="ann").start(*words, stdin=slave)
        os.close(slave)
        out, err = process.communicate(timeout=60)
        os.close(master)
        return process.returncode, out, err

    code, out, err = typed("create", "no key is needed", "-q")
    assert (code, err) == (0, b"")  # P51: only scripts are reminded of the key
    task = out.decode().strip()
    assert typed("claim", task)[0] == 0
    assert typed("edit", task, "--priority", "3")[0] == 0
    assert typed("request-review", task, "--summary", "mine")[0] == 0
    assert typed("complete", task, "--summary", "and I may judge it")[0] == 0  # P30b
    events = hermes.ask("events", "--task", task)
    assert {event["actor"] for event in events} == {"human:ann"}
    assert [run["role"] for run in hermes.ask("runs", task)] == [s.IMPLEMENTER, s.MANUAL]


def test_reading_leaves_no_trace(hermes: Hermes, held: Held) -> None:
    task, _ = held
    files = [hermes.home / name for name in ("kanban.db", "kanban.db-wal") if (hermes.home / name).exists()]
    before = [(file.read_bytes(), file.stat().st_mtime_ns) for file in files]
    listing = sorted(hermes.home.rglob("*"))
    for words in (
        ["list"],
        ["show", task],
        ["context", task],
        ["board"],
        ["inbox"],
        ["why", task],
        ["events"],
        ["stats"],
    ):
        assert hermes(*words).code == 0
        assert hermes(*words, "--json").code == 0
    assert hermes("verify").code == 0
    assert [(file.read_bytes(), file.stat().st_mtime_ns) for file in files] == before
    assert sorted(p for p in hermes.home.rglob("*") if not p.name.endswith(("-shm", "-wal"))) == [
        p for p in listing if not p.name.endswith(("-shm", "-wal"))
    ]
