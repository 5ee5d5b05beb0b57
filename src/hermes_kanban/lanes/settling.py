"""Books the end of a run's processes, and the pause that its provider asked for: that is the whole lane's (P44, P45).

Pauses are small files of the home, since a lane serves all of its boards and a provider knows none of them.
"""

from __future__ import annotations

import os
import zlib

from hermes_kanban.model import status as s
from hermes_kanban.workspace.base import make_private

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hermes_kanban.kernel.supervision import Supervision
    from hermes_kanban.model.exits import ExitRecord
    from hermes_kanban.model.task import Task


def lane_key(lane: str) -> str:
    """Return a file's name for a lane: a name of the user's never becomes a path."""
    return f"lane-{zlib.crc32(lane.encode()):08x}"


def profile_key(name: str) -> str:
    """Return a file's name for a profile."""
    return f"profile-{zlib.crc32(name.encode()):08x}"


class Pauses:
    """Until when each lane's provider is left alone.

    Args:
        home: HERMES_HOME.
    """

    def __init__(self, home: str) -> None:
        self._folder = os.path.join(home, "kanban", "pauses")

    def until(self, lane: str) -> int:
        """Return until when a lane's provider wants to be left alone, epoch seconds; 0: it does not."""
        try:
            with open(os.path.join(self._folder, lane_key(lane)), encoding="ascii") as handle:
                text = handle.read(20)
        except (OSError, UnicodeDecodeError):
            return 0
        return int(text) if text.isdigit() else 0

    def extend(self, lane: str, until: int) -> None:
        """Leave a lane's provider alone until then; a disk without room keeps the card's own pause alone."""
        if until <= self.until(lane):
            return
        half = os.path.join(self._folder, f"{lane_key(lane)}.{os.getpid()}")
        try:
            make_private(self._folder)
            with open(half, "w", encoding="ascii") as handle:
                handle.write(str(until))
            os.replace(half, half.rpartition(".")[0])
        except OSError:
            return


def settle(board: Supervision, pauses: Pauses, run: int, found: ExitRecord | None) -> Task:
    """Book the end of a run, from its exit record or from the lack of one; harmless to repeat.

    Raises:
        Refusal: the store cannot be used now.
    """
    card = board.settle(run, found)
    ended = board.run(run)
    if ended.outcome == s.RATE_LIMITED and ended.lane and card.eligible_at:
        pauses.extend(ended.lane, card.eligible_at)
    return card
