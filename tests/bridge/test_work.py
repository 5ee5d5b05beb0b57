"""The bridge at work: it claims, runs its program under a shim, and closes the card by what happened (page 3)."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_kanban.model import status as s
from tests.bridge.bridges import NAME, Pull, create, open_runs, program, pulled, reason
from tests.processes.home import Home, worker

TELL = "import json, os, sys; json.dump([sys.argv[1:], os.getcwd(), dict(os.environ)], open('told.json', 'w'))"


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Home]:
    with pulled(tmp_path) as made:
        yield made


# --- the whole way ----------------------------------------------------------------------------------------------
def test_a_card_is_claimed_worked_on_and_completed(here: Home) -> None:  # P10, P15, P22
    task = create(here, "collect")
    bridge = Pull(here, "--once", argv=program("say 12 tests pass", "exit 0"))
    assert bridge.wait() == 0
    card, run = here.card(task), here.run(task)
    assert run is not None
    assert (card.status, run.outcome, run.exit_code, run.summary) == (s.DONE, s.COMPLETED, 0, "12 tests pass")
    assert (run.pull, run.supervised, run.process_state, run.lane) == (True, True, s.ENDED, NAME)
    assert (run.claimed_by, run.profile, run.end_verb) == ("bridge:bot", NAME, "complete")
    assert run.log_path == os.path.join(here.place.logs, f"{task}.log")
    events = {event.kind: event.actor for event in here.board.events(task=task)}
    assert (events["claimed"], events["completed"]) == ("bridge:bot", "bridge:bot")
    words = [fact["event"] for fact in bridge.said()]
    assert words == ["bridge_started", "claimed", "started", "ended", "bridge_stopped"]
    assert (run.claim_lock or "?") not in bridge.log.read_text(encoding="utf-8")
    assert here.slots() == 0


def test_work_that_comes_later_is_noticed_at_once(here: Home) -> None:  # D1
    bridge = Pull(here)
    bridge.hears("bridge_started")
    first = create(here, "first")
    run = here.alive(first)
    child = create(here, "child", "--parent", first)
    idea = create(here, "idea", "--triage")
    here.tell(run, "exit 0")
    run = here.alive(child)  # the bridge's own closing made it ready
    here.tell(run, "exit 0")
    here.ended(child)
    here.hermes.ok("promote", idea)
    here.tell(here.alive(idea), "exit 0")
    here.ended(idea)
    assert bridge.stop() == 0


def test_once_goes_on_with_what_its_own_work_made_ready(here: Home) -> None:
    parent = create(here, "parent")
    tasks = [parent, *(create(here, f"child {n}", "--parent", parent) for n in range(2))]
    other = here.create("of somebody else", lane="ann")
    assert Pull(here, "--once", argv=program("exit 0")).wait() == 0
    assert [here.card(task).status for task in tasks] == [s.DONE] * 3
    assert here.card(other).status == s.READY


def test_several_at_once_and_never_more(here: Home) -> None:
    tasks = [create(here, f"card {n}") for n in range(5)]
    bridge = Pull(here, "--concurrency", "2")
    for task in tasks[:2]:
        here.alive(task)  # both live now: nobody has been told to end
    for number, task in enumerate(tasks):
        run = here.alive(task)
        here.until(lambda: open_runs(here, *tasks) == min(2, len(tasks) - number))  # noqa: B023 - called at once
        assert here.slots() == 0  # P15
        here.tell(run, "exit 0")
        here.ended(task)
    spans = [(run.started_ms, run.ended_ms or 0) for task in tasks if (run := here.run(task))]
    assert max(sum(b <= at < e for b, e in spans) for at, _ in spans) == 2
    assert bridge.stop() == 0


def test_one_at_a_time_is_the_rule(here: Home) -> None:
    first, second = create(here, "first"), create(here, "second")
    Pull(here)
    run = here.alive(first)
    other = here.create("of somebody else", lane="ann")  # news, for which there is no room
    here.ask(run, f"hermes comment {other} seen")
    assert here.run(second) is None
    here.tell(run, "exit 0")
    here.alive(second)


# --- who closes the card ----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("policy", "status", "outcome"),
    [
        ("complete", s.DONE, s.COMPLETED),
        ("request_review", s.REVIEW, s.REVIEW_REQUESTED),
        ("block_for_review", s.BLOCKED, s.OUT_BLOCKED),
        ("require_call", s.BLOCKED, s.OUT_BLOCKED),
    ],
)
def test_who_closes_a_card_after_a_good_end(here: Home, policy: str, status: str, outcome: str) -> None:
    task = create(here, "card", "--reviewer", "rev")
    argv = program("say looks fine", "exit 0")
    assert Pull(here, "--once", "--on-success", policy, argv=argv).wait() == 0
    card, run = here.card(task), here.run(task)
    assert run is not None
    assert (card.status, run.outcome, run.exit_code) == (status, outcome, 0)
    if policy == "require_call":  # P25: it was to close the card itself, and did not
        assert "ended without closing its card" in reason(here, task)["what"]
    if policy == "request_review":
        assert (card.reviewer, card.implementer) == ("rev", NAME)


@pytest.mark.parametrize(
    "how",
    [
        "hermes kanban complete {task} --summary itself",
        "sh -c 'hermes kanban heartbeat {task} --note half && hermes kanban complete {task} --summary itself'",
        "setsid -w hermes kanban complete {task} --summary itself",
        'env -i HERMES_HOME="$HERMES_HOME" PATH="$PATH" hermes kanban complete {task} --summary itself',
        "unset HERMES_KANBAN_TASK HERMES_KANBAN_RUN_ID HERMES_KANBAN_CLAIM_LOCK; export HERMES_KANBAN_ROLE=human; "
        "hermes kanban complete {task} --summary itself",
    ],
)
def test_a_program_may_close_its_own_card_from_wherever_it_is(here: Home, how: str) -> None:  # P70, P70b
    task, other = create(here), here.create("of somebody else", lane="ann")
    deeds = "; ".join(
        (
            f"hermes kanban complete {other} --summary stolen; echo code $?",
            f"hermes kanban comment {other} fact; echo code $?",
            "hermes kanban claim --next; echo code $?",
            "hermes kanban bridge --assignee ann -- true; echo code $?",
            how.replace("{task}", task) + "; echo code $?",
        )
    )
    assert Pull(here, "--once", argv=("sh", "-c", deeds)).wait() == 0
    log = Path(here.place.logs, f"{task}.log").read_text(encoding="utf-8")
    assert [line for line in log.splitlines() if line.startswith("code ")] == [f"code {n}" for n in (6, 0, 6, 6, 0)]
    card, run = here.card(task), here.run(task)
    assert run is not None
    assert (card.status, run.outcome, run.summary, run.exit_code) == (s.DONE, s.COMPLETED, "itself", 0)
    done = next(event for event in here.board.events(task=task) if event.kind == "completed")
    assert (done.actor, done.run_id) == ("worker:bot", run.id)
    assert here.card(other).status == s.READY


def test_a_run_acts_on_its_own_card_and_no_other_s(here: Home) -> None:  # P12, P70b
    first, second = create(here, "first"), create(here, "second")
    Pull(here, "--concurrency", "2")
    mine, others = here.alive(first), here.alive(second)
    here.ask(mine, f"hermes complete {second} --summary stolen")
    here.ask(mine, f"hermes complete {second} --summary stolen --run {others.id}")
    assert here.card(second).status == s.RUNNING
    here.ask(mine, "complete")
    here.tell(mine, "exit 3")  # work that was closed stays closed, however its program ends
    card, run = here.ended(first)
    assert (card.status, run.outcome, run.exit_code) == (s.DONE, s.COMPLETED, 3)
    here.tell(others, "exit 0")
    here.ended(second)


def test_what_a_program_leaves_running_is_ended(here: Home) -> None:  # D14b
    task = create(here)
    bridge = Pull(here, "--once", argv=program("leave 2", "complete", "exit 0"))
    assert bridge.wait() == 0
    run = here.run(task)
    assert run is not None
    assert (here.card(task).status, run.process_state) == (s.DONE, s.ENDED)
    assert here.marked(run) == []


# --- reviews ----------------------------------------------------------------------------------------------------
def test_reviews_are_taken_instead(here: Home) -> None:  # P30
    work, task = create(here, "work"), create(here, "judge me", "--reviewer", "rev")
    first = Pull(here, "--once", "--on-success", "request_review", argv=program("exit 0"))
    assert first.wait() == 0
    judge = Pull(here, "--assignee", "rev", "--review")
    run = here.alive(task)
    assert (run.role, run.profile) == (s.REVIEWER, "rev")
    here.ask(run, f"hermes request-changes {task} too-short")
    here.tell(run, "exit 0")
    card, run = here.ended(task)
    assert (card.status, card.assignee, run.outcome) == (s.READY, NAME, s.CHANGES_REQUESTED)
    assert here.card(work).status == s.REVIEW  # nobody was named for it: a person decides
    assert judge.stop() == 0


def test_a_review_that_ends_well_approves_and_one_that_fails_blocks(here: Home) -> None:  # P30, P32
    tasks = [create(here, f"card {n}", "--reviewer", "rev") for n in range(2)]
    assert Pull(here, "--once", "--on-success", "request_review", argv=program("exit 0")).wait() == 0
    Pull(here, "--assignee", "rev", "--review", "--concurrency", "2")
    for task, code in zip(tasks, (0, 1), strict=True):
        here.tell(here.alive(task), f"exit {code}")
    assert here.ended(tasks[0])[0].status == s.DONE
    assert here.ended(tasks[1])[0].status == s.BLOCKED
    here.hermes.ok("unblock", tasks[1], "--answer", "A")
    assert here.alive(tasks[1]).role == s.REVIEWER  # it comes back to where it was claimed from


# --- what a program is given ------------------------------------------------------------------------------------
HOSTILE = "$(touch pwned) `touch pwned`; touch pwned\n{task_id} {prompt} %s \x1b[31m \"'\\ \u202e 値"


def test_a_card_s_text_is_one_argument_and_nothing_else(here: Home) -> None:
    task = create(here, "hostile; touch pwned", "--body", HOSTILE)
    argv = (
        sys.executable,
        "-I",
        "-c",
        TELL,
        "{task_id}",
        "{prompt}",
        "--at={workspace}",
        "{not one}",
        "$HOME",
        "a",
        "a",
    )
    assert Pull(here, "--once", argv=argv).wait() == 0
    workspace = Path(here.place.workspaces, task)
    told, folder, _ = json.loads((workspace / "told.json").read_text(encoding="utf-8"))
    prompt = told.pop(1)
    assert told == [task, f"--at={workspace}", "{not one}", "$HOME", "a", "a"]
    assert "$(touch pwned) `touch pwned`; touch pwned" in prompt
    assert "{task_id} {prompt} %s" in prompt  # what came in is not looked at again
    assert folder == str(workspace)
    assert [name for name in os.listdir(workspace) if not name.startswith(".")] == ["told.json"]


def test_a_program_gets_its_run_s_variables_and_no_secret(here: Home) -> None:  # D10
    task = create(here)
    secrets = {"OPENAI_API_KEY": "k", "GH_TOKEN": "k", "SOME": "thing", "HERMES_KANBAN_ROLE": "bridge"}
    bridge = Pull(here, "--once", "--env", "GH_TOKEN", argv=(sys.executable, "-I", "-c", TELL), **secrets)
    assert bridge.wait() == 0
    assert bridge.said("bridge_started")[0]["withheld"] == ["OPENAI_API_KEY"]  # names alone
    _, _, variables = json.loads(Path(here.place.workspaces, task, "told.json").read_text(encoding="utf-8"))
    assert not {"OPENAI_API_KEY", "SOME"} & set(variables)
    assert variables["GH_TOKEN"] == "k"  # it was asked for
    assert (variables["HERMES_KANBAN_TASK"], variables["HERMES_KANBAN_RUN_ID"]) == (task, "1")
    assert (variables["HERMES_PROFILE"], variables["HERMES_KANBAN_ROLE"]) == (NAME, s.WORKER)


def test_a_lane_of_the_home_can_be_the_program(here: Home) -> None:
    here.lanes["review"] = worker("exit 0", success_policy="request_review", env=["SOME"])
    here.configure()
    first = create(here, "first", "--reviewer", "rev")
    assert Pull(here, "--once", "--lane", "review", argv=()).wait() == 0
    assert here.card(first).status == s.REVIEW  # as the lane says
    second = create(here, "second")
    assert Pull(here, "--once", "--lane", "review", "--on-success", "complete", argv=()).wait() == 0
    run = here.run(second)
    assert run is not None
    assert (here.card(second).status, run.lane) == (s.DONE, "review")


# --- a person's word --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("words", [("reclaim",), ("complete", "--summary", "by hand", "--override")])
def test_a_card_that_a_person_takes_ends_its_program(here: Home, words: tuple[str, ...]) -> None:  # P12c, P14c
    task = create(here)
    bridge = Pull(here, "--ttl", "600")  # its own beats would be far too late
    run = here.alive(task)
    here.ask(run, "stubborn")
    here.hermes.ok(words[0], task, *words[1:])
    here.until(lambda: here.find(run).process_state == s.ENDED)
    here.until(lambda: not here.marked(here.find(run)))
    found = here.find(run)
    assert (found.outcome, found.exit_code, found.exit_kind) == (s.RECLAIMED, -9, "stopped")
    if words[0] == "complete":
        assert here.card(task).status == s.DONE
    else:
        assert here.alive(task).id > run.id  # nobody had it before its processes were gone
        overlap = [event for event in here.board.events(task=task) if event.kind in ("claimed", "reconciled")]
        assert [event.kind for event in overlap] == ["claimed", "reconciled", "claimed"]
    assert bridge.stop() == 0


def test_a_card_that_cannot_have_its_workspace_is_returned_and_the_next_one_taken(here: Home) -> None:  # P11
    gone = here.path / "gone"
    gone.mkdir()
    bad = create(here, "bad", "--workspace", f"dir:{gone}")
    gone.rmdir()
    gone.write_text("no folder", encoding="utf-8")
    good = create(here, "good")
    bridge = Pull(here, "--once", argv=program("exit 0"))
    assert bridge.wait() == 0
    assert len(bridge.said("workspace_failed")) == 1
    card = here.card(bad)
    assert (card.status, card.eligible_reason, card.consecutive_failures) == (s.READY, s.WORKSPACE, 0)
    assert here.card(good).status == s.DONE


# --- what is refused before anything is claimed -----------------------------------------------------------------
@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--", "true"), 2, "--assignee"),
        (("--assignee", "none", "--", "true"), 2, "--assignee"),
        (("--assignee", "bot"), 2, "a lane or a program"),
        (("--assignee", "bot", "--lane", "x", "--", "true"), 2, "a lane or a program"),
        (("--assignee", "bot", "--lane", "x"), 7, "no lane"),
        (("--assignee", "bot", "--lane", "x", "--env", "X"), 2, "--env"),
        (("--assignee", "bot", "--env", "HERMES_KANBAN_TASK", "--", "true"), 7, "HERMES_KANBAN_TASK"),
        (("--assignee", "bot", "--", "no-such-program-xyz"), 7, "not found"),
        (("--assignee", "bot", "--", "sh", "-c", "{prompt}"), 7, "would run"),
        (("--assignee", "bot", "--", "true", "a{prompt}b"), 7, "whole argument"),
        (("--assignee", "bot", "--concurrency", "0", "--", "true"), 7, "--concurrency"),
        (("--assignee", "bot", "--ttl", "0", "--", "true"), 7, "--ttl"),
        (("--assignee", "bot", "--alert-cmd", "'open", "--", "true"), 7, "--alert-cmd"),
        (("--assignee", "bot", "--alert-cmd", "no-such-program-xyz", "--", "true"), 7, "--alert-cmd"),
        (("--assignee", "bot", "--on-success", "nothing", "--", "true"), 7, "--on-success"),
        (("--assignee", "bot", "--bogus", "--", "true"), 2, "--bogus"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_claimed(
    here: Home, words: tuple[str, ...], code: int, said: str
) -> None:
    task = create(here)
    answer = here.hermes("bridge", *words)
    assert (answer.code, answer.out) == (code, "")
    assert said in answer.err
    assert "hint: " in answer.err
    assert here.run(task) is None


def test_workers_and_orchestrators_run_no_bridge(here: Home) -> None:  # P70
    for facts in ({"HERMES_KANBAN_TASK": "t_0"}, {"HERMES_KANBAN_ROLE": "orchestrator"}, {"HERMES_KANBAN_ROLE": "x"}):
        answer = here.hermes.set(**facts)("bridge", "--assignee", "bot", "--once", "--", "true")
        assert (answer.code, answer.out) == (6, ""), facts
    assert here.hermes.set(HERMES_KANBAN_ROLE="bridge")("bridge", "--assignee", "bot", "--once", "--", "true").code == 0
