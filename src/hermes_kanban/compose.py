"""The one place that wires environment, settings, boards, store and callers into a `Board` (or a `Reader`).

What only writers need (the verbs, tickets, workspaces) is loaded with the first board that is opened for writing:
most commands look.
"""

from __future__ import annotations

import os

from hermes_kanban import boards
from hermes_kanban.base import ids, process, settings
from hermes_kanban.base.clock import SystemClock
from hermes_kanban.base.errors import Refusal
from hermes_kanban.base.lazy import module
from hermes_kanban.base.limits import LIMITS, checked_name
from hermes_kanban.base.record import Record, record
from hermes_kanban.kernel.reader import Ports, Reader
from hermes_kanban.model.status import BRIDGE
from hermes_kanban.store import sqlite

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from hermes_kanban import tickets
    from hermes_kanban.base.process import ProcessInfo
    from hermes_kanban.kernel.board import Board
    from hermes_kanban.kernel.caller import Caller, Ticket
    from hermes_kanban.kernel.context import Blobs
    from hermes_kanban.kernel.supervision import Supervision
    from hermes_kanban.model.claim import Claim

TICKET_SECONDS = 2 * 86_400
LANES = "hermes_kanban.lanes"  # the group of entry points by which a package offers lanes
_INSIDE_A_CLAIM = ("HERMES_KANBAN_CLAIM_LOCK", "HERMES_KANBAN_RUN_ID")
NOBODY = "none"  # the word for nobody where a name is expected: nobody is called so


@record
class Environment(Record):
    """Everything that a process is told from outside, read once."""

    variables: Mapping[str, str]
    home: str
    values: settings.Settings

    @property
    def host(self) -> str:
        """The host's id (D12)."""
        return self.variables.get("HERMES_KANBAN_HOST") or process.host_id()


class Names:
    """Lanes and profiles of this home: the names that can be given to a card, whether each works or not (P50b, D5)."""

    def __init__(self, home: str, values: settings.Settings) -> None:
        self._home = home
        self._values = values

    def lanes(self) -> tuple[str, ...]:
        """Return the lanes: those under `kanban.lanes`, then those that installed packages offer."""
        offered = module("hermes_kanban.base.plugins").entry_points(LANES)
        return tuple(dict.fromkeys(filter(usable_name, (*self._values.names("lanes"), *sorted(offered)))))

    def profiles(self) -> tuple[str, ...]:
        """Return the folders of `profiles/`."""
        folder = os.path.join(self._home, "profiles")
        try:
            found = sorted(filter(usable_name, os.listdir(folder)))
        except OSError:
            return ()
        return tuple(name for name in found if os.path.isdir(os.path.join(folder, name)))


def usable_name(text: str) -> bool:
    """Whether a lane or a profile may be called so: ASCII letters, digits, `_`, `-`, `.`; first a letter or a digit."""
    most = LIMITS["name_length"].highest
    plain = text.isascii() and text.replace("-", "").replace("_", "").replace(".", "").isalnum()
    return plain and text[0].isalnum() and len(text) <= most and text != NOBODY


def environment(*, forgiving: bool | None = None) -> Environment:
    """Read the environment and config.yaml.

    Args:
        forgiving: whoever calls is in the midst of work, for whom a config.yaml that cannot be used is a warning
            only (`settings.load_forgiving`). None: the variables of a claim say so.

    Raises:
        ConfigInvalid: config.yaml cannot be used, and nobody works here; a variable cannot be used.
    """
    variables = settings.read_environment()
    home = settings.home_folder(variables)
    if forgiving is None:
        forgiving = any(variables.get(name) for name in _INSIDE_A_CLAIM)
    return Environment(variables, home, settings.load_forgiving(home) if forgiving else settings.load(home))


def environment_of(home: str, variables: Mapping[str, str]) -> Environment:
    """Read config.yaml (again) under variables that were read already.

    Raises:
        ConfigInvalid: config.yaml cannot be used.
    """
    return Environment(variables, home, settings.load(home))


def store_options(env: Environment) -> sqlite.SqliteOptions:
    """Return how board files are opened under these settings."""
    return sqlite.SqliteOptions(
        wait_seconds=env.values.number("lock_wait_seconds"),
        full_durability=env.values.text("durability") == "full",
        runtime_folder=settings.runtime_folder(env.variables),
        allow_network=env.variables.get("HERMES_ALLOW_NETWORK_FS") == "1",
    )


def create_board(env: Environment, place: boards.Place) -> None:
    """Make a board's folders and file; harmless to repeat.

    Raises:
        StoreRefused: the place cannot hold a board.
    """
    options = store_options(env)
    if os.path.lexists(place.database):
        sqlite.refuse_foreign(place.database, options)  # before anything is made beside it
    boards.make_folders(place)
    sqlite.create(place.database, options, {"board_id": ids.token(), "slug": place.slug})


def open_reader(env: Environment, place: boards.Place) -> Reader:
    """Open a board to look at it: the file is opened read-only, nothing changes.

    Raises:
        BoardNotFound, StoreRefused: it cannot be opened.
    """
    store = sqlite.SqliteStore(place.database, store_options(env), SystemClock(), read_only=True)
    return Reader(store, env.values, Names(env.home, env.values), env.host)


def open_board(env: Environment, place: boards.Place, *, write: bool, tasks: tuple[str, ...] = ()) -> Board:
    """Open a board for this process.

    Args:
        write: False opens the file read-only: looking changes nothing.
        tasks: the ids (or beginnings of ids) that a write is about, to find the caller's tickets of them.

    Raises:
        BoardNotFound, StoreRefused: it cannot be opened.
    """
    who = caller(env, place, tasks) if write else _callers().Caller(name_of(env), pid=os.getpid())
    made: Board = module("hermes_kanban.kernel.board").Board(*_parts(env, place, who, write=write))
    return made


