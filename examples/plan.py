"""What is played: the cards, who works on them by which lane, what goes wrong on the way, how it must end.

The demonstration makes it so (play.py) and compares with it afterwards (checks.py).
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

BOARD = "demo"
BRIDGED = "publisher"  # the name whose cards a bridge pulls; all others are lanes of the gateway

# Pauses as short as a show needs them, in seconds; the usual ones are minutes.
CONFIG = """\
kanban:
  external_assignees: [publisher]
  retry_backoff_seconds: 1
  kill_grace_seconds: 2
  closing_grace_seconds: 5
  max_in_progress: 8
"""

PACE, BEAT = 0.1, 1.5  # seconds: an analyst rests so long after each module, and notes its progress so often
RETRY_AFTER = 2  # seconds that the overloaded provider asks for
THRESHOLD = 15
ANSWER = f"B: use threshold={THRESHOLD}, a list that one can act on"

_PYTHON = (sys.executable, "-m")
_ANALYST = ("analyst", f"--pace={PACE}", f"--beat={BEAT}")

# The lanes: what runs for which name. Each gets PYTHONPATH passed on, so that it finds this folder.
LANES: dict[str, tuple[str, ...]] = {
    "analyst": (*_PYTHON, "examples.analyst", *_ANALYST[1:]),
    "overloaded": (*_PYTHON, "examples.stumble", "--code=75", f"--retry-after={RETRY_AFTER}", *_ANALYST),
    "forgetful": (*_PYTHON, "examples.stumble", "--code=0", *_ANALYST),
    "synthesizer": (*_PYTHON, "examples.synthesizer"),
    "reviewer": (*_PYTHON, "examples.reviewer"),
}

# What the bridge runs for each card that it claims: a file like any, to which nothing of ours is passed on.
BRIDGE = (sys.executable, str(Path(__file__).with_name("publisher.py")), "{task_id}")


@dataclass(frozen=True)
class Card:
    """One card.

    Args:
        title: its name, by which everything here speaks of it.
        assignee: a lane, or the bridge's name.
        body: what it asks for.
        parents: titles of the cards that it waits for.
        path: how the attempts at it must end, the first one first.
    """

    title: str
    assignee: str
    body: str
    path: tuple[str, ...]
    parents: tuple[str, ...] = ()


def _analysis(title: str, assignee: str, packages: str, first: str) -> Card:
    return Card(title, assignee, f"subject: {title}\npackages: {packages}", (first, "completed"))


KILLED = _analysis("dead imports", "analyst", "asyncio, concurrent", "crashed")
ASKED = _analysis("complexity", "analyst", "json, email", "blocked")
FORGOTTEN = _analysis("doc coverage", "forgetful", "unittest, logging", "protocol_violation")
OVERLOADED = _analysis("public names", "overloaded", "http, xml", "rate_limited")
ANALYSES = (KILLED, ASKED, FORGOTTEN, OVERLOADED)
REVIEWED = Card(
    "report",
    "synthesizer",
    "One report of all analyses.",
    ("review_requested", "changes_requested", "review_requested", "completed"),
    tuple(card.title for card in ANALYSES),
)
PUBLISHED = Card("page", BRIDGED, "The report as a page.", ("completed",), (REVIEWED.title,))
CARDS = (*ANALYSES, REVIEWED, PUBLISHED)
