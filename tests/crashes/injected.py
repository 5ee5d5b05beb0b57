"""Faults that are put beneath a board: at one operation, or at every one from there on, until they are over."""

from __future__ import annotations

import errno
import gc
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import apsw

from hermes_kanban.base.errors import FileRefused, Refusal, WorkspaceFailed
from hermes_kanban.store.turnstile import Turnstile
from tests.crashes import children, deaths, taps
from tests.crashes.places import Told
from tests.crashes.stage import BoardStage, BoardWorld, Stage, goes_on, rows

WRITES = ("write", "truncate", "mkdir", "rename")
_UNDONE = ("unlink", "rmdir")  # nobody relies on these


@dataclass(frozen=True)
class Fault:
    """What goes wrong.

    Args:
        number: the system's word for it.
        names: which operations it befalls.
        lasts: whether every later one of them fails too, as on a disk that is full.
        made: also where a file would be made.
    """

    name: str
    number: int
    names: tuple[str, ...]
    lasts: bool = False
    made: bool = False

    def __str__(self) -> str:
        return self.name

    def befalls(self, op: taps.Op) -> bool:
        """Whether this operation can fail so."""
        return op.name in self.names or (self.made and op.name == "open" and op.made)


GIVEN_BACK = ("'workspace'", "'ticket'")  # why a card may not be claimed for a while: its claim ended at that (P11)
RARE = tuple(("ours", name) for name in ("mkdir", "rename", "chmod", taps.SYNC, "syncdir", *_UNDONE))
KINDS = ("open", "read", "write", "truncate", taps.SYNC, "syncdir", "lock", "map", "mkdir", "rename", "chmod", *_UNDONE)
FULL = Fault("the disk is full", errno.ENOSPC, ("write", "truncate", "mkdir", "map"), lasts=True, made=True)
FAULTS = (
    FULL,
    Fault("there is room again", errno.ENOSPC, WRITES, made=True),
    Fault("a write fails", errno.EIO, WRITES),
    Fault("a flush fails", errno.EIO, (taps.SYNC, "syncdir")),
    Fault("a read fails", errno.EIO, ("read",)),
    Fault("it became read-only", errno.EROFS, (*WRITES, "chmod"), lasts=True, made=True),
    Fault("it is not permitted", errno.EACCES, ("open", "mkdir", "unlink", "rename", "chmod"), lasts=True),
    Fault("locks do not work", errno.ENOLCK, ("lock",)),
    Fault("it cannot be mapped", errno.ENOMEM, ("map",)),
    Fault("something cannot be removed", errno.EIO, _UNDONE),
)


# What may fail when all of it is done, so that a refusal may leave it done: the operation, and of which file.
LATE = (
    ("syncdir", "runs"),  # the record of an end is there, but the power may take its name
    ("syncdir", "home"),  # so is a lane
)


class _Lister(taps.Hook):
    """Lists the operations."""

    def __init__(self) -> None:
        self.ops: list[taps.Op] = []

    def before(self, op: taps.Op) -> int:
        if op.layer in ("sqlite", "ours") and os.path.basename(op.path) != "urandom":
            self.ops.append(op)
        return 0


class _Injector(taps.Hook):
    """Lets the n-th operation that a fault may befall fail."""

    def __init__(self, fault: Fault, point: int) -> None:
        self._fault = fault
        self._left = point
        self.where: taps.Op | None = None

    def before(self, op: taps.Op) -> int:
        if not self._fault.befalls(op) or os.path.basename(op.path) == "urandom":
            return 0
        self._left -= 1
        if self._left >= 0 or (self.where and not self._fault.lasts):
            return 0
        self.where = self.where or op
        return self._fault.number


# --- which ------------------------------------------------------------------------------------------------------
Point = tuple[Fault, int]  # the fault, and which of the operations that it may befall fails
ROTATION = 12


def points(stage: Stage, place: int, *, every_kind: bool = False) -> list[Point]:
    """Return the faults that are tried on a stage.

    Wide: every fault at every operation. In a quick run: of every twelfth pair of a fault and a kind of operation one,
    of those that few scenes do always one; which pairs, and which operation, goes by the place. A full disk befalls
    each scene.

    Args:
        place: of the scene in its table.
        every_kind: one of each pair.
    """
    lister = _Lister()

    def work() -> list[taps.Op]:
        stage.restore(stage.image)
        _call(stage, lister)
        return [taps.Op(op.layer, op.name, "", made=op.made) for op in lister.ops]

    ops = children.ask(work)
    found: list[Point] = []
    for number, fault in enumerate(FAULTS):
        befallen = [op for op in ops if fault.befalls(op)]
        kinds = sorted({(op.layer, op.name) for op in befallen})
        for kind in kinds:
            at = [n for n, op in enumerate(befallen) if (op.layer, op.name) == kind]
            if deaths.wide():
                found += [(fault, n) for n in at]
            elif (
                every_kind
                or kind in RARE
                or (fault is FULL and kind == kinds[place % len(kinds)])
                or (place + number + KINDS.index(kind[1])) % ROTATION == 0
            ):
                found.append((fault, at[place % len(at)]))
    return found


