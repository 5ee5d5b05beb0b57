"""This machine as admission sees it: its lanes, its slots, the pauses that providers asked for (D7, D8)."""

from __future__ import annotations

import os

from hermes_kanban.dispatcher.slots import HOST, Slots
from hermes_kanban.lanes import registry
from hermes_kanban.lanes.lane import Lane
from hermes_kanban.lanes.settling import Pauses, lane_key, profile_key
from hermes_kanban.model.admission import LaneFacts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hermes_kanban.base.settings import Settings
    from hermes_kanban.compose import Environment

GIB = 1 << 30


def slots_of(env: Environment) -> Slots:
    """Return the slots of a home."""
    return Slots(os.path.join(env.home, "kanban", "slots"))


def most_in_progress(values: Settings) -> int:
    """Return how many workers this host runs at once: the setting, else what fits the machine (D8, C38)."""
    return values.number("max_in_progress") or max(1, min(2 * (os.cpu_count() or 1), memory() // GIB))


def memory() -> int:
    """Return the machine's memory in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


class LocalHost:
    """See `admission.Host`. Lanes are looked up once for each pass."""

    def __init__(self, env: Environment) -> None:
        self._env = env
        self.slots = slots_of(env)
        self._pauses = Pauses(env.home)
        self._profile_most = env.values.number("max_in_progress_per_profile")
        self.most = most_in_progress(env.values)

    def lane(self, name: str) -> Lane | None:
        """Return the lane that answers for an assignee, if it can be started."""
        found = registry.resolve(self._env, name)
        return found if isinstance(found, Lane) else None

    def lane_of(self, name: str) -> LaneFacts:
        """Return what would run an assignee's work."""
        found = registry.resolve(self._env, name)
        if not isinstance(found, Lane):
            return LaneFacts(name, name if found.known else "", found.reason if found.known else "")
        bound = found.max_concurrency or None
        room = [self.slots.free(key, most) for key, most in self._bounds(found, name)]
        return LaneFacts(
            name=name,
            lane=found.name,
            free=min(room) if room else None,
            cap=bound,
            cool_until=self._pauses.until(found.name),
            orchestrates=found.orchestrates,
        )

    def free_slots(self) -> int:
        """Return how many more workers this host may run."""
        return self.slots.free(HOST, self.most)

    def wanted(self, lane: Lane, name: str) -> tuple[tuple[str, int], ...]:
        """Return the slots that a worker of this lane needs when it works as this name."""
        return ((HOST, self.most), *self._bounds(lane, name))

    def _bounds(self, lane: Lane, name: str) -> tuple[tuple[str, int], ...]:
        """Return the slots besides the host's: of the lane and of the profile, over all boards (D7)."""
        bounds = ((lane_key(lane.name), lane.max_concurrency), (profile_key(name), self._profile_most))
        return tuple((key, most) for key, most in bounds if most)
