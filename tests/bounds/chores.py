"""What a long-lived process does with a board, again and again: everything that takes handles, memory or threads."""

from __future__ import annotations

import os
import random
import traceback
from collections import Counter
from collections.abc import Callable
from typing import Any

from hermes_kanban.base.errors import Busy, ClaimLost, InvalidValue, NotFound, Refusal, StateRefusal
from hermes_kanban.kernel.finish import Handoff
from hermes_kanban.kernel.query import Filter
from hermes_kanban.model.claim import Caps, Claim
from hermes_kanban.model.exits import ExitRecord
from hermes_kanban.model.task import TaskDraft
from hermes_kanban.store.sqlite import SqliteStore
from tests.bounds.hand import Hand
from tests.store import homes
from tests.world import PROCESS

NEWEST = 20
FILE = b"x" * 4000


class Chores:
    """Operations in a random order, each of which leaves the process as it was."""

    def __init__(self, home: str, dice: random.Random) -> None:
        self._home, self._dice = home, dice
        self._hand = Hand(home, "steady")
        self.reader = homes.opened(home, write=False)
        self._feed = self._hand.board().feed()
        self._rival = homes.store(self._hand.store.location)
        self._late = homes.store(self._hand.store.location, wait_seconds=0.001)
        self._card = homes.card(self._hand.board(), "first")
        self._number = 0
        self.done: Counter[str] = Counter()
        self._ways: tuple[tuple[int, Callable[[], object]], ...] = (
            (30, self._work),
            (20, self._supervise),
            (40, self._look),
            (20, self._refusals),
            (10, self._files),
            (10, self._follow),
            (4, self._open_and_close),
            (4, self._feeds),
            (2, self._busy),
            (1, self._fork),
        )

    def all(self) -> None:
        """Do every chore once: what is loaded with its first use is there afterwards."""
        for _, way in self._ways:
            way()

    def step(self) -> None:
        """Do one chore of several operations."""
        weights, ways = zip(*self._ways, strict=True)
        self._dice.choices(ways, weights)[0]()
        self._hand.waits.clear()

    def close(self) -> None:
        """Let go of everything."""
        self._feed.close()
        for store in (self._rival, self._late, self._hand.store, homes.store_of(self.reader)):
            store.close()

    def _did(self, name: str, answer: Any = None) -> Any:
        self.done[name] += 1
        return answer

    def _refused(self, error: type[Refusal], call: Callable[[], object]) -> None:
        try:
            call()
        except error:
            self.done["refusal"] += 1
            return
        raise AssertionError(f"it was not refused as {error.__name__}")

    # --- writes ---
    def _create(self) -> str:
        self._number += 1
        return str(self._did("create", homes.card(self._hand.board(), f"c{self._number}", body="what is to be done")))

    def _work(self) -> None:
        """Bring one card from its creation to its end."""
        self._card = self._create()
        claim = self._did("claim", self._hand.board().claim(self._card, ttl=600))
        board = self._hand.board(claim)
        self._did("heartbeat", board.heartbeat(self._card, "half way"))
        self._did("comment", board.comment(self._card, "a fact"))
        if self._dice.random() < 0.5:
            self._did("review", board.request_review(self._card, Handoff("look")))
        person = self._hand.board(interactive=True)
        self._did("complete", person.complete(self._card, Handoff("done"), override=True))
        self._did("edit", person.edit(self._card, {"title": f"done {self._number}", "priority": self._number % 7}))

    def _supervise(self) -> None:
        """Let a shim's run come alive, live and end."""
        card, board = self._create(), self._hand.board()
        task, run = board.claim_for_dispatch(card, ttl=60, lane="lane", name="steady", caps=Caps())
        lock = Claim(task, run, "").fence.lock
        self._did("started", board.started(run.id, lock, PROCESS))
        for _ in range(3):
            self._did("renew", board.renew(run.id, lock, active=True))
        record = ExitRecord(run.id, card, lock, policy="complete", code=0, tail=("last words",))
        self._did("settle", board.settle(run.id, record))

    def _files(self) -> None:
        board = self._hand.board(interactive=True)
        made = self._did("attach", board.attach(self._card, ([FILE],), name="file"))
        self._did("detach", board.detach(self._card, made.attachments[0].id))

    # --- reads ---
    def _look(self) -> None:
        reader, card = self.reader, self._card
        looks: dict[str, Callable[[], object]] = {
            "list": lambda: reader.list(Filter(sort="newest", limit=NEWEST)),
            "search": lambda: reader.list(Filter(search=f"done {self._number % 50}", limit=NEWEST)),
            "show": lambda: reader.show(card),
            "context": lambda: reader.context(card),
            "why": lambda: reader.why(card),
            "events": lambda: reader.events(max(reader.last_event_id() - NEWEST, 0)),
            "columns": lambda: reader.columns(NEWEST),
            "inbox": reader.inbox,
            "watched": reader.watched,
        }
        for name in self._dice.sample(sorted(looks), 4):
            self._did(name, looks[name]())

    def _follow(self) -> None:
        since = max(self.reader.last_event_id() - NEWEST, 0)
        self._did("follow", self.reader.follow(since, NEWEST))
        self._did("wait", self._feed.wait(0.0))

    def _feeds(self) -> None:
        feed = self.reader.feed()
        self._create()
        self._did("feed", feed.wait(10.0))
        feed.close()

    # --- what goes wrong ---
    def _refusals(self) -> None:
        board = self._hand.board()
        self._refused(NotFound, lambda: board.show("t_0badbad0"))
        self._refused(StateRefusal, lambda: board.promote(self._card))
        self._refused(InvalidValue, lambda: board.create(TaskDraft(title=" ")))
        self._refused(InvalidValue, lambda: self._hand.board(interactive=True).edit(self._card, {}))
        self._refused(ClaimLost, lambda: board.heartbeat(self._card))

    def _busy(self) -> None:
        """Be too late for the write lock, twice, while another connection holds it."""

        def write(store: SqliteStore) -> None:
            with store.write():
                raise AssertionError("two hold the lock")

        with self._rival.write():
            for _ in range(2):
                self._refused(Busy, lambda: write(self._late))

    # --- boards that come and go ---
    def _open_and_close(self) -> None:
        for write in (True, False):
            board = homes.opened(self._home, write=write)
            self._did("open", board.stats())
            if write:
                self._did("create", homes.card(board, f"o{self._number}-{os.getpid()}-{self._dice.random()}"))
            homes.store_of(board).close()

    def _fork(self) -> None:
        """Let a forked child write on a connection of its own, after its parent's refused it."""
        child = os.fork()
        if child == 0:
            code = 1
            try:
                code = self._in_child()
            except BaseException:
                traceback.print_exc()  # whoever sees the code wants to know why
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        assert status == 0, "the forked child could not write"
        self.done["fork"] += 1

    def _in_child(self) -> int:
        try:
            self.reader.last_event_id()
        except Refusal:
            board = homes.opened(self._home)
            board.comment(self._card, "from a child")
            homes.store_of(board).close()
            return 0
        return 2
