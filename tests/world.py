"""A board for tests: real store, manual clock, and callers of every kind."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hermes_kanban.base.clock import ManualClock
from hermes_kanban.base.errors import ClaimLost, Refusal
from hermes_kanban.base.settings import Settings
from hermes_kanban.kernel.board import Board
from hermes_kanban.kernel.caller import Caller, Ticket
from hermes_kanban.kernel.finish import Handoff
from hermes_kanban.kernel.query import Filter, Shown
from hermes_kanban.kernel.reader import Ports
from hermes_kanban.kernel.supervise import Process
from hermes_kanban.kernel.supervision import Facts, Supervision
from hermes_kanban.model import blocks
from hermes_kanban.model.claim import Caps, Claim
from hermes_kanban.model.run import Run
from hermes_kanban.model.task import Task, TaskDraft
from hermes_kanban.store import sqlite
from hermes_kanban.store.blobs import Blobs
from hermes_kanban.workspace.base import Workspaces

SHIM = (4711, "11")  # pid and start of a shim, and of its worker, as a system would name them
WORKER = (4712, "12")
PROCESS = Process(SHIM, WORKER, "boot", "4026531836")

FULL_REASON = blocks.from_fields(
    "spec undecided", "section 3.2 names two formats", ("A: JSON", "B: YAML"), "A, it is used elsewhere", "choose one"
)


class SomeNames:
    """Lanes and profiles that exist in a test's home."""

    def __init__(self, lanes: tuple[str, ...] = (), profiles: tuple[str, ...] = ()) -> None:
        self._lanes, self._profiles = lanes, profiles

    def lanes(self) -> tuple[str, ...]:
        return self._lanes

    def profiles(self) -> tuple[str, ...]:
        return self._profiles


