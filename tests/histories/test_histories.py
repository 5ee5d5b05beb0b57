"""Processes race on one board beside gateways and are killed: 0 violations (T1, T1b). And the checker's own tests.

`HERMES_TEST_RACE_SECONDS` (default 40) says how long, `HERMES_TEST_RACE_SEED` repeats a seed, which a failure prints.
"""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

from hermes_kanban.base.errors import ClaimLost
from hermes_kanban.kernel.board import Board
from hermes_kanban.kernel.finish import Handoff
from hermes_kanban.model.claim import Claim
from tests.histories import checker, race
from tests.histories.history import Call, History, Note, load, read
from tests.histories.recorder import Recorder, Unheard
from tests.histories.shrink import shrink
from tests.world import World

SECONDS = float(os.environ.get("HERMES_TEST_RACE_SECONDS", "40"))
SEED = int(os.environ.get("HERMES_TEST_RACE_SEED", "0")) or random.SystemRandom().getrandbits(31)
PROCESSES = 8
OFTEN = ("create", "claim", "heartbeat", "comment", "attach", "complete", "block", "request-review", "unblock")


@pytest.mark.timeout(SECONDS * 2 + 480)
def test_processes_racing_and_being_killed_violate_nothing(tmp_path: Path) -> None:  # T1, T1b, P1, P10, P12, P14, P80
    report = race.Race(tmp_path / "race", PROCESSES, SEED).run(SECONDS)
    print(f"seed {SEED}: {report.text()}")
    assert not report.violations, f"seed {SEED}\n" + "\n".join(v.report() for v in report.violations[:5])
    assert sum(number for what, number in report.hits.items() if "killed" in what) > 0
    assert [verb for verb in OFTEN if not report.done[verb]] == []  # who only refuses loses nothing either
    assert report.notes["tail"] > 0
    assert report.endings["claim_lost"] > 0  # late writers were there
    assert sum(report.workers.values()) > 0  # and workers under shims
    assert report.drained > 0


# --- the checker itself -------------------------------------------------------------------------------------------


class Story:
    """A short true history, recorded from a real board; the tests below falsify it."""

    def __init__(self, world: World, folder: Path) -> None:
        self._world = world
        self._path = folder / "history.jsonl"
        self._pen = Recorder(str(self._path), "p1")
        self.parent = world.card("parent").id
        self.child = world.card("child", parents=(self.parent,)).id
        board, self.first = self.claim(self.parent, "bot")
        self.call("heartbeat", self.first, lambda: board.heartbeat(self.parent, "h1"), "h1")
        world.clock.advance(61)
        other, self.second = self.claim(self.parent, "other")
        self.call("complete", self.first, lambda: board.complete(self.parent, Handoff("late")), "late")
        self.call("comment", self.second, lambda: other.comment(self.parent, "c1"), "c1")
        self.call("complete", self.second, lambda: other.complete(self.parent, Handoff("d1")), "d1")
        self.claim(self.child, "bot")

    def claim(self, card: str, name: str) -> tuple[Board, Claim]:
        taken = self._pen.call(
            "claim",
            {"task": card},
            lambda: self._world.script(name).claim(card, ttl=60),
            lambda c: {"task": c.task.id, "run": c.run.id, "lock": c.run.claim_lock},
        )
        return self._world.script(name, taken), taken

    def call(self, verb: str, claim: Claim, act: Any, token: str) -> None:
        args = {"task": claim.task.id, "token": token, "run": claim.run.id, "lock": claim.run.claim_lock}
        self._pen.call(verb, args, act, lambda _: {})

    def history(self) -> History:
        found = read(self._path.read_text(encoding="utf-8").splitlines())
        race.complete(found, self._world.person)
        found.notes.append(Note("t1", "tail", {"after": 0, "ids": [event["id"] for event in found.events]}))
        return found


@pytest.fixture
def story(world: World, tmp_path: Path) -> Story:
    return Story(world, tmp_path)


def rules(history: History) -> set[str]:
    return {violation.rule for violation in checker.check(history)}


