"""The dispatcher of one board: waits for a change, an exit, a due time, and does a pass (D1, D3, D6).

One thread, one connection, one selector. Whatever goes wrong with this board is this board's: it is said once for
each change of state, and tried again after a pause (D4).
"""

from __future__ import annotations

import os
import selectors
from threading import Event

from hermes_kanban import compose
from hermes_kanban.base import process, settings
from hermes_kanban.base.errors import Refusal
from hermes_kanban.dispatcher import janitor, passes
from hermes_kanban.dispatcher.control import Control, control_path, receive
from hermes_kanban.dispatcher.crew import Crew
from hermes_kanban.dispatcher.host import LocalHost
from hermes_kanban.dispatcher.lease import Lease, holder
from hermes_kanban.dispatcher.reap import Reaper
from hermes_kanban.dispatcher.report import PassReport
from hermes_kanban.dispatcher.spawn import Spawner
from hermes_kanban.lanes import channel

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Callable
    from typing import Any

    from hermes_kanban.base.clock import Clock
    from hermes_kanban.boards import Place
    from hermes_kanban.compose import Environment
    from hermes_kanban.dispatcher.links import Link
    from hermes_kanban.dispatcher.turns import Turns
    from hermes_kanban.kernel.supervision import Supervision
    from hermes_kanban.store.driver import ChangeFeed

    Say = Callable[..., None]

STANDBY_SECONDS = 0.25  # how often a second dispatcher looks whether the first is gone
VERSION_SECONDS = 1.0  # how often the store is asked itself, should a poke get lost
SLOT_SECONDS = 1.0  # how often slots are looked at while something waits for one: other processes hold some
WITH_WORKERS_SECONDS = 5.0  # how often leases and limits are looked after while workers run
PAUSES = (1.0, 5.0, 30.0)  # before a board that cannot be used is tried again
FORCE_SECONDS = 20.0  # how long a single pass waits for what was told to end, beyond the crew's patience
ALIVE_SECONDS = 15.0  # how long a single pass waits for its workers to come alive
STOP_SECONDS = 4.0  # how long a stop waits for workers that are to end (D6)


