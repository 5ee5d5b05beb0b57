"""How workers of a storm end, and what must have come of it: judged from the board, the logs and their own notes."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from hermes_kanban.model import status as s
from hermes_kanban.model.event import Event
from hermes_kanban.model.run import Run
from tests.processes.home import Gateway, Home

BAD = ("loop_restarted", "gateway_trouble", "board_trouble", "words")  # events of a gateway's log
FAILED = (s.FAILED, s.CRASHED, s.TIMED_OUT, s.SPAWN_FAILED, s.PROTOCOL_VIOLATION)


@dataclass(frozen=True)
class Script:
    """What an attempt does (see fake_worker.py), and how its run must end if nobody hits it."""

    words: tuple[str, ...]
    outcome: str
    code: int


FAILURES = (
    Script(("exit 1",), s.FAILED, 1),
    Script(("exit 0",), s.PROTOCOL_VIOLATION, 0),
    Script(("say [kanban-retry-after] 0", "exit 75"), s.RATE_LIMITED, 75),
    Script(("die KILL",), s.CRASHED, -9),
    Script(("die TERM",), s.CRASHED, -15),
    Script(("leave 1", "exit 1"), s.FAILED, 1),
    Script(("leave 1", "exit 0"), s.PROTOCOL_VIOLATION, 0),
    Script(("bomb 2 20", "work 100", "exit 1"), s.FAILED, 1),
    Script(("zombie", "exit 2"), s.FAILED, 2),
    Script(("leave 1", "die SEGV"), s.CRASHED, -11),
)
# What the last attempt does, by the state in which the card must be found.
ENDINGS: dict[str, tuple[Script, ...]] = {
    s.DONE: (
        Script(("complete", "exit 0"), s.COMPLETED, 0),
        Script(("complete", "exit 3"), s.COMPLETED, 3),
        Script(("complete", "leave 1", "die KILL"), s.COMPLETED, -9),
    ),
    s.BLOCKED: (
        Script(("block", "exit 0"), s.OUT_BLOCKED, 0),
        Script(("block", "die KILL"), s.OUT_BLOCKED, -9),
        Script(("exit 78",), s.CRASHED, 78),
    ),
}


@dataclass(frozen=True)
class Part:
    """A card's part: its attempts that fail, its last one, and where it must be in the end."""

    failures: tuple[Script, ...]
    last: Script
    wanted: str

    def script(self, attempt: int) -> Script:
        return (*self.failures, self.last)[min(attempt, len(self.failures))]


def of_card(here: Home, task: str, part: Part, hit: Collection[int]) -> Iterator[str]:
    """Return what is wrong with a card and its attempts.

    Args:
        hit: runs that somebody killed, told to end, or took the card from.
    """
    card, runs, events = here.card(task), here.board.runs(task), here.board.events(limit=10_000, task=task)
    if card.status != part.wanted:
        yield f"{task} is {card.status}, not {part.wanted}: {[event.kind for event in events][-8:]}"
    if [run.outcome for run in runs].count(s.COMPLETED) != (part.wanted == s.DONE):
        yield f"{task} was completed by {[run.id for run in runs if run.outcome == s.COMPLETED]}"
    failed = sum(run.outcome in FAILED for run in runs)
    if part.wanted == card.status == s.BLOCKED and card.consecutive_failures != failed:
        yield f"{task} failed {failed} times, counted are {card.consecutive_failures}"  # P40
    yield from _of_runs(here, task, part, {run.id: run for run in runs}, hit)
    yield from _started(here, task, events)
    yield from _rested(events, task)


def _of_runs(here: Home, task: str, part: Part, runs: dict[int, Run], hit: Collection[int]) -> Iterator[str]:
    """A worker that nobody hit ends as its script says, whoever noticed it (P45, T5)."""
    for attempt, number in enumerate(started(here, task)):
        run, script = runs[number], part.script(attempt)
        if number not in hit and (run.outcome, run.exit_code) != (script.outcome, script.code):
            ended = f"{run.outcome} with {run.exit_code}, not {script.outcome} with {script.code}"
            yield f"run {number} of {task} did {' / '.join(script.words)} and ended as {ended}: {run.error}"


def _started(here: Home, task: str, events: tuple[Event, ...]) -> Iterator[str]:
    """A worker begins once, and only after its start was granted (D11)."""
    began = started(here, task)
    granted = {event.run_id for event in events if event.kind == "spawned"}
    yield from (f"run {number} of {task} began without a clear yes" for number in began if number not in granted)
    yield from (f"run {number} of {task} began twice" for number in {*began} if began.count(number) > 1)


def _rested(events: tuple[Event, ...], task: str) -> Iterator[str]:
    """Nobody claims a card while it rests, or before its time (P14c, P42, P3)."""
    rests = 0
    for event in events:
        changed: dict[str, Any] = event.payload.get("set", {})
        if event.kind == "claimed" and event.created_at < rests:
            yield f"{task} was claimed {rests - event.created_at} s before its rest was over"
        for column in ("eligible_at", "scheduled_at"):
            if column in changed:
                rests = changed[column] or 0


def started(here: Home, task: str) -> list[int]:
    """Return the runs whose workers began to work on a card, in this order."""
    path = here.path / "puppets" / f"{task}.starts"
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def of_home(here: Home) -> Iterator[str]:
    """Return what is wrong with the home: two workers at once, too many, anything left, a gateway's trouble."""
    overlaps = here.path / "puppets" / "overlaps"
    yield from overlaps.read_text().splitlines() if overlaps.exists() else ()
    yield from (f"not proven ended: run {run.id}" for run in here.board.watched())
    yield from (f"left: {one.pid} {one.state}" for one in here.processes())
    yield from (f"lock held: run {number}" for number in here.locks())
    yield from [f"{here.slots()} slots held"] if here.slots() else []
    yield from (f"verify: {finding.task_id} {finding.problem}" for finding in here.board.verify())
    yield from (f"{fact}" for gateway in here.gateways for fact in gateway.said() if fact["event"] in BAD)
    yield from _dispatchers(here.gateways)


def _dispatchers(gateways: list[Gateway]) -> Iterator[str]:
    """A board has one dispatcher at a time (D3): the times in which gateways did passes do not overlap."""
    times = [[fact["at"] for fact in gateway.said("pass")] for gateway in gateways]
    for first, second in combinations([(min(one), max(one)) for one in times if one], 2):
        if first[0] < second[1] and second[0] < first[1]:
            yield f"two dispatched the board at once, from {first[0]} to {first[1]} and from {second[0]} to {second[1]}"
