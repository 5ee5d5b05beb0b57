"""A story: many verbs on one board in one go, with the log folded back into the file again and again on the way."""

from __future__ import annotations

import re
from pathlib import Path

import apsw

from hermes_kanban.base.clock import ManualClock
from hermes_kanban.kernel.query import Filter
from hermes_kanban.model.claim import Caps
from hermes_kanban.model.task import TaskDraft
from tests.crashes import taps
from tests.crashes.situations import HANDOFF
from tests.crashes.stage import BoardWorld, Stage, goes_on, image, rows, sound
from tests.world import World

_RANDOM = re.compile(r"t_[0-9a-f]+|[0-9a-f]{32}")
_CAPS = Caps()
OFTEN = 20  # pages in the log after which it is folded back (SQLite's own bound is a thousand)


def told(world: World, number: int) -> None:
    """Do one verb; every third card is claimed in one step and completed in another."""
    if number % 3 == 0:
        world.person.create(TaskDraft(title=f"card {number}", idempotency_key=f"{number}", body="words " * 500))
    elif number % 3 == 1:
        world.board().claim_for_dispatch(_newest(world), ttl=60, lane="lane", name="bot", caps=_CAPS)
    else:
        world.person.complete(_newest(world), HANDOFF, override=True)


def _newest(world: World) -> str:
    return world.person.list(Filter(archived=True, sort="newest", limit=1)).cards[0].task.id


def _fold_often(connection: apsw.Connection) -> None:
    connection.wal_autocheckpoint(OFTEN)


def outline(world: BoardWorld) -> str:
    """Return what the board holds, without what is random in each telling."""
    return _RANDOM.sub("?", rows(world))


class Story(Stage):
    """A board on which so many verbs are done.

    Args:
        verbs: how many.
        full_durability: whether its answers are to survive the power.
        flushes: False turns SQLite's flushes off: what the checks must notice.
    """

    def __init__(self, folder: Path, verbs: int, *, full_durability: bool, flushes: bool = True) -> None:
        super().__init__(folder)
        self._verbs = verbs
        self._kind = type("World", (BoardWorld,), {"full_durability": full_durability})
        self._flushes = flushes
        self._world().close()
        self.image = image(self.live)
        self.states: list[str] = []
        self._tell(keep=True)
        self.restore(self.image)

    def _world(self) -> BoardWorld:
        made: BoardWorld = self._kind(self.live, ManualClock())
        return made

    def _tell(self, *, keep: bool) -> None:
        apsw.connection_hooks.append(_fold_often)
        world = self._world()
        apsw.connection_hooks.remove(_fold_often)
        if not self._flushes:
            world.store._connection.pragma("synchronous", "OFF")
            world.store._flush_mode = lambda _mode: None  # type: ignore[method-assign]
        for number in range(self._verbs + 1):
            if keep:
                self.states.append(outline(world))
            if number < self._verbs:
                told(world, number)
                taps.acknowledge()
        world.close()

    def play(self) -> None:
        self._tell(keep=False)

    def settle(self) -> None:
        self._world().close()

    def state(self) -> str:
        world = self._world()
        try:
            assert sound(world) == []
            return outline(world)
        finally:
            world.close()

    def go_on(self, state: str) -> None:
        world = self._world()
        goes_on(world)
        world.close()
