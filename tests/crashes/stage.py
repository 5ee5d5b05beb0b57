"""A stage: the board of one scene, set up once, brought back to its beginning as often as wanted, and looked at."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hermes_kanban.base.clock import ManualClock
from hermes_kanban.base.errors import Refusal
from hermes_kanban.store import sqlite
from tests.crashes import taps
from tests.crashes.situations import HANDOFF, Facts
from tests.scenes import Scene
from tests.world import SqliteWorld

SIGNED = ".lock"  # holds the number of a process, which says nothing
LONG = 2 * 86_400
_PID = re.compile(r"\b(host|elsewhere):\d+:")
_MEMORY = "/dev/shm"

Image = dict[str, bytes | None]  # what a folder holds: None stands for a folder


class BoardWorld(SqliteWorld):
    """A world whose board is opened as a command opens it: it is made only where there is none."""

    wait_seconds = 5.0
    full_durability = True

    def make_store(self) -> sqlite.SqliteStore:
        path = str(self.folder / "kanban.db")
        options = sqlite.SqliteOptions(
            runtime_folder=str(self.folder / "run"),
            wait_seconds=self.wait_seconds,
            full_durability=self.full_durability,
        )
        if not os.path.exists(path):
            sqlite.create(path, options, {"board_id": "test"})
        return sqlite.SqliteStore(path, options, self.clock, read_only=False)


class Stage:
    """A folder in which something is done, again and again from the same beginning.

    Args:
        folder: where there is room for it.
    """

    def __init__(self, folder: Path) -> None:
        self.live = folder / "live"
        self.live.mkdir()
        self.image: Image = {}
        self.before = self.after = ""
        self.number: int | None = None  # which process a child that plays it takes itself for; None: the one it is
        self.turns: list[str] = []  # where a death may leave it, from `before` to `after`

    def play(self) -> None:
        """Do it; `taps.acknowledge` tells when the caller has its answer."""
        raise NotImplementedError

    def settle(self) -> None:
        """Do what the next process does first, which mends what a dead one left."""
        raise NotImplementedError

    def state(self) -> str:
        """Return all that is kept there as a text; fail if it is not sound."""
        raise NotImplementedError

    def go_on(self, state: str) -> None:
        """Do the same once more in a folder in this state, and more after it; fail if something does not work."""
        raise NotImplementedError

    def between(self) -> list[str]:
        """Return the states from `before` to `after`, in turn, once these are known."""
        return [self.before, self.after]

    def restore(self, wanted: Image) -> None:
        """Let the folder hold this, and nothing else; what was open is closed before."""
        restore(self.live, wanted)


class BoardStage(Stage):
    """The board of one scene.

    Args:
        scene: what is played.
        full_durability: False for a board that is set to NORMAL.
    """

    def __init__(self, folder: Path, scene: Scene, *, full_durability: bool = True) -> None:
        super().__init__(folder)
        self.scene = scene
        self.number = os.getpid()
        self._durable = full_durability
        self._now = ManualClock().now_ms() // 1000
        with self.world() as world:
            self.facts: Facts = scene.prepare(world)
            self._now = world.clock.now_ms() // 1000
        self.image = image(self.live)
        self.before = self.state()
        with self.world() as world:
            scene.act(world, self.facts)  # whatever a verb loads late is loaded now
        self.restore(self.image)

    @contextmanager
    def world(self) -> Iterator[BoardWorld]:
        """Open the board, and close it again."""
        made = self.opened()
        try:
            yield made
        finally:
            made.close()

    def opened(self) -> BoardWorld:
        """Open the board at the time of the scene."""
        kind = type("World", (BoardWorld,), {"full_durability": self._durable})
        made: BoardWorld = kind(self.live, ManualClock(self._now))
        return made

    def play(self) -> None:
        with self.world() as world:
            self.scene.act(world, self.facts)
            taps.acknowledge()

    def settle(self) -> None:
        with self.world():
            pass

    def state(self) -> str:
        with self.world() as world:
            assert sound(world) == []
            return rows(world)

    def go_on(self, state: str) -> None:
        with self.world() as world:
            self.again(world, state)
            goes_on(world)
            assert sound(world) == []

    def again(self, world: BoardWorld, state: str) -> None:
        """Do the call again: it succeeds, or, if it was done before, says so in a way that the scene knows.

        A claim that was reserved, but of which nobody heard, is free again once its lease is over (P11).
        """
        try:
            self.scene.act(world, self.facts)
        except self.scene.again:
            assert state != self.before, "refused, though nothing of it was there"
            if state != self.after:
                world.clock.advance(LONG)
                with suppress(self.scene.again):
                    self.scene.act(world, self.facts)
        self.scene.done(world, self.facts)


# --- looking ----------------------------------------------------------------------------------------------------
def rows(world: BoardWorld) -> str:
    """Return every row of every table as one text; which process it was does not count."""
    found = []
    connection = world.store._connection
    for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY 1").fetchall():
        found += [f"{name} {row!r}" for row in connection.execute(f"SELECT * FROM {name} ORDER BY 1, 2")]
    return _PID.sub(r"\1:pid:", "\n".join(found))


def lost_files(world: BoardWorld) -> Iterator[str]:
    """Yield the attachments whose rows name a file that is not there, whole (P61)."""
    for path, size, digest in world.store._connection.execute("SELECT path, size, sha256 FROM task_attachments"):
        with suppress(OSError), open(path, "rb") as handle:
            data = handle.read()
            if (len(data), hashlib.sha256(data).hexdigest()) == (size, digest):
                continue
        yield f"{path} is not what its row says"


def goes_on(world: BoardWorld) -> None:
    """Fail unless the board works: a card is made, claimed and completed on it, and log and rows agree."""
    card = world.card("goes on")
    board, _ = world.claimed(card)
    board.complete(card.id, HANDOFF)
    assert world.person.verify() == ()


def sound(world: BoardWorld) -> list[str]:
    """Return what is wrong with a board."""
    return [*world.store.check_integrity(), *(finding.problem for finding in world.person.verify()), *lost_files(world)]


# --- folders as values ------------------------------------------------------------------------------------------
def image(folder: Path) -> Image:
    """Return what a folder holds; nobody may have a board in it open in this process."""
    found: Image = {}
    for above, folders, files in os.walk(folder):
        for name in folders:
            found[os.path.relpath(os.path.join(above, name), folder)] = None
        for name in files:
            path = os.path.join(above, name)
            data = b"" if name.endswith(SIGNED) else Path(path).read_bytes()
            found[os.path.relpath(path, folder)] = data
    return found


def restore(folder: Path, wanted: Image) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name in sorted(wanted):
        data, path = wanted[name], folder / name
        if data is None:
            path.mkdir(exist_ok=True, parents=True)
        else:
            path.parent.mkdir(exist_ok=True, parents=True)
            path.write_bytes(data)


def digest(wanted: Image) -> bytes:
    """Return a short mark of an image."""
    found = hashlib.blake2b()
    for name in sorted(wanted):
        data = wanted[name]
        found.update(f"{name}\0{'folder' if data is None else len(data)}\0".encode())
        found.update(data or b"")
    return found.digest()


@contextmanager
def folder() -> Iterator[Path]:
    """A folder for stages, in memory where the system has one: the disk's own speed proves nothing here."""
    above = _MEMORY if os.path.isdir(_MEMORY) and os.access(_MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="hk-", dir=above) as made:
        yield Path(made)


def refused(error: BaseException) -> bool:
    """Whether this is a refusal of the kind that a failing disk must lead to: typed, with an exit code and a hint."""
    return isinstance(error, Refusal) and error.exit_code in (8, 9) and bool(error.hint)
