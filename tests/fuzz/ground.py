"""Where a fuzzed call is made: a home of its own, with a card in every state, and the real entry function in process.

    with ground.fresh() as here:
        seen = here.call(["show", "<ready>"], ground.PERSON)

`<ready>` and the like stand for the ids of the home's cards, so that a failing case reads the same in every run.
"""

from __future__ import annotations

import atexit
import errno
import functools
import gc
import io
import os
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import apsw

from hermes_kanban import __main__, compose
from hermes_kanban.base import settings
from hermes_kanban.boards import Place, place
from tests.surfaces.hermes import CONFIG

PERSON = {"HERMES_PROFILE": "ann", "terminal": "yes"}
SCRIPT = {"HERMES_PROFILE": "bot"}
WORKER = {"HERMES_PROFILE": "bot", "HERMES_KANBAN_TASK": "<mine>", "HERMES_KANBAN_RUN_ID": "<run>"} | {
    "HERMES_KANBAN_CLAIM_LOCK": "<lock>"
}
STRANGER = {"HERMES_KANBAN_NAME": "other", "HERMES_KANBAN_TASK": "<ready>", "HERMES_KANBAN_RUN_ID": "999"}
CALLERS = {"person": PERSON, "script": SCRIPT, "worker": WORKER, "stranger": STRANGER}

FULL = [
    *("--cause", "spec undecided", "--what", "two formats", "--option", "A: JSON", "--option", "B: YAML"),
    *("--recommend", "A", "--next", "choose one"),
]
_MADE: tuple[tuple[str, list[str]], ...] = (  # what stands for the card, and how it is made
    ("<ready>", ["create", "ready", "--assignee", "bot", "--priority", "3"]),
    ("<parent>", ["create", "parent", "--body", "first\nsecond", "--tenant", "acme"]),
    ("<todo>", ["create", "todo", "--parent", "<parent>"]),
    ("<mine>", ["create", "mine", "--assignee", "bot"]),
    ("<theirs>", ["create", "theirs", "--assignee", "rev"]),
    ("<review>", ["create", "review", "--assignee", "bot", "--reviewer", "rev"]),
    ("<blocked>", ["create", "blocked", "--assignee", "ann"]),
    ("<scheduled>", ["create", "scheduled", "--in", "400d"]),
    ("<triage>", ["create", "triage", "--triage"]),
    ("<done>", ["create", "done"]),
    ("<archived>", ["create", "archived"]),
)
_MOVED: tuple[tuple[Mapping[str, str], list[str]], ...] = (
    (SCRIPT, ["claim", "<mine>", "--ttl", "86400"]),
    ({"HERMES_PROFILE": "rev"}, ["claim", "<theirs>", "--ttl", "86400"]),
    (PERSON, ["request-review", "<review>", "--summary", "look"]),
    (PERSON, ["block", "<blocked>", "--kind", "needs_input", *FULL]),
    (PERSON, ["complete", "<done>", "--summary", "made"]),
    (PERSON, ["attach", "<ready>", "note.txt"]),
    (PERSON, ["comment", "<ready>", "a fact"]),
    (PERSON, ["archive", "<archived>"]),
    (PERSON, ["boards", "create", "side", "--description", "another"]),
)
NAMES = tuple(name for name, _ in _MADE)

# Written at every call, also one that only looks or is refused: copies, locks, sockets, what SQLite keeps.
_PASSING = (".config.json", ".config.lock", "-wal", "-shm", ".db.lock", ".sock")


class Seen(NamedTuple):
    """One call and what came of it."""

    words: list[str]
    caller: dict[str, str]
    code: int
    out: str
    err: str
    before: State
    after: State

    def __repr__(self) -> str:
        return f"{self.words!r} {self.caller!r}\nexit {self.code}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"


class State(NamedTuple):
    """All rows of the default board, those of every other one, and every file of the ground."""

    rows: dict[str, list[tuple[Any, ...]]]
    others: dict[str, Any]
    files: dict[str, tuple[int, int, int]]