def event(history: History, kind: str, nth: int = 0) -> dict[str, Any]:
    return [e for e in history.events if e["kind"] == kind][nth]


def drop(history: History, gone: dict[str, Any]) -> None:
    """Take an event out of the log as if it had never been written: the ids close up."""
    history.events = [e for e in history.events if e is not gone]
    for place, left in enumerate(history.events, start=1):
        left["id"] = place
    history.notes = []


def test_a_true_history_passes(story: Story) -> None:
    history = story.history()
    assert checker.check(history) == []
    assert [call.error for call in history.calls if call.args.get("token") == "late"] == [ClaimLost.code]


def test_a_double_winner_is_caught_with_its_two_calls(story: Story) -> None:  # P10
    history = story.history()
    claims = [call for call in history.calls if call.verb == "claim"]
    claims[1].answer = dict(claims[0].answer or {})
    found = [v for v in checker.check(history) if v.rule == "two winners"]
    assert found
    assert found[0].calls == claims[:2]
    assert all(json.dumps(call.__dict__) in found[0].report() for call in claims[:2])


def test_a_claim_of_a_held_card_is_caught(story: Story) -> None:  # P2, P10
    history = story.history()
    drop(history, event(history, "reclaimed"))
    found = [v for v in checker.check(history) if v.rule == "two holders"]
    assert [e["run_id"] for e in found[0].events] == [story.first.run.id, story.second.run.id]


@pytest.mark.parametrize("kind", ["heartbeat", "commented", "completed"])
def test_a_lost_write_is_caught(story: Story, kind: str) -> None:  # T1b
    history = story.history()
    drop(history, event(history, kind))
    assert "lost write" in rules(history)


def test_a_lost_claim_is_caught(story: Story) -> None:  # T1b
    history = story.history()
    last = event(history, "claimed", -1)
    del history.runs[last["run_id"]]
    drop(history, last)
    assert "lost write" in rules(history)


def test_an_accepted_late_write_is_caught(story: Story) -> None:  # P12, P14
    history = story.history()
    late = next(call for call in history.calls if call.args.get("token") == "late")
    late.answer, late.error = {}, None
    assert "lost write" in rules(history)  # acknowledged, yet nothing there
    done = event(history, "completed")
    done["payload"]["summary"], done["run_id"] = "late", story.first.run.id
    assert {"late write"} <= rules(history)


def test_a_write_with_another_runs_fence_is_caught(story: Story) -> None:  # P12
    history = story.history()
    done = next(call for call in history.calls if call.args.get("token") == "d1")
    done.args["run"] = story.first.run.id
    assert "fence" in rules(history)


def test_a_refused_call_that_left_something_is_caught(story: Story) -> None:  # P1
    history = story.history()
    done = next(call for call in history.calls if call.args.get("token") == "d1")
    done.answer, done.error = None, "claim_lost"
    assert rules(history) == {"refused or repeated write"}


def test_a_killed_call_may_have_happened_or_not(story: Story) -> None:  # T1b
    history = story.history()
    done = next(call for call in history.calls if call.args.get("token") == "d1")
    done.answer = done.end = None
    assert rules(history) == set()
    done.args["token"] = "never"
    assert rules(history) == {"phantom"}


def test_a_child_that_runs_before_its_parent_is_caught(story: Story) -> None:  # P3, P4, P10
    history = story.history()
    moved, early = event(history, "completed"), event(history, "promoted")
    history.events.remove(early)
    history.events.insert(history.events.index(moved), early)
    for place, left in enumerate(history.events, start=1):
        left["id"] = place
    found = [v for v in checker.check(history) if v.rule == "child before parent"]
    assert found[0].events[-1] is early


def test_a_gap_and_a_swapped_commit_are_caught(story: Story) -> None:  # P80
    history = story.history()
    history.events[3]["id"] += 1
    assert "event ids" in rules(history)
    history = story.history()
    beat, comment = event(history, "heartbeat"), event(history, "commented")
    beat["payload"], comment["payload"] = comment["payload"], beat["payload"]
    beat["kind"], comment["kind"] = "commented", "heartbeat"
    assert "commit order" in rules(history)


