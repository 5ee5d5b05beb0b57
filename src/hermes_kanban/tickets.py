"""Tickets: the command line remembers a claim for whoever made it (P12b).

A claim leaves a small file that says which processes stood above it. It belongs to the nearest of them that is
still alive, so a script's later commands find their fence by their own ancestry, and another script, which has
other ancestors, does not. The folder is written by `leave`, `forget` and `sweep` alone: looking changes nothing.
"""

from __future__ import annotations

import errno
import json
import os
import stat

from hermes_kanban.base import ids, process
from hermes_kanban.base.errors import DiskFull, InvalidValue, Refusal, StoreIo
from hermes_kanban.base.record import Record, record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from hermes_kanban.base.process import ProcessInfo

    Entry = tuple[int, str, str, bool]
    Owner = tuple[int, str]

LONGEST_TASK_ID = 64
LONGEST_NUMBER = 19  # digits of the largest run id
MOST_BYTES = 1_048_576
ENDING = ".json"
UNFINISHED = ".tmp"
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


@record
class Ticket(Record):
    """What a claim leaves behind.

    `chain` is what stood above the claiming process, nearest first: pid, start, name, and whether it is a service
    manager, which can own nothing. Boot and pid namespace say where those pids mean anything (D12).
    """

    task_id: str
    run_id: int
    lock: str
    workspace: str
    boot: str
    namespace: str
    chain: tuple[Entry, ...]


def new_ticket(task_id: str, run_id: int, lock: str, workspace: str, above: tuple[ProcessInfo, ...]) -> Ticket:
    """Return the ticket of a claim made just now by the process below these ancestors (`process.ancestors`)."""
    chain = tuple((p.pid, p.started, p.name, process.is_service_manager(p)) for p in above)
    return Ticket(task_id, run_id, lock, workspace, process.boot_id(), process.pid_namespace(), chain)


def owner(ticket: Ticket, *, alive: Callable[[int, str], bool] = process.alive) -> Owner | None:
    """Return pid and start of whom the ticket belongs to (P12b).

    None for an orphan, whose verbs need `--run`: nobody of the chain lives, the nearest that does is a service
    manager, or the pids are of another boot or pid namespace and cannot be judged here.
    """
    if (ticket.boot, ticket.namespace) != (process.boot_id(), process.pid_namespace()):
        return None
    for pid, started, _name, is_manager in ticket.chain:
        if alive(pid, started):
            return None if is_manager else (pid, started)
    return None


