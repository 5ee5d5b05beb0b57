"""How answers look to people: loaded only when a person reads, scripts that ask for JSON do without it."""

from __future__ import annotations

import os

from hermes_kanban.base.lazy import module
from hermes_kanban.cli.output import on_terminal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from hermes_kanban.cli.call import Call
    from hermes_kanban.present.views import Style

_STDOUT = 1
_FEWEST_COLUMNS = 40
_UNKNOWN = (80, 24)  # columns and lines of a terminal that does not tell
# The page of its own that full-screen programs use: it has no memory, so that no frame ever stands among the lines
# that one scrolls back to. Afterwards the window shows what it showed before.
ENTER, LEAVE = "\x1b[?1049h", "\x1b[?1049l"
_WHOLE = "\x1b[H\x1b[J"


def views() -> Any:
    """Load what writes for people."""
    return module("hermes_kanban.present.views")


def style(call: Call) -> Style:
    """Return how this terminal shows text; a pipe gets neither colour nor cuts."""
    made: Style = views().PLAIN
    if not on_terminal():
        return made
    known = call.env.variables
    return made.evolve(room=_size()[0], colour=not known.get("NO_COLOR") and _obeys_codes(call))


def window(call: Call) -> Style:
    """Return the same, with the lines that fit into the window at once."""
    return style(call).evolve(height=max(1, _size()[1] - 1))


def moves(call: Call) -> bool:
    """Whether what stands on the terminal can be drawn over."""
    return on_terminal() and _obeys_codes(call)


def frame(text: str) -> str:
    """Return what draws a text over all that the window shows."""
    return _WHOLE + text


def _obeys_codes(call: Call) -> bool:
    return call.env.variables.get("TERM") not in (None, "", "dumb")


def _size() -> tuple[int, int]:
    try:
        columns, lines = os.get_terminal_size(_STDOUT)
    except OSError:
        columns, lines = 0, 0
    return (max(_FEWEST_COLUMNS, columns) if columns else _UNKNOWN[0], lines or _UNKNOWN[1])
