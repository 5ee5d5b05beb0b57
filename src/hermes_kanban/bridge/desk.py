"""What a bridge does on the board: claim, start, book the end. Its selector loop is `loop.py`.

A claim is an ordinary pull claim as `bridge:NAME`: the lease alone decides, and no slot is taken (P14c, P15). From the
start of its shim on the run is looked after like a dispatcher's, by whoever is there: this bridge, a later one, a
gateway, the report program.
"""

from __future__ import annotations

import os

from hermes_kanban import compose
from hermes_kanban.base.errors import Refusal, RunNotFound
from hermes_kanban.dispatcher import unattended
from hermes_kanban.dispatcher.host import LocalHost
from hermes_kanban.dispatcher.reap import Reaper, bridge_lives
from hermes_kanban.dispatcher.slots import Held
from hermes_kanban.dispatcher.spawn import Shim, Spawner, Taken
from hermes_kanban.lanes import answers, runfiles
from hermes_kanban.lanes.settling import Pauses
from hermes_kanban.model import exits
from hermes_kanban.model.exits import ExitRecord
from hermes_kanban.model.run import Run

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from hermes_kanban.base.clock import Clock
    from hermes_kanban.boards import Place
    from hermes_kanban.bridge.job import Job
    from hermes_kanban.compose import Environment
    from hermes_kanban.lanes.order import Order
    from hermes_kanban.model.claim import Claim
    from hermes_kanban.model.task import Task

BEATS = 6  # in a lease: after two that this bridge left unanswered the shim still renews in time by itself
STOPPED, OVERRIDDEN, CLOSED = "bridge_stop", "override", "closed"


class Starter(Spawner):
    """Starts the shims of pull claims."""

    def _order(self, taken: Taken, workspace: str) -> Order:
        order = super()._order(taken, workspace)
        return order.evolve(beat=min(order.beat, order.ttl / BEATS))


class Desk:
    """The board as one bridge works on it.

    Args:
        env, place: whose board.
        job: what is to be done.
        clock: the time.
    """

    def __init__(self, env: Environment, place: Place, job: Job, clock: Clock) -> None:
        self._env, self._place, self._job, self._clock = env, place, job, clock
        self.board = compose.open_supervision(env, place, bridge=job.name)
        self._pauses = Pauses(env.home)
        self._files = answers.Desk(place.runs, self._pauses)
        self._reaper = Reaper(self.board, self._files, env.host, env.values)
        self._starter = Starter(env, place, self.board, LocalHost(env))

    @property
    def now(self) -> int:
        """Epoch seconds."""
        return self._clock.now_ms() // 1000

    # --- before the work ---------------------------------------------------------------------------------------
    def take(self) -> Claim:
        """Claim the next card; its workspace is made.

        Raises:
            NothingReady: there is none.
            WorkspaceFailed: the card was returned, since its workspace cannot be made (P11).
            StateRefusal, ClaimLost: somebody else was quicker.
            Retryable, StoreRefused: the store cannot be used now.
        """
        job = self._job
        return self.board.claim(ttl=job.ttl, review=job.review, assignee=job.name)

    def cool_until(self) -> int:
        """Return until when the provider of this lane wants to be left alone, epoch seconds (P44)."""
        return self._pauses.until(self._job.lane.name)

    def sweep(self, besides: frozenset[int]) -> bool:
        """Book what ended unseen on a board without a dispatcher, but for these runs; True when anything had (C46)."""
        others = tuple(run for run in self.board.watched() if run.id not in besides)
        return unattended.sweep(self._env, self._place, others)

    def next_due(self) -> int | None:
        """Return when a card comes up by time alone, epoch seconds."""
        return self.board.next_due()

    # --- the start ---------------------------------------------------------------------------------------------
    def start(self, made: Claim) -> Shim | None:
        """Start the shim of a claimed card; None where no process could be started: the card is blocked then.

        Raises:
            Refusal: the run's lock cannot be made, and the card was given back; or the store cannot be used now.
        """
        log = os.path.join(self._place.logs, f"{made.task.id}.log")
        try:
            run = self.board.keep(made.run.id, self._job.lane.name, log)
            lock = runfiles.take_lock(self._place.runs, made.run.id)
        except Refusal as error:
            self.board.give_back(made, error)
            raise
        return self._starter.launch(Taken(made.task, run, self._job.lane, Held([lock])), made.workspace)

    def return_unused(self, made: Claim) -> None:
        """Give a claim up whose worker is not going to be started by this bridge; nothing is counted."""
        run = made.run
        self.board.settle(run.id, ExitRecord(run.id, run.task_id, run.claim_lock or "", stop=STOPPED))

    def answer(self, number: int, message: dict[str, Any]) -> dict[str, Any] | None:
        """Return what a shim is answered, None where it must ask again."""
        return answers.answer(self.board, self._files, number, message)

    def closed(self, number: int) -> str:
        """Return whether a run was closed: by its own worker, over its head (P12c), or "" for not at all."""
        try:
            run = self.board.run(number)
        except RunNotFound:
            return OVERRIDDEN
        return "" if run.open else CLOSED if run.end_verb is not None else OVERRIDDEN

    # --- the end -----------------------------------------------------------------------------------------------
    def book(self, number: int) -> tuple[Run, Task] | None:
        """Book the end of a run and return it with its card; None while a process of it may be left (P45, D13).

        Raises:
            Refusal: the store cannot be used now; the exit record stays where it is.
        """
        ended = self._reaper.collect(self.board.run(number))
        return (self.board.run(number), ended.card) if ended else None

    def left_behind(self) -> tuple[tuple[Run, bool], ...]:
        """Return the runs of bridges on this host that are not booked, each with whether it goes on.

        A claim of which no shim was ever heard counts only when its exit record is there: else its lease decides.
        """
        found = {run.id: run for run in self.board.watched() if run.pull}
        found |= {run.id: run for run in self.board.pulled() if self._recorded(run)}
        ours = [found[number] for number in sorted(found) if self._reaper.ours(found[number])]
        return tuple((run, self._goes_on(run)) for run in ours)

    def _recorded(self, run: Run) -> bool:
        found = runfiles.read_exit(self._place.runs, run.id)
        return found is not None and found.lock == run.claim_lock

    def _goes_on(self, run: Run) -> bool:
        return not self._recorded(run) and runfiles.held(self._place.runs, run.id)

    def orphaned(self, run: Run) -> bool:
        """Whether a run of this name goes on without the bridge that started it."""
        ours = (run.claim_lock or "").rsplit(":", 2)[1:2] == [str(os.getpid())]  # which has started nothing yet
        return run.profile == self._job.name and (ours or not bridge_lives(run))

    # --- for the alert -----------------------------------------------------------------------------------------
    def facts(self, number: int) -> dict[str, Any]:
        """Return what is known of a run's end without asking the board."""
        found = runfiles.read_exit(self._place.runs, number)
        verdict = exits.classify(found) if found else exits.vanished(None)
        record = runfiles.exit_path(self._place.runs, number) if found else None
        return {"outcome": verdict.outcome or verdict.policy, "record": record}
