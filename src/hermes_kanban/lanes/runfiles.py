"""The files of a run: its lock, whose holder lives (D13), the roster inside of it, and the exit record (P45).

`N.lock` is made and locked by whoever starts run N and passed on to the shim, which holds it until its processes are
proven gone: the kernel frees it on any death, and it means the same in every pid namespace. `N.exit` exists only when
no process of the run is left. Both lie in the board's `runs` folder, 0600 in 0700.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import select

from hermes_kanban.base import strictjson
from hermes_kanban.base.errors import DiskFull, Refusal, Retryable, StoreIo
from hermes_kanban.base.flush import flush_names
from hermes_kanban.base.record import Record, record
from hermes_kanban.model.exits import ExitRecord

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Identity = tuple[int, str]  # pid and start token (D12)

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
MOST_BYTES = 1_048_576
RESERVED_BYTES = 32_768  # more than an exit record ever takes
TRIES, PAUSE_MS = 20, 10  # a look by `held` takes the lock for a moment: it must not spoil a start


@record
class Roster(Record):
    """Which processes a run had when its shim looked last.

    Args:
        run: its number.
        boot: the boot (and pid namespace) in which these pids mean something.
        looked: when that was, in the unit of start tokens (0: unknown).
        shim, worker: pid and start token.
        known: all descendants at that time.
        sessions: the sessions that they were in, which are the run's own.
    """

    run: int
    boot: str
    looked: float
    shim: Identity
    worker: Identity | None
    known: tuple[Identity, ...]
    sessions: tuple[int, ...]


def lock_path(folder: str, run: int) -> str:
    """Return the path of a run's lock file."""
    return os.path.join(folder, f"{run}.lock")


def exit_path(folder: str, run: int) -> str:
    """Return the path of a run's exit record."""
    return os.path.join(folder, f"{run}.exit")


# --- the lock -------------------------------------------------------------------------------------------------
def take_lock(folder: str, run: int) -> int:
    """Make a run's lock file and lock it; return its descriptor, close-on-exec, for the shim to inherit (D13).

    The folder is made on demand.

    Raises:
        Retryable: somebody holds it: the run has a shim.
        DiskFull, StoreIo: it cannot be made.
    """
    path = lock_path(folder, run)
    descriptor = -1
    try:
        _make(folder)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        locked = _locked(descriptor)
    except OSError as error:
        if descriptor >= 0:
            os.close(descriptor)
        raise _refusal(path, error) from error
    if not locked:
        os.close(descriptor)
        raise Retryable(f"run {run} has a shim already: {path} is locked", hint="look at the run, it is going on")
    return descriptor


def _make(folder: str) -> None:
    """Make the folder so that it lasts: else a power cut takes it, with the records that were flushed into it (T3)."""
    if not os.path.isdir(folder):
        os.makedirs(folder, 0o700, exist_ok=True)
        flush_names(os.path.dirname(folder))


def _locked(descriptor: int) -> bool:
    for _ in range(TRIES):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            select.select((), (), (), PAUSE_MS / 1000)
        else:
            return True
    return False


def held(folder: str, run: int) -> bool:
    """Whether somebody holds the run's lock: its shim, or its starter, lives on this host (D13).

    Looking changes nothing; a file that is not there is held by nobody.

    Raises:
        StoreIo: it cannot be known, since the file cannot be opened.
    """
    path = lock_path(folder, run)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise _refusal(path, error) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


# --- the roster -----------------------------------------------------------------------------------------------
def write_roster(descriptor: int, roster: Roster) -> None:
    """Write the roster into the lock file; a disk without room leaves the former one, or none (it is a help only)."""
    data = json.dumps(roster.as_dict(), separators=(",", ":")).encode() + b"\n"
    try:
        os.pwrite(descriptor, data, 0)
        os.ftruncate(descriptor, len(data))
    except OSError:
        return


def read_roster(folder: str, run: int) -> Roster | None:
    """Return the roster of a run, None where there is none or a damaged one."""
    found = _read(lock_path(folder, run))
    try:
        return None if found is None else _roster(found)
    except (KeyError, TypeError, ValueError):
        return None


