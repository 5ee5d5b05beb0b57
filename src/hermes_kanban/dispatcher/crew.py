"""The workers of one board as its dispatcher holds them: started, adopted, told to end (see `passes.Hands`)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from hermes_kanban.base import settings
from hermes_kanban.base.errors import Refusal
from hermes_kanban.dispatcher import links
from hermes_kanban.dispatcher.links import Link
from hermes_kanban.dispatcher.spawn import Shim, Spawner, Taken
from hermes_kanban.lanes import answers, launch
from hermes_kanban.lanes.settling import Pauses
from hermes_kanban.model import status as s

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from hermes_kanban.base.clock import Clock
    from hermes_kanban.boards import Place
    from hermes_kanban.compose import Environment
    from hermes_kanban.dispatcher.turns import Turns
    from hermes_kanban.kernel.planning import Planned
    from hermes_kanban.kernel.supervision import Supervision
    from hermes_kanban.model.run import Run

PATIENCE = 10.0  # seconds beyond the kill grace after which a shim that was told to stop is stopped itself
MISSING_SECONDS = 2.0
_AT_ONCE = 4  # workspaces that are made at the same time


class Crew:
    """Everything that is connected to, or about to become, a worker of one board.

    Args:
        env, place: whose board.
        clock: for patience.
        turns: the queue of boards.
        wake: called from another thread when something is ready for the loop.
        watch, unwatch: register a link with the loop.
    """

    def __init__(
        self,
        env: Environment,
        place: Place,
        clock: Clock,
        turns: Turns,
        wake: Callable[[], None],
        watch: Callable[[Link], None],
        unwatch: Callable[[Link], None],
    ) -> None:
        self._env, self._place, self._clock, self._turns = env, place, clock, turns
        self._wake, self._watch, self._unwatch = wake, watch, unwatch
        self.desk = answers.Desk(place.runs, Pauses(env.home))
        self.links: dict[int, Link] = {}
        self._stops: dict[int, float] = {}  # when a run was told to end, of the monotonic clock
        self._ended: list[int] = []
        self._missing: dict[int, float] = {}  # runs whose channel ended, until when their locks are looked at often
        self._children: set[int] = set()
        self._preparing: list[tuple[Taken, Future[str | Refusal]]] = []
        self._pool: ThreadPoolExecutor | None = None
        self.spawner: Spawner | None = None
        self.stopping = False

    # --- Hands ---------------------------------------------------------------------------------------------
    def start(self, planned: Planned) -> bool | str:
        """Start a worker: True, or why not now; False when it cannot be started any more."""
        assert self.spawner is not None
        if self.stopping or not self._turns.mine(self._place.slug):
            return "turn"
        taken = self.spawner.take(planned)
        if isinstance(taken, str):
            return taken
        self._turns.started(self._place.slug)
        if taken.card.workspace_kind == s.WORKTREE:  # git may take its time
            self._preparing.append((taken, self._prepare(taken)))
            return True
        return self._launch(taken, self.spawner.prepare(taken))

    def close(self, run: Run) -> None:
        """Tell the shim that its run was closed by its worker, once."""
        link = self._link(run)
        if link and not link.closing:
            link.closing = link.say({"do": "close"})

    def stop(self, run: Run, reason: str) -> bool:
        """Tell the shim to end its worker; False when it had its time and does not."""
        link = self._link(run)
        now = self._clock.monotonic()
        told = self._stops.setdefault(run.id, now)
        if link and not link.stopped:
            link.stopped = link.say({"do": "stop", "reason": reason})
        return now - told < self.patience

    def reaches(self, run: Run) -> bool:
        """Whether the shim took the word that its run is to end."""
        link = self.links.get(run.id)
        return link is not None and link.stopped

    @property
    def patience(self) -> float:
        """How many seconds a shim has for what it was told."""
        return self._env.values.number("kill_grace_seconds") + PATIENCE

    @property
    def ending(self) -> bool:
        """Whether somebody was told to end and is not known to have ended."""
        return bool(self._stops)

    def wants(self, *, more: bool) -> None:
        """Stand in the queue of boards, or leave it."""
        (self._turns.wait if more else self._turns.leave)(self._place.slug)

    # --- the loop's own ------------------------------------------------------------------------------------
    def adopt(self, runs: tuple[Run, ...]) -> None:
        """Connect to the shims that run on since a former dispatcher (D6)."""
        for run in runs:
            if run.host == self._env.host and not run.pull:  # a bridge's workers are the bridge's
                self._link(run)

    def _link(self, run: Run) -> Link | None:
        if run.id not in self.links:
            runtime = settings.runtime_folder(self._env.variables)
            found = links.connect(launch.socket_path(runtime, self._place.database, run.id), run.id)
            if found:
                self._keep(found)
        return self.links.get(run.id)

    def _keep(self, link: Link) -> None:
        self.links[link.run] = link
        self._watch(link)

    def _launch(self, taken: Taken, workspace: str | Refusal) -> bool:
        assert self.spawner is not None
        shim: Shim | None = self.spawner.launch(taken, workspace)
        if shim is None:
            return False
        self._children.add(shim.pid)
        self._keep(Link(shim.run.id, shim.channel, shim.pid))
        return True

    def _prepare(self, taken: Taken) -> Future[str | Refusal]:
        assert self.spawner is not None
        if self._pool is None:
            self._pool = ThreadPoolExecutor(_AT_ONCE, "workspace")
        future = self._pool.submit(self.spawner.prepare, taken)
        future.add_done_callback(lambda _: self._wake())
        return future

    def launch_prepared(self) -> None:
        """Start the workers whose workspaces are ready by now."""
        ready = [one for one in self._preparing if one[1].done()]
        self._preparing = [one for one in self._preparing if not one[1].done()]
        for taken, future in ready:
            with suppress(Refusal):  # what this one lacks is no reason to leave the others waiting
                self._launch(taken, future.result())

    def take_ended(self) -> list[int]:
        """Return the runs that said that they ended since this was asked last."""
        found, self._ended = self._ended, []
        return found

    @property
    def missing(self) -> bool:
        """Whether a shim's channel ended a moment ago: its lock comes free a moment later, of which no news comes."""
        now = self._clock.monotonic()
        return any(until > now for until in self._missing.values())

    @property
    def starting(self) -> bool:
        """Whether a worker that was started has not come alive yet."""
        return bool(self._preparing) or any(link.starting for link in self.links.values())

    def hear(self, link: Link, board: Supervision) -> bool:
        """Answer what a shim says; True when something ended and the board should be looked at."""
        if link.closed:  # a pass for somebody who asked let go of it a moment ago
            return False
        messages, goes_on = link.receive()
        ended = False
        for message in messages:
            if message.get("op") == "hello":
                continue
            answer = answers.answer(board, self.desk, link.run, message)
            if message.get("op") == "ended":
                ended = True
                self._ended.append(link.run)
            link.starting = link.starting and message.get("op") != "started"
            if answer is not None:
                link.say(answer)
        if not goes_on:
            self._missing[link.run] = self._clock.monotonic() + MISSING_SECONDS
            self._let_go(link)
        return ended or not goes_on

    def _let_go(self, link: Link) -> None:
        self._unwatch(link)
        link.close()
        if self.links.get(link.run) is link:
            del self.links[link.run]
        self._turns.freed()

    def collect_children(self) -> None:
        """Collect shims that have ended, so that none stays a zombie."""
        self._children = {pid for pid in self._children if not links.collect_child(pid)}

    def forget(self, alive: frozenset[int]) -> None:
        """Drop what is kept of runs that are over."""
        for run in [number for number in self.links if number not in alive]:
            self._let_go(self.links[run])
        self._stops = {run: told for run, told in self._stops.items() if run in alive}
        self._missing = {run: until for run, until in self._missing.items() if run in alive}

    def stop_all(self, reason: str) -> None:
        """Tell every shim to end its worker."""
        for link in self.links.values():
            link.say({"do": "stop", "reason": reason})

    def leave(self) -> None:
        """Let go of everything; workers run on (D6)."""
        for link in list(self.links.values()):
            self._let_go(link)
        self._turns.leave(self._place.slug)  # a board that is not open stands in nobody's way (D4)
        for taken, _ in self._preparing:
            taken.held.close()
        for taken, _ in self._preparing:
            assert self.spawner is not None
            with suppress(Refusal):
                self.spawner.hand_back(taken)
        if self._pool:
            self._pool.shutdown(wait=False, cancel_futures=True)