class Ground:
    """One home in a folder of its own, and the folder that calls are made from.

    Args:
        root: the folder; nothing that a call makes may be outside of it.
        known: what each placeholder stands for.
    """

    def __init__(self, root: Path, known: Mapping[str, str]) -> None:
        self.root = root
        self.home = root / "home"
        self.cwd = root / "a" / "b" / "c"
        self.known = dict(known) | {"<home>": str(self.home), "<cwd>": str(self.cwd), "<nobody>": "t_ffffffff"}

    @property
    def place(self) -> Place:
        return place(str(self.home), "default", {})

    def variables(self, caller: Mapping[str, str]) -> dict[str, str]:
        plain = {"PATH": "/usr/bin:/bin", "HOME": str(self.root), "LANG": "C.UTF-8", "HERMES_HOME": str(self.home)}
        runtime = {"XDG_RUNTIME_DIR": str(self.root / "run"), "TMPDIR": str(self.root / "tmp")}
        told = {name: self.filled(value) for name, value in caller.items() if name != "terminal"}
        return plain | runtime | told

    def filled(self, text: str) -> str:
        for name, value in self.known.items():
            text = text.replace(name, value)
        return text

    def call(self, words: Sequence[str], caller: Mapping[str, str], stdin: bytes = b"") -> Seen:
        """Call `hermes kanban WORDS` through the entry function of the command."""
        before = self.state()
        code, out, err = self.run(["kanban", *words], caller, stdin)
        return Seen(list(words), dict(caller), code, out, err, before, self.state())

    def run(self, words: Sequence[str], caller: Mapping[str, str], stdin: bytes = b"") -> tuple[int, str, str]:
        out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", "surrogateescape") for _ in range(2))
        given = io.TextIOWrapper(io.BytesIO(stdin), "utf-8", "surrogateescape")
        signals = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        here = os.getcwd()
        with ExitStack() as stack:
            for patch in (*_streams(given, out, err, words, self.filled), *_nothing_lasts(), *_no_way_out()):
                stack.enter_context(patch)
            stack.enter_context(mock.patch("os.isatty", lambda fd: fd == 0 and "terminal" in caller))
            stack.enter_context(mock.patch.dict(os.environ, self.variables(caller), clear=True))
            os.chdir(self.cwd)
            try:
                code = __main__.main()
            finally:
                os.chdir(here)
                gc.enable()
                for number, handler in signals.items():
                    signal.signal(number, handler)
        return code, *(_text(stream) for stream in (out, err))

    def state(self) -> State:
        return State(rows(self.place.database), dict(self._others()), files(self.root))

    def _others(self) -> Iterator[tuple[str, Any]]:
        """Yield the rows of each board but the default one, or the bytes of what stands in the place of a board."""
        for path in sorted(self.home.glob("kanban/boards/*/kanban.db")):
            if path.is_file():
                try:
                    yield path.parent.name, rows(str(path))
                except apsw.Error:
                    yield path.parent.name, path.read_bytes()

    def problems(self) -> tuple[Any, ...]:
        """Return what `verify` finds on the default board."""
        variables = self.variables(PERSON)
        env = compose.Environment(variables, str(self.home), settings.Settings())
        return compose.open_reader(env, self.place).verify()


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    buffer = stream.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue().decode("utf-8", "surrogateescape")


def _streams(given: Any, out: Any, err: Any, words: Sequence[str], filled: Any) -> list[Any]:
    argv = ["hermes", *(filled(word) for word in words)]
    pairs = (("stdin", given), ("stdout", out), ("stderr", err), ("argv", argv))
    return [mock.patch.object(sys, name, value) for name, value in pairs]


def _stop(*_words: object, **_named: object) -> Any:
    raise KeyboardInterrupt


def _no_process(*_words: object, **_named: object) -> Any:
    raise OSError(errno.EAGAIN, "no process is to be had")


