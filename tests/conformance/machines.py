"""A machine for the planner: lanes by assignee, and so many free slots."""

from __future__ import annotations

from typing import Any

from hermes_kanban.model.admission import LaneFacts


class Machine:
    """A host as admission sees it.

    Args:
        free: how many more workers it may run.
        lanes: what is known of an assignee's lane, by assignee; a bare name has a lane of its own without bounds.
    """

    def __init__(self, *names: str, free: int = 100, **lanes: LaneFacts) -> None:
        self.free = free
        self.lanes = {name: lane(name) for name in names} | lanes

    def lane_of(self, name: str) -> LaneFacts:
        return self.lanes.get(name) or LaneFacts(name)

    def free_slots(self) -> int:
        return self.free


def lane(name: str, **facts: Any) -> LaneFacts:
    """Return what runs a name's work."""
    return LaneFacts(name, **({"lane": f"{name}'s"} | facts))
