"""*Who is calling*, decided from facts, below every surface, and failing closed (P70, P12, P12b).

A surface gathers what can be seen from outside (ancestors, environment, terminal, tickets) into a `Caller`; only
this module turns it into an actor and a fence for one card.
"""

from __future__ import annotations

from hermes_kanban.base.errors import ClaimLost
from hermes_kanban.base.record import Record, record
from hermes_kanban.kernel import find
from hermes_kanban.model import status as s
from hermes_kanban.model.actors import Actor
from hermes_kanban.model.claim import Fence

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hermes_kanban.model.run import Run
    from hermes_kanban.store.driver import Transaction

_NEVER = Fence(0, "")  # an id that cannot be read means refuse, not "nobody asked" (C2)


@record
class Ticket(Record):
    """What a claim left for whoever made it: the fence of one card (P12b)."""

    task_id: str
    run_id: int
    lock: str


@record
class Caller(Record):
    """Facts about who calls.

    Args:
        name: profile, else HERMES_KANBAN_NAME, else the login name.
        declared: the name was declared and is not just the login.
        interactive: standard input is a person's terminal.
        role: HERMES_KANBAN_ROLE.
        task, run, lock: HERMES_KANBAN_TASK, _RUN_ID, _CLAIM_LOCK as they stand (None: not set).
        delegated: the mark of a delegated child is set in a worker's environment, or inside of a run (P71).
        inside_shim: an ancestor is a shim; `shim_run` is its run if that is of this board, `shim` its pid and start.
        tickets: of this caller, newest run first.
        pid: the process that asks (for a lock's text).
    """

    name: str
    declared: bool = False
    interactive: bool = False
    role: str | None = None
    task: str | None = None
    run: str | None = None
    lock: str | None = None
    delegated: bool = False
    inside_shim: bool = False
    shim_run: int | None = None
    shim: tuple[int, str] | None = None
    tickets: tuple[Ticket, ...] = ()
    pid: int = 0


@record
class Identity(Record):
    """Who acts on one card, and with which proof. `implicit`: nobody named the run, it was found by its ticket."""

    actor: Actor
    fence: Fence | None = None
    implicit: bool = False


def identify(
    tx: Transaction, caller: Caller, task_id: str | None, run: int | None = None, *, by_run: bool = True
) -> Identity:
    """Return who acts on this card (None: on no card).

    Args:
        run: the run that the caller names (`--run`), which picks one of its tickets.
        by_run: the verb acts through a run, so that it must be clear through which (P12b).

    Raises:
        ClaimLost: a run was named of which the caller has neither ticket nor lock, an owner that lost a claim of this
            card did not say which run it means (P12b), or the run that the caller is inside of is over (P14b).
    """
    if caller.inside_shim:
        return _inside_run(tx, caller, task_id, run)
    if run is None and task_id is not None:
        found = _ticketed(tx, caller, task_id, by_run=by_run, still_open=True)
        if found:
            return found
    if caller.task:
        return _from_environment(caller, run)
    if run is not None and task_id is not None:
        return Identity(_holder_actor(caller, None), _named_fence(caller, run))
    if task_id is not None:
        found = _exported(tx, caller, task_id) or _ticketed(tx, caller, task_id, by_run=by_run, still_open=False)
        if found:
            return found
    return Identity(_free_actor(caller))


def without_card(caller: Caller) -> Actor:
    """Return who acts where no board is open: to make one, to choose one. Inside of any run that is its worker."""
    if caller.inside_shim or caller.task:
        return Actor(s.WORKER, caller.name, task_id=caller.task, delegated=caller.delegated)
    return _free_actor(caller)


def _inside_run(tx: Transaction, caller: Caller, task_id: str | None, named: int | None) -> Identity:
    """An ancestor is a shim: the caller is inside that run, whatever its environment says."""
    row = tx.one("runs.by_id", id=caller.shim_run) if caller.shim_run is not None else None
    held: Run | None = find.run(tx, caller.shim_run) if row and caller.shim_run is not None else None
    if held is None or not held.supervised or caller.shim != (held.shim_pid, held.shim_started):
        return Identity(
            Actor(s.WORKER, caller.name, delegated=caller.delegated), _NEVER
        )  # the board knows another shim
    if not held.open and task_id != held.task_id:
        raise _over(held)
    kind = s.ORCHESTRATOR if held.orchestrates else s.WORKER
    actor = Actor(kind, held.profile or caller.name, task_id=held.task_id, delegated=caller.delegated)
    if named is not None and named != held.id:
        return Identity(actor, Fence(named, caller.lock or ""))
    return Identity(actor, Fence(held.id, held.claim_lock or ""))


