"""Folds the log and compares it with the rows: a change that left no event shows here (P81)."""

from __future__ import annotations

from hermes_kanban.base.errors import StoreRefused
from hermes_kanban.base.record import Record, record
from hermes_kanban.kernel import apply, gate
from hermes_kanban.model import status as s
from hermes_kanban.model.event import KINDS, Event
from hermes_kanban.model.task import DEFAULTS, DERIVED, TEXTS, UNFOLDED, Task
from hermes_kanban.store import rows

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from hermes_kanban.store.driver import Row, Transaction

_PAGE = 1000
_ID = Task.FIELDS.index("id")
_COMPARED = tuple(n for n in Task.FIELDS if n not in (*UNFOLDED, *DERIVED, "id"))


@record
class Finding(Record):
    """One disagreement."""

    task_id: str
    problem: str


class _Folded:
    """What the log says of one task."""

    __slots__ = ("columns", "deleted", "parents", "problems", "texts")

    def __init__(self) -> None:
        self.columns: dict[str, Any] = dict(DEFAULTS)
        self.parents: set[str] = set()
        self.problems: list[str] = []
        self.deleted = False
        self.texts: dict[str, str | None] = {}

    def apply(self, event: Event) -> None:
        payload = event.payload
        if event.kind not in KINDS:
            self.problems.append(f"event {event.id} is of the unknown kind {event.kind!r}")
        if event.kind == "created":
            self.parents |= set(payload.get("parents", ()))
        elif event.kind == "linked":
            self.parents.add(payload["parent"])
        elif event.kind == "unlinked":
            self.parents.discard(payload["parent"])
        elif event.kind == "deleted":
            self.deleted = True
        if "from" in payload and self.columns["status"] != payload["from"]:
            self.problems.append(f"event {event.id} starts from {payload['from']}, not {self.columns['status']}")
        self.columns |= payload.get("set", {})
        self.texts |= payload.get("texts", {})


def verify(tx: Transaction) -> tuple[Finding, ...]:
    """Return every disagreement between the log, the rows and the rules that the database cannot hold itself."""
    folded = _fold(tx)
    found: list[Finding] = []
    seen = set()
    after = 0
    while page := tx.all("tasks.page", after=after, limit=_PAGE):
        for row in page:
            name = str(row[_ID])
            seen.add(name)
            found += [Finding(name, problem) for problem in _judged(tx, row, folded.get(name))]
        after = page[-1][0]
    gone = [t for t, log in folded.items() if t not in seen and not log.deleted]
    return tuple(found + [Finding(t, "the log knows it, but its row is gone") for t in gone])


def _judged(tx: Transaction, row: Row, log: _Folded | None) -> list[str]:
    try:
        return _disagreements(tx, rows.task(row), log)
    except StoreRefused as error:
        return [error.message]


def _fold(tx: Transaction) -> dict[str, _Folded]:
    folded: dict[str, _Folded] = {}
    after = 0
    while page := tx.all("events.since", since=after, limit=_PAGE):
        for row in page:
            if row[1] is not None:
                _apply(folded.setdefault(str(row[1]), _Folded()), row)
        after = page[-1][0]
    return folded


def _apply(log: _Folded, row: Row) -> None:
    """Fold one event; one that no verb wrote is a problem, not the end of the check."""
    try:
        log.apply(rows.event(row))
    except StoreRefused as error:
        log.problems.append(f"event {row[0]}: {error.message}")
    except (KeyError, TypeError, ValueError, AttributeError):
        log.problems.append(f"event {row[0]} of kind {row[3]} has not the payload of its kind")


def _disagreements(tx: Transaction, card: Task, log: _Folded | None) -> list[str]:
    if log is None or log.columns["status"] is None:
        return ["no event says how it came to be"]
    problems = list(log.problems)
    stored = card.as_dict()
    for name in _COMPARED:
        told = log.columns.get(name)
        said = tuple(told) if name == "skills" and told is not None else told
        if stored[name] != said:
            problems.append(f"{name} is {stored[name]!r}, the log says {said!r}")
    for name in TEXTS:
        if apply.mark_of(stored[name]) != log.texts.get(name):
            problems.append(f"{name} is not the text that the log knows")
    parents = {row[0] for row in tx.all("links.parent_ids", child_id=card.id)}
    if parents != log.parents:
        problems.append(f"parents are {sorted(parents)}, the log says {sorted(log.parents)}")
    return problems + _rules(tx, card)


def _rules(tx: Transaction, card: Task) -> list[str]:
    problems = []
    waits = gate.open_parents(tx, card.id)
    if card.status == s.READY and waits:
        problems.append(f"it is ready although {', '.join(waits)} is not done (P3)")
    if card.status == s.TODO and not waits:
        problems.append("it waits in todo although no parent is open (P4)")
    open_runs = [row[0] for row in tx.all("runs.open_ids", task_id=card.id)]
    if open_runs != ([card.current_run_id] if card.current_run_id is not None else []):
        problems.append(f"open runs are {open_runs}, the card points at {card.current_run_id} (P2)")
    return problems
