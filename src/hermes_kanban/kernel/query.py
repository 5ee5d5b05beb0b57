"""Reads: list, show, board, inbox, stats, runs, events. They write nothing."""

from __future__ import annotations

from hermes_kanban.base.errors import InvalidValue
from hermes_kanban.base.limits import in_range
from hermes_kanban.base.record import Record, record
from hermes_kanban.kernel import find
from hermes_kanban.model import status as s
from hermes_kanban.model.event import Event
from hermes_kanban.model.run import Run
from hermes_kanban.model.task import Task
from hermes_kanban.model.thread import Attachment, Comment
from hermes_kanban.store import rows

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hermes_kanban.store.driver import Transaction

NEWEST_EVENTS = 20
NEWEST_COMMENTS = 50


@record
class Filter(Record):
    """What a list is narrowed to; every given field must fit.

    Args:
        statuses: states; `ready` also finds running cards whose pull lease is over (P10).
        assignee: a name, or "none" for cards of nobody.
        parent: only children of this card.
        search: words in title or body.
        archived: show archived cards too (else only when `archived` is among the states).
        limit, after: a page; `after` is how many cards of that order come before it.
    """

    statuses: tuple[str, ...] = ()
    assignee: str | None = None
    tenant: str | None = None
    parent: str | None = None
    search: str | None = None
    workflow_template_id: str | None = None
    current_step_key: str | None = None
    archived: bool = False
    sort: str = "priority"
    limit: int = 50
    after: int = 0


@record
class Listed(Record):
    """A card of a list, with `lease_over` for a running one that may be claimed (P10)."""

    task: Task
    lease_over: bool


@record
class Page(Record):
    """A page of a list; `more` says that it was cut."""

    cards: tuple[Listed, ...]
    more: bool


@record
class Shown(Record):
    """Everything about one card (P61b)."""

    task: Task
    lease_over: bool
    parents: tuple[Task, ...]
    children: tuple[Task, ...]
    comments: tuple[Comment, ...]
    comment_count: int
    runs: tuple[Run, ...]
    events: tuple[Event, ...]
    attachments: tuple[Attachment, ...]


@record
class Stretch(Record):
    """A piece of the log: each event with its card as it is now (None: it is gone), read as far as `upto`."""

    events: tuple[tuple[Event, Task | None], ...]
    upto: int


@record
class Column(Record):
    """One state of the board view: how many cards it has, and the first of them."""

    status: str
    count: int
    cards: tuple[Listed, ...]


SORTS = ("priority", "seq", "newest", "updated")


def check(wanted: Filter) -> None:
    """Refuse what no list can be (P50).

    Raises:
        InvalidValue: an unknown state or order, a number out of its range.
    """
    in_range("limit", wanted.limit)
    in_range("after", wanted.after)
    for argument, known, given in (("status", s.STATES, wanted.statuses), ("sort", SORTS, (wanted.sort,))):
        for word in given:
            if word not in known:
                raise InvalidValue(
                    f"unknown {argument} {word[:40]!r}", hint=f"one of {', '.join(known)}", argument=argument
                )


def listing(tx: Transaction, wanted: Filter) -> Page:
    """Return a page of cards."""
    filters, values = _filters(tx, wanted)
    found = tx.search(f"list.by_{wanted.sort}", filters, limit=wanted.limit + 1, offset=wanted.after, **values)
    cards = tuple(_listed(tx, rows.task(row)) for row in found)
    return Page(cards[: wanted.limit], len(cards) > wanted.limit)


def _filters(tx: Transaction, wanted: Filter) -> tuple[tuple[str, ...], dict[str, object]]:
    names: list[str] = []
    values: dict[str, object] = {"now": tx.now}
    if wanted.statuses:
        names.append("list.in_states_or_lapsed" if {s.READY, s.REVIEW} & {*wanted.statuses} else "list.in_states")
        values["states"] = rows.encode(list(wanted.statuses))
    elif not wanted.archived:
        names.append("list.not_archived")
    if wanted.assignee == "none":
        names.append("list.of_nobody")
    elif wanted.assignee is not None:
        names.append("list.of_assignee")
        values["assignee"] = wanted.assignee
    for field in ("tenant", "parent", "workflow_template_id", "current_step_key"):
        value = getattr(wanted, field)
        if value is not None:
            names.append(f"list.of_{field}")
            values[field] = find.task_id(tx, value) if field == "parent" else value
    if wanted.search:
        names.append("list.matching")
        values["pattern"] = "%" + wanted.search.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"
    return tuple(names), values


def _listed(tx: Transaction, card: Task) -> Listed:
    if card.status != s.RUNNING or (card.claim_expires or 0) > tx.now:
        return Listed(card, False)
    run = find.open_run(tx, card)
    return Listed(card, bool(run and run.lease_over(tx.now)))


