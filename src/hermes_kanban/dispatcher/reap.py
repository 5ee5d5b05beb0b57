"""Collects ends: what a lock that came free means, and what is left of a worker whose shim died (D12 to D14, P45).

Used by every pass, and by a claimer on a board without a dispatcher. All repairs are compare-and-set, so two at
once do no harm (C116).
"""

from __future__ import annotations

from hermes_kanban.base import process
from hermes_kanban.base.record import Record, record
from hermes_kanban.lanes import leash, procset, proctable, runfiles
from hermes_kanban.lanes.settling import settle
from hermes_kanban.model import status as s
from hermes_kanban.model.exits import ExitRecord
from hermes_kanban.model.run import Run

BRIDGE_VERB = "bridge"  # what stands in the command line of a bridge

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hermes_kanban.base.settings import Settings
    from hermes_kanban.kernel.supervision import Supervision
    from hermes_kanban.lanes.answers import Desk
    from hermes_kanban.model.task import Task

STOPPED = ("T", "t")  # by a signal, or by a debugger: it will not do what it is told


def bridge_lives(run: Run) -> bool:
    """Whether the bridge that claimed a run of this host still runs: then it is the one who looks after it."""
    parts = (run.claim_lock or "").rsplit(":", 2)
    pid = int(parts[1]) if len(parts) == 3 and parts[1].isdigit() else 0
    there = process.describe(pid) if pid else None
    return there is not None and BRIDGE_VERB in there.argv


@record
class Ended(Record):
    """A run whose end was booked, and its card afterwards."""

    run: Run
    card: Task


class Reaper:
    """Judges the runs of this host on one board.

    Args:
        board: as its dispatcher sees it.
        desk: its run files, and the home's pauses.
        host: this host's id; runs of other hosts are not judged by their processes (C25).
        values: the settings.
    """

    def __init__(self, board: Supervision, desk: Desk, host: str, values: Settings) -> None:
        self.board, self.folder, self.host, self._values = board, desk.folder, host, values
        self._pauses = desk.pauses

    def _settle(self, run: Run, found: ExitRecord | None) -> Task:
        return settle(self.board, self._pauses, run.id, found)

    def ours(self, run: Run) -> bool:
        """Whether the run's processes are on this host."""
        return run.host == self.host

    def collect(self, run: Run) -> Ended | None:
        """Book the end of a run of this host if it has ended (D2, first phase).

        Raises:
            Refusal: the store cannot be used now.
        """
        found = self._record(run)
        if found is not None:
            return Ended(run, self._settle(run, found))
        if runfiles.held(self.folder, run.id):
            return None
        found = self._record(run)  # it may have been written between the two looks
        if found is not None:
            return Ended(run, self._settle(run, found))
        if run.process_state == s.STARTING:
            return self._never_alive(run)
        return self._vanished(run)

    def _record(self, run: Run) -> ExitRecord | None:
        found = runfiles.read_exit(self.folder, run.id)
        return found if found and found.run == run.id and found.lock == run.claim_lock else None

    def _never_alive(self, run: Run) -> Ended | None:
        """Nobody holds the lock of a claim that was never answered for: its starter died, its shim gave up (D11)."""
        if not run.open:
            return Ended(run, self._settle(run, None))
        return Ended(run, self.board.task(run.task_id)) if self.board.never_came_alive(run.id) else None

    def _vanished(self, run: Run) -> Ended | None:
        """The shim died and left no record: make sure that nothing of the run is left, then say so (D13, C17)."""
        if not self.destroy(run):
            self.board.defer(run.id, "its worker survives SIGKILL")
            return None
        return Ended(run, self._settle(run, None))

    def destroy(self, run: Run) -> bool:
        """End all that is left of a run without its shim's help; True when nothing is left."""
        if run.boot_id not in (None, process.boot_id()):
            return True  # the machine was started anew since
        roster = runfiles.read_roster(self.folder, run.id)
        return procset.destroy(run.claim_lock or "", roster, self._values.number("kill_grace_seconds"))

    def watched_over(self, run: Run) -> bool:
        """Whether the run's shim is at work: then it goes on ending what is left, and keeps lock and slots (D13)."""
        found = proctable.entry_of(run.shim_pid or 0)
        return found is not None and found.started == run.shim_started and found.lives and found.state not in STOPPED

    def force(self, run: Run, reason: str) -> Ended | None:
        """End a run whose shim does not answer, together with the shim (a stopped one holds its lock for ever)."""
        if not self.destroy(run):
            self.board.defer(run.id, reason)
            return None
        worker = (run.worker_pid, run.worker_started or "") if run.worker_pid else None
        mine = ExitRecord(run.id, run.task_id, run.claim_lock or "", stop=reason, worker=worker)
        found = self._record(run) or mine  # woken to be ended, it may have found the time to write down more
        found = found.evolve(stop=reason) if found.stop == leash.SIGNAL else found
        runfiles.write_exit(self.folder, found)
        return Ended(run, self._settle(run, found))
