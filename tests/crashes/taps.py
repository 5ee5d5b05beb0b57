"""Taps: everything that a verb does to a disk passes here, one operation after the other.

Three sources, each where nothing can go around it: the system calls of SQLite's own `unix` VFS (its table of calls
may be exchanged) with the flushes of a VFS above it; the functions of `os` that our code calls; the statements, by the
engine's trace. A hook sees each operation before it is done, and may end the process, or let it fail with an error of
the system. The taps are for a forked child: they last as long as the process.
"""

from __future__ import annotations

import ctypes
import fcntl
import io
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import apsw

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
SYNC = "sync"
ANSWERED = "answered"
CHANGING = frozenset(("write", "truncate", "unlink", "rename", "mkdir", "rmdir", "chmod", "utime"))


@dataclass
class Op:
    """One operation.

    Args:
        layer: `sql`, `sqlite`, `ours`, or `call` for what the caller is told.
        name: what it does.
        path: to which file; of a statement its words.
        other: where a rename leads.
        offset, data: what is written; for `truncate` the new length is the offset.
        made: whether an `open` made the file.
        failed: the system refused it.
    """

    layer: str
    name: str
    path: str
    other: str = ""
    offset: int = 0
    data: bytes = b""
    made: bool = False
    failed: bool = False

    @property
    def changes(self) -> bool:
        """Whether it may change what a folder holds."""
        return self.name in CHANGING or (self.name == "open" and self.made)

    def __str__(self) -> str:
        return f"{self.layer} {self.name} {os.path.basename(self.path) if self.layer != 'sql' else self.path[:60]}"


class Hook:
    """Sees each operation; this one lets all of them happen."""

    def before(self, op: Op) -> int:
        """Return 0 to let it happen, or the error number with which it is to fail."""
        return 0

    def after(self, op: Op) -> None:
        """See that it has happened."""


class _Taps:
    """The hook in place, and which file each of our descriptors is."""

    def __init__(self) -> None:
        self.hook: Hook | None = None
        self.files: dict[int, str] = {}
        self.depth = 0
        self.escaped: list[str] = []
        self.keep: list[Any] = []  # what C holds a pointer to


_taps = _Taps()


def install() -> None:
    """Put the taps into this process."""
    _tap_calls(_Vfs())
    apsw.connection_hooks.append(_trace)
    for name, tapped in _OURS.items():
        setattr(os, name, tapped(getattr(os, name)))
    os.fdopen = _fdopen
    fcntl.flock = _flock(fcntl.flock)
    sys.addaudithook(_audit)


def use(hook: Hook | None) -> None:
    """Let this hook see what happens from now on; None: nobody."""
    _taps.hook = hook


def acknowledge() -> None:
    """Tell the hook that whoever called has its answer now."""
    if _taps.hook:
        _taps.hook.before(Op("call", ANSWERED, ""))


def escaped() -> list[str]:
    """Return the changes of files that Python made and no tap saw."""
    return _taps.escaped


class _Inside:
    """Marks that an operation is under way, for the audit."""

    def __enter__(self) -> None:
        _taps.depth += 1

    def __exit__(self, *_error: object) -> None:
        _taps.depth -= 1


_inside = _Inside()


def _do(op: Op, act: Callable[[], Any], fail: Callable[[int], Any]) -> Any:
    hook = _taps.hook
    error = hook.before(op) if hook else 0
    if error:
        return fail(error)
    with _inside:
        result = act()
    op.failed = op.layer == "sqlite" and isinstance(result, int) and result < 0
    if hook:
        hook.after(op)
    return result


# --- statements -------------------------------------------------------------------------------------------------
def _trace(connection: apsw.Connection) -> None:
    def seen(event: dict[str, Any]) -> None:
        hook = _taps.hook
        if hook is None:
            return
        if event["code"] == apsw.SQLITE_TRACE_STMT:
            hook.before(Op("sql", "begin", event["sql"] or ""))
        else:
            hook.before(Op("sql", "end", event.get("sql") or ""))

    connection.trace_v2(apsw.SQLITE_TRACE_STMT | apsw.SQLITE_TRACE_PROFILE, seen)


