"""Boards as folders: slugs, where each board's files are, which board a command means.

Resolution: `--board`, then HERMES_KANBAN_BOARD, then the file `kanban/current`, then `default`. Looking never
creates: only `init` and `boards create` make a board.
"""

from __future__ import annotations

import errno
import os

from hermes_kanban.base import lazy
from hermes_kanban.base.errors import BoardExists, BoardNotFound, DiskFull, InvalidValue, Refusal, StoreRefused, Usage
from hermes_kanban.base.record import Record, record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

DEFAULT = "default"
_FILE = "kanban.db"
_BOARDS = os.path.join(os.sep, "kanban", "boards")
_LONGEST_DESCRIPTION = 65_536
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789")


@record
class Place(Record):
    """Where a board's files are. All paths are absolute."""

    slug: str
    folder: str
    database: str
    workspaces: str
    attachments: str
    logs: str
    tickets: str
    runs: str  # lock, exit record of each run under a shim
    description: str  # path of board.yaml; the default board may have none


@record
class Chosen(Record):
    """The board that a command means, and a warning about how it was found."""

    place: Place
    warning: str = ""


def slug(text: str) -> str:
    """Return a board's name in its stored form: lower case.

    Raises:
        InvalidValue: it is not 1 to 64 lower-case letters, digits, `-` or `_`, first a letter or digit.
    """
    lowered = text.lower() if text.isascii() else ""  # some letters of other scripts become ASCII in lower case
    fits = 1 <= len(lowered) <= 64 and lowered[0] in _LETTERS and all(c in _LETTERS or c in "-_" for c in lowered)
    if not fits:
        raise InvalidValue(
            f"{text[:80]!r} cannot be a board's name",
            hint="1 to 64 lower-case letters, digits, - or _, first a letter or digit",
            argument="board",
        )
    return lowered


def place(home: str, name: str, environment: Mapping[str, str]) -> Place:
    """Return where a board's files are, whether it exists or not.

    All that belongs to the file (lease, run files, tickets, logs) lies where the file's real path says, however the
    file was named: who opens the same file sees the same locks, and no two files share any (D3, D13).
    """
    own = (home,) if name == DEFAULT else (home, "kanban", "boards", name)
    database = os.path.abspath(environment.get("HERMES_KANBAN_DB") or os.path.join(*own, _FILE))
    folder = _folder_of(database)
    return Place(
        slug=name,
        folder=folder,
        database=database,
        workspaces=os.path.abspath(
            environment.get("HERMES_KANBAN_WORKSPACES_ROOT") or os.path.join(folder, "workspaces")
        ),
        attachments=os.path.abspath(
            environment.get("HERMES_KANBAN_ATTACHMENTS_ROOT") or os.path.join(folder, "attachments")
        ),
        logs=os.path.join(folder, "logs"),
        tickets=os.path.join(folder, "tickets"),
        runs=os.path.join(folder, "runs"),
        description=os.path.join(folder, "board.yaml"),
    )


def _folder_of(database: str) -> str:
    """Return the folder of a board's file: a named board's own, a home's `kanban`, else `FILE.d` beside it."""
    real = os.path.realpath(database)
    above, file = os.path.split(real)
    outer, last = os.path.split(above)
    if file != _FILE or above.endswith(_BOARDS):  # `boards/kanban.db` must not share with the board `kanban`
        return f"{real}.d"
    return above if outer.endswith(_BOARDS) and _is_slug(last) else os.path.join(above, "kanban")


def choose(home: str, explicit: str | None, environment: Mapping[str, str]) -> Chosen:
    """Return the board that a command means.

    Raises:
        BoardNotFound: `--board` or HERMES_KANBAN_BOARD names a board that is not there; another board is never
            used instead.
        Usage: HERMES_KANBAN_DB disagrees with `--board`.
    """
    if explicit is not None:
        return Chosen(_explicit(home, slug(explicit), environment))
    named = environment.get("HERMES_KANBAN_BOARD")
    if environment.get("HERMES_KANBAN_DB"):
        return Chosen(place(home, slug(named) if named else DEFAULT, environment))
    if named:
        return Chosen(existing(home, slug(named), environment, "HERMES_KANBAN_BOARD names"))
    pointed = _current(home)
    found = place(home, pointed or DEFAULT, environment)
    if pointed and os.path.lexists(found.database):
        return Chosen(found)
    warning = "" if pointed == DEFAULT else _stale(home, pointed)
    return Chosen(existing(home, DEFAULT, environment, ""), warning)


def _stale(home: str, pointed: str) -> str:
    what = f"the current board {pointed!r} is gone" if pointed else f"{_pointer(home)} names no board"
    return f"{what}; the default board is meant (`boards switch` chooses another)"


def _explicit(home: str, name: str, environment: Mapping[str, str]) -> Place:
    """`--board` beats every variable; a file given for one process must be that board's own (C127)."""
    found = existing(home, name, _without_file(environment), "--board names")
    given = environment.get("HERMES_KANBAN_DB")
    if given and os.path.realpath(given) != os.path.realpath(found.database):
        raise Usage(
            f"--board {name} is {found.database}, but HERMES_KANBAN_DB names {given}",
            hint="leave one of them out",
            board=name,
            database=given,
        )
    return found


def _without_file(environment: Mapping[str, str]) -> dict[str, str]:
    """Leave out the file that is given for one process: a board's name means the board's own file."""
    return {n: v for n, v in environment.items() if n != "HERMES_KANBAN_DB"}


