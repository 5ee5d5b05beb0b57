"""Every way in which a worker can end, and the one verdict on each (P41 to P43, P45, C35, C43, C46, C47)."""

from __future__ import annotations

from typing import Any

import pytest

from hermes_kanban.model import exits
from hermes_kanban.model import status as s
from hermes_kanban.model.exits import STOPS, ExitRecord, Verdict

TAIL = ("reading the card", "unknown skill: sew")
WORDS = "\n".join(TAIL)


def left(**facts: Any) -> ExitRecord:
    """Return the record of a run that said a little."""
    return ExitRecord(7, "t_0a0a0a0a", "host:1:x", **({"tail": TAIL} | facts))


# name: facts of the record, outcome, reason, the error's first line, exit code, kind of exit
WAYS: dict[str, tuple[dict[str, Any], str | None, str, str, int | None, str]] = {
    "exit 0, its card still open": (
        {"code": 0},
        s.PROTOCOL_VIOLATION,
        "exit",
        "it ended without closing its card",
        0,
        "exit",
    ),
    "exit 1": ({"code": 1}, s.FAILED, "exit", "exit code 1", 1, "exit"),
    "exit 2": ({"code": 2}, s.FAILED, "exit", "exit code 2", 2, "exit"),
    "exit 75, throttled": ({"code": 75}, s.RATE_LIMITED, "exit", TAIL[0], 75, "exit"),
    "exit 78, refused by the provider": ({"code": 78}, s.CRASHED, "exit", TAIL[0], 78, "terminal_provider"),
    "exit 137, as a shell tells a signal": ({"code": 137}, s.FAILED, "exit", "exit code 137", 137, "exit"),
    "exit 255": ({"code": 255}, s.FAILED, "exit", "exit code 255", 255, "exit"),
    "killed": ({"signal": 9}, s.CRASHED, "signal", "signal 9 ended it", -9, "signal"),
    "a fault in its memory": ({"signal": 11}, s.CRASHED, "signal", "signal 11 ended it", -11, "signal"),
    "told to end by somebody else": ({"signal": 15}, s.CRASHED, "signal", "signal 15 ended it", -15, "signal"),
    "no code and no signal": ({}, s.CRASHED, "signal", "it was stopped", None, "signal"),
    "ran too long": (
        {"signal": 15, "stop": "timed_out"},
        s.TIMED_OUT,
        "timed_out",
        "it ran longer than its max_runtime",
        -15,
        "stopped",
    ),
    "ran too long, and then ended well": (
        {"code": 0, "stop": "timed_out"},
        s.TIMED_OUT,
        "timed_out",
        "it ran longer than its max_runtime",
        0,
        "stopped",
    ),
    "silent for hours": (
        {"signal": 9, "stop": "stale"},
        s.RECLAIMED,
        "stale",
        "no sign of activity for too long",
        -9,
        "stopped",
    ),
    "too much memory": (
        {"signal": 9, "stop": "memory"},
        s.FAILED,
        "memory",
        "it used more memory than its limit",
        -9,
        "stopped",
    ),
    "its shim was told to end, and it ended well": (
        {"code": 0, "stop": "signal"},
        s.CRASHED,
        "signal",
        "its shim was told to end it by a signal",
        0,
        "stopped",
    ),
    "the gateway was stopped": (
        {"signal": 15, "stop": "gateway_stop"},
        s.RECLAIMED,
        "gateway_stop",
        "the gateway was stopped together with its workers",
        -15,
        "stopped",
    ),
    "a stop of a kind that is not known here": (
        {"signal": 15, "stop": "new_word"},
        s.CRASHED,
        "signal",
        "signal 15 ended it",
        -15,
        "signal",
    ),
    "never started": (
        {"spawn_error": "no such program: claude"},
        s.SPAWN_FAILED,
        "spawn",
        "no such program: claude",
        None,
        "spawn",
    ),
    "never started, though a code is there": (
        {"spawn_error": "no such folder", "code": 0, "hint": "make it"},
        s.SPAWN_FAILED,
        "spawn",
        "no such folder; make it",
        None,
        "spawn",
    ),
    "done, its lane closes the card": ({"code": 0, "policy": "complete"}, None, "exit", TAIL[0], 0, "exit"),
}