def _nothing_lasts() -> list[Any]:
    """What would wait for ever is interrupted, as by Ctrl-C; gateways and bridges are not begun."""
    return [
        mock.patch("hermes_kanban.store.feed.SocketFeed.wait", _stop),
        mock.patch("hermes_kanban.cli.processes._serve", return_value=0),
        mock.patch("hermes_kanban.cli.bridge.Bridge"),
        mock.patch("hermes_kanban.cli.bridge.serve", return_value=(0, False)),
    ]


def _no_way_out() -> list[Any]:
    """No fuzzed word becomes a program that runs, or a connection to another machine."""
    return [
        mock.patch("hermes_kanban.lanes.launch._spawn", _no_process),
        mock.patch.object(socket, "getaddrinfo", mock.Mock(side_effect=socket.gaierror(-2, "unknown"))),
    ]


# --- what is there --------------------------------------------------------------------------------------------
def rows(database: str) -> dict[str, list[tuple[Any, ...]]]:
    """Return every row of every table."""
    connection = apsw.Connection(database, flags=apsw.SQLITE_OPEN_READONLY)
    try:
        names = [r[0] for r in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY 1")]
        return {name: list(connection.execute(f"SELECT * FROM {name}")) for name in names}
    finally:
        connection.close()


def files(root: Path) -> dict[str, tuple[int, int, int]]:
    """Return mode, size and time of every file below a folder; boards are compared by their rows."""
    found = {}
    for folder, _below, names in os.walk(root):
        for name in names:
            path = os.path.join(folder, name)
            if not name.endswith((*_PASSING, ".db")):
                facts = os.lstat(path)
                found[os.path.relpath(path, root)] = (facts.st_mode, facts.st_size, facts.st_mtime_ns)
    return found


# --- the home -------------------------------------------------------------------------------------------------
def _make(root: Path) -> Ground:
    here = Ground(root, {})
    for folder in (here.home, here.cwd, root / "run", root / "tmp"):
        folder.mkdir(parents=True, mode=0o700)
    (here.home / "config.yaml").write_text(CONFIG, encoding="utf-8")
    (here.cwd / "note.txt").write_text("a note\n", encoding="utf-8")
    _must(here, PERSON, ["init"])
    for name, words in _MADE:
        here.known[name] = _must(here, PERSON, [*words, "-q"]).strip()
    for caller, words in _MOVED:
        _must(here, caller, words)
    for ticket in Path(here.place.tickets).glob(f"{here.known['<theirs>']}.*"):
        ticket.unlink()  # it is remembered for whoever calls: this process, in whatever name
    gc.collect()
    found = rows(here.place.database)["task_runs"]
    here.known["<run>"] = str(found[0][0])
    here.known["<lock>"] = next(value for value in found[0] if str(value).count(":") == 2)
    return here


def _must(here: Ground, caller: Mapping[str, str], words: list[str]) -> str:
    code, out, err = here.run(["kanban", *words], caller)
    assert code == 0, (words, out, err)
    return out


def _volatile() -> str | None:
    """Return a folder in memory where there is one: nothing here has to survive a power loss."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


@functools.cache
def _template() -> Ground:
    """What all grounds are copies of; it goes with this process."""
    root = Path(tempfile.mkdtemp(prefix="hk-fuzz", dir=_volatile()))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    return _make(root)


@contextmanager
def fresh() -> Iterator[Ground]:
    """A ground as new."""
    model = _template()
    root = Path(tempfile.mkdtemp(prefix="hk-fuzz", dir=_volatile()))
    try:
        shutil.copytree(model.root, root, dirs_exist_ok=True, symlinks=True)
        known = {name: value for name, value in model.known.items() if name not in ("<home>", "<cwd>", "<nobody>")}
        yield Ground(root, known)
    finally:
        gc.collect()
        shutil.rmtree(root, ignore_errors=True)
