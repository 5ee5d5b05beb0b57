"""The whole demonstration once, with its real gateway, bridge and workers; then its checks are lied to, one by one."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from examples import plan
from examples.checks import Ending, problems
from examples.crew import News
from examples.history import hand_over_lines, run_lines
from examples.kanban_cli import Kanban
from examples.play import Play

Lie = Callable[[Ending], Any]


def played(home: Path) -> tuple[Play, Ending]:
    """Let the demonstration run; return it with its end. Whatever happens, nothing of it runs on."""
    play = Play(home)
    try:
        play.set_up()
        news = News(plan.BOARD, play.env)
        try:
            with play.screen:
                play.make_cards()
                play.perform(news)
        finally:
            watch = news.stop()
    finally:
        codes = play.stop()
    assert watch == 0
    return play, play.ending(codes)


# --- lies about the end, and a word of what the checks must say to each ----------------------------------------
def about_run(card: plan.Card, number: int, **facts: Any) -> Lie:
    return lambda ending: ending.attempt(card, number).update(facts)


def about_result(card: plan.Card, **facts: Any) -> Lie:
    return lambda ending: ending.handed_over(card).update(facts)


def about_event(card: plan.Card, kind: str, number: int = 0, **facts: Any) -> Lie:
    return lambda ending: ending.events_of(card, kind)[number].update(facts)


def without(kind: str) -> Lie:
    return lambda ending: drop(ending, kind)


def drop(ending: Ending, kind: str) -> None:
    kept = [event for event in ending.events if event["kind"] != kind]
    ending.events[:] = kept  # type: ignore[index]


def add(ending: Ending, event: dict[str, Any]) -> None:
    ending.events.append(event)  # type: ignore[attr-defined]


REFUSED = {"id": 10**9, "kind": "refused", "task_id": "t", "run_id": 1, "at_ms": 0, "payload": {"code": "claim_lost"}}
LIES: dict[str, Lie] = {
    "ended as": about_run(plan.FORGOTTEN, 0, outcome="failed"),
    "ended with 1, not with 75": about_run(plan.OVERLOADED, 0, exit_code=1),
    "had a worker before run": about_event(plan.KILLED, "spawned", 1, at_ms=1),
    "were not each a process of its own": lambda e: about_run(
        plan.KILLED, 1, worker_pid=e.attempt(plan.KILLED, 0)["worker_pid"]
    )(e),
    "'report' was claimed by {'human:ann'}": about_event(plan.REVIEWED, "claimed", 0, actor="human:ann"),
    "was not the first worker": about_run(plan.KILLED, 0, worker_pid=1),
    "the first worker of 'dead imports' ended with": about_run(plan.KILLED, 0, exit_code=0),
    "did not find the work of the killed worker": about_result(plan.KILLED, modules_found_measured=0),
    "before the time that the provider asked for": about_event(
        plan.OVERLOADED, "rate_limited", payload={"until": 2**33}
    ),
    "was not put aside": without("rate_limited"),
    "the source has": about_result(plan.ASKED, over=-1),
    "the figures on doc coverage": about_result(plan.FORGOTTEN, headline="0 of 0"),
    "there is no report": lambda ending: [run.update(metadata=None) for run in ending.runs_of(plan.REVIEWED)],
    "was closed by {'human:ann'}": about_event(plan.PUBLISHED, "completed", actor="human:ann"),
    "no card was claimed after: answer given": without("unblocked"),
    "has no running worker": lambda ending: ending.began.clear(),  # type: ignore[attr-defined]
    "are not in their order": about_event(plan.PUBLISHED, "spawned", at_ms=1),
    "do not grow": lambda ending: ending.events.reverse(),  # type: ignore[attr-defined]
    "refused a worker's writes": lambda ending: add(ending, REFUSED),
    "the gateway ended with 1": lambda ending: ending.exit_codes.update(gateway=1),  # type: ignore[attr-defined]
    "are not known to be gone": about_run(plan.PUBLISHED, 0, process_state="alive"),
    "process 1 is left": lambda ending: ending.left.append("process 1"),  # type: ignore[attr-defined]
    "not even made: page": lambda ending: ending.ids.pop("page"),  # type: ignore[attr-defined]
}


class Remembered(Kanban):
    """The board as it answered the first time, but for lies."""

    def __init__(self, board: Kanban, lies: dict[str, Any] | None = None) -> None:
        super().__init__(board.board, board.env)
        object.__setattr__(self, "lies", lies or {})
        object.__setattr__(self, "known", getattr(board, "known", {}))

    def ask(self, verb: str, *words: str) -> Any:
        if verb in self.lies:
            return self.lies[verb]
        if (verb, *words) not in self.known:
            self.known[verb, *words] = super().ask(verb, *words)
        return self.known[verb, *words]


LIES_OF_THE_BOARD: dict[str, dict[str, Any]] = {
    "is not on the board, not done": {"list": []},
    "`verify` found tasks": {"verify": {"findings": ["t_1"]}},
    "the page that was attached is not": {"show": {"attachments": []}},
}


@pytest.mark.alone
@pytest.mark.timeout(300)
def test_the_demonstration_ends_as_planned_and_no_other_end_passes(tmp_path: Path) -> None:
    play, ending = played(tmp_path)
    board = Remembered(play.board)
    assert list(problems(board, ending)) == []

    attempts = run_lines(ending.runs, play.titles, play.screen.start_ms)
    assert max(map(len, (*attempts, *hand_over_lines(ending.hand_overs(), play.titles)))) <= 80

    for words, lie in LIES.items():
        told = copy.deepcopy(ending)
        lie(told)
        assert any(words in wrong for wrong in problems(board, told)), words
    for words, lies in LIES_OF_THE_BOARD.items():
        assert any(words in wrong for wrong in problems(Remembered(board, lies), ending)), words
