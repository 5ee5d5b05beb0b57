"""The log of a bridge: one JSON object per line on standard error. Standard output stays empty."""

from __future__ import annotations

import json
import sys

from hermes_kanban.base.clock import SystemClock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def say(what: str, /, **facts: Any) -> None:
    """Write one line: an instant, a word, and facts; plain ASCII, so that no terminal obeys what a card says."""
    line = json.dumps({"at": SystemClock().now_ms() / 1000, "event": what} | facts, ensure_ascii=True, default=str)
    try:
        sys.stderr.write(line + "\n")
        sys.stderr.flush()
    except (OSError, AttributeError):
        return  # nobody listens; the board knows all the same
