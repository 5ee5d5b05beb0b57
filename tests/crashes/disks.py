"""A disk that forgets: what is left of a run when the power fails at one of its operations.

What was written to a file is sure once that file was flushed; a name that was made, moved or removed is sure once its
folder was. All else may be lost, whole or in part, in any order: nothing is taken for granted that POSIX does not say.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.crashes import children, taps
from tests.crashes.stage import SIGNED, Image, Stage, image

SECTOR = 512
FOLDER = -1
NONE, SOME, TORN = STYLES = ("none", "some", "torn")
_VOLATILE = "-shm"  # nothing of it outlives the power

Data = tuple[int, int, bytes | None]  # inode, offset, bytes; None: the length is cut to the offset
Names = tuple[tuple[str, int | None], ...]  # paths and their inodes, which change together; None: removed


@dataclass
class Step:
    """An operation of a run, and how often its caller had an answer before it."""

    op: taps.Op
    answered: int


class _Recorder(taps.Hook):
    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.answered = 0

    def before(self, op: taps.Op) -> int:
        self.answered += op.name == taps.ANSWERED
        return 0

    def after(self, op: taps.Op) -> None:
        kept = op.changes or op.name in (taps.SYNC, "syncdir")
        if kept and not op.failed and not op.path.endswith(_VOLATILE):
            self.steps.append(Step(op, self.answered))


def recorded(stage: Stage) -> list[Step]:
    """Let the stage's call be played in a child; return what it did to the disk."""

    def work() -> list[Step]:
        children.no_chance(stage.number)
        recorder = _Recorder()
        taps.use(recorder)
        stage.play()
        taps.use(None)
        recorder.steps.append(Step(taps.Op("call", "end", ""), recorder.answered))
        return recorder.steps

    found: list[Step] = children.ask(work)
    return found


class Disk:
    """One folder on a disk.

    Args:
        folder: where it is in the run that is played.
        start: what it holds, for sure.
    """

    def __init__(self, folder: Path, start: Image) -> None:
        self._folder = str(folder)
        self._sure: dict[str, int] = {}
        self._files: dict[int, bytearray] = {}
        for path, data in lasting(start).items():
            self._sure[path] = FOLDER if data is None else self._inode(data)
        self._now = dict(self._sure)
        self._data: list[Data] = []
        self._names: list[Names] = []

    def _inode(self, data: bytes = b"") -> int:
        number = len(self._files)
        self._files[number] = bytearray(data)
        return number

    # --- what happens to it --------------------------------------------------------------------------------
    def do(self, op: taps.Op) -> None:
        """Take one operation in."""
        path = os.path.relpath(op.path, self._folder) if op.path.startswith(f"{self._folder}/") else ""
        if path or op.name == "syncdir":
            _ACTS[op.name](self, path, op)

    def _open(self, path: str, _op: taps.Op) -> None:
        self._name((path, self._inode()))

    def _mkdir(self, path: str, _op: taps.Op) -> None:
        self._name((path, FOLDER))

    def _unlink(self, path: str, _op: taps.Op) -> None:
        self._name((path, None))

    def _rename(self, path: str, op: taps.Op) -> None:
        file = self._now[path]
        self._name((os.path.relpath(op.other, self._folder), file), (path, None))

    def _name(self, *changes: tuple[str, int | None]) -> None:
        """Note names that change; those of one call change together, or not at all."""
        self._names.append(changes)
        _set(self._now, changes)

    def _write(self, path: str, op: taps.Op) -> None:
        self._data.append((self._now[path], op.offset, op.data))

    def _truncate(self, path: str, op: taps.Op) -> None:
        self._data.append((self._now[path], op.offset, None))

    def _sync(self, path: str, _op: taps.Op) -> None:
        file = self._now[path]
        for number, offset, data in self._data:
            if number == file:
                _put(self._files[file], offset, data)
        self._data = [change for change in self._data if change[0] != file]

    def _syncdir(self, path: str, op: taps.Op) -> None:
        above = os.path.dirname(path) if op.layer == "sqlite" else path  # SQLite names the file, not its folder
        for changes in self._names:
            if os.path.dirname(changes[0][0]) == above:
                _set(self._sure, changes)
        self._names = [changes for changes in self._names if os.path.dirname(changes[0][0]) != above]

    def _ignored(self, _path: str, _op: taps.Op) -> None:
        """Rights and times are not looked at."""

    # --- what is left of it --------------------------------------------------------------------------------
    def after_loss(self, style: str, chance: random.Random) -> Image:
        """Return what the folder holds when the power comes back."""
        names = dict(self._sure)
        files = {number: bytearray(data) for number, data in self._files.items()}
        for changes in self._names:
            if style != NONE and chance.random() < 0.5:
                _set(names, changes)
        for number, offset, data in self._data:
            for where, part in _surviving(style, chance, offset, data):
                _put(files[number], where, part)
        return {
            path: None if file == FOLDER else bytes(files[file])
            for path, file in names.items()
            if _reached(names, path)
        }


