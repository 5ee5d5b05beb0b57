"""Supervision: what dispatcher, shims and bridges may do beside the verbs. Every repair is a compare-and-set (D3)."""

from __future__ import annotations

from contextlib import contextmanager

from hermes_kanban.base.errors import Refusal
from hermes_kanban.base.record import Record, record
from hermes_kanban.kernel import claim, failures, find, supervise
from hermes_kanban.kernel.board import Board
from hermes_kanban.kernel.claim import ClaimRequest
from hermes_kanban.kernel.context import Context
from hermes_kanban.kernel.starts import Here
from hermes_kanban.model import status as s
from hermes_kanban.model.actors import Actor
from hermes_kanban.model.claim import Caps
from hermes_kanban.model.run import Run
from hermes_kanban.model.task import Task

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from hermes_kanban.kernel.planning import Left
    from hermes_kanban.kernel.supervise import Beat, Process
    from hermes_kanban.model.exits import ExitRecord


@record
class Facts(Record):
    """What a dispatcher keeps on the run that it opens.

    Args:
        orchestrates: its worker is an orchestrator (P70).
        log_path: where its output goes.
        boot_id, pid_namespace: of this host (D12).
    """

    orchestrates: bool = False
    log_path: str | None = None
    boot_id: str | None = None
    pid_namespace: str | None = None


_NOTHING = Facts()


