"""Loads the named SQL statements. Python holds no SQL: it asks for a statement by name.

A file `tasks.sql` holds statements that begin with a line `-- name: tasks.by_id`. A statement may have the
place holders `{columns}`, `{assignments}`, `{filters}` … which `compose` fills from other named fragments or
from column names of a record; values are always bound.
"""

from __future__ import annotations

import os

_FOLDER = os.path.join(os.path.dirname(__file__), "sql")
_MARK = "-- name: "
_loaded: dict[str, dict[str, str]] = {}
_composed: dict[tuple[str, ...], str] = {}


def parse(text: str) -> dict[str, str]:
    """Split the text of a file into its named statements, without their comments."""
    found: dict[str, str] = {}
    for chunk in text.split(_MARK)[1:]:
        name, _, body = chunk.partition("\n")
        lines = [line for line in body.splitlines() if line.strip() and not line.lstrip().startswith("--")]
        found[name.strip()] = "\n".join(lines).rstrip().rstrip(";")
    return found


def statement(name: str) -> str:
    """Return one statement by its name; its file is read once.

    Raises:
        KeyError: no file holds it.
    """
    file = name.partition(".")[0]
    if file not in _loaded:
        with open(os.path.join(_FOLDER, f"{file}.sql"), encoding="utf-8") as handle:
            _loaded[file] = parse(handle.read())
    return _loaded[file][name]


def assigning(name: str, columns: tuple[str, ...]) -> str:
    """Return an UPDATE whose `{assignments}` sets these columns from values bound under their names."""
    key = (name, *columns)
    if key not in _composed:
        _composed[key] = statement(name).replace("{assignments}", ", ".join(f"{c} = :{c}" for c in columns))
    return _composed[key]


def filtered(name: str, filters: tuple[str, ...]) -> str:
    """Return a SELECT whose `{filters}` is the conjunction of these named fragments (none: all rows)."""
    key = (name, "?", *filters)
    if key not in _composed:
        clause = " AND ".join(statement(f) for f in filters) or "TRUE"
        _composed[key] = statement(name).replace("{filters}", clause)
    return _composed[key]


def migrations(engine: str) -> list[tuple[int, str, str]]:
    """Return the numbered migrations of an engine in order: number, name, text."""
    folder = os.path.join(_FOLDER, "migrations", engine)
    found = []
    for file in sorted(os.listdir(folder)):
        if file.endswith(".sql"):
            with open(os.path.join(folder, file), encoding="utf-8") as handle:
                found.append((int(file[:4]), file[:-4], handle.read()))
    return found
