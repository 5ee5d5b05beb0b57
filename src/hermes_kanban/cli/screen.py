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


def views() -> Any:
    """Load what writes for people."""
    return module("hermes_kanban.present.views")


def style(call: Call) -> Style:
    """Return how this terminal shows text; a pipe gets neither colour nor cuts."""
    made: Style = views().PLAIN
    if not on_terminal():
        return made
    try:
        room = max(_FEWEST_COLUMNS, os.get_terminal_size(_STDOUT).columns)
    except OSError:
        return made
    known = call.env.variables
    return made.evolve(room=room, colour=not known.get("NO_COLOR") and known.get("TERM") not in (None, "dumb"))