class World:
    """One board, its clock, and the people and programs around it."""

    engine = ""

    def __init__(self, folder: Path, clock: ManualClock | None = None) -> None:
        self.folder = folder
        self.clock = clock or ManualClock()
        self.settings = Settings({"external_assignees": ["ann", "bot", "rev", "other"]})
        self.names = SomeNames()
        self.store = self.make_store()

    def make_store(self) -> Any:
        raise NotImplementedError

    def beside(self) -> World:
        """Return a second world on the same board, with a connection of its own (for threads and processes)."""
        other = type(self)(self.folder, self.clock)
        other.settings, other.names = self.settings, self.names
        return other

    def set(self, **values: Any) -> None:
        """Change settings under `kanban:`."""
        self.settings = Settings({"external_assignees": ["ann", "bot", "rev", "other"]} | values)

    def board(self, name: str = "ann", *, host: str = "host", **facts: Any) -> Supervision:
        """Return the board as a caller with these facts sees it (default: ann, a person at a terminal)."""
        caller = Caller(name, **({"declared": True, "interactive": True} | facts))
        workspaces = Workspaces(str(self.folder / "workspaces"))
        blobs = Blobs(str(self.folder / "attachments"), self.settings.number("attachment_limit_bytes"))
        ports = Ports(self.names, workspaces, host, os.getpid(), lambda: blobs)
        return Supervision(self.store, self.settings, caller, ports)

    @property
    def person(self) -> Board:
        return self.board()

    def script(self, name: str = "bot", *held: Claim, **facts: Any) -> Board:
        """Return the board as a script (no terminal) that holds tickets of these claims: a bridge for them."""
        tickets = tuple(Ticket(c.task.id, c.run.id, c.run.claim_lock or "") for c in held)
        return self.board(name, **({"interactive": False, "tickets": tickets} | facts))

    def worker(self, claim: Claim, name: str = "bot", **facts: Any) -> Board:
        """Return the board as a worker with its run in the environment."""
        given = {"task": claim.task.id, "run": str(claim.run.id), "lock": claim.run.claim_lock}
        return self.board(name, **({"interactive": False} | given | facts))

    def card(self, title: str = "card", **fields: Any) -> Task:
        return self.person.create(TaskDraft(title=title, **fields)).task

    def claimed(self, card: Task | None = None, name: str = "bot", ttl: int = 60) -> tuple[Board, Claim]:
        """Claim a card as a script; return that script's view, and the claim."""
        card = card or self.card()
        claim = self.script(name).claim(card.id, ttl=ttl)
        return self.script(name, claim), claim

    def dispatched(
        self, card: Task | None = None, name: str = "bot", ttl: int = 60, *, host: str = "host", **facts: Any
    ) -> Claim:
        """Claim a card as the dispatcher does for a worker that it starts; `facts` are kept on the run."""
        card = card or self.card()
        board = self.board(host=host)
        known = Facts(**facts)
        task, run = board.claim_for_dispatch(card.id, ttl=ttl, lane="lane", name=name, caps=Caps(), facts=known)
        return Claim(task, run, run.workspace or "")

    def alive(self, card: Task | None = None, name: str = "bot", ttl: int = 60, **facts: Any) -> Claim:
        """Claim a card as the dispatcher does, and let its shim say that the worker lives (D11)."""
        claim = self.dispatched(card, name, ttl, **facts)
        self.board().started(claim.run.id, claim.fence.lock, PROCESS)
        return claim

    def inside(self, claim: Claim, shim: tuple[int, str] = SHIM, **facts: Any) -> Board:
        """Return the board as a process below that shim sees it, whatever it says of itself (P70)."""
        told = {"interactive": False, "inside_shim": True, "shim_run": claim.run.id, "shim": shim}
        return self.board("inside", **(told | facts))

    def run(self, claim: Claim) -> Run:
        """Return the run of a claim as it stands now."""
        return self.board().run(claim.run.id)

    def in_review(self, name: str = "bot", reviewer: str | None = "rev", **fields: Any) -> Task:
        """Return a card that `name` worked on and handed over."""
        board, claim = self.claimed(self.card(**fields), name)
        return board.request_review(claim.task.id, Handoff("please look"), reviewer).task

    def task(self, card: Task | str) -> Task:
        return self.person.show(card if isinstance(card, str) else card.id).task

    def status(self, card: Task | str) -> str:
        return self.task(card).status

    def kinds(self, card: Task | str | None = None) -> list[str]:
        """Return the kinds of all events (of a card), in order."""
        task = None if card is None else card if isinstance(card, str) else card.id
        return [event.kind for event in self.person.events(task=task, limit=10_000)]

    def facts(self, card: Task | str) -> tuple[Any, ...]:
        """Return all that is stored of a card and how long the log is: equal before and after a refusal."""
        shown = self.person.show(card if isinstance(card, str) else card.id, events=10_000)
        return shown.task, shown.runs, shown.comments, shown.events, self.person.last_event_id()

    @contextmanager
    def refuses(self, card: Task | str, error: type[Refusal], *, logged: bool = False) -> Iterator[Any]:
        """Expect a refusal that changes nothing (but for one `refused` event where it is to be logged, P12)."""
        *before, before_events, before_last = self.facts(card)
        with pytest.raises(error) as refusal:
            yield refusal
        *after, after_events, after_last = self.facts(card)
        new = after_events[len(before_events) :]
        assert after == before
        assert after_events[: len(before_events)] == before_events
        assert [event.kind for event in new] == ["refused"] * logged
        assert after_last == before_last + len(new)

    def everything(self) -> tuple[Any, ...]:
        """Return all that is stored of every card: equal before and after what must change nothing."""
        cards = self.person.list(Filter(archived=True, sort="seq", limit=10_000)).cards
        return tuple(self.person.show(listed.task.id, events=10_000) for listed in cards), self.person.last_event_id()

    @contextmanager
    def unchanged(self, error: type[Refusal]) -> Iterator[Any]:
        """Expect a refusal after which the whole board is as it was (but for a `refused` event, P12)."""
        before, last = self.everything()
        with pytest.raises(error) as refusal:
            yield refusal
        new = [event.kind for event in self.person.events(since=last)]
        assert new == ["refused"] * issubclass(error, ClaimLost)
        after, _ = self.everything()
        assert [_but_refusals(shown) for shown in after] == [_but_refusals(shown) for shown in before]

    def verified(self) -> None:
        """Fail if log and rows disagree (P81)."""
        assert self.person.verify() == ()

    def close(self) -> None:
        self.store.close()


class SqliteWorld(World):
    """A board on SQLite."""

    engine = "sqlite"

    def make_store(self) -> sqlite.SqliteStore:
        path = str(self.folder / "kanban.db")
        options = sqlite.SqliteOptions(runtime_folder=str(self.folder / "run"), wait_seconds=5)
        sqlite.create(path, options, {"board_id": "test"})
        return sqlite.SqliteStore(path, options, self.clock, read_only=False)


def _but_refusals(shown: Shown) -> Shown:
    return shown.evolve(events=tuple(event for event in shown.events if event.kind != "refused"))