def _surviving(
    style: str, chance: random.Random, offset: int, data: bytes | None
) -> Iterator[tuple[int, bytes | None]]:
    """Yield the parts of a write that reach the disk: none, it whole or not, or some of its sectors."""
    if style == NONE:
        return
    if style == SOME or data is None:
        if chance.random() < 0.5:
            yield offset, data
        return
    start = 0
    while start < len(data):
        length = SECTOR - (offset + start) % SECTOR
        if chance.random() < 0.7:
            yield offset + start, data[start : start + length]
        start += length


def _put(file: bytearray, offset: int, data: bytes | None) -> None:
    missing = offset - len(file)
    if missing > 0:
        file.extend(bytes(missing))
    if data is None:
        del file[offset:]
    else:
        file[offset : offset + len(data)] = data


def _set(names: dict[str, int], changes: Names) -> None:
    for path, file in changes:
        if file is None:
            names.pop(path, None)
        else:
            names[path] = file


def _reached(names: dict[str, int], path: str) -> bool:
    above = os.path.dirname(path)
    return not above or (names.get(above) == FOLDER and _reached(names, above))


_ACTS = {
    "open": Disk._open,
    "mkdir": Disk._mkdir,
    "unlink": Disk._unlink,
    "rmdir": Disk._unlink,
    "rename": Disk._rename,
    "write": Disk._write,
    "truncate": Disk._truncate,
    taps.SYNC: Disk._sync,
    "syncdir": Disk._syncdir,
    "chmod": Disk._ignored,
    "utime": Disk._ignored,
}


def losses(stage: Stage, steps: list[Step], seeds: int) -> Iterator[tuple[str, int, Image]]:
    """Yield what every loss of power leaves: before each step, and at the end.

    The first word says which one it is; the number, how often the caller had an answer before it.

    Args:
        seeds: how often each style is tried; 0: of the two that go by chance one at each step, in turn.
    """
    disk = Disk(stage.live, stage.image)
    for number, step in enumerate(steps):
        styles = STYLES if seeds else (NONE, (SOME, TORN)[number % 2])
        for style in styles:
            for seed in range(1 if style == NONE else max(seeds, 1)):
                where = f"{number}: before {step.op}, {style}, seed {seed}"
                yield where, step.answered, disk.after_loss(style, random.Random(f"{where}"))
        if step.op.layer != "call":
            disk.do(step.op)


def agrees(stage: Stage, steps: list[Step]) -> bool:
    """Whether a disk that forgets nothing holds what the real one holds after the run: the recording is whole."""
    disk = Disk(stage.live, stage.image)
    for step in steps[:-1]:
        disk.do(step.op)
    for file in [path for path, number in disk._now.items() if number != FOLDER]:
        disk._sync(file, steps[-1].op)
    disk._sure = dict(disk._now)
    disk._names = []
    mine, real = disk.after_loss(NONE, random.Random(0)), image(stage.live)
    return {**mine, **_unsigned(mine)} == {**lasting(real), **_unsigned(real)}


def lasting(found: Image) -> Image:
    """Return an image without what the power takes along."""
    return {path: data for path, data in found.items() if not path.endswith(_VOLATILE)}


def _unsigned(found: Image) -> Image:
    return {path: b"" for path in found if path.endswith(SIGNED)}
