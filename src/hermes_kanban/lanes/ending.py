"""What a run's end is written down from: exit statuses, and why a worker could not be started (D11, D13, P45)."""

from __future__ import annotations

import errno
import os

from hermes_kanban.lanes import start
from hermes_kanban.lanes.order import LEADER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hermes_kanban.lanes.order import Order

    Ended = tuple[int | None, int | None]  # exit code, or the signal that ended it

WELL: Ended = (0, None)
NOT_STARTED: Ended = (None, None)


def ended_by(status: int) -> Ended:
    """Return exit code or signal from what `wait` said."""
    code = os.waitstatus_to_exitcode(status)
    return (code, None) if code >= 0 else (None, -code)


class Ends:
    """The exit statuses of a run.

    Where a launcher was started, its own is not the work's: of those that outlived it the last that failed counts, so
    that a launcher's 0 cannot pass off failed work as done (C26).
    """

    def __init__(self, order: Order) -> None:
        self._order = order
        self.leader: Ended | None = None
        self._outlived: Ended = WELL

    def note_leader(self, status: int) -> bool:
        """Note how the started process ended; whether it ended well."""
        self.leader = ended_by(status)
        return self.leader == WELL

    def note_other(self, status: int) -> None:
        """Note how an orphan ended, by itself."""
        if self.leader is not None and self._order.wait_for != LEADER and ended_by(status) != WELL:
            self._outlived = ended_by(status)

    def verdict(self) -> Ended:
        """Return how the run ended."""
        if self.leader is None:
            return NOT_STARTED
        return self._outlived if self.leader == WELL else self.leader


def rc(ended: Ended) -> int:
    """Return what the log's last line says: the code, a signal as a negative number, 127 where nothing was started."""
    code, signal = ended
    if code is not None:
        return code
    return start.NOT_STARTED if signal is None else -signal


def trouble(order: Order, told: bytes) -> tuple[str, str]:
    """Return why a worker could not be started, and what to do, from what its place-holder wrote (D11)."""
    stage, _, number = told.decode("ascii", "replace").partition(" ")
    code = int(number) if number.isdigit() else 0
    if stage == start.WORKSPACE:
        return _workspace(order.workspace, code)
    return _program(order.argv, code)


def no_process(error: OSError) -> tuple[str, str]:
    """Return why no process could be had at all."""
    return (
        f"no process could be started: {error.strerror or error}",
        "this host has too many processes or too little memory; lower `kanban.max_in_progress`",
    )


NOBODY_ANSWERED = (
    "nobody confirmed the start of the worker, so it was not started",
    "see that the gateway runs and that the board can be written; the card is tried again",
)


def _workspace(path: str, code: int) -> tuple[str, str]:
    reasons = {errno.ENOENT: "is not there", errno.ENOTDIR: "is no folder", errno.EACCES: "may not be entered"}
    return (
        f"the workspace {path} {reasons.get(code, 'cannot be entered: ' + os.strerror(code))}",
        "make that folder, or give the card another workspace",
    )


def _program(argv: tuple[str, ...], code: int) -> tuple[str, str]:
    name = argv[0][:200]
    if code == errno.ENOENT and os.path.exists(argv[0]):
        return f"the program {name} names an interpreter that is not there", "install it, or mend the first line of it"
    if code in PROGRAM_TROUBLES:
        what, hint = PROGRAM_TROUBLES[code]
        return f"the program {name} {what}", hint
    if code == errno.E2BIG:
        length = sum(len(item) for item in argv)
        return f"the command line of {name} is too long ({length} characters)", "give it the prompt in a file"
    return f"the program {name} cannot be run: {os.strerror(code)}", "look at the lane's command line"


PROGRAM_TROUBLES = {
    errno.ENOENT: ("is not there", "install it, or name it by its full path in the lane; it is looked for on PATH"),
    errno.EACCES: ("may not be executed", "make it executable (`chmod +x`), or name another one in the lane"),
    errno.ENOEXEC: ("is nothing that this system can run", "name a program for this system, or give it a first line"),
    errno.EINVAL: ("has a NUL character in its command line", "take it out of the lane's arguments"),
}
