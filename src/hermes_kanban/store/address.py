"""Where a board's file is, as SQLite wants to be told: a URI that means exactly this path, and what lies beneath it."""

from __future__ import annotations

import os

import apsw

from hermes_kanban.base.errors import StoreRefused
from hermes_kanban.store import filesystem

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    class Options(Protocol):
        """What of a board's options matters here."""

        @property
        def allow_network(self) -> bool: ...

        @property
        def mounts(self) -> str: ...


_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-")


def of(location: str, options: Options, *, read_only: bool, make: bool) -> tuple[str, int]:
    """Return the URI of a board's file and the flags to open it with."""
    beneath = folder(location)
    kind = filesystem.type_of(beneath, options.mounts)
    if filesystem.is_network(kind) and not options.allow_network:
        raise StoreRefused(
            f"{beneath} is on a network file system ({kind}), where SQLite's locks do not hold",
            hint="put HERMES_HOME on a local disk, use a PostgreSQL board for several hosts, "
            "or set HERMES_ALLOW_NETWORK_FS=1 at your own risk",
            reason="network_filesystem",
            filesystem=kind,
        )
    read_only = read_only or filesystem.is_read_only(beneath)
    query = f"mode={'ro' if read_only else 'rwc' if make else 'rw'}"
    if make and not os.path.lexists(location):
        query += f"&modeof={_quoted(f'{os.path.realpath(location)}.lock')}"
    flags = apsw.SQLITE_OPEN_URI | (apsw.SQLITE_OPEN_READONLY if read_only else apsw.SQLITE_OPEN_READWRITE)
    flags |= apsw.SQLITE_OPEN_CREATE if make else 0
    if read_only and _must_be_immutable(location, beneath):
        query += "&immutable=1"
    return f"file://{_quoted(location)}?{query}", flags


def folder(location: str) -> str:
    """Return the folder that really holds the file: a link may lead to another file system."""
    return os.path.dirname(os.path.realpath(location))


def network_warning(location: str, options: Options) -> tuple[str, ...]:
    """Return what to tell of a board that was opened on a network file system all the same."""
    kind = filesystem.type_of(folder(location), options.mounts)
    if not filesystem.is_network(kind):
        return ()
    return (f"{location} is on a network file system ({kind}): used from two hosts at once it will lose data",)


def _must_be_immutable(location: str, beneath: str) -> bool:
    """On a read-only file system a WAL file's index cannot be made: without a log there is nothing to index."""
    if not filesystem.is_read_only(beneath):
        return False
    log = f"{os.path.realpath(location)}-wal"
    return not (os.path.exists(log) and os.stat(log).st_size)


def _quoted(path: str) -> str:
    """Write a path (any bytes) so that a URI, or a value in its query, means exactly this path."""
    return "".join(chr(b) if b in _PLAIN else f"%{b:02x}" for b in os.fsencode(os.path.abspath(path)))
