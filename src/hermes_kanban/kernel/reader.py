"""Reader: everything that may be asked of a board. It cannot write; a viewer's surface gets only this."""

from __future__ import annotations

from hermes_kanban.base.errors import StoreRefused
from hermes_kanban.base.lazy import late
from hermes_kanban.base.limits import in_range
from hermes_kanban.base.record import Record, record
from hermes_kanban.kernel import find, query
from hermes_kanban.kernel.context import Context
from hermes_kanban.model import status as s
from hermes_kanban.model.actors import Actor
from hermes_kanban.model.event import Event
from hermes_kanban.model.run import Run
from hermes_kanban.model.task import Task

TYPE_CHECKING = False
if not TYPE_CHECKING:
    briefing, planning, starts, verify = late(
        "hermes_kanban.kernel.briefing",
        "hermes_kanban.kernel.planning",
        "hermes_kanban.kernel.starts",
        "hermes_kanban.kernel.verify",
    )
else:
    from collections.abc import Callable

    from hermes_kanban.base.settings import Settings
    from hermes_kanban.kernel import briefing, planning, starts, verify
    from hermes_kanban.kernel.context import Blobs, Names, Workspaces
    from hermes_kanban.kernel.planning import Plan
    from hermes_kanban.model.admission import Host
    from hermes_kanban.model.reasons import Startable
    from hermes_kanban.model.thread import Attachment
    from hermes_kanban.store.driver import ChangeFeed, Store


@record
class Ports(Record):
    """What the kernel asks of the world outside the database. `blobs` is called when a verb needs files (P61)."""

    names: Names
    workspaces: Workspaces
    host: str
    pid: int = 0
    blobs: Callable[[], Blobs] | None = None


class Reader:
    """One board, to look at.

    Args:
        store: the board's store.
        settings: the values of `kanban:`.
        names: who can take work (for `why`).
        host: this host.
    """

    def __init__(self, store: Store, settings: Settings, names: Names, host: str) -> None:
        self._store = store
        self.warnings: list[str] = [*store.warnings]
        self._settings = settings
        self._names = names
        self._host = host

    def find_id(self, text: str) -> str:
        """Return the full id for an id or a unique prefix."""
        with self._store.read() as tx:
            return find.task(tx, text).id

    def list(self, wanted: query.Filter) -> query.Page:
        """Return a page of cards."""
        query.check(wanted)
        with self._store.read() as tx:
            return query.listing(tx, wanted)

    def show(self, task: str, events: int = query.NEWEST_EVENTS) -> query.Shown:
        """Return everything about a card (P61b)."""
        with self._store.read() as tx:
            return query.shown(tx, find.task(tx, task), events=events)

    def context(self, task: str) -> str:
        """Return what a worker of the card reads first (P62)."""
        with self._store.read() as tx:
            return briefing.context(tx, find.task(tx, task), self._settings.number("context_limit_bytes"))

    def runs(self, task: str) -> tuple[Run, ...]:
        """Return the runs of a card, oldest first."""
        with self._store.read() as tx:
            return query.runs_of(tx, find.task(tx, task).id)

    def attachments(self, task: str) -> tuple[Attachment, ...]:
        """Return the attachments of a card, oldest first (P61)."""
        with self._store.read() as tx:
            return query.attachments_of(tx, find.task(tx, task).id)

    def events(
        self, since: int = 0, limit: int = 200, *, task: str | None = None, kinds: tuple[str, ...] = ()
    ) -> tuple[Event, ...]:
        """Return events after an id, in their order (P80)."""
        with self._store.read() as tx:
            card_id = find.task(tx, task).id if task is not None else None
            return query.events_since(
                tx, in_range("since", since), in_range("limit", limit), task_id=card_id, kinds=kinds
            )

    def follow(
        self,
        since: int,
        limit: int = 500,
        *,
        task: str | None = None,
        kinds: tuple[str, ...] = (),
        assignee: str | None = None,
        tenant: str | None = None,
    ) -> query.Stretch:
        """Return what of the next events after an id fits, with the cards, and how far the log was read (P80).

        Args:
            assignee: only events of cards that this name has now ("none": nobody).
        """
        with self._store.read() as tx:
            card_id = find.task(tx, task).id if task is not None else None
            return query.stretch(
                tx,
                in_range("since", since),
                in_range("limit", limit),
                task_id=card_id,
                kinds=kinds,
                assignee=assignee,
                tenant=tenant,
            )

    def last_event_id(self) -> int:
        """Return the id of the newest event."""
        with self._store.read() as tx:
            return query.last_event_id(tx)

    def columns(self, per_column: int = 50) -> tuple[query.Column, ...]:
        """Return the board by states, with counts and first cards."""
        with self._store.read() as tx:
            return query.columns(tx, in_range("limit", per_column))

    def stats(self) -> dict[str, object]:
        """Return counts of every state, assignee and outcome."""
        with self._store.read() as tx:
            return query.statistics(tx)

    def inbox(self, limit: int = 50) -> tuple[Task, ...]:
        """Return what waits for a person, oldest first."""
        with self._store.read() as tx:
            agents = (*self._names.lanes(), *self._names.profiles(), *self._settings.names("external_assignees"))
            return query.inbox(tx, in_range("limit", limit), agents)

    def why(self, task: str, host: Host | None = None) -> tuple[Task, Startable]:
        """Return why a card does not start: for any claimer, and for the dispatcher (P3b).

        Args:
            host: the lanes and slots of this machine; None: only the names of lanes are known.
        """
        with self._store.read() as tx:
            card = find.task(tx, task)
            ctx = Context(tx, Actor(s.DISPATCHER, self._host), self._settings)
            return card, starts.startable(ctx, card, host or planning.NamedHost(self._names))

    def watched(self) -> tuple[Run, ...]:
        """Return every attempt under a shim that is not proven ended."""
        with self._store.read() as tx:
            return tuple(find.run(tx, row[0]) for row in tx.all("runs.watched"))

    def plan(self, host: Host, most: int | None = None) -> Plan:
        """Return what the dispatcher would start now, and why the rest is not (D7)."""
        with self._store.read() as tx:
            return planning.plan(tx, planning.ledger(tx, host, self._settings, most))

    def waiting(self) -> tuple[tuple[str, int, int], ...]:
        """Return who has ready cards, how many, and since when the longest waits ("" is nobody)."""
        with self._store.read() as tx:
            return tuple((name, count, since) for name, count, since in tx.all("dispatch.ready_counts"))

    def verify(self) -> tuple[verify.Finding, ...]:
        """Return every disagreement between log, rows and rules, and what the engine finds wrong (P81, P72)."""
        damage = tuple(verify.Finding("", line) for line in self._store.check_integrity())
        schema = tuple(
            verify.Finding("", f"the schema is not as it was made: {line} (P72)")
            for line in self._store.schema_differences()
        )
        try:
            with self._store.read() as tx:
                return damage + schema + verify.verify(tx)
        except StoreRefused as error:  # what the schema lost is needed to read on
            return damage + schema + (verify.Finding("", error.message),)

    def feed(self) -> ChangeFeed:
        """Return a feed that wakes when the board changed."""
        return self._store.feed()
