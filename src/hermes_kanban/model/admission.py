"""Admission: may the dispatcher start this card now? One function over one ledger (D7).

Health, `why`, the dry run and the real pass ask it with the same ledger, so they cannot disagree. It never decides
from free text (C59), and a card that cannot be started costs no slot (C137).
"""

from __future__ import annotations

from hermes_kanban.base.record import Record, record
from hermes_kanban.model import status as s
from hermes_kanban.model.reasons import Reason
from hermes_kanban.model.task import Task

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Protocol

    class Host(Protocol):
        """What admission must know of the machine and its lanes; asked outside of the database."""

        def lane_of(self, name: str) -> LaneFacts:
            """Return what would run an assignee's work."""

        def free_slots(self) -> int:
            """Return how many more workers this host may run (D8)."""


# Reasons that are about one card and last: recorded once as `respawn_guarded`. Full caps are everybody's, and pass.
GUARDS = ("lane_cool_down", "reviewer", "self_review")
NOBODY = ""


@record
class LaneFacts(Record):
    """How the work of one assignee is executed.

    Args:
        name: the assignee.
        lane: the lane's name; "" when nothing answers for the assignee.
        problem: why it cannot be started, in words that say what to do; "" when it can.
        free: how many more attempts the lane and the profile may run on this host; None: no bound.
        cap: the lane's own bound on this board's running attempts; None: no bound (P15).
        cool_until: epoch seconds until when its provider wants to be left alone (P44); 0: not at all.
        orchestrates: its runs are an orchestrator's (P70).
    """

    name: str
    lane: str = ""
    problem: str = ""
    free: int | None = None
    cap: int | None = None
    cool_until: int = 0
    orchestrates: bool = False


class Ledger:
    """What runs, what may run, and what this pass has taken already.

    Args:
        host: lanes and slots.
        running: attempts of this board under a shim, by profile.
        lanes: the same by lane.
        board_cap, profile_cap: bounds of this board; None: no bound.
        most: how many starts this pass may make; None: as many as there is room for.
        now: epoch seconds.
        self_review: whether an agent may judge its own work.
    """

    def __init__(
        self,
        host: Host,
        running: Mapping[str, int],
        lanes: Mapping[str, int],
        *,
        board_cap: int | None,
        profile_cap: int | None,
        most: int | None,
        now: int,
        self_review: bool,
    ) -> None:
        self._host = host
        self._facts: dict[str, LaneFacts] = {}
        self._running = dict(running)
        self._lanes = dict(lanes)
        self._taken: dict[str, int] = {}
        self._taken_of_lane: dict[str, int] = {}
        self.board_cap, self.profile_cap = board_cap, profile_cap
        self.free = host.free_slots()
        self.most, self.now, self.self_review = most, now, self_review
        self.started = 0

    def facts(self, name: str) -> LaneFacts:
        """Return what would run an assignee's work, asked once."""
        if name not in self._facts:
            self._facts[name] = self._host.lane_of(name)
        return self._facts[name]

    def full(self) -> Reason | None:
        """Return why nothing at all can be started on this board now."""
        if self.most is not None and self.started >= self.most:
            return Reason("most", f"this pass starts at most {self.most}", actor="dispatcher")
        if self.started >= self.free:
            return Reason("host_cap", "every slot of this host is taken (kanban.max_in_progress)", actor="worker")
        running = sum(self._running.values())
        if self.board_cap is not None and running >= self.board_cap:
            return Reason(
                "board_cap", f"{running} attempts run on this board; its cap is {self.board_cap}", actor="worker"
            )
        return None

    def no_room(self, facts: LaneFacts) -> Reason | None:
        """Return why this assignee's work cannot be started now, whatever the card."""
        if facts.cool_until > self.now:
            text = f"lane {facts.lane} pauses after a rate limit"
            return Reason("lane_cool_down", text, facts.cool_until, "nobody")
        profile, lane = self._running.get(facts.name, 0), self._lanes.get(facts.lane, 0)
        if self.profile_cap is not None and profile >= self.profile_cap:
            text = f"{profile} attempts of {facts.name} run; the cap is {self.profile_cap}"
            return Reason("profile_cap", text, actor="worker")
        if facts.cap is not None and lane >= facts.cap:
            return Reason(
                "lane_cap", f"{lane} attempts run on lane {facts.lane}; its cap is {facts.cap}", actor="worker"
            )
        if facts.free is not None and self._taken_of_lane.get(facts.lane, 0) >= facts.free:
            text = f"every slot of lane {facts.lane} for {facts.name} on this host is taken"
            return Reason("lane_cap", text, actor="worker")
        return None

    def take(self, facts: LaneFacts) -> None:
        """Count a start."""
        self.started += 1
        for counts, key in ((self._running, facts.name), (self._lanes, facts.lane), (self._taken_of_lane, facts.lane)):
            counts[key] = counts.get(key, 0) + 1


def who(card: Task) -> str:
    """Return whose work the card is now: the reviewer's in review, else the assignee's; "" for nobody's."""
    return (card.reviewer if card.phase == s.REVIEWING else card.assignee) or NOBODY


def unanswered(name: str, ledger: Ledger) -> Reason | None:
    """Return why nothing of this name can be started, whatever the room, or None (D5, C142)."""
    facts = ledger.facts(name)
    if not facts.lane:
        text = f"no lane or profile answers for {name!r}: it waits for that bridge's claim"
        return Reason("lane", text, None, "worker")
    if facts.problem:
        return Reason("lane_problem", facts.problem, None, s.BY_PERSON)
    return None


def admit(card: Task, ledger: Ledger, implementers: tuple[str, ...] = ()) -> Reason | None:
    """Return why the dispatcher does not start a claimable card now, or None: it may.

    Args:
        implementers: who did work of the present round, for a card in review (P30b).
    """
    name = who(card)
    if not name:
        if card.phase == s.REVIEWING:
            return Reason("reviewer", "no reviewer is named: a person decides", None, s.BY_PERSON)
        return Reason("assignee", "nobody is assigned: it waits for a pull claim", None, s.BY_PERSON)
    reason = unanswered(name, ledger)
    if reason is not None:
        return reason
    if card.phase == s.REVIEWING and name in implementers and not ledger.self_review:
        return Reason("self_review", f"{name} did the work and may not judge it: a person decides", None, s.BY_PERSON)
    return ledger.full() or ledger.no_room(ledger.facts(name))
