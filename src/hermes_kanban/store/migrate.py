"""Brings a file to the current schema: numbered steps, forward only, in one transaction, after a backup."""

from __future__ import annotations

import os

import apsw

from hermes_kanban.base.errors import StoreRefused
from hermes_kanban.base.lazy import module
from hermes_kanban.store.errors import not_a_board
from hermes_kanban.store.statements import statement

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    Migration = tuple[int, str, str]  # number, name, text

APPLICATION_ID = 0x484B_4231  # "HKB1": tells our files from others


def state_of(connection: apsw.Connection, location: str, known: int) -> int:
    """Return the schema version of an open file: 0 for an empty one.

    Args:
        known: the newest version that this code knows.

    Raises:
        StoreRefused: another program's file, or a newer schema than the code knows.
    """
    mark, version, tables = _facts(connection)
    if mark != APPLICATION_ID:
        if not tables and mark == 0:
            return 0
        if {"tasks", "task_runs", "task_events"} <= tables:
            raise StoreRefused(
                f"{location} is a board made by Hermes Agent, with another schema",
                hint="it was left as it is; set another HERMES_HOME for the boards of this program",
                reason="foreign_board",
            )
        raise not_a_board(None, location)
    if version > known:
        raise StoreRefused(
            f"{location} has schema {version}; this program knows schemas up to {known}",
            hint="upgrade hermes-kanban to the version that made this board",
            reason="newer_schema",
            needs=version,
        )
    return version


def _facts(connection: apsw.Connection) -> tuple[int, int, set[str]]:
    """Return mark, version and (of a file without our mark) tables, as of one instant."""
    alone = not connection.in_transaction
    if alone:
        connection.execute(statement("schema.begin_read"))
    try:
        mark = connection.pragma("application_id")
        version = int(connection.pragma("user_version") or 0)
        names = set() if mark == APPLICATION_ID else {row[0] for row in connection.execute(statement("schema.tables"))}
    finally:
        if alone and connection.in_transaction:
            connection.execute(statement("schema.commit"))
    return mark, version, names


def migrate(connection: apsw.Connection, location: str, steps: Sequence[Migration], values: dict[str, str]) -> None:
    """Apply what is missing. Harmless to repeat, and safe for two processes at once.

    Args:
        steps: number, name and text of each migration, in order.
        values: first rows of `board_meta` for a new file.

    Raises:
        StoreRefused: another program's file, or a newer schema than the code knows.
        OSError: there is no place for the backup.
    """
    version = state_of(connection, location, steps[-1][0])
    missing = [step for step in steps if step[0] > version]
    if not missing:
        return
    if version:
        _back_up(connection, f"{location}.before-{steps[-1][0]:04d}")
    with connection:
        for number, _name, text in missing:
            connection.execute(text)
            connection.pragma("user_version", number)
        connection.pragma("application_id", APPLICATION_ID)
        if not version:
            for key, value in values.items():
                connection.execute(statement("schema.set_meta"), {"key": key, "value": value})


def differences(connection: apsw.Connection, steps: Sequence[Migration]) -> list[str]:
    """Compare tables, view, indexes and triggers of a file with those that the migrations make; say what differs."""
    fresh = apsw.Connection(":memory:")
    try:
        for _number, _name, text in steps:
            fresh.execute(text)
        wanted, found = (dict(c.execute(statement("schema.objects"))) for c in (fresh, connection))
    finally:
        fresh.close()
    counters = [f"the counter of {row[0]} was changed" for row in connection.execute(statement("schema.counters"))]
    missing = [f"{name} is missing" for name in wanted if name not in found]
    changed = [f"{name} was changed" for name in wanted if name in found and found[name] != wanted[name]]
    return counters + missing + changed + [f"{name} is not ours" for name in found if name not in wanted]


def _back_up(connection: apsw.Connection, target: str) -> None:
    """Copy the file through the online backup call; an earlier whole copy of the same step is kept (C109)."""
    if os.path.exists(target):
        return
    half = f"{target}.part"
    try:
        os.close(os.open(half, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC, 0o600))
        copy = apsw.Connection(half)
        try:
            with copy.backup("main", connection, "main") as backup:
                while not backup.done:
                    backup.step(1000)
        finally:
            copy.close()
        folder = os.path.dirname(target)
        flush_names = module("hermes_kanban.base.flush").flush_names
        flush_names(folder)  # the copy is whole only without its journal
        os.rename(half, target)
        flush_names(folder)  # the steps that follow are sure too: the copy must not be lost alone
    except BaseException:
        _remove(half)
        raise


def _remove(path: str) -> None:
    for name in (path, f"{path}-journal", f"{path}-wal", f"{path}-shm"):
        try:
            os.unlink(name)
        except OSError:
            continue