# --- SQLite's flushes and system calls --------------------------------------------------------------------------
class _File(apsw.VFSFile):
    def __init__(self, name: Any, flags: list[int]) -> None:
        self._path = name.filename() if isinstance(name, apsw.URIFilename) else str(name or "")
        super().__init__("unix", name, flags)

    def xSync(self, flags: int) -> None:
        _do(Op("sqlite", SYNC, self._path), lambda: super(_File, self).xSync(flags), _fail_sync)


def _fail_sync(_error: int) -> None:
    raise apsw.exception_for(apsw.SQLITE_IOERR_FSYNC)


class _Vfs(apsw.VFS):
    def __init__(self) -> None:
        super().__init__("tapped", "unix", makedefault=True)

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        return _File(name, flags)

    def xRandomness(self, size: int) -> bytes:
        return os.urandom(size)


_INT, _SIZE, _OFFSET, _POINTER, _TEXT = ctypes.c_int, ctypes.c_size_t, ctypes.c_int64, ctypes.c_void_p, ctypes.c_char_p


def _tap_calls(vfs: apsw.VFS) -> None:
    for name, (kinds, tapped) in _CALLS.items():
        address = vfs.xGetSystemCall(name)
        if address is None:  # not in this build
            continue
        prototype = ctypes.CFUNCTYPE(*kinds, use_errno=True)
        call = prototype(tapped(prototype(address)))
        vfs.xSetSystemCall(name, ctypes.cast(call, ctypes.c_void_p).value)
        _taps.keep.append(call)
    _taps.keep.append(vfs)


def _failing(error: int) -> int:
    ctypes.set_errno(error)
    return -1


def _call_open(call: Any) -> Any:
    def tapped(path: bytes, flags: int, mode: int) -> int:
        name = os.fsdecode(path)
        op = Op("sqlite", "open", name, made=bool(flags & os.O_CREAT) and not os.path.lexists(name))
        number = int(_do(op, lambda: call(path, flags, mode), _failing))
        if number >= 0:
            _taps.files[number] = name
        return number

    return tapped


def _call_write(call: Any) -> Any:
    def tapped(number: int, data: int, size: int, *place: int) -> int:
        offset = place[0] if place else os.lseek(number, 0, os.SEEK_CUR)
        op = Op("sqlite", "write", _name(number), offset=offset, data=ctypes.string_at(data, size))
        return int(_do(op, lambda: call(number, data, size, *place), _failing))

    return tapped


def _call_on(name: str) -> Any:
    """Tap a call whose first argument is a descriptor, or a path."""

    def tap(call: Any) -> Any:
        def tapped(first: Any, *more: Any) -> int:
            path = os.fsdecode(first) if isinstance(first, bytes) else _name(first)
            op = Op("sqlite", name, path, offset=more[0] if name == "truncate" else 0)
            return int(_do(op, lambda: call(first, *more), _failing))

        return tapped

    return tap


def _call_map(call: Any) -> Any:
    def tapped(where: int | None, size: int, rights: int, flags: int, number: int, offset: int) -> int | None:
        op = Op("sqlite", "map", _name(number))
        return _do(op, lambda: call(where, size, rights, flags, number, offset), _failing)

    return tapped


_WRITE = (ctypes.c_ssize_t, _INT, _POINTER, _SIZE)
_CALLS: dict[str, tuple[tuple[Any, ...], Callable[[Any], Any]]] = {
    "open": ((_INT, _TEXT, _INT, _INT), _call_open),
    "write": (_WRITE, _call_write),
    "pwrite": ((*_WRITE, _OFFSET), _call_write),
    "pwrite64": ((*_WRITE, _OFFSET), _call_write),
    "read": (_WRITE, _call_on("read")),
    "pread": ((*_WRITE, _OFFSET), _call_on("read")),
    "pread64": ((*_WRITE, _OFFSET), _call_on("read")),
    "ftruncate": ((_INT, _INT, _OFFSET), _call_on("truncate")),
    "unlink": ((_INT, _TEXT), _call_on("unlink")),
    "openDirectory": ((_INT, _TEXT, _POINTER), _call_on("syncdir")),
    "fchmod": ((_INT, _INT, _INT), _call_on("chmod")),
    "mmap": ((_POINTER, _POINTER, _SIZE, _INT, _INT, _INT, _OFFSET), _call_map),
}


# --- our own calls ----------------------------------------------------------------------------------------------
def _name(number: int) -> str:
    return _taps.files.get(number, "")