@pytest.mark.parametrize("way", WAYS)
def test_each_way_to_end_has_one_verdict(way: str) -> None:  # P45, C43, C35
    facts, outcome, reason, error, code, kind = WAYS[way]
    verdict = exits.classify(left(**facts))
    assert (verdict.outcome, verdict.reason, verdict.exit_code, verdict.exit_kind) == (outcome, reason, code, kind)
    assert (verdict.error or "").splitlines()[0] == error
    assert verdict.terminal == (kind == exits.TERMINAL_PROVIDER)


@pytest.mark.parametrize("way", [way for way in WAYS if not way.startswith("never started")])
def test_the_last_words_are_carried(way: str) -> None:  # C47
    facts = WAYS[way][0]
    assert (exits.classify(left(**facts)).error or "").endswith(WORDS)
    silent = exits.classify(left(**facts, tail=()))
    assert silent.error is None or WORDS not in silent.error


def test_every_code_maps_to_one_class() -> None:  # C43
    found: dict[str | None, list[int]] = {}
    for code in range(256):
        found.setdefault(exits.classify(left(code=code)).outcome, []).append(code)
    failed = [code for code in range(256) if code not in (0, 75, 78)]
    assert found == {s.PROTOCOL_VIOLATION: [0], s.RATE_LIMITED: [75], s.CRASHED: [78], s.FAILED: failed}


@pytest.mark.parametrize("policy", ["complete", "request_review", "block_for_review"])
def test_a_policy_is_about_a_good_end_alone(policy: str) -> None:
    assert exits.classify(left(code=0, policy=policy)) == Verdict(None, "exit", WORDS, 0, policy=policy)
    for facts in ({"code": 1}, {"code": 75}, {"code": 78}, {"signal": 9}, {"code": 0, "stop": "timed_out"}):
        assert exits.classify(left(**facts, policy=policy)) == exits.classify(left(**facts))


@pytest.mark.parametrize("seconds", [None, 0, 42, 86_400])
def test_the_provider_s_own_pause_counts_with_its_code_alone(seconds: int | None) -> None:  # P42
    assert exits.classify(left(code=75, retry_after=seconds)).retry_after == seconds
    assert exits.classify(left(code=1, retry_after=seconds)).retry_after is None


@pytest.mark.parametrize("stop", STOPS)
def test_why_it_was_stopped_decides_and_not_how_it_took_that(stop: str) -> None:  # P45, C35
    ways: tuple[dict[str, Any], ...] = ({"code": 0}, {"code": 1}, {"code": 75}, {"code": 78}, {"signal": 15}, {})
    verdicts = {exits.classify(left(**way, stop=stop)).evolve(exit_code=None) for way in ways}
    assert len(verdicts) == 1
    verdict = verdicts.pop()
    assert (verdict.outcome, verdict.exit_kind) == (STOPS[stop][0], "stopped")
    assert verdict.outcome in s.LOST


def test_when_and_who_and_how_big_do_not_change_the_verdict() -> None:  # P45, C46
    for facts, *_ in WAYS.values():
        told = left(**facts)
        noise = {"started_ms": 5, "ended_ms": 9, "output_bytes": 3, "worker": (4, "x"), "peak_memory": 7}
        assert exits.classify(told.evolve(**noise, overstayed=True)) == exits.classify(told)
        assert exits.classify(told.evolve(run=8, task="t_1b1b1b1b", lock="else")) == exits.classify(told)


def test_without_a_record_the_worker_vanished() -> None:  # D13, P45
    assert exits.vanished(4712) == Verdict(s.CRASHED, "vanished", "pid 4712 not alive", exit_kind="vanished")
    assert exits.vanished(None).outcome == s.CRASHED
