"""Translates what the engine raises into our refusals, in one table."""

from __future__ import annotations

import errno
import os

import apsw

from hermes_kanban.base.errors import BoardNotFound, Busy, DiskFull, Refusal, StoreIo, StoreRefused

SAFE_RELEASES = ((3, 51, 3), (3, 50, 7), (3, 44, 6))

_LEAST_ROOM = 65_536  # bytes: less than the index of a write-ahead log needs
_PLENTY = 64 * 1024 * 1024
_DAMAGED_HINT = "keep the file, restore the newest backup, and report what `hermes kanban verify` says"


def translate(error: apsw.Error, location: str) -> Refusal | None:
    """Return the refusal for an engine's error, or None when it is a fault of ours."""
    for kind, build in _TABLE:
        if isinstance(error, kind):
            return build(error, location)
    return None


def translate_os(error: OSError, location: str) -> Refusal:
    """Return the refusal for an error of the operating system beside a board's file."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return _full(error, location)
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return _read_only(error, location)
    return _io(error, location)


def unsafe_release(version: str) -> StoreRefused | None:
    """Return a refusal when this SQLite can lose committed pages of a WAL file that several processes write.

    Fixed in 3.51.3, and in 3.50.7 and 3.44.6 of their lines (specification, page 4).
    """
    number = tuple(int(part) for part in version.split(".")[:3])
    newest = SAFE_RELEASES[0]
    if number >= newest or any(number[:2] == safe[:2] and number >= safe for safe in SAFE_RELEASES):
        return None
    return StoreRefused(
        f"SQLite {version} can lose acknowledged writes when several processes share a board",
        hint="install a current apsw (`pip install -U apsw`): SQLite 3.51.3, 3.50.7 or 3.44.6 and later are safe",
        reason="unsafe_sqlite",
    )


def _busy(_error: Exception, location: str) -> Refusal:
    return Busy(f"the board {location} is locked by another program", hint="nothing was changed; try again")


def _no_locks(error: Exception, location: str) -> Refusal:
    return Busy(
        f"the locks of {location} do not work now: {error}",
        hint="nothing was changed; try again; if it stays so, put HERMES_HOME on a local disk",
    )


def _full(_error: Exception, location: str) -> Refusal:
    if isinstance(_error, apsw.FullError) and _room(location) > _PLENTY:
        return _out_of_numbers(location)
    return DiskFull(f"disk full: no room left for {location}", hint="make room, then try again; nothing was changed")


def _room(location: str) -> int:
    """Return how many bytes the file system has for us."""
    try:
        found = os.statvfs(os.path.dirname(location) or ".")
    except OSError:
        return 0
    return found.f_bavail * found.f_frsize


def _out_of_numbers(location: str) -> Refusal:
    return StoreRefused(
        f"{location} has no number left for a new row, though the disk has room: raw SQL changed its counters",
        hint=_DAMAGED_HINT,
        reason="damaged",
    )


def _other_schema(error: Exception, location: str) -> Refusal:
    return StoreRefused(
        f"{location} has not the schema that it was made with: {error}",
        hint="`hermes kanban verify` says what was changed; restore the newest backup",
        reason="damaged",
    )


def _io(error: Exception, location: str) -> Refusal:
    if _no_room(location):  # SQLite says "I/O error" when it is the log's index that finds no room
        return _full(error, location)
    return StoreIo(f"the disk failed under {location}: {error}", hint="look at the disk, then try again")


def _no_room(location: str) -> bool:
    try:
        found = os.statvfs(os.path.dirname(location) or ".")
    except OSError:
        return False
    return found.f_bavail * found.f_frsize < _LEAST_ROOM


def _read_only(error: Exception, location: str) -> Refusal:
    if left_half(error):
        return empty(location)
    return StoreRefused(
        f"{location} is on a read-only file system or may not be written",
        hint="reads work; to write, mount it writable or give this user the right to write",
        reason="read_only",
    )


def left_half(error: Exception) -> bool:
    """Whether a writer died in the midst of a change that only a writer can undo. Once a board is made none can."""
    return getattr(error, "extendedresult", 0) == apsw.SQLITE_READONLY_ROLLBACK


def _damaged(error: Exception, location: str) -> Refusal:
    return StoreRefused(f"{location} is damaged: {error}", hint=_DAMAGED_HINT, reason="damaged")


def not_a_board(_error: object, location: str) -> Refusal:
    """Return the refusal for a file that is no board of ours."""
    return StoreRefused(
        f"{location} is not a board of Hermes Kanban",
        hint="name another file, or set another HERMES_HOME; this one was left as it is",
        reason="not_a_board",
    )


def cannot_upgrade(location: str, version: int, newest: int) -> StoreRefused:
    """Return the refusal for a board of an older release that cannot be written."""
    return StoreRefused(
        f"{location} has schema {version}, needs an upgrade to {newest}, and is on a read-only file system",
        hint="mount it writable for one command, or read it with the release that made it",
        reason="read_only",
    )


def empty(location: str) -> BoardNotFound:
    """Return the refusal for a file of ours in which no board is yet."""
    return BoardNotFound(
        f"{location} is empty: its making is under way, or was interrupted",
        hint="try again; if it stays so, run `hermes kanban init` (or `boards create` with its name) again",
    )


def _cannot_open(error: Exception, location: str) -> Refusal:
    return StoreRefused(
        f"{location} cannot be opened: {error}",
        hint="check that the file and its folder are there and belong to this user",
        reason="not_a_board",
    )


_TABLE = (
    (apsw.BusyError, _busy),
    (apsw.LockedError, _busy),
    (apsw.ProtocolError, _no_locks),
    (apsw.FullError, _full),
    (apsw.ReadOnlyError, _read_only),
    (apsw.PermissionsError, _read_only),
    (apsw.IOError, _io),
    (apsw.CorruptError, _damaged),
    (apsw.NotADBError, not_a_board),
    (apsw.CantOpenError, _cannot_open),
    (apsw.SQLError, _other_schema),
)