def _path(path: Any, folder: int | None = None) -> str:
    """Return the whole path that is meant below an open folder, or here."""
    return os.path.abspath(os.path.join(_name(folder) if folder is not None else "", os.fsdecode(path)))


def _raise(error: int) -> Any:
    raise OSError(error, os.strerror(error))


def _our_open(real: Any) -> Any:
    def tapped(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        name = _path(path, dir_fd)
        op = Op("ours", "open", name, made=bool(flags & os.O_CREAT) and not os.path.lexists(name))
        act = lambda: real(path, flags, mode, dir_fd=dir_fd)  # noqa: E731
        number = int(_do(op, act, _raise) if flags & WRITING else act())
        _taps.files[number] = name
        if flags & os.O_TRUNC and _taps.hook:
            _taps.hook.after(Op("ours", "truncate", name))
        return number

    return tapped


def _our_write(real: Any) -> Any:
    def tapped(number: int, data: Any, *place: int) -> int:
        offset = place[0] if place else -1
        if number not in _taps.files:  # a pipe, or a socket
            return int(real(number, data, *place))
        if offset < 0:
            offset = os.lseek(number, 0, os.SEEK_CUR)
        op = Op("ours", "write", _name(number), offset=offset, data=bytes(data))
        return int(_do(op, lambda: real(number, data, *place), _raise))

    return tapped


def _our_on(name: str) -> Any:
    """Tap a call on a descriptor."""

    def tap(real: Any) -> Any:
        def tapped(number: int, *more: int) -> None:
            op = Op("ours", name, _name(number), offset=more[0] if name == "truncate" else 0)
            _do(op, lambda: real(number, *more), _raise)

        return tapped

    return tap


def _our_sync(real: Any) -> Any:
    def tapped(number: int) -> None:
        name = _name(number)
        kind = "syncdir" if os.path.isdir(name) else SYNC
        _do(Op("ours", kind, name), lambda: real(number), _raise)

    return tapped


def _our_rename(real: Any) -> Any:
    def tapped(source: Any, target: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None) -> None:
        op = Op("ours", "rename", _path(source, src_dir_fd), _path(target, dst_dir_fd))
        _do(op, lambda: real(source, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd), _raise)

    return tapped


def _our_path(name: str) -> Any:
    def tap(real: Any) -> Any:
        def tapped(path: Any, *more: Any, **options: Any) -> Any:
            op = Op("ours", name, _path(path, options.get("dir_fd")))
            return _do(op, lambda: real(path, *more, **options), _raise)

        return tapped

    return tap


_OURS: dict[str, Callable[[Any], Any]] = {
    "open": _our_open,
    "write": _our_write,
    "pwrite": _our_write,
    "fsync": _our_sync,
    "fdatasync": _our_sync,
    "ftruncate": _our_on("truncate"),
    **{name: _our_on("chmod") for name in ("fchmod", "fchown")},
    "rename": _our_rename,
    "replace": _our_rename,
    **{name: _our_path(name) for name in ("mkdir", "rmdir", "unlink", "chmod", "utime")},
}


def _flock(real: Any) -> Any:
    def tapped(number: int, what: int) -> None:
        _do(Op("ours", "lock", _name(number)), lambda: real(number, what), _raise)

    return tapped


class _Raw(io.RawIOBase):
    """A descriptor as a file whose writes pass the tap."""

    def __init__(self, number: int) -> None:
        self._number = number

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._number

    def write(self, data: Any) -> int:
        return os.write(self._number, data)

    def close(self) -> None:
        if not self.closed:
            super().close()
            os.close(self._number)


_real_fdopen = os.fdopen


def _fdopen(number: int, mode: str = "r", *more: Any, **options: Any) -> Any:
    if "w" not in mode:
        return _real_fdopen(number, mode, *more, **options)
    buffered = io.BufferedWriter(_Raw(number))
    return buffered if "b" in mode else io.TextIOWrapper(buffered, encoding=options.get("encoding"))


# --- nothing goes around ----------------------------------------------------------------------------------------
_CHANGES = frozenset(("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.truncate"))


def _audit(event: str, values: tuple[Any, ...]) -> None:
    if _taps.hook is None or _taps.depth:
        return
    if event in _CHANGES or (event == "open" and isinstance(values[2], int) and values[2] & WRITING):
        _taps.escaped.append(f"{event} {values[0]}")
