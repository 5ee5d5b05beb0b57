"""What the dispatcher would start now, in which order, and why it leaves the rest (D7). It reads, and changes nothing.

Work and reviews are two queues as data, with one budget (C136). A card that cannot be started costs no slot (C137).
"""

from __future__ import annotations

from hermes_kanban.base.record import Record, record
from hermes_kanban.model import admission
from hermes_kanban.model import status as s
from hermes_kanban.model.admission import LaneFacts, Ledger
from hermes_kanban.model.reasons import Reason
from hermes_kanban.model.task import Task
from hermes_kanban.store import rows

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from hermes_kanban.base.settings import Settings
    from hermes_kanban.kernel.context import Names
    from hermes_kanban.model.admission import Host
    from hermes_kanban.store.driver import Transaction

QUEUES = (s.READY, s.REVIEW)
_MOST = 1000  # starts of one name in one pass
_SHOWN = 20  # reviews that are left to a person, of one name


@record
class Planned(Record):
    """A card that is to be started, and what runs it."""

    card: Task
    lane: LaneFacts


@record
class Left(Record):
    """A card that is left alone for now, and why."""

    card: Task
    reason: Reason


@record
class Plan(Record):
    """The answer of one look at the queues.

    Args:
        starts: what would be started, in this order.
        left: cards that were looked at and are not started.
        names: why nothing of a whole name is started (no lane, a full lane, a pause), by name.
        full: why nothing more can be started at all, or None.
        eager: whether there is a name whose cards only that holds back.
    """

    starts: tuple[Planned, ...]
    left: tuple[Left, ...]
    names: dict[str, Reason]
    full: Reason | None
    eager: bool = False


class NamedHost:
    """A host of which only the names are known: each is a lane of its own without bounds."""

    def __init__(self, names: Names) -> None:
        self._known = (*names.lanes(), *names.profiles())

    def lane_of(self, name: str) -> LaneFacts:
        """Return what would run an assignee's work."""
        return LaneFacts(name, name if name in self._known else "")

    def free_slots(self) -> int:
        """Return a number that never is the reason."""
        return 1_000_000


def ledger(tx: Transaction, host: Host, settings: Settings, most: int | None = None) -> Ledger:
    """Return what runs on this board and what may run besides (P15, D7)."""
    profiles: dict[str, int] = {}
    lanes: dict[str, int] = {}
    for profile, lane, count in tx.all("dispatch.running"):
        profiles[profile or ""] = profiles.get(profile or "", 0) + count
        lanes[lane or ""] = lanes.get(lane or "", 0) + count
    return Ledger(
        host,
        profiles,
        lanes,
        board_cap=settings.number("max_in_progress_per_board") or None,
        profile_cap=settings.number("max_in_progress_per_profile") or None,
        most=most,
        now=tx.now,
        self_review=settings.flag("allow_self_review"),
    )


def plan(tx: Transaction, book: Ledger) -> Plan:
    """Return what the dispatcher would start now."""
    cards: list[Task] = []
    names: dict[str, Reason] = {}
    full = book.full()
    eager = False
    for queue in QUEUES:
        for (name,) in tx.all(f"dispatch.{queue}_names"):
            reason = admission.unanswered(name, book) or book.no_room(book.facts(name))
            if reason is not None:
                names[name] = reason
            eager = eager or reason is None
            if full is None and (reason is None or reason.code in admission.GUARDS):
                cards += _queue(tx, book, queue, name)
    starts, left = _choose(tx, book, sorted(cards, key=lambda card: (-card.priority, card.seq)))
    return Plan(tuple(starts), tuple(left), names, full or book.full(), eager)


def _queue(tx: Transaction, book: Ledger, queue: str, name: str) -> list[Task]:
    """Return as many cards of a name as there may be room for; in front of them nothing that never is its turn."""
    values: dict[str, Any] = {"who": name, "now": tx.now}
    found = list(tx.all(f"dispatch.{queue}_of", **values, limit=min(book.free, _MOST), **_judge(queue, name, book)))
    if queue == s.REVIEW and not book.self_review:
        found += tx.all("dispatch.own_reviews_of", **values, limit=_SHOWN)
    return [rows.task(row) for row in found]


def _judge(queue: str, name: str, book: Ledger) -> dict[str, Any]:
    """Whose work is left out of the reviews (P30b)."""
    return {"mine": None if book.self_review else name} if queue == s.REVIEW else {}


def _choose(tx: Transaction, book: Ledger, cards: list[Task]) -> tuple[list[Planned], list[Left]]:
    starts: list[Planned] = []
    left: list[Left] = []
    for card in cards:
        reason = admission.admit(card, book, implementers(tx, card))
        if reason is None:
            facts = book.facts(admission.who(card))
            book.take(facts)
            starts.append(Planned(card, facts))
        elif book.full() is None or reason.code in admission.GUARDS:
            left.append(Left(card, reason))
        else:
            break
    return starts, left


def implementers(tx: Transaction, card: Task) -> tuple[str, ...]:
    """Return who did work of the present round of review (P30b)."""
    if card.phase != s.REVIEWING:
        return ()
    found = {row[0] for row in tx.all("dispatch.implementers", task_id=card.id)}
    return tuple(name for name in (*found, card.implementer) if name)