@pytest.mark.parametrize("ids", [[1, 2, 4, 3], [1, 2, 4]])
def test_a_tailer_that_misses_an_event_is_caught(story: Story, ids: list[int]) -> None:  # P80
    history = story.history()
    history.notes = [Note("t1", "tail", {"after": 0, "ids": ids})]
    assert rules(history) == {"tail"}


def test_a_row_that_left_the_log_is_caught(story: Story) -> None:  # P81
    history = story.history()
    history.tasks[story.parent]["status"] = "ready"
    assert rules(history) == {"row and log"}


def test_a_fault_and_a_torn_line_are_told_apart(story: Story) -> None:
    history = story.history()
    history.calls[0].error = "fault"
    assert "fault" in rules(history)
    torn = read(['{"line": "call", "proc', "", '{"line": "tail", "process": "p", "facts": {}}'])
    assert (torn.calls, torn.torn, len(torn.notes)) == ([], 1, 1)


def test_a_write_that_nobody_asked_for_is_caught(story: Story) -> None:  # P81
    history = story.history()
    history.calls = [call for call in history.calls if call.args.get("token") != "c1"]
    assert rules(history) == {"phantom"}


def test_a_verb_that_was_cut_off_in_the_middle_is_caught(story: Story) -> None:  # P1
    history = story.history()
    made = event(history, "created")["payload"]["set"]["title"]
    history.calls.append(Call("p9", 1, "apply", {"tokens": [made, "another"]}, start=1))
    assert "half a verb" in rules(history)
    history.calls[-1].args["tokens"] = [made]
    assert "half a verb" not in rules(history)


def test_a_lease_that_ended_too_soon_is_caught(story: Story) -> None:  # P10, P13
    history = story.history()
    taken = event(history, "reclaimed")
    taken["at_ms"] = event(history, "heartbeat")["at_ms"] + 57_000
    assert rules(history) == {"lease"}


def test_a_claim_of_a_card_that_rests_is_caught(story: Story) -> None:  # P14c
    history = story.history()
    claimed = event(history, "claimed", 1)
    event(history, "reclaimed")["payload"]["set"]["eligible_at"] = claimed["created_at"] + 30
    assert rules(history) == {"rest"}


def test_run_ids_that_do_not_grow_are_caught(story: Story) -> None:  # P12
    history = story.history()
    first, second = story.first.run.id, story.second.run.id
    for happened in history.events:
        happened["run_id"] = {first: second, second: first}.get(happened["run_id"], happened["run_id"])
    assert "run ids" in rules(history)


@pytest.mark.parametrize(("kind", "rule"), [("overlap", "two workers"), ("torn", "torn read"), ("stuck", "stuck")])
def test_what_others_saw_counts(story: Story, kind: str, rule: str) -> None:  # P14c, P1, P3b
    history = story.history()
    history.notes.append(Note("p9", kind, {"task": story.parent, "text": "seen"}))
    assert rules(history) == {rule}


def test_a_wrong_verdict_is_caught(story: Story) -> None:  # P20, T5
    history = story.history()
    row = history.runs[story.first.run.id]
    history.notes.append(Note("w", "exit", {"task": story.parent, "run": row["id"], "code": 1}))
    assert rules(history) == set()  # its shim was killed: nobody knows the code
    row["exit_code"] = 1
    assert rules(history) == set()  # reclaimed meanwhile
    row["outcome"] = "crashed"
    assert rules(history) == {"verdict"}
    row |= {"outcome": "failed", "exit_code": 0}
    assert rules(history) == {"verdict"}


def test_a_child_that_may_write_is_caught(story: Story) -> None:  # P71
    history = story.history()
    call = next(call for call in history.calls if call.args.get("token") == "c1")
    call.args["seat"] = "child"
    assert rules(history) == {"rights"}


