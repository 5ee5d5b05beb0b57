"""SQLite through apsw: one file per board, WAL, immediate write transactions behind a fair queue.

No code of ours opens, copies or closes a board's file by other means than SQLite itself: on POSIX that would
drop SQLite's locks in this process.
"""

from __future__ import annotations

import os
import stat
import sys
from contextlib import contextmanager

import apsw

from hermes_kanban.base.errors import BoardNotFound, Refusal, StoreRefused, Unexpected
from hermes_kanban.base.record import Record, record
from hermes_kanban.store import address, filesystem, migrate, statements
from hermes_kanban.store.errors import (
    cannot_upgrade,
    empty,
    left_half,
    not_a_board,
    translate,
    translate_os,
    unsafe_release,
)
from hermes_kanban.store.feed import SocketFeed, poke
from hermes_kanban.store.turnstile import Turnstile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from apsw import SQLiteValue

    from hermes_kanban.base.clock import Clock
    from hermes_kanban.store.driver import Row
    from hermes_kanban.store.migrate import Migration

GUARD = "raw SQL cannot write to a board: use the command hermes kanban"
SCHEMA_VERSION = 2  # the newest of our migrations; here too, so that no command has to read them


@record
class SqliteOptions(Record):
    """How a board's file is opened.

    Args:
        wait_seconds: the longest wait for the write lock.
        full_durability: False makes every write NORMAL (survives any process's death, not a power loss).
        runtime_folder: where the sockets of change notice are.
        allow_network: open on a network file system all the same.
        vfs: another VFS than the system's own (fault injection).
        mounts: the table of mounted file systems.
        migrations: other steps of the schema than our own.
    """

    wait_seconds: float = 10.0
    full_durability: bool = True
    runtime_folder: str = ""
    allow_network: bool = False
    vfs: str | None = None
    mounts: str = filesystem.MOUNTS
    migrations: tuple[Migration, ...] = ()

    @property
    def newest(self) -> int:
        """The number of the schema that a board is to have."""
        return self.migrations[-1][0] if self.migrations else SCHEMA_VERSION


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
        self._turnstile = _turnstile(location)
        self._file = _identity(location)
        self.warnings: tuple[str, ...] = ()
        with _translated(location):
            self._connection = _open(location, options, read_only=read_only)
            try:
                self._prepare()
            except BaseException:
                self._connection.close()
                raise
        if options.allow_network:
            self.warnings = address.network_warning(location, options)

    def _prepare(self) -> None:
        self._patience(self._options.wait_seconds)
        self._connection.create_scalar_function(GUARD, _nothing, 0, deterministic=True)
        # Plans do not depend on bound values: without this each new value compiles a statement anew (100 us).
        self._connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        self._connection.pragma("foreign_keys", True)
        if sys.platform == "darwin":
            self._connection.pragma("fullfsync", True)

    @contextmanager
    def read(self) -> Iterator[SqliteTransaction]:
        """Begin a transaction that only reads."""
        self._still_ours()
        with _translated(self.location):
            self._connection.execute(statements.statement("schema.begin_read"))
            try:
                yield SqliteTransaction(self._connection, self._clock.now_ms())
            finally:
                self._end("schema.commit")

    @contextmanager
    def write(self, *, durable: bool = True) -> Iterator[SqliteTransaction]:
        """Begin a transaction that writes; it commits at the end, or changes nothing."""
        self._still_ours()
        with _translated(self.location):
            waited = self._take_turn()
            try:
                self._flush_mode("FULL" if durable and self._options.full_durability else "NORMAL")
                self._connection.execute(statements.statement("schema.begin_write"))
                try:
                    migrate.state_of(self._connection, self.location, self._options.newest)
                    yield SqliteTransaction(self._connection, self._clock.now_ms())
                    self._connection.execute(statements.statement("schema.commit"))
                except BaseException:
                    self._end("schema.rollback")
                    raise
            finally:
                self._turnstile.leave()
                if waited:
                    self._patience(self._options.wait_seconds)
        poke(self._options.runtime_folder, self.location)

    def feed(self) -> SocketFeed:
        """Return a feed of change notices."""
        return SocketFeed(self._options.runtime_folder, self.location, self._version, self._clock)

    def check_integrity(self) -> list[str]:
        """Return what SQLite finds wrong with the file."""
        self._still_ours()
        with _translated(self.location):
            try:
                found = [str(row[0]) for row in self._connection.execute(statements.statement("schema.integrity"))]
                broken = self._connection.execute(statements.statement("schema.foreign_keys")).fetchall()
            except apsw.CorruptError as error:  # the damage may stop the check itself
                return [str(error)]
        return [line for line in found if line != "ok"] + [f"dangling reference: {row}" for row in broken]

    def schema_differences(self) -> list[str]:
        """Return what in the file's schema is not as the migrations made it, the write guards included (P72)."""
        self._still_ours()
        with _translated(self.location):
            return migrate.differences(self._connection, self._options.migrations or statements.migrations("sqlite"))

    def close(self) -> None:
        """Close the file (in a forked child it is the parent's: nothing is done)."""
        if os.getpid() == self._pid:
            self._connection.close()

    def _take_turn(self) -> bool:
        """Wait in the queue; what is left of the wait is for those who lock the file without queueing."""
        began = self._clock.monotonic()
        try:
            waited = self._turnstile.enter(self._options.wait_seconds)
        except OSError as error:
            raise translate_os(error, self.location) from error
        if waited:
            self._patience(self._options.wait_seconds - (self._clock.monotonic() - began))
        return waited

    def _patience(self, seconds: float) -> None:
        self._connection.set_busy_timeout(max(round(seconds * 1000), 0))

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
        self._still_ours()
        with _translated(self.location):
            return int(self._connection.pragma("data_version"))

    def _still_ours(self) -> None:
        """Refuse a connection that crossed a fork, and one whose file was deleted or replaced."""
        if os.getpid() != self._pid:
            raise Unexpected("a board's connection was used in a forked process", hint="open the board anew there")
        if _identity(self.location) != self._file:
            raise BoardNotFound(
                f"the board {self.location} was deleted or replaced", hint="look for it, then open it anew"
            )


