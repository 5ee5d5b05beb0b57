"""Shows the board while it moves: redrawn in place on a terminal, else one plain line per event."""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from examples.history import harmless
from examples.kanban_cli import Json

COLUMNS = ("todo", "ready", "running", "blocked", "review", "done")
NEWEST, FEWEST = 8, 3  # lines of news below the board, as far as the window has room for them
QUIET = {"created", "linked", "reconciled"}  # there is nothing to see yet, or no more


class Screen:
    """Where the demonstration tells what happens.

    Args:
        titles: the cards' titles by id, which the demonstration fills.

    `start_ms` (milliseconds since the epoch), when the show began, is the zero of the seconds in front of each line.
    """

    def __init__(self, titles: dict[str, str]) -> None:
        self._titles = titles
        self.start_ms = time.time_ns() // 1_000_000
        self._newest: deque[str] = deque(maxlen=NEWEST)
        self._workers: dict[str, str] = {}
        self._notes: dict[str, str] = {}
        in_place = sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self._live = Live(auto_refresh=False) if in_place else None

    def __enter__(self) -> Self:
        self.start_ms = time.time_ns() // 1_000_000
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def say(self, text: str, at_ms: int | None = None) -> None:
        """Tell something; when it happened is said for events, else it is now."""
        now_ms = time.time_ns() // 1_000_000 if at_ms is None else at_ms
        line = f"{(now_ms - self.start_ms) / 1000:5.1f}s  {harmless(text)}"
        self._newest.append(line)
        if not self._live:
            print(line, flush=True)

    def tell(self, event: Json) -> None:
        """Tell one event."""
        kind, task_id, payload = event["kind"], event["task_id"], event["payload"]
        note = payload.get("note") or ""
        role, _, name = event["actor"].partition(":")
        who = payload.get("profile") or (role if role == "dispatcher" else name)
        if kind == "claimed":
            self._workers[task_id] = who
        self._notes[task_id] = note if kind == "heartbeat" else ""
        if kind not in QUIET:
            title = self._titles.get(task_id, task_id or "the board")
            self.say(f"{title:13} {kind:18} {who:11}  {_detail(event)}".rstrip(), event["at_ms"])

    def draw(self, look: Callable[[], Iterable[Json]]) -> None:
        """Redraw the board, on a terminal: `look` returns its cards."""
        if self._live:
            self._live.update(Group(*self._parts(list(look()), self._live.console)), refresh=True)

    def _parts(self, cards: list[Json], console: Console) -> list[Table | Text]:
        """Return the board and, in the lines that it leaves of the window, the newest events.

        Where it would leave fewer than a few, its cards are shown by their titles alone.
        """
        cell = (console.width - 1) // len(COLUMNS) - 3
        for room_of_details in (cell, 0):
            board = self._board(cards, room_of_details)
            left = console.height - len(console.render_lines(board)) - 1
            if left >= FEWEST:
                break
        news = list(self._newest)[-left:] if left > 0 else []
        return [board, *(Text(line, style="dim", no_wrap=True, overflow="ellipsis") for line in news)]

    def _board(self, cards: list[Json], width: int) -> Table:
        table = Table(expand=True)
        for status in COLUMNS:
            table.add_column(f"{status} {sum(card['status'] == status for card in cards) or ''}", ratio=1)
        stacks = (
            Text("\n").join(self._card(card, width) for card in cards if card["status"] == status) for status in COLUMNS
        )
        table.add_row(*stacks)
        return table

    def _card(self, card: Json, width: int) -> Text:
        """Return a card as text that no markup in it can change; its details take a line of `width` columns each."""
        text = Text(harmless(card["title"]), style="bold")
        details = (self._workers.get(card["id"], ""), self._notes.get(card["id"], "")) if width else ()
        text.append("".join(f"\n {harmless(detail)}"[: width + 1] for detail in details if detail), "not bold dim")
        return text


def _detail(event: Json) -> str:
    """Return what is worth telling of an event besides its kind."""
    payload = event["payload"]
    if event["kind"] == "spawned":
        return f"process {payload['pid']}"
    if payload.get("until"):
        return f"may start again in {payload['until'] - event['created_at']} s"
    return payload.get("note") or ""
