"""Stages beside a board's rows: making and choosing boards, and bringing one of an older release forward."""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import apsw

from hermes_kanban import boards
from hermes_kanban.base import ids
from hermes_kanban.base.clock import ManualClock
from hermes_kanban.base.errors import BoardExists, BoardNotFound
from hermes_kanban.store import sqlite
from hermes_kanban.tickets import TicketStore
from tests.crashes import deaths, taps
from tests.crashes.stage import BoardWorld, Stage, goes_on, image, rows, sound
from tests.fuzz.ground import PERSON, SCRIPT, Ground
from tests.store import homes

UNMADE = "there is no board"
CONFIG = "config.yaml"
SETTINGS = "# ours\nkanban:\n  external_assignees: [ann, bot]  # who works here\n"
_ROWS_OF_1 = Path(__file__).parents[1] / "store" / "data" / "rows_of_schema_1.json"
_ABOUT = {"name": "the team's", "description": "what we do", "icon": None, "default_workdir": None}


class Told(Exception):
    """A command that ended with a code; the text is what it said on stderr."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"exit {code}: {text}")
        self.code, self.text = code, text


# --- homes ------------------------------------------------------------------------------------------------------
def told(home: str, *words: str, caller: Mapping[str, str] = PERSON) -> str:
    """Do a command through its real entry function; return what it printed."""
    here = Ground(Path(home).parent, {})
    for folder in (here.cwd, here.root / "run", here.root / "tmp"):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    code, out, err = here.run(["kanban", *words], caller)
    gc.collect()
    if code:
        raise Told(code, err)
    return out.strip()


def with_card(home: str) -> None:
    """A board with one card, and settings that people wrote."""
    os.makedirs(home, mode=0o700)
    Path(home, CONFIG).write_text(SETTINGS, encoding="utf-8")
    told(home, "init")
    told(home, "create", "card", "--assignee", "bot", "--idempotency-key", "key")


def with_lane(home: str) -> None:
    with_card(home)
    add_lane(home)


def claim(home: str) -> None:
    told(home, "claim", "--next", caller=SCRIPT)


def add_lane(home: str) -> None:
    told(home, "lanes", "add", "one", "--", "true")


def remove_lane(home: str) -> None:
    told(home, "lanes", "rm", "one")


def claimed_again(home: str) -> None:
    """A claim whose answer nobody got has no ticket; a person takes it back, or any other one."""
    with suppress(Told):  # it was given back
        told(home, "reclaim", told(home, "list", "-q"))
    assert homes.opened(home).stats()["status"]["running"] == 0


def has_lane(home: str) -> None:
    assert SETTINGS in settings_of(home)
    assert "one:" in settings_of(home)


def has_no_lane(home: str) -> None:
    assert SETTINGS in settings_of(home)
    assert "one:" not in settings_of(home)


def settings_of(home: str) -> str:
    path = Path(home, CONFIG)
    return path.read_text(encoding="utf-8") if path.exists() else ""


def tickets_of(home: str) -> list[tuple[str, int]]:
    """Return the claims that are remembered."""
    found = TicketStore(homes.place(home).tickets).starting_with(ids.TASK_PREFIX)
    return sorted((ticket.task_id, ticket.run_id) for ticket in found)


def init(home: str) -> None:
    homes.make(home)


def new_board(home: str) -> None:
    """Do what `boards create team --switch` does."""
    place = homes.place(home, "team")
    boards.refuse_existing(place)
    homes.make(home, "team")
    boards.describe(place, _ABOUT)
    boards.switch(home, "team", {})


def switch(home: str) -> None:
    boards.switch(home, "other", {})


def describe(home: str) -> None:
    boards.describe(homes.place(home, "other"), _ABOUT)


def nothing(_home: str) -> None:
    """A home in which nothing is."""


def two_boards(home: str) -> None:
    for name in (boards.DEFAULT, "other"):
        board = homes.opened(home) if name == boards.DEFAULT and homes.make(home, name) else None
        if board:
            homes.card(board, "one")
            homes.store_of(board).close()
    homes.make(home, "other")
    boards.switch(home, boards.DEFAULT, {})


@dataclass(frozen=True)
class Change:
    """What is done to a home.

    Args:
        prepare: sets the home up.
        act: the change.
        slug: the board that must be there afterwards.
        steps: how many states it may stop in on its way, beginning and end included.
        again: how it may be refused when it was done before.
        also: what must be so besides once it was done again.
        beside: it writes files of its own beside the boards.
    """

    name: str
    prepare: Callable[[str], None]
    act: Callable[[str], None]
    slug: str
    steps: int = 2
    again: tuple[type[Exception], ...] = ()
    also: Callable[[str], None] = nothing
    beside: bool = False

    def __str__(self) -> str:
        return self.name


CHANGES = (
    Change("init", nothing, init, boards.DEFAULT),
    Change("boards create", two_boards, new_board, "team", 4, (BoardExists,)),
    Change("boards switch", two_boards, switch, "other"),
    Change("board.yaml", two_boards, describe, "other"),
    Change("claim with its ticket", with_card, claim, boards.DEFAULT, 3, (Told,), claimed_again, beside=True),
    Change("lanes add", with_card, add_lane, boards.DEFAULT, 2, (Told,), has_lane, beside=True),
    Change("lanes rm", with_lane, remove_lane, boards.DEFAULT, 2, (Told,), has_no_lane, beside=True),
)


class HomeStage(Stage):
    """A home, to which something is done."""

    def __init__(self, folder: Path, change: Change) -> None:
        super().__init__(folder)
        self.change = change
        self._looks = 0
        self._home = str(self.live / "home")
        os.makedirs(f"{self._home}-run", mode=0o700)
        change.prepare(self._home)
        self.image = image(self.live)
        self.before = self.state()
        change.act(self._home)
        self.restore(self.image)

    def play(self) -> None:
        self.change.act(self._home)
        taps.acknowledge()

    def settle(self) -> None:
        """Whoever comes next may do the same, or look; in a quick run the same is done at every third image only."""
        self._looks += 1
        if deaths.wide() or self._looks % 3 == 0:
            found = image(self.live)
            with suppress(*self.change.again):
                self.change.act(self._home)
            self._board(self.change.slug)
            self.restore(found)
        self._board(self.change.slug)

    def _board(self, name: str) -> str:
        """Return what a board holds; one that was not made to its end says how that is done."""
        try:
            board = homes.opened(self._home, name)
        except BoardNotFound:  # it says how its making is finished
            return UNMADE
        store = homes.store_of(board)
        try:
            assert store.check_integrity() == []
            assert whole_schema(store)
            assert board.verify() == ()
            late = store._connection.execute("SELECT eligible_reason FROM task_rows").fetchall()
            return f"{board.stats()['status']} {late}"
        finally:
            store.close()

    def state(self) -> str:
        found = {name: self._board(name) for name in boards.names(self._home, {})}
        about = {name: boards.description(homes.place(self._home, name)) for name in found}
        made = {name: (found[name], about[name]) for name in found if found[name] != UNMADE}
        kept = [boards.current(self._home), made, settings_of(self._home)]
        return json.dumps([*kept, tickets_of(self._home)], sort_keys=True)

    def between(self) -> list[str]:
        """A claim is there before its ticket."""
        return [self.before, json.dumps([*self.lasting(self.after), []], sort_keys=True), self.after]

    @staticmethod
    def lasting(state: str) -> list[object]:
        """Return what of a state outlives the power: a ticket names processes, and they are gone."""
        *kept, _tickets = json.loads(state)
        return kept

    def go_on(self, state: str) -> None:
        try:
            self.change.act(self._home)
        except self.change.again:
            assert state != self.before, "refused, though nothing of it was there"
        self.change.also(self._home)
        board = homes.opened(self._home, self.change.slug)
        homes.card(board, "goes on")
        assert board.verify() == ()
        homes.store_of(board).close()
        left = [name for name in image(self.live) if name.endswith((".part", "-journal"))]
        assert left == []


_WHOLE: set[str] = set()


def whole_schema(store: sqlite.SqliteStore) -> bool:
    """Whether a board has the schema of its version; the same words are looked at once."""
    words = repr(store._connection.execute("SELECT * FROM sqlite_schema ORDER BY 1, 2").fetchall())
    if words not in _WHOLE and store.schema_differences() == []:
        _WHOLE.add(words)
    return words in _WHOLE


# --- boards of an older release ---------------------------------------------------------------------------------
class UpgradeStage(Stage):
    """A board as the first release made it; whoever opens it brings it forward, after a backup (C106, C109)."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._path = str(self.live / "kanban.db")
        sqlite.create(self._path, sqlite.SqliteOptions(migrations=homes.STEPS[:1]), {})
        _fill(self._path)
        self._old = stored(self._path)
        self.image = image(self.live)
        self.play()
        self.before = self.after = self.state()
        self.restore(self.image)

    def play(self) -> None:
        self._world().close()
        taps.acknowledge()

    settle = play

    def _world(self) -> BoardWorld:
        return BoardWorld(self.live, ManualClock())

    def state(self) -> str:
        """There is no state but the new one: the first look brings the board forward, and keeps the old one."""
        world = self._world()
        try:
            assert sound_but_files(world) == world.store.schema_differences() == []
            found = rows(world)
        finally:
            world.close()
        backup = f"{self._path}.before-{sqlite.SCHEMA_VERSION:04d}"
        assert stored(backup) == self._old
        assert [name for name in image(self.live) if name.endswith((".part", "-journal"))] == []
        return found

    def go_on(self, state: str) -> None:
        world = self._world()
        goes_on(world)
        world.close()


def sound_but_files(world: BoardWorld) -> list[str]:
    """Return what is wrong with a board whose attachments were left elsewhere."""
    return [problem for problem in sound(world) if "is not what its row says" not in problem]


def _fill(path: str) -> None:
    """Write the rows that the first release wrote."""
    kept = json.loads(_ROWS_OF_1.read_text(encoding="utf-8"))
    connection = apsw.Connection(path)
    connection.create_scalar_function(sqlite.GUARD, lambda *_: None, 0)
    with connection:
        for name, (columns, *found) in kept.items():
            places = ", ".join("?" * len(columns))
            connection.executemany(f"INSERT INTO {name} ({', '.join(columns)}) VALUES ({places})", found)
    connection.close()


def stored(path: str) -> list[str]:
    """Return all that a file holds, with its version."""
    connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
    try:
        found = [f"{connection.pragma('user_version')} {connection.pragma('integrity_check')}"]
        for name, text in connection.execute("SELECT name, sql FROM sqlite_schema ORDER BY name").fetchall():
            found.append(f"{name} {text}")
        for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall():
            found += [repr(row) for row in connection.execute(f"SELECT * FROM {name} ORDER BY 1, 2")]
        return found
    finally:
        connection.close()
