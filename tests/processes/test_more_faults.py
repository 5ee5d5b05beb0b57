"""More faults that boards of this kind have had: alive and getting on, what an end is booked as, what keeps a card
from starting. See test_faults for where the others are."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_kanban.model import status as s
from tests.processes.around import cards, change, gone, outcomes, shell
from tests.processes.home import LANES, Home, home, kill, worker

GREEDY = "kept = bytearray(400 << 20); import signal; signal.pause()"
SAYS = "while echo {}; do sleep 0.1; done"


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Home]:
    with home(tmp_path) as made:
        yield made


# --- alive, and getting on ------------------------------------------------------------------------------------------
def test_the_shim_s_word_counts_not_the_model_s_memory(here: Home) -> None:  # C31, P13
    here.lanes |= {"busy": shell(SAYS.format("working")), "idle": shell("exec sleep 1000")}
    here.configure(claim_ttl_seconds=3)
    here.gateway()
    busy, idle = here.create(lane="busy"), here.create(lane="idle")
    runs = here.alive(busy), here.alive(idle)
    long_ago = "UPDATE task_runs SET last_heartbeat_at = last_heartbeat_at - 100"
    assert change(here, long_ago) == 2
    here.until(lambda: "heartbeat" in here.kinds(busy))
    beat = next(event for event in here.board.events(task=busy) if event.kind == "heartbeat")
    assert (beat.payload, beat.run_id) == ({"by": "shim"}, runs[0].id)
    here.until(lambda: (run := here.run(idle)) and run.claim_expires >= runs[1].claim_expires + 2)
    assert "heartbeat" not in here.kinds(idle)  # its lease is renewed: it lives; nobody says that it works


def test_a_worker_that_repeats_itself_is_flagged(here: Home) -> None:  # C32
    line = 'n=0; while n=$((n + 1)); do echo "attempt $n: no such tool"; sleep 0.1; done'
    here.lanes |= {"loop": shell(line)}
    here.configure(claim_ttl_seconds=3, no_progress_seconds=2)
    here.gateway()
    task = here.create(lane="loop")
    here.until(lambda: "worker_progress" in here.kinds(task))
    run = here.run(task)
    assert run is not None
    assert (run.open, run.standing_still) == (True, True)
    assert here.marked(run)  # alive and getting on are two clocks


def test_a_worker_that_hangs_is_ended_and_not_for_ever(here: Home) -> None:  # C34, D16
    here.configure(dispatch_stale_timeout_seconds=60, reclaim_limit=2)
    here.gateway()
    task = here.create()
    for number in (1, 2):
        here.until(lambda count=number: len(here.board.runs(task)) == count)
        run = here.alive(task)
        past = "UPDATE task_runs SET started_at = started_at - 7200, last_heartbeat_at = last_heartbeat_at - 7200"
        assert change(here, f"{past} WHERE id = ?", run.id) == 1
        here.until(lambda found=run: not here.board.runs(task)[found.id - 1].open)
        assert gone(here, run)
    assert outcomes(here, task) == [s.RECLAIMED, s.GAVE_UP]
    assert [run.end_reason for run in here.board.runs(task)] == ["stale", "stale"]
    assert "stale" in here.kinds(task)
    card = here.card(task)
    assert (card.status, card.consecutive_failures) == (s.BLOCKED, 0)


# --- what an end is booked as ---------------------------------------------------------------------------------------
def test_a_worker_that_was_stopped_did_not_end_well_whatever_it_says(here: Home) -> None:  # C35
    here.lanes["polite"] = shell('trap "exit 0" TERM; while :; do sleep 0.05; done', success_policy="complete")
    here.configure(failure_limit=1)
    here.gateway()
    card, run = here.ended(here.create("card", "--max-runtime", "1", lane="polite"))
    assert (card.status, run.exit_code, run.exit_kind) == (s.BLOCKED, 0, "stopped")
    assert run.end_reason == "timed_out"
    mine = here.create()
    kill(here.alive(mine).worker_pid or 0, signal.SIGTERM)
    _, run = here.ended(mine)
    assert (run.end_reason, run.exit_code, run.exit_kind) == ("signal", -signal.SIGTERM, "signal")


def test_a_worker_that_takes_too_much_memory_dies_alone(here: Home) -> None:  # C37
    here.lanes["greedy"] = {"argv": [sys.executable, "-I", "-c", GREEDY], "memory_limit": 200 << 20}
    here.configure(failure_limit=1)
    gateway = here.gateway()
    beside = here.alive(here.create("beside it"))
    card, run = here.ended(here.create(lane="greedy"))
    assert (card.status, run.outcome, run.end_reason) == (s.BLOCKED, s.GAVE_UP, "memory")
    assert "memory" in (run.error or "")
    here.ask(beside, "complete")
    here.alive(here.create("the dispatcher goes on"))
    assert not gateway.said("loop_restarted")


def test_a_quota_wall_blocks_no_card(here: Home) -> None:  # C40, P42
    here.lanes["tired"] = worker("say 429 too many requests", "exit 75")
    here.configure(failure_limit=2, rate_limit_cooldown_seconds=0)
    task = here.create(lane="tired")
    for count in range(1, 5):
        if count == 4:
            here.configure(rate_limit_cooldown_seconds=600)
        here.dispatch()
        here.until(lambda wanted=count: outcomes(here, task) == [s.RATE_LIMITED] * wanted)
        here.ended(task)
    card = here.card(task)
    assert (card.status, card.consecutive_failures) == (s.READY, 0)
    assert (card.eligible_at or 0) > (here.board.runs(task)[-1].ended_at or 0)
    assert here.dispatch()["started"] == []


def test_an_end_without_a_word_is_tried_again_and_then_a_person_s(here: Home) -> None:  # C44
    here.lanes["silent"] = worker("say I am done, I think", "exit 0")
    here.configure(protocol_violation_limit=3)
    here.gateway()
    task = here.create(lane="silent")
    here.until(lambda: here.card(task).status == s.BLOCKED)
    assert outcomes(here, task) == [s.PROTOCOL_VIOLATION, s.PROTOCOL_VIOLATION, s.GAVE_UP]
    assert here.kinds(task).count("protocol_violation") == 2
    assert "I am done, I think" in (here.card(task).last_failure_error or "")
    assert here.card(task).counted_failures == 0  # not one of the failures (P41)


def test_the_last_words_of_a_worker_are_on_its_attempt(here: Home) -> None:  # C47
    here.lanes["lost"] = worker("say error: unknown skill 'deploy'", "exit 1")
    here.configure(failure_limit=1)
    task = here.create(lane="lost")
    here.dispatch()
    _, run = here.ended(task)
    assert run.error == "exit code 1\nerror: unknown skill 'deploy'"
    assert "unknown skill 'deploy'" in here.hermes.ok("show", task)


def test_no_automatic_recovery_forgives_a_failure(here: Home) -> None:  # C49, C53
    here.configure(failure_limit=2, rate_limit_cooldown_seconds=0)
    here.gateway()
    task = here.create()
    for count, line in enumerate(("die KILL", "exit 75", "die KILL"), 1):
        here.until(lambda wanted=count: len(here.board.runs(task)) == wanted)
        run = here.alive(task)
        here.tell(run, line)  # before its first heartbeat
    card, run = here.ended(task)
    assert outcomes(here, task) == [s.CRASHED, s.RATE_LIMITED, s.GAVE_UP]
    assert card.status == s.BLOCKED
    refused = here.hermes.set(
        HERMES_KANBAN_TASK=task, HERMES_KANBAN_RUN_ID=str(run.id), HERMES_KANBAN_CLAIM_LOCK=run.claim_lock or ""
    )("complete", task, "--summary", "finished all the same")
    assert refused.code == 5
    assert f"{task} is blocked and no run holds it" in refused.err  # the true cause


def test_those_that_fail_together_do_not_come_back_together(here: Home) -> None:  # C55
    here.configure(retry_backoff_seconds=3600)
    here.gateway()
    made = cards(here, *"abcdef", max_runtime=2)
    ends = [here.ended(task)[0] for task in made]
    assert {outcomes(here, task)[0] for task in made} == {s.TIMED_OUT}
    assert len({card.eligible_at for card in ends}) == len(ends)


# --- what keeps a card from starting ---------------------------------------------------------------------------------
def test_a_link_in_a_comment_keeps_nothing_from_starting(here: Home) -> None:  # C59
    task = here.create("merge it")
    here.hermes.ok(
        "comment", task, "see https://github.com/some/thing/pull/17 : work is already under way, do not start"
    )
    assert [row["task"] for row in here.dispatch()["started"]] == [task]


@pytest.mark.parametrize("sort", ["no config", "broken config"])
def test_a_half_made_profile_is_not_started_and_says_why(here: Home, sort: str) -> None:  # C142
    folder = here.path / "profiles" / "coder"
    folder.mkdir(parents=True)
    if sort == "broken config":
        (folder / "config.yaml").write_text("worker: [", encoding="utf-8")
    task = here.create(lane="coder")
    gateway = here.gateway()
    here.until(lambda: gateway.said("unanswered"))
    assert "config.yaml" in gateway.said("unanswered")[0]["names"]["coder"]
    shown = here.hermes.ask("why", task)
    assert (shown["dispatchable"], [why["code"] for why in shown["dispatch_reasons"]]) == (False, ["lane_problem"])
    assert "config.yaml" in shown["dispatch_reasons"][0]["text"]
    assert here.run(task) is None
    lane = {"argv": LANES["puppet"]["argv"], "type": "command"}
    (folder / "config.yaml").write_text(json.dumps({"worker": lane}), encoding="utf-8")
    here.dispatch()
    here.alive(task)
