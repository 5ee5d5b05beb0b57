"""What a shim is answered, by the dispatcher over its channel or by the report program: the same words either way."""

from __future__ import annotations

from hermes_kanban.base import process
from hermes_kanban.base.errors import ClaimLost, Refusal, RunNotFound
from hermes_kanban.base.record import Record, record
from hermes_kanban.kernel.supervise import Beat, Process
from hermes_kanban.lanes import runfiles
from hermes_kanban.lanes.settling import Pauses, settle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from hermes_kanban.kernel.supervision import Supervision

    Message = dict[str, Any]


@record
class Desk(Record):
    """Where a board's run files are, and its home's pauses."""

    folder: str
    pauses: Pauses


def answer(board: Supervision, desk: Desk, run: int, message: Message) -> Message | None:
    """Do what a shim asks; return the answer, or None when there is none yet and it must ask again.

    Args:
        desk: what an answer needs besides the board.
        run: the run that the channel belongs to; a message about another is refused.
    """
    act = _ACTS.get(str(message.get("op")))
    if act is None or message.get("run") != run:
        return {"ok": False, "message": f"no such report of run {run}"}
    try:
        found = act(board, desk, run, message)
    except (ClaimLost, RunNotFound) as error:
        return {"ok": False, "message": error.message}
    except Refusal:  # a board that cannot be used now says nothing about the run: its worker goes on (D14)
        return None
    except (KeyError, TypeError, ValueError):
        return {"ok": False, "message": "the report lacks something"}
    return {"ok": True, "state": found.state, "by_owner": found.by_owner}


def _started(board: Supervision, _desk: Desk, run: int, message: Message) -> Beat:
    shim, worker = _named(message["shim"]), _named(message["worker"])
    where = Process(shim, worker, process.boot_id(), process.pid_namespace())
    return board.started(run, str(message["lock"]), where)


def _beat(board: Supervision, _desk: Desk, run: int, message: Message) -> Beat:
    idle = message.get("idle")
    quiet = max(0, idle) if type(idle) is int else 0
    return board.renew(run, str(message["lock"]), active=bool(message.get("active")), idle=quiet)


def _ended(board: Supervision, desk: Desk, run: int, _message: Message) -> Beat:
    found = runfiles.read_exit(desk.folder, run)
    if found is None or found.run != run:
        raise ValueError("there is no exit record")
    settle(board, desk.pauses, run, found)
    return Beat("closed")


def _named(pair: Any) -> tuple[int, str]:
    pid, started = pair
    if type(pid) is not int:
        raise TypeError(pid)
    return pid, str(started)


_ACTS: dict[str, Callable[[Supervision, Desk, int, Message], Beat]] = {
    "started": _started,
    "beat": _beat,
    "ended": _ended,
}