def _over(run: Run) -> ClaimLost:
    """Build the refusal for what a closed run left running: its rights ended with it (P14b)."""
    return ClaimLost(
        f"run {run.id} of {run.task_id} is over: what it left running may only read",
        hint="end this process: it is stopped before long",
        task_id=run.task_id,
        run_shown=run.id,
    )


def _from_environment(caller: Caller, named: int | None) -> Identity:
    kind = s.ORCHESTRATOR if caller.role == s.ORCHESTRATOR else s.WORKER
    actor = Actor(kind, caller.name, task_id=caller.task, delegated=caller.delegated)
    number = named if named is not None else _number(caller.run)
    return Identity(actor, Fence(number, caller.lock or ""))


def _exported(tx: Transaction, caller: Caller, task_id: str) -> Identity | None:
    """`claim --export` put the fence into the environment; it counts for its own card only."""
    if caller.run is None:
        return None
    number = _number(caller.run)
    row = tx.one("runs.by_id", id=number)
    if row is not None and find.run(tx, number).task_id != task_id:
        return None
    return Identity(_holder_actor(caller, None), Fence(number, caller.lock or ""))


def _ticketed(tx: Transaction, caller: Caller, task_id: str, *, by_run: bool, still_open: bool) -> Identity | None:
    mine = [ticket for ticket in caller.tickets if ticket.task_id == task_id]
    if not mine:
        return None
    newest = max(mine, key=lambda ticket: ticket.run_id)
    row = tx.one("runs.by_id", id=newest.run_id)
    held = find.run(tx, newest.run_id) if row else None
    if still_open and not (held and held.open):
        return None
    if by_run and held and held.open and any(_was_lost(tx, ticket) for ticket in mine if ticket is not newest):
        raise ClaimLost(
            f"this caller lost an earlier claim of {task_id}: which run it acts for is not clear",
            hint=f"name it: --run {newest.run_id}",
            task_id=task_id,
            runs=sorted(ticket.run_id for ticket in mine),
        )
    fence = Fence(newest.run_id, newest.lock)
    if held and held.open:
        return Identity(_holder_actor(caller, held), fence, implicit=True)
    return Identity(_free_actor(caller), fence, implicit=True)  # a person's other verbs are open to it again


def _was_lost(tx: Transaction, ticket: Ticket) -> bool:
    """Whether the run ended otherwise than by a closing verb of its own."""
    row = tx.one("runs.by_id", id=ticket.run_id)
    return row is None or find.run(tx, ticket.run_id).end_verb is None


def _named_fence(caller: Caller, run: int) -> Fence:
    for ticket in caller.tickets:
        if ticket.run_id == run:
            return Fence(run, ticket.lock)
    if caller.lock:
        return Fence(run, caller.lock)
    raise ClaimLost(
        f"this caller has no ticket of run {run}",
        hint="call from the script that claimed it, or set HERMES_KANBAN_CLAIM_LOCK (see `claim --export`)",
        run_shown=run,
    )


def _holder_actor(caller: Caller, held: Run | None) -> Actor:
    """A claim's owner is a bridge for that card; a person at a terminal stays a person."""
    if caller.interactive:
        return Actor(s.HUMAN, caller.name, interactive=True)
    return Actor(s.BRIDGE, (held.profile if held else None) or caller.name)


def _free_actor(caller: Caller) -> Actor:
    if caller.role in (s.BRIDGE, s.ORCHESTRATOR):
        return Actor(caller.role, caller.name, delegated=False)
    if caller.role not in (None, s.HUMAN):
        return Actor(s.WORKER, caller.name)  # fails closed: a worker without a card may hardly do anything
    return Actor(s.HUMAN, caller.name, interactive=caller.interactive)


def _number(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 19 else _NEVER.run_id
