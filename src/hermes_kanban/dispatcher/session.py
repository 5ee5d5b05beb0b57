"""One opening of a board by its dispatcher: connection, settings, workers. A changed config.yaml begins a new one.

It waits for a change, an exit, a due time, a question, and does a pass when there is reason to (D1).
"""

from __future__ import annotations

import os
import selectors
from contextlib import ExitStack

from hermes_kanban import compose
from hermes_kanban.base import settings
from hermes_kanban.dispatcher import janitor, passes
from hermes_kanban.dispatcher.control import Control, control_path, receive
from hermes_kanban.dispatcher.crew import Crew
from hermes_kanban.dispatcher.host import LocalHost
from hermes_kanban.dispatcher.reap import Reaper
from hermes_kanban.dispatcher.spawn import Spawner
from hermes_kanban.lanes import channel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from hermes_kanban.base.clock import Clock
    from hermes_kanban.boards import Place
    from hermes_kanban.compose import Environment
    from hermes_kanban.dispatcher.links import Link
    from hermes_kanban.dispatcher.report import PassReport
    from hermes_kanban.dispatcher.turns import Turns
    from hermes_kanban.dispatcher.waker import Waker
    from hermes_kanban.kernel.supervision import Supervision
    from hermes_kanban.store.driver import ChangeFeed

VERSION_SECONDS = 1.0  # how often the store is asked itself, should a poke get lost
SLOT_SECONDS = 1.0  # how often slots are looked at while something waits for one: other processes hold some
WITH_WORKERS_SECONDS = 5.0  # how often leases and limits are looked after while workers run
MISSING_LOOK = 0.1  # how often it is looked whether a shim that fell silent is gone
FORCE_SECONDS = 20.0  # how long a single pass waits for what was told to end, beyond the crew's patience
ALIVE_SECONDS = 15.0  # how long a single pass waits for its workers to come alive
STOP_SECONDS = 4.0  # how long a stop waits for workers that are to end (D6)
_WAKE, _POKE, _CONTROL = "wake", "poke", "control"