class Supervision(Board):
    """One board as its dispatcher sees it. Who may have one is decided where it is opened (P70)."""

    @contextmanager
    def _act(self, *, durable: bool = True) -> Iterator[Context]:
        with self._store.write(durable=durable) as tx:
            yield Context(tx, Actor(s.DISPATCHER, self._ports.host), self._settings, warnings=self.warnings)

    # --- reads ---------------------------------------------------------------------------------------------
    def run(self, number: int) -> Run:
        """Return a run.

        Raises:
            RunNotFound: there is none.
        """
        with self._store.read() as tx:
            return find.run(tx, number)

    def task(self, task_id: str) -> Task:
        """Return a card."""
        with self._store.read() as tx:
            return find.task(tx, task_id)

    def next_due(self) -> int | None:
        """Return when something happens by itself next, epoch seconds (D1)."""
        with self._store.read() as tx:
            row = tx.one("dispatch.next_due", now=tx.now)
            return row[0] if row else None

    def anything_due(self) -> bool:
        """Whether a start time or a fresh attempt has come: looking takes no lock."""
        with self._store.read() as tx:
            return bool(tx.one("claims.is_due", now=tx.now) or tx.one("dispatch.probe_due", now=tx.now))

    def pulled(self) -> tuple[Run, ...]:
        """Return every open pull claim, whether a shim of it was heard of or not."""
        with self._store.read() as tx:
            return tuple(find.run(tx, row[0]) for row in tx.all("runs.pulled"))

    # --- starting ------------------------------------------------------------------------------------------
    def claim_for_dispatch(
        self, task: str, *, ttl: int, lane: str, name: str, caps: Caps, facts: Facts = _NOTHING
    ) -> tuple[Task, Run]:
        """Claim a card for a worker that is about to be started, within its caps (P15).

        Args:
            ttl: seconds of its lease.
            lane, name: what executes it, and the profile under which the run is kept.
            caps: bounds on running attempts, checked inside the claim.

        Raises:
            NotClaimable, Gated, WrongState, AtCapacity, SelfReview: not now.
        """
        request = ClaimRequest(ttl, self._ports.host, self._ports.pid, self._place, name, False, lane, caps)
        with self._act() as ctx:
            taken = claim.take(ctx, find.task(ctx.tx, task), request)
            if not isinstance(taken, Refusal):
                return taken[0], supervise.opened(ctx, taken[1], facts.as_dict())
        raise taken

    def keep(self, run: int, lane: str, log_path: str) -> Run:
        """Keep on a pull claim what its bridge knows of it before its shim is started."""
        with self._act(durable=False) as ctx:
            return supervise.opened(ctx, find.run(ctx.tx, run), {"lane": lane, "log_path": log_path})

    def prepare_place(self, card: Task) -> str:
        """Make the card's workspace, outside of any transaction (P11).

        Raises:
            WorkspaceFailed: it cannot be made.
        """
        place = card.workspace_kind, card.workspace_path, card.branch_name
        return self._ports.workspaces.prepare(card.id, *place)

    def started(self, run: int, lock: str, process: Process) -> Beat:
        """Let a shim's worker come alive, or refuse a late one (D11).

        Raises:
            ClaimLost: the run is over, or another's.
        """
        with self._act() as ctx:
            return supervise.started(ctx, find.run(ctx.tx, run), lock, process)

    def spawn_failed(self, run: Run, message: str, hint: str = "") -> Task:
        """End a run whose worker could not be started."""
        with self._act() as ctx:
            return supervise.spawn_failed(ctx, run, message, hint)

    def hand_back(self, run: Run) -> Task:
        """End a claim that its dispatcher cannot use any more; no failure is counted."""
        with self._act() as ctx:
            return supervise.handed_back(ctx, find.run(ctx.tx, run.id))

    # --- going on ------------------------------------------------------------------------------------------
    def renew(self, run: int, lock: str, *, active: bool, idle: int = 0) -> Beat:
        """Extend the lease of a run whose shim lives (P13).

        Raises:
            ClaimLost: the lock is not this run's.
        """
        with self._act(durable=False) as ctx:
            return supervise.renew(ctx, find.run(ctx.tx, run), lock, active=active, idle=idle)

    def extend(self, run: int) -> bool:
        """Extend the claim of a live worker whose time ran out (D15)."""
        with self._act(durable=False) as ctx:
            return supervise.extend(ctx, find.run(ctx.tx, run))

    def defer(self, run: int, reason: str) -> bool:
        """Keep the claim of a worker that survives its stop (D14)."""
        with self._act(durable=False) as ctx:
            return supervise.defer(ctx, find.run(ctx.tx, run), reason)

    # --- ending --------------------------------------------------------------------------------------------
    def settle(self, run: int, found: ExitRecord | None) -> Task:
        """Book the end of a run's processes; harmless to repeat (P45)."""
        with self._act() as ctx:
            return supervise.settle(ctx, find.run(ctx.tx, run), found)

    def never_came_alive(self, run: int) -> bool:
        """End a claim whose worker never came alive (D11)."""
        with self._act() as ctx:
            grace = self._settings.number("spawn_grace_seconds")
            return supervise.never_came_alive(ctx, find.run(ctx.tx, run), grace)

    def fell_silent(self, run: int) -> bool:
        """End a run of another host that fell silent (P14c)."""
        with self._act() as ctx:
            here = Here(self._ports.host, self._settings.number("quarantine_seconds"))
            return supervise.fell_silent(ctx, find.run(ctx.tx, run), here)

    def prove_ended(self, run: int) -> Task:
        """Note that no process of a closed run is left: its card may be claimed again (P14c)."""
        with self._act() as ctx:
            return failures.proven_ended(ctx, find.run(ctx.tx, run))

    # --- by time -------------------------------------------------------------------------------------------
    def release_due(self) -> tuple[str, ...]:
        """Release every scheduled card whose time has come."""
        with self._act() as ctx:
            return supervise.due(ctx)

    def probe(self) -> tuple[str, ...]:
        """Give tripped cards their one fresh attempt (P27)."""
        with self._act() as ctx:
            return supervise.probe(ctx)

    def guard(self, left: tuple[Left, ...]) -> tuple[str, ...]:
        """Record why cards are left alone, once for each new reason (D7)."""
        with self._act() as ctx:
            found = ((find.known_task(ctx.tx, one.card.id), one) for one in left)
            return tuple(
                card.id
                for card, one in found
                if card and card.status == one.card.status and supervise.guarded(ctx, card, one.reason)
            )
