"""The one door to the identity of processes: who is above us, who still lives, which machine this is.

A pid alone names nobody: it is used again, and it means something else in another pid namespace or after a
restart. A process is known by host, boot, pid namespace, pid and start time (D12). Facts come from /proc; where
there is none (macOS), from psutil, which is loaded only then.
"""

from __future__ import annotations

import os
import pwd

from hermes_kanban.base.errors import Retryable, Unexpected
from hermes_kanban.base.lazy import module
from hermes_kanban.base.record import Record, record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

PROC = "/proc"
SHIM = ("-m", "hermes_kanban.lanes.shim")  # `python -m hermes_kanban.lanes.shim DATABASE RUN …` is a shim (P70)
GONE_STATES = frozenset("ZXx")  # zombie, dead: exited, only not collected yet (C22)
MOST_STAT_BYTES = 4096
MOST_ARGV_BYTES = 65_536  # a prompt among the arguments may be longer; its beginning will do
WALKS = 64  # each repeat needs an ancestor that died in the middle of the walk

# Fields of /proc/PID/stat, counted behind the name: state is the file's third field.
STATE, PARENT, STARTED = 0, 1, 19

# Processes that adopt or start others on behalf of nobody in particular; names as the kernel keeps them, 15 characters.
MANAGER_NAMES = (
    "systemd launchd supervisord runsv runsvdir s6-supervise s6-svscan perpd dinit monit circusd containerd-shim "
    "conmon cron crond atd anacron fcron inetd xinetd sshd sshd-session sshd-auth dropbear"
)
INIT_NAMES = (
    "init tini tini-static dumb-init docker-init podman-init catatonit s6-linux-init runit runit-init openrc-init "
    "finit minit sinit procd shepherd upstart my_init pause"
)
MANAGERS = frozenset(MANAGER_NAMES.split())
INITS = frozenset(INIT_NAMES.split())


@record
class ProcessInfo(Record):
    """One process. `started` is an opaque token: with the pid it names the process until the next boot (D12)."""

    pid: int
    started: str
    name: str
    argv: tuple[str, ...]


@record
class Stat(Record):
    """What the system keeps of a process besides its arguments; `parent` is 0 above the first one."""

    name: str
    state: str
    parent: int
    started: str


if TYPE_CHECKING:
    StatOf = Callable[[int], Stat | None]
    ArgvOf = Callable[[int], tuple[str, ...]]
    Shim = tuple[str, int, tuple[int, str] | None]


def ancestors(pid: int | None = None) -> tuple[ProcessInfo, ...]:
    """Return the chain above a process (ours by default), nearest first, up to pid 1 or the last readable one.

    The process itself is not in it; a process that is gone has no ancestors. Rights rest on this chain (P70), so
    one that was cut because an ancestor died while it was read is read again, and never returned.

    Raises:
        Retryable: ancestors died faster than they could be read.
    """
    stat_of, argv_of = _door()
    for _ in range(WALKS):
        chain, whole = _walk(os.getpid() if pid is None else pid, stat_of)
        if whole:
            return tuple(ProcessInfo(above, stat.started, stat.name, argv_of(above)) for above, stat in chain)
    raise Retryable("the processes above this one end faster than they can be read", hint="try again")


def lineage(pid: int | None = None) -> tuple[ProcessInfo, ...]:
    """Return a process (ours by default) and its ancestors, nearest first; nothing for one that is gone.

    For the question whether somebody stands at or above us (P12b): a shell starts its last command in its own
    place (`sh -c "a; b"` with dash), and then the owner of a ticket is the asking process itself.
    """
    itself = describe(os.getpid() if pid is None else pid)
    return () if itself is None else (itself, *ancestors(itself.pid))


def sees_itself() -> bool:
    """Whether the process table that can be read is the one that we are in (a namespace may show another's)."""
    try:
        return os.readlink(f"{PROC}/self") == str(os.getpid())
    except OSError:
        return not os.path.isdir(PROC)


def describe(pid: int) -> ProcessInfo | None:
    """Return who has this pid now (a zombie included), or None."""
    stat_of, argv_of = _door()
    stat = stat_of(pid)
    return None if stat is None else ProcessInfo(pid, stat.started, stat.name, argv_of(pid))


def alive(pid: int, started: str) -> bool:
    """Whether the process with this pid and start still runs; a zombie does not (D12, C22)."""
    stat = _door()[0](pid)
    return stat is not None and stat.started == started and stat.state not in GONE_STATES


def is_service_manager(process: ProcessInfo) -> bool:
    """Whether the process stands for nobody: an init as pid 1, or a service manager, cron or sshd (P12b).

    A pid 1 that is a shell, an interpreter or an agent, as in containers, is an owner like any other.
    """
    name = process.name.partition("(")[0].lower()  # WSL calls its init "init(Ubuntu)"
    return name in MANAGERS or (process.pid == 1 and name in INITS)


