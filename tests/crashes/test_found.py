"""What the enumerations found, each as a small case of its own."""

from __future__ import annotations

import errno
import fcntl
from pathlib import Path

import apsw
import pytest

from hermes_kanban import boards
from hermes_kanban.base.errors import BoardNotFound
from hermes_kanban.store.turnstile import Turnstile
from tests.crashes import children
from tests.store import homes


def test_a_making_that_died_after_its_first_page_is_finished_by_the_same_command(folder: Path) -> None:  # T3
    home, place = str(folder / "home"), homes.place(folder / "home", "team")
    boards.make_folders(place)
    connection = apsw.Connection(place.database)
    assert connection.pragma("journal_mode", "wal") == "wal"  # one page, and no board
    connection.close()
    assert Path(place.database).stat().st_size
    boards.refuse_existing(place)
    homes.make(home, "team")
    assert homes.opened(home, "team").verify() == ()


def test_a_making_that_died_with_a_journal_is_finished_by_the_next(folder: Path) -> None:  # T3
    place = homes.place(folder / "home")
    boards.make_folders(place)

    def begin() -> None:
        connection = apsw.Connection(place.database)
        connection.pragma("user_version", 0)
        connection.execute("BEGIN; CREATE TABLE half (x); PRAGMA cache_spill = 1; PRAGMA cache_size = 1")
        connection.execute("INSERT INTO half SELECT randomblob(90000) FROM (VALUES (1), (2), (3))")
        children.die()

    with pytest.raises(children.Died):
        children.ask(begin, tapped=False)
    assert Path(f"{place.database}-journal").stat().st_size
    with pytest.raises(BoardNotFound, match="interrupted"):
        homes.opened(folder / "home", write=False)
    homes.make(folder / "home")
    assert homes.opened(folder / "home").verify() == ()


def test_a_turn_that_cannot_be_unlocked_is_given_back_all_the_same(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # T4
    path, real = str(folder / "lock"), fcntl.flock

    def no_unlock(number: int, what: int) -> None:
        if what == fcntl.LOCK_UN:
            raise OSError(errno.ENOLCK, "No locks available")
        real(number, what)

    queue, other = Turnstile(path), Turnstile(path)
    queue.enter(0)
    monkeypatch.setattr(fcntl, "flock", no_unlock)
    queue.leave()
    assert not other.enter(0)
    monkeypatch.undo()
    other.leave()
