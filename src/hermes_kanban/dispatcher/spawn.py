"""From a planned card to a running shim: slots, claim, workspace, order (D10, D11)."""

from __future__ import annotations

import os
import socket

from hermes_kanban.base import process, settings
from hermes_kanban.base.errors import Refusal
from hermes_kanban.base.record import Record, record
from hermes_kanban.boards import Place, make_folders
from hermes_kanban.dispatcher.host import LocalHost, memory
from hermes_kanban.dispatcher.slots import Held
from hermes_kanban.kernel.planning import Planned
from hermes_kanban.kernel.supervision import Facts, Supervision
from hermes_kanban.lanes import command, environment, launch, prompt, runfiles
from hermes_kanban.lanes.lane import Lane
from hermes_kanban.lanes.order import Order
from hermes_kanban.model import status as s
from hermes_kanban.model.claim import Caps
from hermes_kanban.model.run import Run
from hermes_kanban.model.task import Task

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hermes_kanban.compose import Environment


@record
class Taken(Record):
    """A card that was claimed and whose worker is to be started now."""

    card: Task
    run: Run
    lane: Lane
    held: Held


@record
class Shim(Record):
    """A shim that was started."""

    pid: int
    channel: socket.socket
    card: Task
    run: Run


class Spawner:
    """Starts workers of one board.

    Args:
        env, place: whose.
        board: the board as its dispatcher sees it.
        host: lanes and slots.
    """

    def __init__(self, env: Environment, place: Place, board: Supervision, host: LocalHost) -> None:
        self._env, self._place, self._board, self._host = env, place, board, host

    def take(self, planned: Planned) -> Taken | str:
        """Take the slots, then the card (P15); a word says which slot is missing, or that the card is gone.

        Raises:
            Retryable, StoreRefused: the store cannot be used now.
        """
        lane = self._host.lane(planned.lane.name)
        if lane is None:
            return "lane"
        slots = self._host.slots.take(self._host.wanted(lane, planned.lane.name))
        if isinstance(slots, str):
            return slots
        held = Held(slots)
        try:
            card, run = self._claim(planned, lane)
            held.put_first(self._lock(run))
        except BaseException:
            held.close()
            raise
        return Taken(card, run, lane, held)

    def _lock(self, run: Run) -> int:
        """Take the run's lock; where that cannot be done the claim is given up at once."""
        try:
            return runfiles.take_lock(self._place.runs, run.id)
        except Refusal:
            self._board.hand_back(run)
            raise

    def _claim(self, planned: Planned, lane: Lane) -> tuple[Task, Run]:
        values = self._env.values
        caps = Caps(
            values.number("max_in_progress_per_board") or None,
            values.number("max_in_progress_per_profile") or None,
            lane.max_concurrency or None,
        )
        facts = Facts(
            orchestrates=lane.orchestrates,
            log_path=os.path.join(self._place.logs, f"{planned.card.id}.log"),
            boot_id=process.boot_id(),
            pid_namespace=process.pid_namespace(),
        )
        return self._board.claim_for_dispatch(
            planned.card.id,
            ttl=values.number("claim_ttl_seconds"),
            lane=lane.name,
            name=planned.lane.name,
            caps=caps,
            facts=facts,
        )

    def prepare(self, taken: Taken) -> str | Refusal:
        """Make the workspace; may take long (git), and touches no database."""
        try:
            make_folders(self._place)
            return self._board.prepare_place(taken.card)
        except Refusal as error:
            return error

    def launch(self, taken: Taken, workspace: str | Refusal) -> Shim | None:
        """Start the shim, or end the run as `spawn_failed` at once with what to do (D11)."""
        try:
            if isinstance(workspace, Refusal):
                raise workspace
            order, variables = self._order(taken, workspace), self._variables(taken, workspace)
            pid, channel = launch.launch(order, self._place.database, variables, taken.held.hand_over())
        except Refusal as error:
            taken.held.close()
            self._board.spawn_failed(taken.run, error.message, error.hint)
            return None
        except Exception as error:  # whatever it is, it is this card's trouble and no other's (D2)
            taken.held.close()
            words = f"the worker could not be started: {type(error).__name__}: {error}"
            self._board.spawn_failed(taken.run, words, "look at the lane and the card; report it if they are right")
            return None
        return Shim(pid, channel, taken.card, taken.run)

    def hand_back(self, taken: Taken) -> None:
        """Give a claim up whose worker is not going to be started by this dispatcher."""
        taken.held.close()
        self._board.hand_back(taken.run)

    def _order(self, taken: Taken, workspace: str) -> Order:
        card, run, lane, values = taken.card, taken.run, taken.lane, self._env.values
        number = values.number
        runtime = settings.runtime_folder(self._env.variables)
        longest = card.max_runtime_seconds or lane.timeout or number("max_runtime_seconds")
        limit = lane.memory_limit or number("worker_memory_limit_bytes") or memory() // 2
        return Order(
            run=run.id,
            task=card.id,
            lock=run.claim_lock or "",
            argv=tuple(command.argv(lane, self._words(taken, workspace))),
            workspace=workspace,
            log=run.log_path or os.path.join(self._place.logs, f"{card.id}.log"),
            log_bytes=number("log_bytes"),
            folder=self._place.runs,
            socket=launch.socket_path(runtime, self._place.database, run.id),
            ttl=run.claim_ttl,
            beat=launch.beat(run.claim_ttl),
            report=launch.report_command(),
            max_runtime=longest,
            kill_grace=number("kill_grace_seconds"),
            closing_grace=number("closing_grace_seconds"),
            memory_limit=limit,
            wait_for=lane.wait_for,
            policy=lane.success_policy,
        )

    def _words(self, taken: Taken, workspace: str) -> command.Facts:
        card = taken.card
        model = card.model_override or taken.lane.model or ""
        role = s.ORCHESTRATOR if taken.run.orchestrates else taken.run.role
        text = prompt.prompt(self._board.context(card.id), card.id, role) if _asked(taken.lane) else ""
        return command.Facts(task_id=card.id, workspace=workspace, prompt=text, model=model)

    def _variables(self, taken: Taken, workspace: str) -> dict[str, str]:
        run = taken.run
        facts = environment.SpawnFacts(
            home=self._env.home,
            profile=run.profile or "",
            tenant=taken.card.tenant or "",
            role=s.ORCHESTRATOR if run.orchestrates else s.WORKER,
            task_id=run.task_id,
            board=self._place.slug,
            database=self._place.database,
            workspace=workspace,
            workspaces_root=self._place.workspaces,
            run_id=run.id,
            claim_lock=run.claim_lock or "",
        )
        return environment.worker_environment(taken.lane, environment.inherited(taken.lane), facts)


def _asked(lane: Lane) -> bool:
    return any("{prompt}" in word for word in (*lane.argv, *lane.args))