def open_supervision(env: Environment, place: boards.Place, bridge: str | None = None) -> Supervision:
    """Open a board as its dispatcher: whoever calls this has checked that the caller may (P70).

    Args:
        bridge: the name by which a bridge claims; None for a dispatcher.

    Raises:
        BoardNotFound, StoreRefused: it cannot be opened.
    """
    told: dict[str, Any] = {} if bridge is None else {"declared": True, "role": BRIDGE}
    who = _callers().Caller(bridge or name_of(env), pid=os.getpid(), **told)
    made: Supervision = module("hermes_kanban.kernel.supervision").Supervision(*_parts(env, place, who, write=True))
    return made


def _parts(env: Environment, place: boards.Place, who: Caller, *, write: bool) -> tuple[Any, ...]:
    """Return what a board is made of: store, settings, caller, ports."""
    store = sqlite.SqliteStore(place.database, store_options(env), SystemClock(), read_only=not write)

    def workdir() -> str:
        """The board's own, else the home's."""
        return str(boards.description(place).get("default_workdir") or env.values.text("default_workdir"))

    workspaces = module("hermes_kanban.workspace.base").Workspaces(place.workspaces, workdir)
    ports = Ports(Names(env.home, env.values), workspaces, env.host, os.getpid(), lambda: blobs(env, place))
    return store, env.values, who, ports


def blobs(env: Environment, place: boards.Place) -> Blobs:
    """Return where the bytes of a board's attachments are kept (P61); loaded when a verb is about files."""

    def download(url: str) -> Any:
        private = env.values.flag("attach_private_addresses")
        return module("hermes_kanban.fetch").Fetcher(SystemClock(), private=private).open(url)

    most = env.values.number("attachment_limit_bytes")
    made: Blobs = module("hermes_kanban.store.blobs").Blobs(place.attachments, most, download)
    return made


def _callers() -> Any:
    return module("hermes_kanban.kernel.caller")


def caller(env: Environment, place: boards.Place, tasks: tuple[str, ...] = ()) -> Caller:
    """Gather the facts about who calls (P70); the kernel decides from them."""
    given = env.variables
    line = process.lineage()
    blind = not process.sees_itself()  # who cannot see above itself has no rights (P70)
    shim = ("", 0, None) if blind else process.shim_above(line)
    here = shim is not None and os.path.realpath(shim[0]) == os.path.realpath(place.database)
    task = given.get("HERMES_KANBAN_TASK") or None
    made: Caller = _callers().Caller(
        name=name_of(env),
        declared=bool(given.get("HERMES_PROFILE") or given.get("HERMES_KANBAN_NAME")),
        interactive=os.isatty(0) and shim is None,
        role=given.get("HERMES_KANBAN_ROLE") or None,
        task=task,
        run=given.get("HERMES_KANBAN_RUN_ID"),
        lock=given.get("HERMES_KANBAN_CLAIM_LOCK") or None,
        delegated=bool((task or shim) and given.get("HERMES_DELEGATED_CHILD_CONTEXT")),
        inside_shim=shim is not None,
        shim_run=shim[1] if shim and here else None,
        shim=shim[2] if shim else None,
        tickets=_tickets(place, line, tasks),
        pid=os.getpid(),
    )
    return made


def name_of(env: Environment) -> str:
    """Return the caller's name: profile, else HERMES_KANBAN_NAME, else the login name."""
    for variable in ("HERMES_PROFILE", "HERMES_KANBAN_NAME"):
        declared = env.variables.get(variable)
        if declared:
            return checked_name(variable, declared)
    return process.login_name()


def leave_ticket(place: boards.Place, made: Claim) -> None:
    """Remember a claim for whoever made it (P12b), and forget tickets that nobody can need any more."""
    kept = module("hermes_kanban.tickets")
    store = kept.TicketStore(place.tickets)
    lock = made.run.claim_lock or ""
    store.leave(kept.new_ticket(made.task.id, made.run.id, lock, made.workspace, process.ancestors()))
    store.sweep(TICKET_SECONDS, SystemClock().now_ms() / 1000)


def touch_ticket(place: boards.Place, task_id: str, run_id: int) -> None:
    """Keep the ticket of a claim that was extended (P13)."""
    module("hermes_kanban.tickets").TicketStore(place.tickets).touch(task_id, run_id)


def settle_ticket(place: boards.Place, task_id: str, run_id: int) -> None:
    """Bind the ticket of a closed run to its present owner; where that is not possible it stays as it was."""
    try:
        module("hermes_kanban.tickets").TicketStore(place.tickets).settle(task_id, run_id)
    except Refusal:
        return


def _tickets(place: boards.Place, line: tuple[ProcessInfo, ...], tasks: tuple[str, ...]) -> tuple[Ticket, ...]:
    """Return the tickets of these cards that are this caller's: those of the nearest owner in its chain only.

    When a worker dies, its ticket passes to the next ancestor alive, which may stand above other workers too:
    what the nearer owner holds is not disturbed by it.
    """
    kept = module("hermes_kanban.tickets")
    store = kept.TicketStore(place.tickets)
    position: dict[Any, int] = {(p.pid, p.started): index for index, p in enumerate(line)}
    found: dict[str, list[tuple[int, tickets.Ticket]]] = {}
    for text in tasks:
        for ticket in store.starting_with(text.strip().lower()):
            where = position.get(kept.owner(ticket))
            if where is not None:
                found.setdefault(ticket.task_id, []).append((where, ticket))
    mine: list[Ticket] = []
    for group in found.values():
        nearest = min(where for where, _ in group)
        mine += [_callers().Ticket(t.task_id, t.run_id, t.lock) for where, t in group if where == nearest]
    return tuple(mine)
