"""The board side by side on a terminal, by `rich`; elsewhere `views.board` writes plain lines."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from hermes_kanban.model import status as s
from hermes_kanban.present.ages import span
from hermes_kanban.present.text import safe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from hermes_kanban.kernel.query import Column, Listed

_COLOURS = {s.READY: "green", s.RUNNING: "cyan", s.REVIEW: "magenta", s.BLOCKED: "red", s.TRIAGE: "yellow"}


def show(columns: Sequence[Column], now: int, *, room: int, colour: bool) -> str:
    """Return the board as a table: states with cards side by side."""
    used = [found for found in columns if found.count] or list(columns)
    table = Table(expand=True)
    for found in used:
        table.add_column(Text(f"{found.status} {found.count}", style=_COLOURS.get(found.status, "")), ratio=1)
    table.add_row(*(_stack(found, now) for found in used))
    console = Console(width=room, no_color=not colour, force_terminal=colour, highlight=False, markup=False)
    with console.capture() as captured:
        console.print(table)
    return captured.get()


def _stack(found: Column, now: int) -> Text:
    """Return a column's cards as text that no markup in it can change."""
    stack = Text("\n").join(_card(entry, now) for entry in found.cards)
    left = found.count - len(found.cards)
    return stack.append(f"\n… and {left} more", style="dim") if left else stack


def _card(entry: Listed, now: int) -> Text:
    text = Text(safe(entry.task.title), style="bold")
    about = (entry.task.id, safe(entry.task.assignee or ""), span(now - entry.task.status_since))
    mark = "  lease over" if entry.lease_over else ""
    return text.append("\n" + "  ".join(part for part in about if part) + mark, style="not bold dim")