def _identity(location: str) -> tuple[int, int]:
    """Return which file has this name now."""
    try:
        found = os.stat(location)
    except OSError:
        return (0, 0)
    return (found.st_dev, found.st_ino)


def create(location: str, options: SqliteOptions, values: dict[str, str]) -> None:
    """Make a board's file with the current schema, or bring an older one to it; harmless to repeat.

    Args:
        values: first rows of `board_meta` of a new file.

    Raises:
        Busy, DiskFull, StoreIo: safe to try again.
        StoreRefused: the place cannot hold a board, or holds something else.
    """
    turnstile = _turnstile(location)
    try:
        _refuse_special(location, make=True)
        with _translated(location):
            turnstile.enter(options.wait_seconds)
            try:
                connection = _connect(location, options, read_only=False, make=True)
                try:
                    _bring_forward(connection, location, options, values)
                finally:
                    connection.close()
            finally:
                turnstile.leave()
    except OSError as error:
        raise translate_os(error, location) from error


def is_unmade(location: str) -> bool:
    """Whether a file is what an interrupted making leaves: a board's file of this program without a board in it."""
    options = SqliteOptions(allow_network=True)  # whether it may be used is asked by whoever opens it
    try:
        with _translated(location):
            connection = _connect(location, options, read_only=False)
            try:
                _be_patient(connection, options)
                return not migrate.state_of(connection, location, options.newest)
            finally:
                connection.close()
    except Refusal:
        return False


def refuse_foreign(location: str, options: SqliteOptions) -> None:
    """Look at an existing file before a board is made of it; nothing is written.

    Raises:
        StoreRefused: it holds something else.
    """
    with _translated(location):
        connection = _connect(location, options, read_only=True)
        try:
            _be_patient(connection, options)
            migrate.state_of(connection, location, options.newest)
        except apsw.ReadOnlyError as error:  # what an interrupted making left is looked at by the next one
            if not left_half(error):
                raise
        finally:
            connection.close()


def _be_patient(connection: apsw.Connection, options: SqliteOptions) -> None:
    connection.set_busy_timeout(round(options.wait_seconds * 1000))


def _bring_forward(connection: apsw.Connection, location: str, options: SqliteOptions, values: dict[str, str]) -> None:
    _be_patient(connection, options)
    connection.create_scalar_function(GUARD, _nothing, 0, deterministic=True)
    migrate.state_of(connection, location, options.newest)
    mode = connection.pragma("journal_mode", "wal")
    if mode != "wal":
        raise StoreRefused(
            f"{location} is on a file system where SQLite cannot keep a write-ahead log (it offers {mode!r})",
            hint="put HERMES_HOME on a local disk",
            reason="network_filesystem",
        )
    migrate.migrate(connection, location, options.migrations or statements.migrations("sqlite"), values)


def _open(location: str, options: SqliteOptions, *, read_only: bool) -> apsw.Connection:
    """Open a board of ours; one that an older release made is brought to the current schema first (C106)."""
    for _ in range(2):
        connection = _connect(location, options, read_only=read_only)
        try:
            # The very first read may meet the recovery of a log that a killed writer left, or its last closing.
            _be_patient(connection, options)
            version = migrate.state_of(connection, location, options.newest)
            if not version:
                raise empty(location)
            if version == options.newest:
                return connection
        except BaseException:
            connection.close()
            raise
        connection.close()
        if filesystem.is_read_only(address.folder(location)):
            raise cannot_upgrade(location, version, options.newest)
        create(location, options, {})
    raise Unexpected(f"{location} has schema {version} still after its upgrade", hint="report this")


def _connect(location: str, options: SqliteOptions, *, read_only: bool, make: bool = False) -> apsw.Connection:
    refusal = unsafe_release(apsw.sqlite_lib_version())
    if refusal:
        raise refusal
    try:
        _refuse_special(location, make=make)
        return apsw.Connection(*address.of(location, options, read_only=read_only, make=make), vfs=options.vfs)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise BoardNotFound(f"there is no board at {location}", hint="make it with `hermes kanban init`") from error
    except OSError as error:
        raise translate_os(error, location) from error


def _refuse_special(location: str, *, make: bool) -> None:
    """A folder, a device or a pipe is no board: SQLite would wait for it, or change its mode."""
    try:
        mode = os.stat(location).st_mode
    except FileNotFoundError:
        if os.path.islink(location):  # it leads nowhere
            raise not_a_board(None, location) from None
        if not make:
            raise
        return
    if not stat.S_ISREG(mode):
        raise not_a_board(None, location)


def _turnstile(location: str) -> Turnstile:
    """Return the queue of a board, one however its file is named (C118)."""
    return Turnstile(f"{os.path.realpath(location)}.lock")


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