class BoardService:
    """Dispatches one board until it is told to stop.

    Args:
        env: settings and home as they were at the start; config.yaml is read again when it changes.
        place: the board.
        clock: time.
        turns: the queue of boards of this process.
        say: the log: a word, and facts.
    """

    def __init__(self, env: Environment, place: Place, clock: Clock, turns: Turns, say: Say) -> None:
        self._env, self.place, self._clock, self._turns, self._say = env, place, clock, turns, say
        self._lease = Lease(place.folder)
        self._selector = selectors.DefaultSelector()
        self._wake_in, self._wake_out = os.pipe()
        os.set_blocking(self._wake_in, False)
        os.set_blocking(self._wake_out, False)
        self._stop = Event()
        self._stop_workers = False
        self._control = Control(control_path(settings.runtime_folder(env.variables), place.database))
        self._dirty = True
        self._trouble = ""
        self._unanswered: dict[str, str] = {}
        self._failures = 0
        self.last_pass_ms = 0
        self.last_report: PassReport | None = None

    # --- from other threads ------------------------------------------------------------------------------------
    def wake(self) -> None:
        """Look at the board soon."""
        self._dirty = True
        try:
            os.write(self._wake_out, b"!")
        except (BlockingIOError, OSError):
            return

    def stop(self, *, workers: bool = False) -> None:
        """Stop claiming and return soon; workers run on, or are told to end (D6)."""
        self._stop_workers = workers
        self._stop.set()
        self.wake()

    # --- the loop ----------------------------------------------------------------------------------------------
    def run(self) -> None:
        """Dispatch until told to stop."""
        self._selector.register(self._wake_in, selectors.EVENT_READ, "wake")
        self._turns.join(self.place.slug, self.wake)
        try:
            if self._stand_by():
                self._serve()
        finally:
            self._turns.part(self.place.slug)
            self._lease.drop()
            self._selector.close()
            os.close(self._wake_in)
            os.close(self._wake_out)

    def once(self, most: int | None) -> PassReport | None:
        """Do one pass (`dispatch`): wait until what it started is alive, which then runs on, and what it ended is gone.

        Returns:
            What it did; None when another dispatcher has this board: it is to do the pass.

        Raises:
            Refusal: the board cannot be used now.
        """
        if not self._lease.take():
            return None
        session = Session(self)
        try:
            report = session.look(most)
            session.see_alive()
            return report.evolve(ended=report.ended + session.see_ended())
        finally:
            session.close()
            self._lease.drop()

    def _stand_by(self) -> bool:
        """Wait until this board has no other dispatcher on this host; False when told to stop before."""
        said = False
        while not self._stop.is_set():
            try:
                if self._lease.take():
                    return True
            except OSError as error:  # without a lease nobody dispatches
                self._report_trouble(f"{self.place.folder}: {error.strerror}")
            if not said:
                other = holder(self.place.folder) or {}
                self._say("standby", board=self.place.slug, holder=other.get("pid"))
                said = True
            self._select(STANDBY_SECONDS)
        return False

    def _serve(self) -> None:
        while not self._stop.is_set():
            try:
                session = Session(self)
            except Refusal as error:
                self._pause(error)
                continue
            try:
                session.loop()
            except Refusal as error:
                self._pause(error)
            finally:
                session.close()

    def _pause(self, error: Refusal) -> None:
        self._report_trouble(error.message)
        pause = PAUSES[min(self._failures, len(PAUSES) - 1)]
        self._failures += 1
        deadline = self._clock.monotonic() + pause
        while not self._stop.is_set() and self._clock.monotonic() < deadline:
            self._select(deadline - self._clock.monotonic())

    def _report_trouble(self, message: str) -> None:
        """Say what is wrong with the board once, and once when it is over (D4)."""
        if message != self._trouble:
            self._say("board_trouble" if message else "board_recovered", board=self.place.slug, message=message)
        self._trouble = message
        if not message:
            self._failures = 0

    def _select(self, seconds: float) -> list[tuple[selectors.SelectorKey, int]]:
        found = self._selector.select(max(0.0, seconds))
        for key, _ in found:
            if key.data == "wake":
                self._drain()
        return found

    def _drain(self) -> None:
        try:
            while os.read(self._wake_in, 512):
                pass
        except BlockingIOError:
            return

    def note(self, report: PassReport) -> None:
        """Keep how the last pass went, for readers in other processes too (D9)."""
        former = self.last_report.errors if self.last_report else ()  # the same again is no news
        self.last_pass_ms, self.last_report = self._clock.now_ms(), report
        self._report_trouble("")
        self._lease.write(
            {
                "pid": os.getpid(),
                "host": self._env.host,
                "last_pass_ms": self.last_pass_ms,
                "full": report.full,
                "waiting": list(report.waiting),
                "skipped_nonspawnable": list(report.skipped_nonspawnable),
                "stranded_in_ready": list(report.stranded_in_ready),
                "errors": list(report.errors),
            }
        )
        self._say_unanswered(report)
        if not report.quiet or report.errors != former:
            self._say(
                "pass", board=self.place.slug, **{n: v for n, v in report.as_dict().items() if v and n != "board"}
            )

    def _say_unanswered(self, report: PassReport) -> None:
        """Say whose cards nobody starts, and why, once for each change: no card waits without a reason (D5)."""
        found = {row["name"]: row["text"] for row in report.waiting if row["reason"] == "lane_problem"}
        found |= {row["name"]: "no lane or profile answers for it" for row in report.skipped_nonspawnable}
        if found != self._unanswered:
            self._say("unanswered", board=self.place.slug, names=found)
        self._unanswered = found


