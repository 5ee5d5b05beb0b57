"""The board side by side on a terminal, by `rich`; where its columns find no room, `views.board` writes lines.

Ids are never cut: a column is at least as wide as the longest of them. A window shows as many cards of each column as
it has lines for, and says how many more there are.
"""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from hermes_kanban.base.clock import span
from hermes_kanban.model import status as s
from hermes_kanban.present import views
from hermes_kanban.present.text import safe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from hermes_kanban.kernel.query import Column, Listed
    from hermes_kanban.present.views import Style

_COLOURS = {s.READY: "green", s.RUNNING: "cyan", s.REVIEW: "magenta", s.BLOCKED: "red", s.TRIAGE: "yellow"}
_FRAME = 3  # columns around the text of a column: a rule, and a blank on each side
_RULES = 3  # lines of a table that are no text


def show(columns: Sequence[Column], now: int, style: Style) -> str:
    """Return the board as a table: states with cards side by side.

    Args:
        now: epoch seconds.
        style: `room` columns; `height` lines, or 0 for a board of any length.
    """
    used = [found for found in columns if found.count] or list(columns)
    widths = _widths(len(used), style.room)
    if min(widths) < max((len(entry.task.id) for found in used for entry in found.cards), default=1):
        return views.board(columns, style)
    console = Console(width=style.room, no_color=not style.colour, force_terminal=style.colour, highlight=False)
    heads = [Text(f"{found.status} {found.count}", style=_COLOURS.get(found.status, "")) for found in used]
    table = Table()
    for head, wide in zip(heads, widths, strict=True):
        table.add_column(head, width=wide, overflow="fold")
    over = max(_lines(console, head, wide) for head, wide in zip(heads, widths, strict=True)) + _RULES
    room = max(1, style.height - over) if style.height else 0
    table.add_row(*(_stack(console, found, now, wide, room) for found, wide in zip(used, widths, strict=True)))
    with console.capture() as captured:
        console.print(table)
    return captured.get()


def _widths(count: int, room: int) -> list[int]:
    """Share the room out: what is left over goes to the first columns."""
    each, left = divmod(max(0, room - 1 - count * _FRAME), count)
    return [each + (index < left) for index in range(count)]


def _lines(console: Console, text: Text, wide: int) -> int:
    return len(text.wrap(console, max(1, wide), overflow="fold"))


def _stack(console: Console, found: Column, now: int, wide: int, room: int) -> Text:
    """Return as many of a column's cards as fit into `room` lines (0: all), as text that no markup in it can change."""
    cards = [_card(entry, now) for entry in found.cards]
    if room:
        cards = cards[: _fitting(console, cards, wide, room, found.count)]
    left = found.count - len(cards)
    rest = [Text(f"… and {left} more", style="dim")] if left else []
    return Text("\n").join([*cards, *rest])


def _fitting(console: Console, cards: list[Text], wide: int, room: int, count: int) -> int:
    """Return how many cards find room; the line that names the rest needs its own."""
    sizes = [_lines(console, card, wide) for card in cards]
    if count == len(cards) and sum(sizes) <= room:
        return count
    free = room - _lines(console, Text(f"… and {count} more"), wide)
    fitting = 0
    for size in sizes:
        free -= size
        if free < 0:
            break
        fitting += 1
    return fitting


def _card(entry: Listed, now: int) -> Text:
    text = Text(safe(entry.task.title), style="bold")
    about = (entry.task.id, safe(entry.task.assignee or ""), span(now - entry.task.status_since))
    mark = "  lease over" if entry.lease_over else ""
    return text.append("\n" + "  ".join(part for part in about if part) + mark, style="not bold dim")