def shown(tx: Transaction, card: Task, *, events: int = NEWEST_EVENTS, comments: int = NEWEST_COMMENTS) -> Shown:
    """Return one card with all that hangs on it; the newest comments and events, oldest first."""
    count = tx.one("comments.count", task_id=card.id)
    assert count is not None
    return Shown(
        task=card,
        lease_over=_listed(tx, card).lease_over,
        parents=tuple(rows.task(r) for r in tx.all("links.parents", child_id=card.id)),
        children=tuple(rows.task(r) for r in tx.all("links.children", parent_id=card.id)),
        comments=tuple(rows.comment(r) for r in tx.all("comments.newest", task_id=card.id, limit=comments)),
        comment_count=count[0],
        runs=runs_of(tx, card.id),
        events=tuple(rows.event(r) for r in tx.all("events.newest_of_task", task_id=card.id, limit=events)),
        attachments=attachments_of(tx, card.id),
    )


def runs_of(tx: Transaction, task_id: str) -> tuple[Run, ...]:
    """Return every run of a card, oldest first, manual ones included (readers tell them by their role)."""
    return tuple(rows.run(row) for row in tx.all("runs.of_task", task_id=task_id))


def attachments_of(tx: Transaction, task_id: str) -> tuple[Attachment, ...]:
    """Return the attachments of a card, oldest first (P61)."""
    return tuple(rows.attachment(row) for row in tx.all("attachments.of_task", task_id=task_id))


def events_since(
    tx: Transaction, since: int, limit: int, *, task_id: str | None = None, kinds: tuple[str, ...] = ()
) -> tuple[Event, ...]:
    """Return up to `limit` events of these kinds (of any) after an id, in their order (P80)."""
    found: list[Event] = []
    while len(found) < limit:
        page = _events(tx, since, limit, task_id)
        found += [event for event in page if not kinds or event.kind in kinds]
        if len(page) < limit:
            break
        since = page[-1].id
    return tuple(found[:limit])


def _events(tx: Transaction, since: int, limit: int, task_id: str | None) -> list[Event]:
    name = "events.of_task_since" if task_id else "events.since"
    given: dict[str, object] = {"task_id": task_id} if task_id else {}
    return [rows.event(row) for row in tx.all(name, since=since, limit=limit, **given)]


def stretch(
    tx: Transaction,
    since: int,
    limit: int,
    *,
    task_id: str | None = None,
    kinds: tuple[str, ...] = (),
    assignee: str | None = None,
    tenant: str | None = None,
) -> Stretch:
    """Return what of the next `limit` events fits, and as far as which event the log was read."""
    page = _events(tx, since, limit, task_id)
    cards: dict[str | None, Task | None] = {None: None}
    found = []
    for event in page:
        if kinds and event.kind not in kinds:
            continue
        if event.task_id not in cards:
            row = tx.one("tasks.by_id", id=event.task_id)
            cards[event.task_id] = rows.task(row) if row else None
        card = cards[event.task_id]
        if _fits(card, assignee, tenant):
            found.append((event, card))
    return Stretch(tuple(found), page[-1].id if page else since)


def _fits(card: Task | None, assignee: str | None, tenant: str | None) -> bool:
    if assignee is None and tenant is None:
        return True
    if card is None or (tenant is not None and card.tenant != tenant):
        return False
    return assignee is None or card.assignee == (None if assignee == "none" else assignee)


def last_event_id(tx: Transaction) -> int:
    """Return the id of the newest event, 0 when there is none."""
    row = tx.one("events.last_id")
    assert row is not None
    return int(row[0])


def counts(tx: Transaction) -> dict[str, int]:
    """Return how many cards each state has, every state named."""
    found = {row[0]: row[1] for row in tx.all("stats.by_status")}
    return {state: found.get(state, 0) for state in s.STATES}


def columns(tx: Transaction, per_column: int) -> tuple[Column, ...]:
    """Return the board: each state but the archived with its count and first cards."""
    numbers = counts(tx)
    found = []
    for state in s.STATES[:-1]:
        sort = "newest" if state == s.DONE else "priority"
        cards = tx.search(f"list.by_{sort}", ("list.in_state",), limit=per_column, offset=0, state=state)
        found.append(Column(state, numbers[state], tuple(_listed(tx, rows.task(row)) for row in cards)))
    return tuple(found)


def statistics(tx: Transaction) -> dict[str, object]:
    """Return counts per state, per assignee, of runs by outcome, and the age of the oldest waiting card (seconds)."""
    oldest = tx.one("stats.oldest_ready")
    waiting = oldest[0] if oldest else None
    outcomes = {row[0] or "open": row[1] for row in tx.all("stats.by_outcome")}
    people = {row[0] or "none": row[1] for row in tx.all("stats.by_assignee", limit=200)}
    return {
        "status": counts(tx),
        "assignee": people,
        "runs": outcomes,
        "events": last_event_id(tx),
        "oldest_ready_seconds": None if waiting is None else max(0, tx.now - waiting),
    }


def inbox(tx: Transaction, limit: int, agents: tuple[str, ...]) -> tuple[Task, ...]:
    """Return what waits for a person, oldest first: blocks, triage, tripped breakers, and reviews by a person.

    Args:
        agents: names of lanes, profiles and declared outsiders; whoever else is to review is a person.
    """
    return tuple(rows.task(row) for row in tx.all("list.inbox", limit=limit, agents=rows.encode(list(agents))))