def existing(home: str, name: str, environment: Mapping[str, str], who: str) -> Place:
    """Return a board's place if the board is there.

    Raises:
        BoardNotFound: it is not.
    """
    found = place(home, name, environment)
    if os.path.lexists(found.database):
        return found
    if name == DEFAULT:
        raise BoardNotFound(f"there is no board in {home} yet", hint="make one: `hermes kanban init`", board=name)
    raise BoardNotFound(
        f"{who or 'you name'} the board {name!r}, which is not there",
        hint=f"`hermes kanban boards list` shows the boards; `hermes kanban boards create {name}` makes it",
        board=name,
    )


def _pointer(home: str) -> str:
    return os.path.join(home, "kanban", "current")


def _current(home: str) -> str:
    """Return what the current file says: the default where there is none, "" where it holds no board's name."""
    try:
        with open(_pointer(home), encoding="utf-8") as handle:
            return slug(handle.read(200).strip())
    except (FileNotFoundError, NotADirectoryError):
        return DEFAULT
    except (OSError, UnicodeDecodeError, InvalidValue):
        return ""


def switch(home: str, name: str, environment: Mapping[str, str]) -> Place:
    """Make a board the current one of this home.

    Raises:
        BoardNotFound: it is not there.
    """
    found = existing(home, slug(name), _without_file(environment), "you name")
    write_file(_pointer(home), f"{found.slug}\n")
    return found


def current(home: str) -> str:
    """Return the slug in the current file, or the default."""
    return _current(home) or DEFAULT


def names(home: str, environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the boards of a home: the default one first, then by name."""
    try:
        folders = sorted(os.listdir(os.path.join(home, "kanban", "boards")))
    except OSError:
        folders = []
    plain = _without_file(environment)
    candidates = [DEFAULT, *(n for n in folders if n != DEFAULT and _is_slug(n))]
    return tuple(n for n in candidates if os.path.lexists(place(home, n, plain).database))


def _is_slug(text: str) -> bool:
    try:
        return slug(text) == text
    except InvalidValue:
        return False


def make_folders(found: Place) -> None:
    """Make a board's folders, 0700 each; harmless to repeat.

    Raises:
        DiskFull: there is no room.
        StoreRefused: the place cannot be written.
    """
    try:
        for folder in (os.path.dirname(found.database), found.folder, found.workspaces, found.attachments, found.logs):
            _make_private(folder)
    except OSError as error:
        raise _refusal(error, f"{error.filename or found.folder} cannot be made") from error


def _make_private(folder: str) -> None:
    """Make a folder and what is missing above it, all 0700 (`makedirs` gives the mode to the last one only).

    Their names survive a loss of power.
    """
    if os.path.isdir(folder):
        return
    parent = os.path.dirname(folder)
    if parent != folder:
        _make_private(parent)
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        if not os.path.isdir(folder):
            raise
    _flush_names(parent)


def _refusal(error: OSError, what: str) -> Refusal:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(f"disk full: {what}", hint="make room, then try again")
    return StoreRefused(
        f"{what}: {error.strerror}",
        hint="give this user the right to write there, or set another HERMES_HOME",
        reason="read_only",
    )


def describe(found: Place, facts: dict[str, Any]) -> None:
    """Write board.yaml: name, description, icon, default_workdir (what is not given is left out)."""
    given = {n: v for n, v in facts.items() if v is not None}
    write_file(found.description, str(lazy.module("hermes_kanban.base.yamlfile").dump(given)))


def description(found: Place) -> dict[str, Any]:
    """Return what board.yaml says in plain texts, or nothing where it cannot be read."""
    try:
        with open(found.description, encoding="utf-8") as handle:
            text = handle.read(_LONGEST_DESCRIPTION)
        document = lazy.module("hermes_kanban.base.yamlfile").parse(text, found.description)
    except (OSError, UnicodeDecodeError, InvalidValue):
        return {}
    if not isinstance(document, dict):
        return {}
    return {n: v for n, v in document.items() if isinstance(v, str) and not any("\ud800" <= c <= "\udfff" for c in v)}


def refuse_existing(found: Place) -> None:
    """Refuse to make a board twice. What an interrupted making leaves may be made again.

    Raises:
        BoardExists: there is one of this name.
    """
    if os.path.lexists(found.database) and not lazy.module("hermes_kanban.store.sqlite").is_unmade(found.database):
        raise BoardExists(
            f"there is a board {found.slug!r} already", hint="choose another name, or use this one", board=found.slug
        )


def _flush_names(folder: str) -> None:
    lazy.module("hermes_kanban.base.flush").flush_names(folder)


def write_file(path: str, text: str) -> None:
    """Write a small file as a whole: a new one, then a rename; a full disk never leaves it empty.

    Raises:
        DiskFull: there is no room.
        StoreRefused: it cannot be written.
    """
    half = f"{path}.{os.getpid()}.new"
    try:
        _make_private(os.path.dirname(path))
        descriptor = os.open(half, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as handle:
            handle.write(text)
            handle.flush()
            os.fsync(descriptor)  # else a power loss may keep the rename and lose the words
        os.replace(half, path)
        _flush_names(os.path.dirname(path))  # else the old words may come back
    except OSError as error:
        _forget(half)
        raise _refusal(error, f"{path} cannot be written") from error


def _forget(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return