def test_a_card_that_nobody_closed_is_caught(story: Story) -> None:  # P20: exit 0 alone closes no card
    history = story.history()
    history.calls = [call for call in history.calls if call.args.get("token") != "d1"]
    history.calls.append(Call("p9", 1, "complete", {"task": story.child, "token": "another"}, start=1))
    assert rules(history) == {"phantom"}
    row = history.runs[story.second.run.id]
    row |= {"exit_code": 0, "lane": "hand"}
    assert rules(history) == {"phantom"}
    row["lane"] = "plain"
    assert rules(history) == set()


def test_a_failing_history_is_made_small_and_fails_still(story: Story, tmp_path: Path, world: World) -> None:
    for number in range(20):
        story.claim(world.card(f"other {number}").id, "bot")
    history = story.history()
    done = next(call for call in history.calls if call.args.get("token") == "d1")
    done.args["run"] = story.first.run.id
    found = next(violation for violation in checker.check(history) if violation.rule == "fence")
    small = shrink(history, found)
    small.save(tmp_path / "minimal.json")
    again = load(tmp_path / "minimal.json")
    assert rules(again) >= {"fence"}
    assert [call.args["token"] for call in again.calls] == ["d1"]
    assert {happened["task_id"] for happened in again.events} == {story.parent}


def test_a_command_that_was_killed_is_an_open_call(tmp_path: Path) -> None:
    def killed() -> None:
        raise Unheard

    path = tmp_path / "history.jsonl"
    Recorder(str(path), "p1").call("comment", {"task": "t", "token": "w"}, killed, lambda _: {})
    assert [call.end for call in read(path.read_text(encoding="utf-8").splitlines()).calls] == [None]


def test_a_graph_that_was_made_otherwise_is_caught(story: Story, world: World) -> None:  # P53
    history = story.history()
    first, second = [e for e in history.events if e["kind"] == "created"][:2]
    names = [e["payload"]["set"]["title"] for e in (first, second)]
    links = {names[0]: [], names[1]: [names[0]]}
    history.calls.append(Call("p9", 1, "apply", {"tokens": names, "links": links}, 1, 2, {"n": 2}))
    assert rules(history) == set()
    links[names[0]] = ["t_unknown"]
    assert rules(history) == {"wrong answer"}


def test_a_write_on_another_card_and_a_wrong_answer_are_caught(story: Story) -> None:  # P12, P10
    history = story.history()
    comment = next(call for call in history.calls if call.args.get("token") == "c1")
    comment.args["task"] = story.child
    assert rules(history) == {"another card"}
    history = story.history()
    claim = next(call for call in history.calls if call.verb == "claim")
    claim.args |= {"ttl": 61}
    assert rules(history) == {"wrong answer"}


def test_a_claim_that_reached_nobody_is_caught(story: Story) -> None:  # P10
    history = story.history()
    claim = [call for call in history.calls if call.verb == "claim"][-1]
    claim.answer, claim.error = None, "not_claimable"
    assert rules(history) == {"claim of nobody"}
    claim.end = claim.error = None  # it was killed: nobody knows
    assert rules(history) == set()


def test_more_of_a_kind_than_anybody_asked_for_is_caught(story: Story) -> None:  # P81
    history = story.history()
    again = {"kind": "assigned", "payload": {}, "run_id": None, "id": len(history.events) + 1}
    history.events.append(event(history, "created") | again)
    assert "phantom" in rules(history)


def test_a_holder_that_is_told_it_lost_is_caught(story: Story) -> None:  # P12
    history = story.history()
    fence = {"run": story.second.run.id, "lock": story.second.run.claim_lock}
    begin = next(call for call in history.calls if call.args.get("token") == "d1").start
    args = {"task": story.parent, "token": "never", **fence}
    history.calls.append(Call("p9", 1, "heartbeat", args, begin - 2, begin - 1, None, "claim_lost"))
    assert rules(history) == {"rights"}


def test_a_run_that_is_started_twice_and_a_follower_that_stops_are_caught(story: Story) -> None:  # P14c, P80
    history = story.history()
    history.notes += [Note("w", "begun", {"run": 1}), Note("w", "begun", {"run": 1})]
    assert rules(history) == {"two workers"}
    history = story.history()
    history.notes.append(Note("t1", "tail_end", {"there": 9, "read": 8}))
    assert rules(history) == {"tail"}
