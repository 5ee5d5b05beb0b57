"""What the demonstration tells afterwards: hand-over times out of the log, tables that fit a terminal."""

from __future__ import annotations

from typing import Any

from examples.history import AFTER_PARENTS, RELEASES, hand_over_lines, hand_overs, harmless, run_lines


def event(task_id: str, kind: str, at_ms: int, run_id: int | None = None) -> dict[str, Any]:
    return {"task_id": task_id, "kind": kind, "at_ms": at_ms, "run_id": run_id}


LOG = [
    event("a", "claimed", 0, 1),
    event("a", "spawned", 5, 1),
    event("b", "claimed", 0, 2),
    event("a", "completed", 100, 1),
    event("b", "completed", 250, 2),
    event("c", "claimed", 257, 3),
    event("c", "spawned", 300, 3),
    event("c", "review_requested", 310, 3),
    event("c", "claimed", 314, 4),
    event("c", "spawned", 390, 4),
    event("c", "changes_requested", 400, 4),
    event("c", "claimed", 420, 5),
]


def test_hand_overs_run_from_the_last_parent_to_the_running_worker() -> None:
    found = [(one.why, one.waits) for one in hand_overs(LOG, {"c": ["a", "b"]}, {3: 340})]
    assert found == [
        (AFTER_PARENTS, (7, 50, 90)),
        (RELEASES["review_requested"], (4, 80, None)),
        (RELEASES["changes_requested"], (20, None, None)),
    ]


def test_a_child_claimed_before_its_parents_are_done_is_no_hand_over() -> None:
    log = [event("a", "completed", 1), event("c", "claimed", 2, 1), event("b", "completed", 3)]
    assert hand_overs(log, {"c": ["a", "b"]}, {}) == ()


def test_the_table_of_hand_overs_ends_with_the_middle_and_the_greatest() -> None:
    lines = list(hand_over_lines(hand_overs(LOG, {"c": ["a", "b"]}, {3: 340}), {"c": "report"}))
    assert [line.split() for line in lines[-2:]] == [
        ["p50", "7", "ms", "65", "ms", "90", "ms"],
        ["max", "20", "ms", "80", "ms", "90", "ms"],
    ]
    assert lines[3].split()[-2:] == ["-", "-"]


def test_a_table_without_hand_overs_can_be_printed() -> None:
    assert [line.split() for line in hand_over_lines((), {})][1:] == [["p50", "-", "-", "-"], ["max", "-", "-", "-"]]


def test_the_table_of_attempts_fits_a_terminal() -> None:
    run = {
        "id": 99,
        "role": "implementer",
        "profile": "synthesizer",
        "outcome": "protocol_violation",
        "exit_code": -15,
        "started_ms": 100_000,
        "ended_ms": 199_900,
        "summary": None,
        "error": "it \x1b[2Jended " + "badly " * 40,
    }
    lines = list(run_lines({"t": [run]}, {"t": "public names"}, 0))
    assert max(map(len, lines)) <= 80
    assert lines[1].split()[-3:] == ["-15", "100.0s", "99.9s"]
    assert lines[2].strip().startswith("it ?[2Jended badly")


def test_text_of_a_card_cannot_steer_a_terminal() -> None:
    assert harmless("a\x1b[2Jb\nc\u202e") == "a?[2Jb?c?"
