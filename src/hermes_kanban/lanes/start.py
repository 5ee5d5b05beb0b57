"""The one place where a shim forks: the worker, held until its start is granted, and the report program.

Both die with the shim (parent-death signal), have sessions of their own, no handler, no blocked signal and no
descriptor of the shim's. A shim has one thread, so what runs between fork and exec is plain Python.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

from hermes_kanban.base.process import PROC
from hermes_kanban.base.record import Record, record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
GO = b"g"
OWN_DESCRIPTORS = f"{PROC}/self/fd" if sys.platform == "linux" else "/dev/fd"
OOM_SHIFT, OOM_MOST = 500, 1000  # short of memory, the kernel is to take the worker and not its gateway (C37)
NOT_STARTED = 127
COERCED = "LC_CTYPE"  # an interpreter in the C locale sets it for itself and thereby for its children (PEP 538)

WORKSPACE, PROGRAM = "workspace", "program"


@record
class Held(Record):
    """A worker that was forked and waits.

    Args:
        pid: its process id, also of its session and group.
        release: descriptor to write `GO` to; closed without that, the worker never starts.
        trouble: descriptor that ends without a word once the program runs, or says why it does not.
    """

    pid: int
    release: int
    trouble: int


@record
class Program(Record):
    """A helper that runs: its process id (also of its session), and the descriptor of what it prints."""

    pid: int
    answer: int


def become_subreaper() -> bool:
    """Have the kernel hand orphans below us to us; whether it does (D13)."""
    return _prctl(PR_SET_CHILD_SUBREAPER, 1)


def hold(argv: tuple[str, ...], workspace: str, output: int) -> Held:
    """Fork the worker and hold it before it becomes its program (D10, D11).

    Args:
        argv: its command line, never seen by a shell.
        workspace: where it works.
        output: descriptor of the pipe that it prints to.

    Raises:
        OSError: no process or descriptor is to be had.
    """
    release = os.pipe()
    trouble = os.pipe()
    pid = _fork()
    if pid == 0:
        os.close(release[1])  # or else it would wait for itself
        _worker(argv, workspace, output, release[0], trouble[1])
    os.close(release[0])
    os.close(trouble[1])
    os.set_blocking(trouble[0], False)
    return Held(pid, release[1], trouble[0])


def let_go(held: Held) -> None:
    """Let a held worker become its program. One that has died meanwhile shows up as such."""
    try:
        os.write(held.release, GO)
    except OSError:
        return
    finally:
        os.close(held.release)


def run(argv: tuple[str, ...], told: bytes) -> Program:
    """Start a helper program in the shim's folder, with a few bytes on its standard input.

    Raises:
        OSError: no process or descriptor is to be had.
    """
    given = os.pipe()
    answer = os.pipe()
    os.set_blocking(given[1], False)
    os.write(given[1], told)
    os.close(given[1])
    pid = _fork()
    if pid == 0:
        _helper(argv, given[0], answer[1])
    os.close(given[0])
    os.close(answer[1])
    os.set_blocking(answer[0], False)
    return Program(pid, answer[0])


def _fork() -> int:
    """Fork with all signals held back, so that no handler of the shim's runs in the child."""
    former = signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())
    shim, pid = os.getpid(), -1
    try:
        pid = os.fork()
    finally:
        if pid != 0:
            signal.pthread_sigmask(signal.SIG_SETMASK, former)
    if pid == 0:
        _set_apart(shim)
    return pid


# --- in the child: nothing below returns ----------------------------------------------------------------------
def _set_apart(shim: int) -> None:
    """Make the child its own master, but bound to the shim's life."""
    try:
        os.setsid()
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != shim:
            os._exit(NOT_STARTED)  # the shim died before the death signal was set
        signal.set_wakeup_fd(-1)
        for number in signal.valid_signals():
            _reset(number)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
    except BaseException:
        os._exit(NOT_STARTED)


def _reset(number: int) -> None:
    try:
        signal.signal(number, signal.SIG_DFL)
    except (OSError, ValueError):
        return  # KILL, STOP and those of the C library


def _worker(argv: tuple[str, ...], workspace: str, output: int, release: int, trouble: int) -> NoReturn:
    try:
        _standard(os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC), output, output)
        _close_all_but(release, trouble)
        _offer_to_the_oom_killer()
        if os.read(release, 1) == GO:
            _become(argv, workspace, trouble)
    finally:
        os._exit(NOT_STARTED)


def _helper(argv: tuple[str, ...], given: int, answer: int) -> NoReturn:
    try:
        _standard(given, answer, os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC))
        _close_all_but()
        _exec(argv)
    finally:
        os._exit(NOT_STARTED)


def _become(argv: tuple[str, ...], workspace: str, trouble: int) -> None:
    """Go to the workspace and become the program, or say which of the two failed, and how."""
    stage = WORKSPACE
    try:
        os.chdir(_bytes(workspace))
        stage = PROGRAM
        _exec(argv)
    except OSError as error:
        os.write(trouble, f"{stage} {error.errno or 0}".encode())
    except ValueError:  # a NUL among the arguments
        os.write(trouble, f"{stage} 22".encode())


def _exec(argv: tuple[str, ...]) -> None:
    if sys.platform == "linux" and f"{COERCED}=".encode() not in _first_environment():
        os.unsetenv(COERCED)
    os.execvp(_bytes(argv[0]), [_bytes(item) for item in argv])  # noqa: S606 - an argv list: no shell ever sees it


def _first_environment() -> bytes:
    """Return the environment that this shim was given."""
    with open(f"{PROC}/self/environ", "rb") as handle:
        return handle.read()


def _bytes(text: str) -> bytes:
    """Return text as it came, whatever the locale: the order is UTF-8, with single bytes that are none kept apart."""
    return text.encode("utf-8", "surrogateescape")


def _standard(stdin: int, stdout: int, stderr: int) -> None:
    """Make these the descriptors 0, 1 and 2; none of them is 0, 1 or 2 now."""
    for descriptor, number in ((stdin, 0), (stdout, 1), (stderr, 2)):
        os.dup2(descriptor, number)


def _close_all_but(*kept: int) -> None:
    """Close every descriptor from 3 on, among them the run's lock and the slots, but these."""
    for descriptor in others():
        if descriptor not in kept:
            _close(descriptor)


def others() -> tuple[int, ...]:
    """Return the descriptors from 3 on."""
    return tuple(number for number in map(int, os.listdir(OWN_DESCRIPTORS)) if number > 2)


def _close(descriptor: int) -> None:
    try:
        os.close(descriptor)
    except OSError:
        return  # that of the listing itself


def _offer_to_the_oom_killer() -> None:
    path = f"{PROC}/self/oom_score_adj"
    try:
        with open(path, "r+", encoding="ascii") as handle:
            wanted = min(OOM_MOST, int(handle.read()) + OOM_SHIFT)
            handle.seek(0)
            handle.write(str(wanted))
    except (OSError, ValueError):
        return


def _prctl(option: int, value: int) -> bool:
    """Call prctl, which only Linux has; whether it worked."""
    if sys.platform != "linux":
        return False
    return bool(ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) == 0)
