"""A board without a dispatcher: whoever wants a card first books what ended unseen, so that none is lost (P10, C46)."""

from __future__ import annotations

from hermes_kanban import compose
from hermes_kanban.base.errors import Refusal
from hermes_kanban.dispatcher.lease import Lease
from hermes_kanban.dispatcher.reap import Reaper
from hermes_kanban.lanes.answers import Desk
from hermes_kanban.lanes.settling import Pauses

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hermes_kanban.boards import Place
    from hermes_kanban.compose import Environment
    from hermes_kanban.model.run import Run


def sweep(env: Environment, place: Place, runs: tuple[Run, ...]) -> bool:
    """Book the ends of these runs if nobody dispatches the board; True when any had ended.

    The board's lease is held meanwhile, so that a dispatcher that begins just now waits for the end of it.

    Args:
        runs: the attempts under a shim that are not proven ended.
    """
    lease = Lease(place.folder)
    try:
        if not runs or not lease.take():
            return False
    except OSError:
        return False
    try:
        board = compose.open_supervision(env, place)
        reaper = Reaper(board, Desk(place.runs, Pauses(env.home)), env.host, env.values)
        return any([_swept(reaper, run) for run in runs if reaper.ours(run)])
    finally:
        lease.drop()


def _swept(reaper: Reaper, run: Run) -> bool:
    try:
        return reaper.collect(run) is not None
    except Refusal:  # the next who comes tries again
        return False
