"""What the noise of a storm would hide: acts on a board where nobody is hit by chance (see storm.py)."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator
from itertools import cycle
from typing import Any

from hermes_kanban.model import status as s
from tests.processes import verdicts
from tests.processes.home import Gateway, Home, kill
from tests.processes.verdicts import ENDINGS, FAILURES, Part, Script

COMPLETE = Script(("complete", "exit 0"), s.COMPLETED, 0)
LONG = 60_000  # milliseconds: longer than the act
HELD = 2_000  # milliseconds for which a worker waits until its gateway is gone
BUSY = 400  # milliseconds of work in a crowd
PAUSE = 2  # seconds that a provider asks for
TRIES = 3
LONGEST = 45.0  # seconds


class Quiet:
    """The acts, one after the other.

    Args:
        home: with the lane `single` (one worker at a time) and `hand`; no gateway runs.
        seconds: the longest that an act may take.
        room: how many workers there may be at a time.
    """

    def __init__(self, home: Home, seconds: float, room: int) -> None:
        self._home, self._seconds, self._room = home, min(seconds, LONGEST), room

    def run(self) -> Iterator[str]:
        """Do them until one shows that something is wrong; return what."""
        for act in (self._crowd, self._pause, self._no_place, self._refused, self._orphan, self._alone):
            gateway = self._home.gateway()
            wrong = list(act(gateway))
            yield from wrong
            if wrong:
                return
            if gateway.process.poll() is None:
                gateway.stop()
        yield from self._wait("an empty home", lambda: not self._home.processes())

    def _crowd(self, _: Gateway) -> Iterator[str]:
        """Every script once, all at once: no more workers than slots, each attempt begins and is judged rightly."""
        endings = cycle([(last, wanted) for wanted, lasts in ENDINGS.items() for last in lasts])
        parts = [Part((failure,), *next(endings)) for failure in FAILURES]
        tasks = self._cards(*[("hand", part, {}) for part in parts], work=BUSY, seats=self._room)
        until = time.monotonic() + self._seconds
        while not self._settled(tasks, *(part.wanted for part in parts)) and time.monotonic() < until:
            self._home.hermes("comment", tasks[0], "news")  # so that there are passes at every stage of a start
        for task, part in zip(tasks, parts, strict=True):
            yield from verdicts.of_card(self._home, task, part, ())
            began, claimed = verdicts.started(self._home, task), [run.id for run in self._home.board.runs(task)]
            if began != claimed:
                yield f"{task} was claimed by {claimed}, its workers began in {began}"

    def _pause(self, _: Gateway) -> Iterator[str]:
        """A rate limit pauses the whole lane, until the time that the provider named (P44)."""
        limited = Part(
            (Script((f"say [kanban-retry-after] {PAUSE}", "exit 75"), s.RATE_LIMITED, 75),), COMPLETE, s.DONE
        )
        first, second = self._cards(("single", limited, {}), ("single", Part((), COMPLETE, s.DONE), {}))
        yield from self._done("a pause of the lane", first, second)
        events = self._home.board.events(limit=10_000, task=first)
        until = max((event.created_at + PAUSE for event in events if event.kind == "rate_limited"), default=0)
        claims = [e for e in self._home.board.events(limit=10_000, task=second) if e.kind == "claimed"]
        if not until:
            yield f"{first} was not rate limited: {[event.kind for event in events]}"
        yield from (f"{second} was claimed during its lane's pause" for event in claims if event.created_at < until)

    def _no_place(self, _: Gateway) -> Iterator[str]:
        """Workers that cannot be started hold no slot: when their folder is there, the card is done (D11, D8)."""
        place = self._home.path / "later"
        part = Part((), COMPLETE, s.DONE)
        (task,) = self._cards(("single", part, {"workspace": f"dir:{place}"}))
        yield from self._wait("an attempt without a workspace", lambda: self._ends(task).count(s.SPAWN_FAILED) >= 1)
        for _ in range(TRIES):
            self._home.hermes("dispatch")
        place.mkdir()
        self._home.hermes("comment", task, "the folder is there")  # a change of the board: the dispatcher looks
        yield from self._done("a workspace that came late", task)

    def _refused(self, gateway: Gateway) -> Iterator[str]:
        """A worker whose claim is given up before its start was granted does not begin (D11)."""
        part = Part((), COMPLETE, s.DONE)
        (task,) = self._cards(("single", part, {}), go=False)
        going = self._home.hermes.start("promote", task)
        self._home.until(lambda: self._home.run(task))
        gateway.send(signal.SIGSTOP)  # it has claimed, and hardly answered its shim yet
        run = self._home.run(task)
        self._home.hermes.ok("reclaim", task)
        gateway.send(signal.SIGCONT)
        going.communicate()
        yield from self._done("a claim after one that was given up", task)
        yield from verdicts.of_card(self._home, task, part, {run.id} if run else ())

    def _orphan(self, _: Gateway) -> Iterator[str]:
        """What a worker started is found although its shim was killed before it ever looked (D13, C17)."""
        part = Part((Script(("leave 1", f"work {LONG}"), s.CRASHED, -9),), COMPLETE, s.DONE)
        (task,) = self._cards(("single", part, {}))
        self._home.until(lambda: verdicts.started(self._home, task))
        run = self._home.run(task)
        if run is not None and run.shim_pid:
            kill(run.shim_pid)
        yield from self._done("the end of a run without a shim", task)
        yield from verdicts.of_card(self._home, task, part, {run.id} if run else ())

    def _alone(self, gateway: Gateway) -> Iterator[str]:
        """Workers outlive their gateway; shims keep to the time, clear up, and have the end booked (D6, D13, D16)."""
        hangs = Script((f"work {LONG}",), s.TIMED_OUT, -15)
        leaves = Script((f"work {HELD}", "complete", "leave 1", "exit 0"), s.COMPLETED, 0)
        parts = Part((), hangs, s.READY), Part((), leaves, s.DONE)
        one, other = self._cards(("hand", parts[0], {"max_runtime": "1s"}), ("hand", parts[1], {}))
        yield from self._wait("two workers", lambda: all(verdicts.started(self._home, task) for task in (one, other)))
        gateway.stop()  # its workers run on (D6)
        yield from self._wait("the end of runs without a gateway", lambda: not self._home.board.watched())
        yield from verdicts.of_card(self._home, one, parts[0], ())
        yield from verdicts.of_card(self._home, other, parts[1], ())

    # --- what acts share ---
    def _cards(
        self, *parts: tuple[str, Part, dict[str, Any]], work: int = 0, seats: int = 0, go: bool = True
    ) -> list[str]:
        """Make a card for each part (lane, script, more of the card), and let them go, the first one first."""
        tasks = self._home.apply([{"title": lane, "assignee": lane, "triage": True, **more} for lane, _, more in parts])
        for task, (_, part, _) in zip(tasks, parts, strict=True):
            write(self._home, task, part, work, seats)
        if go:
            self._home.hermes.ok("promote", *tasks)
        return tasks

    def _ends(self, task: str) -> list[str | None]:
        return [run.outcome for run in self._home.board.runs(task)]

    def _settled(self, tasks: list[str], *wanted: str) -> bool:
        """Whether the cards are where they belong (by default: done), and every attempt is known to have ended."""
        where = [self._home.card(task).status for task in tasks]
        return not self._home.board.watched() and where == list(wanted or [s.DONE] * len(tasks))

    def _done(self, what: str, *tasks: str) -> Iterator[str]:
        return self._wait(what, lambda: self._settled(list(tasks)))

    def _wait(self, what: str, true: Callable[[], bool]) -> Iterator[str]:
        """Wait until something is so; say so if it never comes."""
        until = time.monotonic() + self._seconds
        self._home.until(lambda: true() or time.monotonic() > until)
        if not true():
            yield f"it never came to {what}: {self._home.trouble()}"


def write(home: Home, task: str, part: Part, work: int, seats: int = 0) -> None:
    """Write down what a card's workers do (see fake_worker.py).

    Args:
        work: milliseconds of it before an attempt does what its script says.
        seats: how many workers there may be at a time; 0: it is not looked at.
    """
    script = {
        "work": work,
        "seats": seats,
        "attempts": [one.words for one in part.failures],
        "last": part.last.words,
    }
    (home.path / "puppets" / f"{task}.json").write_text(json.dumps(script), encoding="utf-8")