class Session:
    """One opening of a board.

    Args:
        env: the home; its settings are read anew.
        place: the board.
        clock: time.
        turns: the queue of boards of this process.
        waker: what other threads say.
        note: is told how each pass went.

    Raises:
        Refusal: the board cannot be used now; nothing is left open.
    """

    def __init__(
        self,
        env: Environment,
        place: Place,
        clock: Clock,
        turns: Turns,
        waker: Waker,
        note: Callable[[PassReport], None],
    ) -> None:
        self._env = compose.environment_of(env.home, env.variables)
        self._stamp = settings.stamp(env.home)
        self._place, self._clock, self._waker, self._note = place, clock, waker, note
        self._board: Supervision = compose.open_supervision(self._env, place)
        self._control = Control(control_path(settings.runtime_folder(env.variables), place.database))
        self._short = False
        self._watching = False  # somebody of whom no news comes may have ended, or fallen silent
        self._sweep_at = 0.0
        self._pause_ends: int | None = None  # when the first lane that pauses may be used again, epoch seconds
        with ExitStack() as undo:
            self._selector = undo.enter_context(selectors.DefaultSelector())
            self._crew = Crew(self._env, place, clock, turns, waker.wake, self._watch, self._unwatch)
            undo.callback(self._crew.leave)
            self._reaper = Reaper(self._board, self._crew.desk, self._env.host, self._env.values)
            self._feed: ChangeFeed = self._listen(undo)
            self._crew.adopt(self._board.watched())
            self._undo = undo.pop_all()

    def _listen(self, undo: ExitStack) -> ChangeFeed:
        self._selector.register(self._waker, selectors.EVENT_READ, _WAKE)
        feed = self._board.feed()
        undo.callback(feed.close)
        if feed.fileno() >= 0:
            self._selector.register(feed.fileno(), selectors.EVENT_READ, _POKE)
        server = self._control.open()
        undo.callback(self._control.close)
        if server is not None:
            self._selector.register(server, selectors.EVENT_READ, _CONTROL)
        return feed

    def close(self) -> None:
        """Let go of the board; workers run on."""
        self._undo.close()

    def loop(self) -> None:
        """Wait and do passes until told to stop, or until the settings change.

        Raises:
            Refusal: the board cannot be used now.
        """
        self._waker.dirty = True
        due = 0.0
        while not self._waker.stopped and settings.stamp(self._env.home) == self._stamp:
            if self._waker.dirty or self._clock.monotonic() >= due:
                self._waker.dirty = False
                self.look()
                due = self._clock.monotonic() + self._longest()
            self._wait(due - self._clock.monotonic())
        if self._waker.stopped and self._waker.stop_workers:
            self._end_workers()

    def look(self, most: int | None = None) -> PassReport:
        """Do a pass. What others write from now on is news; what the pass itself writes is none."""
        self._feed.changed()
        host = LocalHost(self._env)
        self._crew.spawner = Spawner(self._env, self._place, self._board, host)
        self._crew.launch_prepared()
        sight = self._sight(host, most)
        report = passes.run(sight)
        self._short, self._watching = sight.short, bool(sight.runs)
        self._pause_ends = _first_pause(sight)
        self._tidy()
        self._note(report)
        return report

    def _sight(self, host: LocalHost, most: int | None) -> passes.Sight:
        now = self._clock.now_ms() // 1000
        parts = self._place.slug, self._board, self._reaper, host, self._crew, self._env.values, now
        sight = passes.Sight(*parts, most)
        for run in self._crew.take_ended():
            sight.note_ended(run)
        return sight

    def _tidy(self) -> None:
        watched = frozenset(run.id for run in self._board.watched())
        self._crew.forget(watched)
        self._crew.collect_children()
        now = self._clock.monotonic()
        if now >= self._sweep_at:
            self._sweep_at = now + janitor.EVERY_SECONDS
            janitor.sweep(self._place.runs, watched, self._clock.now_ms() / 1000)

    def see_alive(self) -> None:
        """Wait until every worker that was started has come alive or failed to (D11)."""
        deadline = self._clock.monotonic() + ALIVE_SECONDS
        while self._crew.starting and self._clock.monotonic() < deadline:
            self._crew.launch_prepared()
            self._wait(deadline - self._clock.monotonic())

    def see_ended(self) -> tuple[dict[str, Any], ...]:
        """Wait until every worker that was told to end has ended, by force in the end (D14): nobody else sees to it.

        Returns:
            What ended meanwhile, as the report shows it.
        """
        host = LocalHost(self._env)
        deadline = self._clock.monotonic() + self._crew.patience + FORCE_SECONDS
        ended: list[dict[str, Any]] = []
        while self._crew.ending and self._clock.monotonic() < deadline:
            self._wait(VERSION_SECONDS)
            ended += passes.run(self._sight(host, 0), passes.SWEEP).ended
            self._tidy()
        return tuple(ended)

    def _longest(self) -> float:
        """Return after how many seconds to look even without news (D1)."""
        longest = float(self._env.values.number("dispatch_interval_seconds"))
        due = min((at for at in (self._board.next_due(), self._pause_ends) if at is not None), default=None)
        if due is not None:
            longest = min(longest, max(0.05, due - self._clock.now_ms() / 1000))
        longest = min(longest, WITH_WORKERS_SECONDS) if self._crew.links or self._watching else longest
        longest = min(longest, MISSING_LOOK) if self._crew.missing else longest
        return min(longest, SLOT_SECONDS) if self._short else longest

    def _wait(self, seconds: float) -> None:
        """Wait for news, at most so long; the store itself is asked each second."""
        for key, _ in self._selector.select(min(max(0.0, seconds), VERSION_SECONDS)):
            if key.data == _WAKE:
                self._waker.drain()
            elif key.data == _CONTROL:
                self._answer()
            elif key.data != _POKE and self._crew.hear(key.data, self._board):
                self._waker.dirty = True
        if self._feed.changed():
            self._waker.dirty = True

    def _answer(self) -> None:
        sock = self._control.accept()
        if sock is None:
            return
        try:
            message = receive(sock) or {}
            if message.get("op") == "pass":
                most = message.get("most")
                channel.send(sock, self.look(most if isinstance(most, int) else None).as_dict())
            else:
                channel.send(sock, {"pid": os.getpid()})
        except OSError:
            return
        finally:
            sock.close()

    def _end_workers(self) -> None:
        """Tell the workers to end and book those that do while there is time; the shims see to the rest (D6)."""
        self._crew.stopping = True
        self._crew.stop_all("gateway_stop")
        deadline = self._clock.monotonic() + STOP_SECONDS
        while self._crew.links and self._clock.monotonic() < deadline:
            self._wait(deadline - self._clock.monotonic())

    def _watch(self, link: Link) -> None:
        self._selector.register(link.sock, selectors.EVENT_READ, link)

    def _unwatch(self, link: Link) -> None:
        self._selector.unregister(link.sock)


def _first_pause(sight: passes.Sight) -> int | None:
    """Return when the first pause of a lane with waiting cards is over; no event of this board tells (P44, D1)."""
    found = sight.plan.names.values() if sight.plan else ()
    return min((why.until for why in found if why.until is not None), default=None)