def shim_above(line: tuple[ProcessInfo, ...]) -> Shim | None:
    """Return board file, run and identity of the outermost ancestor that is a shim; its command line says so (P70).

    Who is below one is inside of its run: everything that decides by that asks here. The asking process itself never
    counts, nor words that stand behind a command: what a worker starts may call itself what it likes, but it cannot
    get out from below the shim that the dispatcher started.

    Args:
        line: a process and its ancestors, as `lineage` gives them.
    """
    for ancestor in reversed(line[1:]):
        words = [word for word in ancestor.argv[1:] if word != "--"]
        options = [index for index, word in enumerate(words) if word == SHIM[0]]
        at = options[0] if options else len(words)
        if tuple(words[at : at + 2]) == SHIM and all(word.startswith("-") for word in words[:at]):
            rest = words[at + 2 :]
            number = rest[1] if len(rest) > 1 and rest[1].isascii() and rest[1].isdigit() else "0"
            return (rest[0] if rest else "", int(number), (ancestor.pid, ancestor.started))
    return None


def boot_id() -> str:
    """Return the id of this boot, "" where unknown (there, start times are fine enough to tell boots apart)."""
    return os.fsdecode(_read(f"{PROC}/sys/kernel/random/boot_id")).strip()


def pid_namespace() -> str:
    """Return the id of our pid namespace, "" where there are none."""
    try:
        return os.readlink(f"{PROC}/self/ns/pid")
    except OSError:
        return ""


def host_id() -> str:
    """Return the machine's node name; callers let HERMES_KANBAN_HOST override it (D12)."""
    return os.uname().nodename


def login_name() -> str:
    """Return the name of the user that we run as, "uid<number>" when it has none."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid{os.getuid()}"


# --- the walk -------------------------------------------------------------------------------------------------
def _walk(pid: int, stat_of: StatOf) -> tuple[tuple[tuple[int, Stat], ...], bool]:
    """Return the chain above a process, and whether it was read to its end.

    A parent that is older than its child is the true one. Otherwise it may be a stranger that got the pid of a
    parent that died: then the child is asked again, and the parent is believed if the child still names it.
    """
    chain: list[tuple[int, Stat]] = []
    child = stat_of(pid)
    while child is not None and child.parent:
        above = stat_of(child.parent)
        if above is None or float(above.started) >= float(child.started):
            again = stat_of(pid)
            if again is None or again.started != child.started:
                return tuple(chain), not chain
            if again.parent != child.parent:
                child = again  # its parent died and another one took it over
                continue
        if above is None:
            break  # hidden from us (a /proc with hidepid)
        chain.append((child.parent, above))
        pid, child = child.parent, above
    return tuple(chain), True


# --- /proc ----------------------------------------------------------------------------------------------------
def _read(path: str, most: int = MOST_STAT_BYTES) -> bytes:
    """Return a small file's bytes, none if it cannot be read: the process went, or is not ours to look at."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(descriptor, most)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def _proc_stat(pid: int) -> Stat | None:
    """Read /proc/PID/stat. The name stands in brackets and may hold blanks and brackets itself."""
    head, bracket, tail = _read(f"{PROC}/{pid}/stat").rpartition(b")")
    if not bracket:
        return None
    fields = tail.split(None, STARTED + 1)
    name = os.fsdecode(head.partition(b"(")[2])
    return Stat(name, fields[STATE].decode(), int(fields[PARENT]), fields[STARTED].decode())


def _proc_argv(pid: int) -> tuple[str, ...]:
    """Read /proc/PID/cmdline: each argument ends with a NUL (a program that renamed itself may leave it out)."""
    text = _read(f"{PROC}/{pid}/cmdline", MOST_ARGV_BYTES)
    return tuple(os.fsdecode(text).removesuffix("\0").split("\0")) if text else ()


# --- psutil ---------------------------------------------------------------------------------------------------
def _psutil() -> Any:
    try:
        return module("psutil")
    except ImportError as error:
        raise Unexpected(
            "processes cannot be told apart here: there is no /proc, and psutil is not installed",
            hint="mount /proc, or install psutil beside this package",
        ) from error


def _psutil_stat(pid: int) -> Stat | None:
    psutil = _psutil()
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            exited = process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
            started = f"{process.create_time():.6f}"
            return Stat(process.name(), "Z" if exited else "R", process.ppid(), started)
    except (psutil.Error, ValueError, OverflowError):
        return None


def _psutil_argv(pid: int) -> tuple[str, ...]:
    psutil = _psutil()
    try:
        return tuple(psutil.Process(pid).cmdline())
    except (psutil.Error, ValueError, OverflowError):
        return ()


def _door() -> tuple[StatOf, ArgvOf]:
    """Return the two readers that work on this machine."""
    if os.path.exists(f"{PROC}/self/stat"):
        return _proc_stat, _proc_argv
    return _psutil_stat, _psutil_argv
