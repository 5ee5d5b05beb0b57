"""Change notice: a datagram wakes a waiter in another process at once; without one the slow poll does."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hermes_kanban.base.errors import TaskNotFound
from hermes_kanban.store import feed as feeds
from tests.store import homes
from tests.store.processes import process, until

FOREVER = 3600.0


class Watched:
    """A poller that says when the wait has begun."""

    def __init__(self, poller: Any) -> None:
        self._poller = poller
        self.waits = threading.Event()

    def poll(self, milliseconds: float) -> Any:
        self.waits.set()
        return self._poller.poll(milliseconds)


def woken(feed: feeds.SocketFeed, change: Callable[[], object], seconds: float = FOREVER) -> bool:
    """Wait in a thread; make the change once the wait has begun; return what the wait answered."""
    watched = Watched(feed._poller)
    feed._poller = watched  # type: ignore[assignment]
    answers: list[bool] = []
    waiter = threading.Thread(target=lambda: answers.append(feed.wait(seconds)), daemon=True)
    waiter.start()
    assert watched.waits.wait(60)
    change()
    waiter.join(60)
    assert answers, "it was not woken"
    return answers[0]


@pytest.fixture
def no_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but a datagram can wake a waiter."""
    monkeypatch.setattr(feeds, "SLOW_POLL", FOREVER)


def sockets(home: Path) -> list[str]:
    folder = Path(f"{home}-run", "hermes-kanban")
    return sorted(os.listdir(folder)) if folder.exists() else []


@pytest.mark.usefixtures("no_poll")
def test_a_commit_in_another_process_wakes_a_waiter(home: Path, database: str) -> None:  # S6
    with process("commit", home) as other:
        assert other.line() == "up"
        feed = homes.opened(home, write=False).feed()
        assert woken(feed, other.go)
        assert other.line().startswith("t_")
        feed.close()
    assert sockets(home) == []


@pytest.mark.usefixtures("no_poll")
def test_each_of_several_waiters_is_woken(home: Path, database: str) -> None:
    board, other = homes.opened(home), homes.opened(home, write=False)
    one, two = other.feed(), homes.opened(home, write=False).feed()
    assert len(sockets(home)) == 2
    homes.card(board, "x")
    assert one.wait(FOREVER)
    assert two.wait(FOREVER)
    assert one.wait(0) is False
    one.close()
    two.close()
    two.close()  # harmless to repeat


def test_without_a_folder_for_sockets_the_slow_poll_notices(home: Path, database: str) -> None:
    with process("commit", home) as other:
        assert other.line() == "up"
        waiting = homes.store(database, read_only=True, runtime_folder="")
        feed = waiting.feed()
        assert woken(feed, other.go)
        feed.close()


def test_a_folder_that_vanished_is_no_error(home: Path, database: str) -> None:
    board = homes.opened(home)
    feed = homes.opened(home, write=False).feed()
    folder = Path(f"{home}-run", "hermes-kanban")
    for name in sockets(home):
        folder.joinpath(name).unlink()
    folder.rmdir()
    assert woken(feed, lambda: homes.card(board, "x"))
    feed.close()


def test_a_folder_that_is_open_to_others_is_not_used(home: Path, database: str) -> None:
    folder = Path(f"{home}-run", "hermes-kanban")
    folder.mkdir()
    folder.chmod(0o777)
    planted = folder / f"{feeds.board_mark(database)}.1.1.sock"
    planted.touch()
    feed = homes.opened(home, write=False).feed()
    board = homes.opened(home)
    assert woken(feed, lambda: homes.card(board, "x"))  # by the slow poll
    assert sockets(home) == [planted.name]
    feed.close()


def test_sockets_of_the_dead_are_removed_by_the_next_commit(home: Path, database: str) -> None:
    with process("listen", home) as waiter:
        assert waiter.line() == "up"
        assert len(sockets(home)) == 1
        waiter.kill()
    assert len(sockets(home)) == 1
    homes.card(homes.opened(home), "x")
    assert sockets(home) == []


def test_other_boards_are_not_disturbed(home: Path, database: str) -> None:
    homes.make(home, "other")
    feed = homes.opened(home, "other", write=False).feed()
    assert isinstance(feed, feeds.SocketFeed)
    homes.card(homes.opened(home), "x")
    assert feed._socket is not None
    with pytest.raises(BlockingIOError):
        feed._socket.recv(1)
    assert feed.wait(0) is False
    feed.close()


def test_a_waiter_that_never_reads_stops_nobody(home: Path, database: str) -> None:
    board = homes.opened(home)
    feed = homes.opened(home, write=False).feed()
    for number in range(600):  # more than a socket holds
        feeds.poke(f"{home}-run/hermes-kanban", database)
        if number % 100 == 0:
            homes.card(board, f"n{number}")
    assert feed.wait(FOREVER)
    feed.close()


def test_what_was_committed_before_the_wait_is_not_missed(home: Path, database: str) -> None:
    board = homes.opened(home)
    feed = homes.opened(home, write=False).feed()
    homes.card(board, "x")
    assert feed.wait(0)
    assert feed.wait(0) is False
    feed.close()


def test_a_rolled_back_write_wakes_nobody(home: Path, database: str) -> None:
    board = homes.opened(home)
    feed = homes.opened(home, write=False).feed()
    with pytest.raises(TaskNotFound):
        board.comment("t_ffffffff", "to nobody")
    assert feed.wait(0) is False
    feed.close()


def test_the_folder_of_sockets_is_ours_alone(home: Path, database: str) -> None:
    feed = homes.opened(home, write=False).feed()
    folder = Path(f"{home}-run", "hermes-kanban")
    until(folder.exists)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert all(len(str(folder / name)) < 100 for name in sockets(home))
    feed.close()
