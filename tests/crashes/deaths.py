"""What a death leaves at each point of a call, and whether the next process can go on from there.

A process that is killed leaves its files exactly as they are at that instant; only its locks go. So one run that is
looked at before and after every statement and every operation on a file shows what a kill leaves at every one of
these points (`enumerated`). `killed` does it with real deaths; the tests compare both.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from tests.crashes import children, taps
from tests.crashes.stage import BoardStage, Image, Stage, digest, image


@dataclass
class Trace:
    """The points of a run in order: what is about to be done, and the mark of the image that a death leaves there."""

    points: list[tuple[str, bytes]] = field(default_factory=list)
    images: dict[bytes, Image] = field(default_factory=dict)
    answered: int = 0
    escaped: list[str] = field(default_factory=list)


class _Watch(taps.Hook):
    """Takes the image of a folder at each point."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._mark = b""
        self.trace = Trace()

    def before(self, op: taps.Op) -> int:
        if op.name == taps.ANSWERED:
            self.trace.answered = len(self.trace.points)
        self.see(str(op))
        return 0

    def after(self, op: taps.Op) -> None:
        if op.changes:
            self._mark = b""

    def see(self, what: str) -> None:
        if not self._mark:
            found = image(self._stage.live)
            self._mark = digest(found)
            self.trace.images.setdefault(self._mark, found)
        self.trace.points.append((what, self._mark))


class _Killer(taps.Hook):
    """Ends the process at the n-th point."""

    def __init__(self, point: int) -> None:
        self._left = point

    def before(self, op: taps.Op) -> int:
        if not self._left:
            children.die()
        self._left -= 1
        return 0


def enumerated(stage: Stage) -> Trace:
    """Let the stage's call be played in a child, and return what a death leaves at each of its points."""
    return watched(stage, stage.play)


def recovered(stage: Stage) -> Trace:
    """The same for what the next process does first."""
    return watched(stage, stage.settle)


def watched(stage: Stage, act: object) -> Trace:
    def work() -> Trace:
        children.no_chance(stage.number)
        watch = _Watch(stage)
        taps.use(watch)
        act()  # type: ignore[operator]
        watch.see("the end")
        taps.use(None)
        watch.trace.escaped = taps.escaped()
        return watch.trace

    found: Trace = children.ask(work)
    return found


def killed(stage: Stage, point: int) -> bool:
    """Kill a child that plays the call at its n-th point; False: it has fewer."""

    def work() -> None:
        children.no_chance(stage.number)
        taps.use(_Killer(point))
        stage.play()

    try:
        children.ask(work)
    except children.Died:
        return True
    return False


class Judge:
    """Opens what deaths left; each content is looked at once, however many points lead to it."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self._settled: dict[bytes, bytes] = {}
        self._states: dict[bytes, str] = {}

    def state(self, mark: bytes, found: Image) -> str:
        """Return the state of the folder once the next process has opened it; fail if it is not sound, or stuck."""
        if mark not in self._settled:
            self.stage.restore(found)
            self._settled[mark] = self.here()
        return self._states[self._settled[mark]]

    def here(self) -> bytes:
        """Judge what lies in the stage's folder now; return the mark of what it settles to."""
        self.stage.settle()
        settled = image(self.stage.live)
        mark = digest(settled)
        if mark not in self._states:
            state = self.stage.state()
            self._states[mark] = state
            self.stage.go_on(state)
        return mark

    def known(self, mark: bytes) -> str:
        """Return the state of a settled image."""
        return self._states[mark]

    def states(self, trace: Trace) -> list[str]:
        """Return the state that a death at each point leads to."""
        return [self.state(mark, trace.images[mark]) for _, mark in trace.points]


def turns(stage: BoardStage) -> list[str]:
    """Play a scene, and return the states that it may be left in, in turn: before, after, and any between."""
    if stage.scene.commits == 1:  # `test_kills` shows that there is none between
        played(stage)
        return [stage.before, stage.after]
    trace = enumerated(stage)
    stage.after = stage.state()
    return in_turn(Judge(stage).states(trace))


def played(stage: Stage) -> None:
    """Play the call in a child to its end, and note the state that it leads to."""

    def work() -> None:
        children.no_chance(stage.number)
        stage.play()

    children.ask(work)
    stage.after = stage.state()


def in_turn(states: list[str]) -> list[str]:
    """Return the states without repetitions of the one before."""
    return [state for number, state in enumerate(states) if not number or state != states[number - 1]]


def share(place: int, count: int, most: int) -> range:
    """Return which of so many things are tried: all of them when wide; else a few, spread out, others at each place.

    Args:
        place: of the scene in its table.
        most: how many in a quick run.
    """
    step = 1 if wide() else max(1, -(-count // most))
    return range(place % step, count, step)


def wide() -> bool:
    """Whether everything is wanted, however long it takes."""
    return os.environ.get("HERMES_TEST_CRASHES") == "all"
