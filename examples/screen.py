"""Shows the board while it moves: redrawn in place on a terminal, else one plain line per event."""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from collections.abc import Iterable
from types import TracebackType
from typing import Self

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from examples.history import harmless
from examples.kanban_cli import Json

COLUMNS = ("todo", "ready", "running", "blocked", "review", "done")
NEWEST = 8
QUIET = {"created", "linked"}  # they happen before there is anything to see


class Screen:
    """Where the demonstration tells what happens.

    Args:
        titles: the cards' titles by id, which the demonstration fills.
    """

    def __init__(self, titles: dict[str, str]) -> None:
        self._titles = titles
        self._start = time.monotonic()
        self._newest: deque[str] = deque(maxlen=NEWEST)
        self._workers: dict[str, str] = {}
        self._notes: dict[str, str] = {}
        in_place = sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self._live = Live(auto_refresh=False) if in_place else None

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def say(self, text: str) -> None:
        """Tell something that is no event."""
        line = f"{time.monotonic() - self._start:5.1f}s  {harmless(text)}"
        self._newest.append(line)
        if not self._live:
            print(line, flush=True)

    def tell(self, event: Json) -> None:
        """Tell one event."""
        kind, task_id = event["kind"], event["task_id"]
        note = event["payload"].get("note") or ""
        who = event["actor"].partition(":")[2]
        if kind == "claimed":
            self._workers[task_id] = who
        self._notes[task_id] = note if kind == "heartbeat" else ""
        if kind not in QUIET:
            self.say(f"{self._titles.get(task_id, task_id or 'the board'):14} {kind:18} {who}  {note}".rstrip())

    def draw(self, cards: Iterable[Json]) -> None:
        """Redraw the board, on a terminal."""
        if self._live:
            news = Text("\n".join(self._newest), style="dim", no_wrap=True, overflow="ellipsis")
            self._live.update(Group(self._board(list(cards)), news), refresh=True)

    def _board(self, cards: list[Json]) -> Table:
        table = Table(expand=True)
        for status in COLUMNS:
            table.add_column(f"{status} {sum(card['status'] == status for card in cards) or ''}", ratio=1)
        stacks = (Text("\n").join(self._card(card) for card in cards if card["status"] == status) for status in COLUMNS)
        table.add_row(*stacks)
        return table

    def _card(self, card: Json) -> Text:
        """Return a card as text that no markup in it can change."""
        text = Text(harmless(card["title"]), style="bold")
        details = (self._workers.get(card["id"], ""), self._notes.get(card["id"], ""))
        text.append("".join(f"\n  {harmless(detail)}" for detail in details if detail), style="not bold dim")
        return text