class Session:
    """One opening of the board: connection, settings, workers. A changed config.yaml begins a new one."""

    def __init__(self, service: BoardService) -> None:
        self._service = service
        self._env = compose.environment_of(service._env.home, service._env.variables)
        self._stamp = settings.stamp(self._env.home)
        self._board: Supervision = compose.open_supervision(self._env, service.place)
        self._feed: ChangeFeed = self._board.feed()
        self._selector = service._selector
        self._crew = Crew(
            self._env, service.place, service._clock, service._turns, service.wake, self._watch, self._unwatch
        )
        self._reaper = Reaper(self._board, self._crew.desk, self._env.host, self._env.values)
        if self._feed.fileno() >= 0:
            self._selector.register(self._feed.fileno(), selectors.EVENT_READ, "poke")
        server = service._control.open()
        if server is not None:
            self._selector.register(server, selectors.EVENT_READ, "control")
        self._short = False
        self._sweep_at = 0.0
        self._watching = False  # somebody of whom no news comes may have ended, or fallen silent
        self._crew.adopt(self._board.watched())

    def loop(self) -> None:
        """Wait and do passes until told to stop, or until the settings change.

        Raises:
            Refusal: the board cannot be used now.
        """
        service = self._service
        service._dirty = True
        due = 0.0
        while not service._stop.is_set() and settings.stamp(self._env.home) == self._stamp:
            if service._dirty or service._clock.monotonic() >= due:
                service._dirty = False
                self.look()
                due = service._clock.monotonic() + self._longest()
            self._wait(due - service._clock.monotonic())
        if service._stop.is_set() and service._stop_workers:
            self._end_workers()

    def look(self, most: int | None = None) -> PassReport:
        """Do a pass. What others write from now on is news; what the pass itself writes is none."""
        self._feed.changed()
        host = LocalHost(self._env)
        self._crew.spawner = Spawner(self._env, self._service.place, self._board, host)
        self._crew.launch_prepared()
        sight = self._sight(host, most)
        report = passes.run(sight)
        self._short, self._watching = sight.short, bool(sight.runs)
        self._tidy()
        self._service.note(report)
        return report

    def _sight(self, host: LocalHost, most: int | None) -> passes.Sight:
        now = self._service._clock.now_ms() // 1000
        parts = self._service.place.slug, self._board, self._reaper, host, self._crew, self._env.values, now
        sight = passes.Sight(*parts, most)
        for run in self._crew.take_ended():
            sight.note_ended(run)
        return sight

    def _tidy(self) -> None:
        watched = frozenset(run.id for run in self._board.watched())
        self._crew.forget(watched)
        self._crew.collect_children()
        now = self._service._clock.monotonic()
        if now >= self._sweep_at:
            self._sweep_at = now + janitor.EVERY_SECONDS
            janitor.sweep(self._service.place.runs, watched, self._service._clock.now_ms() / 1000)

    def see_alive(self) -> None:
        """Wait until every worker that was started has come alive or failed to (D11)."""
        deadline = self._service._clock.monotonic() + ALIVE_SECONDS
        while self._crew.starting and self._service._clock.monotonic() < deadline:
            self._crew.launch_prepared()
            self._wait(deadline - self._service._clock.monotonic())

    def see_ended(self) -> tuple[dict[str, Any], ...]:
        """Wait until every worker that was told to end has ended, by force in the end (D14): nobody else sees to it.

        Returns:
            What ended meanwhile, as the report shows it.
        """
        host = LocalHost(self._env)
        deadline = self._service._clock.monotonic() + self._crew.patience + FORCE_SECONDS
        ended: list[dict[str, Any]] = []
        while self._crew.ending and self._service._clock.monotonic() < deadline:
            self._wait(VERSION_SECONDS)
            ended += passes.run(self._sight(host, 0), passes.SWEEP).ended
            self._tidy()
        return tuple(ended)

    def _longest(self) -> float:
        """Return after how many seconds to look even without news (D1)."""
        longest = float(self._env.values.number("dispatch_interval_seconds"))
        due = self._board.next_due()
        if due is not None:
            longest = min(longest, max(0.05, due - self._service._clock.now_ms() / 1000))
        longest = min(longest, WITH_WORKERS_SECONDS) if self._crew.links or self._watching else longest
        return min(longest, SLOT_SECONDS) if self._short else longest

    def _wait(self, seconds: float) -> None:
        """Wait for news, at most so long; the store itself is asked each second."""
        found = self._service._select(min(seconds, VERSION_SECONDS))
        for key, _ in found:
            if key.data == "control":
                self._answer()
            elif key.data not in ("wake", "poke") and self._crew.hear(key.data, self._board):
                self._service._dirty = True
        if self._feed.changed():
            self._service._dirty = True

    def _answer(self) -> None:
        sock: socket.socket | None = self._service._control.accept()
        if sock is None:
            return
        try:
            message = receive(sock) or {}
            if message.get("op") == "pass":
                most = message.get("most")
                channel.send(sock, self.look(most if isinstance(most, int) else None).as_dict())
            else:
                channel.send(sock, {"pid": os.getpid(), "last_pass_ms": self._service.last_pass_ms})
        except OSError:
            return
        finally:
            sock.close()

    def _end_workers(self) -> None:
        """Tell the workers to end and book those that do while there is time; the shims see to the rest (D6)."""
        self._crew.stopping = True
        self._crew.stop_all("gateway_stop")
        deadline = self._service._clock.monotonic() + STOP_SECONDS
        while self._crew.links and self._service._clock.monotonic() < deadline:
            self._wait(deadline - self._service._clock.monotonic())

    def _watch(self, link: Link) -> None:
        self._selector.register(link.sock, selectors.EVENT_READ, link)

    def _unwatch(self, link: Link) -> None:
        self._selector.unregister(link.sock)

    def close(self) -> None:
        """Let go of the board; workers run on."""
        self._crew.leave()
        if self._feed.fileno() >= 0:
            self._selector.unregister(self._feed.fileno())
        self._feed.close()
        server = self._service._control.server
        if server is not None:
            self._selector.unregister(server)
        self._service._control.close()


def identity() -> str:
    """Return the start token of this process, for those who look whether it lives."""
    found = process.describe(os.getpid())
    return found.started if found else ""