def _roster(found: dict[str, Any]) -> Roster:
    return Roster(
        run=_number(found["run"]),
        boot=str(found["boot"]),
        looked=float(found["looked"]),
        shim=_identity(found["shim"]),
        worker=None if found["worker"] is None else _identity(found["worker"]),
        known=tuple(map(_identity, found["known"])),
        sessions=tuple(map(_number, found["sessions"])),
    )


def _identity(found: Any) -> Identity:
    pid, started = found
    return _number(pid), str(started)


def _number(found: Any) -> int:
    if type(found) is not int:
        raise TypeError(found)
    return found


# --- the exit record ------------------------------------------------------------------------------------------
def reserve(folder: str, run: int) -> None:
    """Keep room for the exit record, so that a disk which fills up meanwhile cannot keep the end from being known.

    Where it cannot be kept nothing is: the record is then written as far as the disk allows.
    """
    try:
        descriptor = _open_part(folder, run)
    except OSError:
        return
    try:
        os.pwrite(descriptor, bytes(RESERVED_BYTES), 0)
    except OSError:
        return
    finally:
        os.close(descriptor)


def give_back(folder: str, run: int) -> None:
    """Remove what `reserve` kept: this run leaves no record."""
    try:
        os.unlink(_part_path(folder, run))
    except OSError:
        return


def write_exit(folder: str, found: ExitRecord) -> None:
    """Write the record of a run's end so that it lasts: whole or not at all, also through a power cut (P45).

    Raises:
        DiskFull, StoreIo: it cannot be written; there is none then, or a whole one that a power cut may take.
    """
    data = json.dumps(found.as_dict(), separators=(",", ":")).encode() + b"\n"
    path = exit_path(folder, found.run)
    try:
        descriptor = _open_part(folder, found.run)
        try:
            os.pwrite(descriptor, data, 0)
            os.ftruncate(descriptor, len(data))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.rename(_part_path(folder, found.run), path)
        flush_names(folder)
    except OSError as error:
        raise _refusal(path, error) from error


def read_exit(folder: str, run: int) -> ExitRecord | None:
    """Return how a run ended; None where nobody wrote it down, or it is damaged."""
    found = _read(exit_path(folder, run))
    try:
        return None if found is None else _exit_record(found)
    except (KeyError, TypeError, ValueError):
        return None


KINDS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("run", "started_ms", "ended_ms", "output_bytes", "peak_memory"), (int,)),
    **dict.fromkeys(("task", "lock", "stop", "hint", "policy"), (str,)),
    **dict.fromkeys(("code", "signal", "retry_after"), (int, type(None))),
    "overstayed": (bool,),
    "spawn_error": (str, type(None)),
}


def _exit_record(found: dict[str, Any]) -> ExitRecord:
    values = {name: found[name] for name in ExitRecord.FIELDS if name in found}
    for name, kinds in KINDS.items():
        if name in values and (type(values[name]) not in kinds or (int in kinds and (values[name] or 0) < 0)):
            raise TypeError(name)
    values["tail"] = tuple(map(str, values.get("tail") or ()))
    worker = values.get("worker")
    values["worker"] = None if worker is None else _identity(worker)
    return ExitRecord(**values)


def _part_path(folder: str, run: int) -> str:
    return os.path.join(folder, f"{run}.exit.part")


def _open_part(folder: str, run: int) -> int:
    return os.open(_part_path(folder, run), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


# --- both -----------------------------------------------------------------------------------------------------
def _read(path: str) -> dict[str, Any] | None:
    """Return the JSON object on a file's first line, None if there is none: a longer, older text may stand behind."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        return strictjson.parse(os.read(descriptor, MOST_BYTES).partition(b"\n")[0], halves="surrogatepass")
    except (OSError, ValueError):
        return None
    finally:
        os.close(descriptor)


def _refusal(path: str, error: OSError) -> Refusal:
    if error.errno in NO_ROOM:
        return DiskFull(f"disk full: {path} cannot be written", hint="make room; it is tried again")
    return StoreIo(
        f"{path} cannot be used: {error.strerror or error}", hint="make the board's `runs` folder usable for this user"
    )
