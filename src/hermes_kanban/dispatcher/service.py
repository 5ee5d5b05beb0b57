"""The dispatcher of one board: holds its lease, keeps it open, tells how it stands (D3, D6, D9).

One thread for each board. Whatever goes wrong with this board is this board's: it is said once for
each change of state, and tried again after a pause (D4).
"""

from __future__ import annotations

import os
import select

from hermes_kanban.base.errors import Refusal
from hermes_kanban.dispatcher.lease import Lease, holder
from hermes_kanban.dispatcher.report import PassReport
from hermes_kanban.dispatcher.session import Session
from hermes_kanban.dispatcher.waker import Waker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from hermes_kanban.base.clock import Clock
    from hermes_kanban.boards import Place
    from hermes_kanban.compose import Environment
    from hermes_kanban.dispatcher.turns import Turns

    Say = Callable[..., None]

STANDBY_SECONDS = 0.25  # how often a second dispatcher looks whether the first is gone
PAUSES = (1.0, 5.0, 30.0)  # before a board that cannot be used is tried again


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
        self._waker = Waker()
        self._trouble = ""
        self._unanswered: dict[str, str] = {}
        self._failures = 0
        self.last_pass_ms = 0
        self.last_report: PassReport | None = None

    # --- from other threads ------------------------------------------------------------------------------------
    def stop(self, *, workers: bool = False) -> None:
        """Stop claiming and return soon; workers run on, or are told to end (D6)."""
        self._waker.stop(workers=workers)

    # --- the loop ----------------------------------------------------------------------------------------------
    def run(self) -> None:
        """Dispatch until told to stop."""
        self._turns.join(self.place.slug, self._waker.wake)
        try:
            if self._stand_by():
                self._serve()
        finally:
            self._turns.part(self.place.slug)
            self._lease.drop()
            self._waker.close()

    def once(self, most: int | None) -> PassReport | None:
        """Do one pass (`dispatch`): wait until what it started is alive, which then runs on, and what it ended is gone.

        Returns:
            What it did; None when another dispatcher has this board: it is to do the pass.

        Raises:
            Refusal: the board cannot be used now.
        """
        if not self._lease.take():
            return None
        try:
            session = self._open()
            try:
                report = session.look(most)
                session.see_alive()
                return report.evolve(ended=report.ended + session.see_ended())
            finally:
                session.close()
        finally:
            self._lease.drop()

    def _open(self) -> Session:
        return Session(self._env, self.place, self._clock, self._turns, self._waker, self.note)

    def _stand_by(self) -> bool:
        """Wait until this board has no other dispatcher on this host; False when told to stop before."""
        said = False
        while not self._waker.stopped:
            try:
                if self._lease.take():
                    return True
            except OSError as error:  # without a lease nobody dispatches
                self._report_trouble(f"{self.place.folder}: {error.strerror}")
            if not said:
                other = holder(self.place.folder) or {}
                self._say("standby", board=self.place.slug, holder=other.get("pid"))
                said = True
            self._rest(STANDBY_SECONDS)
        return False

    def _serve(self) -> None:
        while not self._waker.stopped:
            try:
                session = self._open()
                try:
                    session.loop()
                finally:
                    session.close()
            except Refusal as error:
                self._report_trouble(error.message)
                self._failures += 1
                self._rest(PAUSES[min(self._failures, len(PAUSES)) - 1])

    def _rest(self, seconds: float) -> None:
        """Do nothing for so long; a stop ends it."""
        deadline = self._clock.monotonic() + seconds
        while not self._waker.stopped and (left := deadline - self._clock.monotonic()) > 0:
            if select.select([self._waker], [], [], left)[0]:
                self._waker.drain()

    def _report_trouble(self, message: str) -> None:
        """Say what is wrong with the board once, and once when it is over (D4)."""
        if message != self._trouble:
            self._say("board_trouble" if message else "board_recovered", board=self.place.slug, message=message)
        self._trouble = message
        if not message:
            self._failures = 0

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
        outside = self._env.values.names("external_assignees")  # declared: their bridges pull (P50b)
        lost = [row["name"] for row in report.skipped_nonspawnable if row["name"] not in outside]
        found |= dict.fromkeys(lost, "no lane or profile answers for it")
        if found != self._unanswered:
            self._say("unanswered", board=self.place.slug, names=found)
        self._unanswered = found