class TicketStore:
    """The tickets of one board, a file for each run."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def leave(self, ticket: Ticket) -> None:
        """Write the ticket, whole or not at all: 0600, in a folder 0700 that is made on demand.

        Raises:
            InvalidValue: the task id or the run id is none.
            DiskFull, StoreIo: it cannot be written; no ticket is left.
        """
        name = _file_name(ticket)
        text = json.dumps(ticket.as_dict()).encode()
        unfinished = os.path.join(self.folder, f".{name}.{ids.token()}{UNFINISHED}")
        try:
            os.makedirs(self.folder, 0o700, exist_ok=True)
            _write(unfinished, text)
            os.replace(unfinished, os.path.join(self.folder, name))
        except OSError as error:
            _remove(unfinished)
            raise _refusal(self.folder, error) from error

    def of_task(self, task_id: str) -> tuple[Ticket, ...]:
        """Return the task's tickets, newest run first; files that are no tickets of ours are passed over.

        Raises:
            InvalidValue: the task id is none.
        """
        _check_task_id(task_id)
        return self._newest_first(task_id)

    def starting_with(self, text: str) -> tuple[Ticket, ...]:
        """Return the tickets of the tasks whose id begins with this text, newest run first; none for other text."""
        names = [n for n in self._names() if ids.looks_like_task(text) and n.startswith(text)]
        return tuple(self._readable(sorted(names, key=_by_run, reverse=True)))

    def mine(self, task_id: str, chain: tuple[ProcessInfo, ...]) -> tuple[Ticket, ...]:
        """Return the task's tickets whose owner stands in the caller's chain, newest run first (P12b).

        Args:
            task_id: the card.
            chain: the caller and its ancestors, as `process.lineage` gives them.

        Raises:
            InvalidValue: the task id is none.
        """
        return _owned_within(chain, self.of_task(task_id))

    def tasks_of(self, chain: tuple[ProcessInfo, ...]) -> tuple[Ticket, ...]:
        """Return the tickets of all tasks whose owner stands in this chain (`process.lineage`), newest run first."""
        return _owned_within(chain, self._newest_first(None))

    def touch(self, task_id: str, run_id: int) -> None:
        """Note that the claim lives on, so that `sweep` leaves its ticket alone; none there is fine."""
        try:
            os.utime(os.path.join(self.folder, f"{task_id}.{run_id}{ENDING}"), follow_symlinks=False)
        except OSError:
            return

    def settle(self, task_id: str, run_id: int) -> None:
        """Bind the ticket of a run that was closed to its present owner alone.

        While the claim lasts a ticket passes to the next ancestor when its owner ends (a shell per call is such an
        owner). Once the card is closed there is nothing to pass on: whoever stands above is no worker of that run.
        """
        for ticket in self.of_task(task_id):
            if ticket.run_id == run_id:
                who = owner(ticket)
                kept = tuple(entry for entry in ticket.chain if entry[:2] == who)
                self.leave(ticket.evolve(chain=kept))

    def forget(self, run_id: int) -> None:
        """Remove the ticket of a run; none there is fine."""
        for name in self._names():
            if _parts(name)[1] == run_id:
                _remove(os.path.join(self.folder, name))

    def sweep(self, older_than_seconds: int, now: float) -> int:
        """Remove tickets, and unfinished ones, written longer ago than so many seconds.

        Args:
            older_than_seconds: age from which they go; more than any claim may last.
            now: the clock's time, in seconds since the epoch.

        Returns:
            How many files were removed.
        """
        paths = [os.path.join(self.folder, name) for name in (*self._names(), *self._names(UNFINISHED))]
        return sum(_remove(path) for path in paths if now - _written(path, now) > older_than_seconds)

    def _names(self, ending: str = ENDING) -> list[str]:
        """List the files that are named as ours; no folder, no files."""
        try:
            found = os.listdir(self.folder)
        except OSError:
            return []
        if ending == UNFINISHED:
            return [n for n in found if n.startswith(f".{ids.TASK_PREFIX}") and n.endswith(UNFINISHED)]
        return [n for n in found if _parts(n)[1] > 0]

    def _newest_first(self, task_id: str | None) -> tuple[Ticket, ...]:
        names = sorted((n for n in self._names() if task_id in (None, _parts(n)[0])), key=_by_run, reverse=True)
        return tuple(self._readable(names))

    def _readable(self, names: list[str]) -> Iterator[Ticket]:
        for name in names:
            ticket = _parse(_read_own(os.path.join(self.folder, name)))
            if ticket is not None and _parts(name) == (ticket.task_id, ticket.run_id):
                yield ticket


# --- who owns what --------------------------------------------------------------------------------------------
def _owned_within(chain: tuple[ProcessInfo, ...], tickets: tuple[Ticket, ...]) -> tuple[Ticket, ...]:
    callers = {(p.pid, p.started) for p in chain}
    return tuple(t for t in tickets if owner(t) in callers)


# --- names ----------------------------------------------------------------------------------------------------
def _check_task_id(task_id: str) -> None:
    """A task id becomes part of a path: nothing else may."""
    if not len(ids.TASK_PREFIX) < len(task_id) <= LONGEST_TASK_ID or not ids.looks_like_task(task_id):
        raise InvalidValue(
            f"not a task id: {ascii(task_id)[:80]}",
            hint=f"a task id is {ids.TASK_PREFIX} and hex digits, as `create` and `list` print it",
            argument="task_id",
        )


def _file_name(ticket: Ticket) -> str:
    _check_task_id(ticket.task_id)
    if ticket.run_id < 1:
        raise InvalidValue(
            f"not a run id: {ticket.run_id}", hint="run ids are whole numbers from 1 on", argument="run_id"
        )
    return f"{ticket.task_id}.{ticket.run_id}{ENDING}"


def _parts(name: str) -> tuple[str, int]:
    """Return task id and run id of a file name, ("", 0) for one that is not ours."""
    task_id, _, number = name.removesuffix(ENDING).partition(".")
    if name.endswith(ENDING) and ids.looks_like_task(task_id) and number.isascii() and number.isdigit():
        return task_id, int(number[:LONGEST_NUMBER])
    return "", 0


def _by_run(name: str) -> int:
    return _parts(name)[1]


# --- files ----------------------------------------------------------------------------------------------------
def _write(path: str, text: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        while text:
            text = text[os.write(descriptor, text) :]
    finally:
        os.close(descriptor)


def _read_own(path: str) -> bytes:
    """Return the bytes of a plain file of this user, none of anything else (a link, a pipe, another's file)."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode) or facts.st_uid != os.geteuid() or facts.st_size > MOST_BYTES:
            return b""
        return os.read(descriptor, facts.st_size)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def _parse(text: bytes) -> Ticket | None:
    """Return the ticket that this text is, None if it is anything else."""
    try:
        found: dict[str, Any] = json.loads(text)
        chain = tuple(
            (int(pid), str(started), str(name), bool(manager)) for pid, started, name, manager in found["chain"]
        )
        words = {n: str(found[n]) for n in ("task_id", "lock", "workspace", "boot", "namespace")}
        return Ticket(run_id=int(found["run_id"]), chain=chain, **words)
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None


def _remove(path: str) -> bool:
    """Remove a file; whether it was there and could be removed."""
    try:
        os.unlink(path)
    except OSError:
        return False
    return True


def _written(path: str, now: float) -> float:
    """Return when a file was written; now, if it cannot be asked (it just went)."""
    try:
        return os.lstat(path).st_mtime
    except OSError:
        return now


def _refusal(folder: str, error: OSError) -> Refusal:
    if error.errno in NO_ROOM:
        return DiskFull(
            f"disk full: the claim's ticket cannot be written to {folder}", hint="make room, then claim again"
        )
    return StoreIo(
        f"the claim's ticket cannot be written to {folder}: {error.strerror or error}",
        hint="make that folder writable for this user, then claim again",
    )
