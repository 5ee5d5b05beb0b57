"""SQLite through apsw: one file per board, WAL, immediate write transactions behind a fair queue.

No code of ours opens, copies or closes a board's file by other means than SQLite itself: on POSIX that would
drop SQLite's locks in this process.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager

import apsw

from hermes_kanban.base.errors import BoardNotFound, StoreRefused, Unexpected
from hermes_kanban.base.record import Record, record
from hermes_kanban.store import filesystem, migrate, statements
from hermes_kanban.store.errors import translate, translate_os, unsafe_release
from hermes_kanban.store.feed import SocketFeed, poke
from hermes_kanban.store.turnstile import Turnstile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from apsw import SQLiteValue

    from hermes_kanban.base.clock import Clock
    from hermes_kanban.store.driver import Row

GUARD = "raw SQL cannot write to a board: use the command hermes kanban"
SCHEMA_VERSION = 1


@record
class SqliteOptions(Record):
    """How a board's file is opened.

    Args:
        wait_seconds: the longest wait for the write lock.
        full_durability: False makes every write NORMAL (survives any process's death, not a power loss).
        runtime_folder: where the sockets of change notice are.
        allow_network: open on a network file system all the same.
        vfs: another VFS than the system's own (fault injection).
    """

    wait_seconds: float = 10.0
    full_durability: bool = True
    runtime_folder: str = ""
    allow_network: bool = False
    vfs: str | None = None


class SqliteTransaction:
    """One transaction; see `driver.Transaction`."""

    def __init__(self, connection: apsw.Connection, now_ms: int) -> None:
        self._connection = connection
        self.now_ms = now_ms
        self.now = now_ms // 1000

    def one(self, name: str, **values: Any) -> Row | None:
        """Return the first row of a named statement."""
        cursor = self._connection.execute(statements.statement(name), values)
        row: Row | None = cursor.fetchone()
        cursor.close()
        return row

    def all(self, name: str, **values: Any) -> list[Row]:
        """Return all rows of a named statement."""
        return self._connection.execute(statements.statement(name), values).fetchall()

    def search(self, name: str, filters: tuple[str, ...], **values: Any) -> list[Row]:
        """Return all rows of a named statement under these named filters."""
        return self._connection.execute(statements.filtered(name, filters), values).fetchall()

    def run(self, name: str, **values: Any) -> int:
        """Execute a named statement; return how many rows it changed."""
        self._connection.execute(statements.statement(name), values)
        return self._connection.changes()

    def insert(self, name: str, **values: Any) -> int:
        """Execute a named INSERT; return the new row's number."""
        self._connection.execute(statements.statement(name), values)
        return self._connection.last_insert_rowid()

    def assign(self, name: str, changes: dict[str, Any], **values: Any) -> int:
        """Execute a named UPDATE that sets these columns; return how many rows it changed."""
        self._connection.execute(statements.assigning(name, tuple(changes)), changes | values)
        return self._connection.changes()


class SqliteStore:
    """A board's file; see `driver.Store`."""

    def __init__(self, location: str, options: SqliteOptions, clock: Clock, *, read_only: bool) -> None:
        self.location = location
        self._options = options
        self._clock = clock
        self._pid = os.getpid()
        self._synchronous = ""
        self._turnstile = Turnstile(f"{location}.lock")
        with _translated(location):
            self._connection = _connect(location, options, read_only=read_only)
            try:
                if not migrate.state_of(self._connection, location, SCHEMA_VERSION):
                    raise _empty(location)
                self._prepare()
            except BaseException:
                self._connection.close()
                raise

    def _prepare(self) -> None:
        self._connection.set_busy_timeout(round(self._options.wait_seconds * 1000))
        self._connection.create_scalar_function(GUARD, _nothing, 0, deterministic=True)
        # Plans do not depend on bound values: without this each new value compiles a statement anew (100 us).
        self._connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        self._connection.pragma("foreign_keys", True)
        if sys.platform == "darwin":
            self._connection.pragma("fullfsync", True)

    @contextmanager
    def read(self) -> Iterator[SqliteTransaction]:
        """Begin a transaction that only reads."""
        self._same_process()
        with _translated(self.location):
            self._connection.execute(statements.statement("schema.begin_read"))
            try:
                yield SqliteTransaction(self._connection, self._clock.now_ms())
            finally:
                self._end("schema.commit")

    @contextmanager
    def write(self, *, durable: bool = True) -> Iterator[SqliteTransaction]:
        """Begin a transaction that writes; it commits at the end, or changes nothing."""
        self._same_process()
        with _translated(self.location):
            self._turnstile_or_refuse()
            try:
                self._flush_mode("FULL" if durable and self._options.full_durability else "NORMAL")
                self._connection.execute(statements.statement("schema.begin_write"))
                try:
                    migrate.state_of(self._connection, self.location, SCHEMA_VERSION)
                    yield SqliteTransaction(self._connection, self._clock.now_ms())
                    self._connection.execute(statements.statement("schema.commit"))
                except BaseException:
                    self._end("schema.rollback")
                    raise
            finally:
                self._turnstile.leave()
        poke(self._options.runtime_folder, self.location)

    def feed(self) -> SocketFeed:
        """Return a feed of change notices."""
        return SocketFeed(self._options.runtime_folder, self.location, self._version, self._clock)

    def check_integrity(self) -> list[str]:
        """Return what SQLite finds wrong with the file."""
        with _translated(self.location):
            found = [str(row[0]) for row in self._connection.execute(statements.statement("schema.integrity"))]
            broken = self._connection.execute(statements.statement("schema.foreign_keys")).fetchall()
        return [line for line in found if line != "ok"] + [f"dangling reference: {row}" for row in broken]

    def guards(self) -> list[str]:
        """Return the names of the write guards that are missing (P72)."""
        there = {row[0] for row in self._connection.execute(statements.statement("schema.triggers"))}
        text = statements.migrations("sqlite")[0][2]
        wanted = {line.split()[2] for line in text.splitlines() if line.startswith("CREATE TRIGGER guard_")}
        return sorted(wanted - there)

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def _turnstile_or_refuse(self) -> None:
        try:
            self._turnstile.enter(self._options.wait_seconds)
        except OSError as error:
            raise translate_os(error, self.location) from error

    def _flush_mode(self, mode: str) -> None:
        if mode != self._synchronous:
            self._connection.pragma("synchronous", mode)
            self._synchronous = mode

    def _end(self, name: str) -> None:
        """End a transaction that may have ended already; the error under way stays the one that is seen (C119)."""
        if self._connection.in_transaction:
            try:
                self._connection.execute(statements.statement(name))
            except apsw.Error:
                return

    def _version(self) -> int:
        return int(self._connection.pragma("data_version"))

    def _same_process(self) -> None:
        if os.getpid() != self._pid:
            raise Unexpected("a board's connection was used in a forked process", hint="open the board anew there")


def create(location: str, options: SqliteOptions, values: dict[str, str]) -> None:
    """Make a board's file with the current schema, or bring an older one to it; harmless to repeat.

    Args:
        values: first rows of `board_meta`.

    Raises:
        StoreRefused: the place cannot hold a board, or holds something else.
    """
    turnstile = Turnstile(f"{location}.lock")
    with _translated(location):
        try:
            turnstile.enter(options.wait_seconds)
        except OSError as error:
            raise translate_os(error, location) from error
        try:
            connection = _connect(location, options, read_only=False, make=True)
            try:
                connection.set_busy_timeout(round(options.wait_seconds * 1000))
                connection.create_scalar_function(GUARD, _nothing, 0, deterministic=True)
                steps = statements.migrations("sqlite")
                migrate.state_of(connection, location, steps[-1][0])
                connection.pragma("journal_mode", "wal")
                migrate.migrate(connection, location, steps, values)
            finally:
                connection.close()
        finally:
            turnstile.leave()


def _connect(location: str, options: SqliteOptions, *, read_only: bool, make: bool = False) -> apsw.Connection:
    refusal = unsafe_release(apsw.sqlite_lib_version())
    if refusal:
        raise refusal
    folder = os.path.dirname(location) or "."
    if not make and not os.path.lexists(location):
        raise BoardNotFound(f"there is no board at {location}", hint="make it with `hermes kanban init`")
    kind = filesystem.type_of(folder)
    if filesystem.is_network(kind) and not options.allow_network:
        raise StoreRefused(
            f"{folder} is on a network file system ({kind}), where SQLite's locks do not hold",
            hint="put HERMES_HOME on a local disk, use a PostgreSQL board for several hosts, "
            "or set HERMES_ALLOW_NETWORK_FS=1 at your own risk",
            reason="network_filesystem",
            filesystem=kind,
        )
    read_only = read_only or filesystem.is_read_only(folder)
    mode = "ro" if read_only else "rwc" if make else "rw"
    query = f"mode={mode}"
    if make:
        query += f"&modeof={_quoted(f'{location}.lock')}"
    flags = apsw.SQLITE_OPEN_URI | (apsw.SQLITE_OPEN_READONLY if read_only else apsw.SQLITE_OPEN_READWRITE)
    flags |= apsw.SQLITE_OPEN_CREATE if make else 0
    address = f"file:{_quoted(location)}?{query}"
    if read_only and _must_be_immutable(location, folder):
        address += "&immutable=1"
    return apsw.Connection(address, flags=flags, vfs=options.vfs)


def _must_be_immutable(location: str, folder: str) -> bool:
    """On a read-only file system a WAL file's index cannot be made: without a log there is nothing to index."""
    if not filesystem.is_read_only(folder):
        return False
    log = f"{location}-wal"
    return not (os.path.exists(log) and os.stat(log).st_size)


def _quoted(path: str) -> str:
    """Escape what has a meaning in a URI."""
    return os.path.abspath(path).replace("%", "%25").replace("?", "%3f").replace("#", "%23")


def _empty(location: str) -> StoreRefused:
    return StoreRefused(
        f"{location} is empty: its making was interrupted",
        hint="run `hermes kanban init` (or `boards create` with its name) again",
        reason="not_a_board",
    )


@contextmanager
def _translated(location: str) -> Iterator[None]:
    try:
        yield
    except apsw.Error as error:
        refusal = translate(error, location)
        if refusal is None:
            raise
        raise refusal from error


def _nothing(*_values: SQLiteValue) -> SQLiteValue:
    return None