def outcomes(stage: Stage, wanted: list[Point]) -> list[str]:
    """Let these faults befall the stage's call, each in its turn, in a child; return what was not as it must be."""

    def work() -> list[str]:
        found: list[str] = []
        for fault, point in wanted:
            stage.restore(stage.image)
            injector = _Injector(fault, point)
            wrong = _tried(stage, injector)
            found += [f"{fault} {point} {injector.where}: {line}" for line in wrong]
            found += [] if injector.where else [f"{fault} {point}: it befell nothing"]
        return found

    answer: list[str] = children.ask(work)
    return answer


# --- how --------------------------------------------------------------------------------------------------------
def _call(stage: Stage, hook: taps.Hook) -> tuple[BaseException | None, BoardWorld | None]:
    """Do the stage's call under a hook; return how it was refused, and its board, which is still open."""
    children.no_chance(stage.number)
    taps.use(hook)
    world = None
    try:
        if isinstance(stage, BoardStage):
            world = stage.opened()
            stage.scene.act(world, stage.facts)
        else:
            stage.play()
    except BaseException as error:
        taps.use(None)
        return error.with_traceback(None), world  # which would keep open what was
    taps.use(None)
    return None, world


def _tried(stage: Stage, injector: _Injector) -> list[str]:
    """Do the call under a fault; return what is wrong with the answer, or with what is left when the fault is over."""
    error, world = _call(stage, injector)
    gc.collect()
    wrong = [] if error is None else _judged(error)
    try:
        if isinstance(stage, BoardStage):
            _on_the_same(stage, world or stage.opened(), error, injector.where, wrong)
            stage.state()
        else:
            state = stage.state()
            wrong += _misplaced(stage, state, error, injector.where)
            stage.go_on(state)
    except BaseException as found:
        wrong.append(f"afterwards: {type(found).__name__}: {found}")
    return wrong


def _on_the_same(
    stage: BoardStage, world: BoardWorld, error: BaseException | None, where: taps.Op | None, wrong: list[str]
) -> None:
    """The connection that saw the fault works on when it is over."""
    try:
        state = rows(world)
        wrong += _misplaced(stage, state, error, where)
        stage.again(world, state)
        goes_on(world)
    finally:
        world.close()


def _misplaced(stage: Stage, state: str, error: BaseException | None, where: taps.Op | None) -> list[str]:
    """Return what is wrong with the state after an answer: all of it is done, or after a refusal nothing, or a part
    that a death may leave too; a refusal of what is wholly done only where the fault came after it.
    """
    refused = isinstance(stage, BoardStage) and stage.scene.refused
    if error is None and not refused:
        return [] if state == stage.after else ["it answered as if it had done all of it"]
    if state not in stage.turns:
        if (refused or isinstance(error, (WorkspaceFailed, Told))) and any(why in state for why in GIVEN_BACK):
            return []
        return ["it was refused, and left a state that is neither before nor after"]
    late = where is not None and any(where.name == name and where.path.endswith(end) for name, end in LATE)
    done = error is not None and state == stage.after != stage.before
    return ["it was refused, though all of it is done"] if done and not late else []


def _judged(error: BaseException) -> list[str]:
    """Return what is wrong with how a fault was told: it must be a refusal of its kind, with a hint."""
    if isinstance(error, Told):
        return [] if error.code in (7, 8, 9) and "hint: " in error.text else [f"exit {error.code}: {error.text}"]
    fits = isinstance(error, Refusal) and (
        error.exit_code in (8, 9) or isinstance(error, (WorkspaceFailed, FileRefused))
    )
    if fits and getattr(error, "hint", ""):
        return []
    return [f"{type(error).__name__}: {error}"]


# --- a lock that is never given back ----------------------------------------------------------------------------
def by_writer(path: str) -> object:
    """Hold the write lock of a board's file, as raw SQL does."""
    connection = apsw.Connection(path)
    connection.execute("BEGIN IMMEDIATE")
    return connection


def in_queue(path: str) -> object:
    """Stand first in the queue of a board, and stay there."""
    queue = Turnstile(f"{path}.lock")
    queue.enter(0)
    return queue


@contextmanager
def held(hold: Callable[[str], object], path: str) -> Iterator[None]:
    """Let another process hold a lock."""
    ready, tell = os.pipe()
    wait, over = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        os.close(over)
        try:
            kept = hold(path)
            os.write(tell, b"held" if kept else b"")
            os.read(wait, 1)
        finally:
            os._exit(0)
    try:
        os.close(tell)
        assert os.read(ready, 4) == b"held"
        yield
    finally:
        for number in (over, wait, ready):
            os.close(number)
        os.waitpid(child, 0)
