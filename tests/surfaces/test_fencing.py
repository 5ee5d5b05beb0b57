"""Late and foreign writers through the command line, with real deaths (C1, C2, C11)."""

from __future__ import annotations

import os
import signal

import pytest

from hermes_kanban.model import status as s
from tests.surfaces.hermes import Hermes

LATE = (
    "heartbeat ID",
    "comment ID late",
    "complete ID --summary late",
    "block ID late",
    "request-review ID --summary x",
)


def test_a_killed_attempt_s_late_writes_change_nothing(hermes: Hermes) -> None:  # C1, P12, P14
    task = hermes.create()
    with hermes.script() as first:
        _, exported = first(f"hermes kanban claim {task} --ttl 1 --export 2>/dev/null")
        os.kill(first.process.pid, signal.SIGKILL)
        first.process.wait()
    while not hermes.ask("list", "--status", "ready"):
        os.sched_yield()
    with hermes.script() as second, hermes.script() as ghost:
        assert second(f"hermes kanban claim {task} --ttl 600")[0] == 0
        before = hermes.ask("show", task)
        ghost(exported)
        for verb in LATE:
            code, said = ghost(f"hermes kanban {verb.replace('ID', task)}")
            assert code == 5, said
        after = hermes.ask("show", task)
        for name in ("status", "current_run_id", "claim_expires", "comments", "runs", "last_heartbeat_at"):
            assert after[name] == before[name]
        refusals = [event["payload"] for event in after["events"] if event["kind"] == "refused"]
        assert sorted(one["verb"] for one in refusals) == sorted(verb.split()[0] for verb in LATE)
        assert {one["run_shown"] for one in refusals} == {1}
        assert second(f"hermes kanban complete {task} --summary mine")[0] == 0
    assert hermes.ok("verify") == "ok"


@pytest.mark.parametrize("number", ["", "abc", "1", "99", "-1", "1e3", "٢"])
def test_a_run_id_that_does_not_fit_means_refuse(hermes: Hermes, number: str) -> None:  # C2
    task = hermes.create()
    with hermes.script() as owner:
        owner(f"hermes kanban claim {task} --ttl 600")
        stranger = hermes.set(
            HERMES_KANBAN_TASK=task, HERMES_KANBAN_RUN_ID=number, HERMES_KANBAN_CLAIM_LOCK="some:1:lock"
        )
        assert stranger("complete", task, "--summary", "x").code == 5
        assert hermes.status(task) == s.RUNNING


def test_a_claim_made_by_hand_is_not_closed_by_a_stranger(hermes: Hermes) -> None:  # C11
    task = hermes.create()
    with hermes.script() as hand:
        hand(f"hermes kanban claim {task}")
        answer = hermes("complete", task, "--summary", "not mine", "--json")
        assert (answer.code, answer.json["error"]["code"]) == (5, "claim_lost")
        assert hermes.status(task) == s.RUNNING


def test_the_right_run_id_is_accepted(hermes: Hermes) -> None:  # C2
    task = hermes.create()
    with hermes.script() as owner:
        _, exported = owner(f"hermes kanban claim {task} --export 2>/dev/null")
        values = dict(line.removeprefix("export ").split("=", 1) for line in exported.splitlines())
        given = {name: value.strip("'") for name, value in values.items()}
        worker = hermes.set(HERMES_KANBAN_TASK=task, **given)
        assert worker.ok("complete", task, "--summary", "x") == f"{task} {s.DONE}"
