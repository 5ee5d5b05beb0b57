"""The watch over one run, from its held worker to its last word: one loop that never waits for anybody (D11-D14b).

    held --(granted)--> working --(nothing left)--> recording --(written down)--> leaving --(told)--> gone
      `--(refused)--> gone

What comes in (output, answers, orders, signals, children's ends) only changes what is known; what is done about it
is decided by the leash and by alarms. Proof of the end is the kernel's word that there are no children any more.
"""

from __future__ import annotations

import os
import select
import signal

from hermes_kanban.base.errors import Refusal
from hermes_kanban.lanes import ending, leash, proctable, runfiles
from hermes_kanban.lanes.charge import Charge, identity_of
from hermes_kanban.lanes.leash import Leash
from hermes_kanban.lanes.procset import Look, ProcessSet
from hermes_kanban.lanes.pulse import Pulse
from hermes_kanban.lanes.runfiles import Roster
from hermes_kanban.lanes.signals import ENDING
from hermes_kanban.lanes.talk import PROGRAM_SECONDS, Talk
from hermes_kanban.model.exits import STOPS

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping
    from resource import struct_rusage
    from typing import Any

    from hermes_kanban.base.clock import Clock
    from hermes_kanban.lanes.order import Order
    from hermes_kanban.lanes.runfiles import Identity
    from hermes_kanban.lanes.signals import Signals

    Answer = Mapping[str, Any] | None

HELD, WORKING, RECORDING, LEAVING, GONE = "held", "working", "recording", "leaving", "gone"
CLOSED = "closed"  # what a run can be on the board, in an answer
FAREWELL_SECONDS = 5.0
FIRST_LOOK, GUARDED_LOOK, LATER_LOOK = 0.5, 1.0, 5.0
PROGRAM_BEAT = 30.0
ROUND_ASKED, ROUND_KILLING, ROUND_MOST = 0.5, 0.02, 1.0
RECORD_AGAIN, RECORD_SECONDS = 1.0, 120.0


class Supervisor:
    """One run under its shim.

    Args:
        order: what to run, and how.
        database: which board, for the report program.
        first: the channel to the starter.
        held: descriptors of the run's locked file, which is held until this process ends, and of the slots, which are
            given back as soon as nothing of the run is left: who waits for one is told of the end right after.
        clock: the time.
        signals: those that came.
        subreaper: whether the kernel hands orphans to this process.
    """

    def __init__(
        self,
        order: Order,
        database: str,
        first: socket.socket,
        held: tuple[int, ...],
        clock: Clock,
        signals: Signals,
        *,
        subreaper: bool,
    ) -> None:
        now = clock.monotonic()
        self._order, self._clock, self._signals = order, clock, signals
        self._lock, *self._slots = held
        self._phase, self._since = HELD, now
        self._alarms: dict[str, float] = {}
        self._leash, self._stage = Leash(order), leash.GOING
        self._pause = ROUND_KILLING
        self._stuck: set[Identity] = set()
        self._pulse = Pulse()
        self._set = ProcessSet(os.getpid(), order.lock, subreaper=subreaper)
        self._charge = Charge(order, now)
        self._talk = Talk(order, database, first, self._hello, self._heard, self._told)
        self._shim, self._here = identity_of(os.getpid()), proctable.here()
        self._program_asked = False
        self._childless = False
        self._started_ms = self._ended_ms = clock.now_ms()

    def run(self) -> None:
        """Watch over the run until it is over and told."""
        self._begin(self._clock.monotonic())
        while self._phase != GONE:
            self._wait()
            now = self._clock.monotonic()
            self._take_signals(now)
            self._talk.tick(now)
            self._ring(now)
            self._follow_leash(now)
        self._talk.hush()
        self._talk.unlink()

    # --- the loop ---------------------------------------------------------------------------------------------
    def _wait(self) -> None:
        """Wait for whatever comes next, and take it in."""
        sources = {**self._charge.sources(), **self._talk.sources()}
        poll = select.poll()
        for descriptor in (self._signals.descriptor, *sources):
            poll.register(descriptor, select.POLLIN)
        ready = poll.poll(self._milliseconds())
        now = self._clock.monotonic()
        for descriptor, _event in ready:
            if descriptor in sources:
                sources[descriptor](now)

    def _milliseconds(self) -> int | None:
        """Return how long nothing is due by time."""
        now = self._clock.monotonic()
        due = [*self._alarms.values(), self._talk.deadline()]
        if self._is_open():
            due.append(self._leash.deadline(now))
        left = [at - now for at in due if at is not None]
        return max(0, int(min(left) * 1000) + 1) if left else None

    def _ring(self, now: float) -> None:
        for name in [name for name, at in self._alarms.items() if at <= now]:
            if self._alarms.pop(name, None) is not None:
                ALARMS[name](self, now)

    def _take_signals(self, now: float) -> None:
        caught = self._signals.take()
        if caught & ENDING and self._is_open():
            self._leash.stop(leash.SIGNAL, now)
        if signal.SIGCHLD in caught:
            self._collect(now)

    def _follow_leash(self, now: float) -> None:
        """Begin with the next stage of the end when its time has come (D14)."""
        if self._is_open() and (stage := self._leash.stage(now)) != self._stage:
            self._stage = stage
            self._round(now)

    # --- the beginning ----------------------------------------------------------------------------------------
    def _begin(self, now: float) -> None:
        """Fork the worker, held, and ask whether it may start (D11)."""
        self._talk.listen()
        runfiles.reserve(self._order.folder, self._order.run)
        if not self._charge.fork():
            self._finish(now)
            return
        self._write_roster()
        self._alarms["answer"] = now + self._order.patience
        self._talk.tell(self._started(), now)

    def _granted(self, answer: Answer, now: float) -> None:
        """Take the answer to `started`: only a clear yes starts the worker, so a late shim cannot (D11)."""
        if self._stage != leash.GOING:
            return
        self._alarms.pop("answer", None)
        if answer is not None and _is_yes(answer):
            self._release(now)
        elif answer is not None:
            self._charge.withdraw()
            runfiles.give_back(self._order.folder, self._order.run)
            self._enter(GONE, now)
        elif self._program_asked:
            self._charge.spawn_error = ending.NOBODY_ANSWERED
            self._leash.stop("", now)
        else:
            self._program_asked = True
            self._talk.deliver(self._started(), now)

    def _release(self, now: float) -> None:
        self._enter(WORKING, now)
        self._started_ms = self._clock.now_ms()
        self._leash.released(now)
        self._alarms |= {"look": now + FIRST_LOOK, "beat": now + self._beat_interval()}
        self._charge.release(now, self._started_ms)

    # --- what comes in ----------------------------------------------------------------------------------------
    def _collect(self, now: float) -> None:
        """Collect the children that have ended, orphans too; when there are none left, the run may be over."""
        try:
            while True:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
                if not pid:
                    break
                if not self._talk.ended(pid, status):
                    self._note_end(pid, status, usage, now)
        except ChildProcessError:
            self._childless = True
        self._look_for_the_end(now)

    def _note_end(self, pid: int, status: int, usage: struct_rusage, now: float) -> None:
        self._pulse.collected(usage)
        if self._charge.is_leader(pid):
            self._leash.leader_ended(now, well=self._charge.ends.note_leader(status))
        elif self._stage == leash.GOING:
            self._charge.ends.note_other(status)

    def _heard(self, answer: Answer) -> None:
        """Take an answer. What it means depends on how far the run is, not on which message it answers."""
        none_yet = answer is None and self._talk.helper  # a peer left, but the report program is still at it
        if self._phase in ANSWERS and not none_yet:
            ANSWERS[self._phase](self, answer, self._clock.monotonic())

    def _beat_answered(self, answer: Answer, now: float) -> None:
        """Take the answer to a beat: the run may have been closed, by its worker or over its head (D14b, P12c)."""
        if answer is None or _is_yes(answer):
            return
        if answer["ok"] is True and answer.get("by_owner") is True:
            self._leash.closed(now)
        else:
            self._leash.stop(leash.OVERRIDE, now)

    def _told(self, message: Mapping[str, Any]) -> None:
        """Follow an order of a peer."""
        now = self._clock.monotonic()
        if not self._is_open():
            return
        if message["do"] == "close":
            self._leash.closed(now)
        elif message["do"] == "stop":
            reason = message.get("reason")
            self._leash.stop(reason if isinstance(reason, str) and reason in STOPS else leash.SIGNAL, now)

    # --- alarms -----------------------------------------------------------------------------------------------
    def _no_answer(self, now: float) -> None:
        """Give up waiting for an answer."""
        if self._phase == HELD:
            self._granted(None, now)
        else:
            self._farewell(None, now)

    def _look(self, now: float) -> None:
        """Look at the processes: memory, who is there (for whoever finds the run without its shim)."""
        seen = self._seen()
        self._write_roster()
        if 0 < self._order.memory_limit < seen.memory:
            self._leash.stop(leash.MEMORY, now)
        pause = min(LATER_LOOK, max(FIRST_LOOK, (now - self._since) / 2))
        self._alarms["look"] = now + (min(pause, GUARDED_LOOK) if self._order.memory_limit else pause)
        self._look_for_the_end(now)

    def _beat(self, now: float) -> None:
        """Say that the run lives, and whether it does something (P13)."""
        self._alarms["beat"] = now + self._beat_interval()
        if self._talk.helper or self._is_deserted():
            return  # the last one is still on its way, or there is nothing to tell but the end
        output = self._charge.output
        active, idle = self._pulse.active(output.total), int(now - output.news_at)
        self._talk.tell({"op": "beat", **self._who(), "active": active, "idle": idle}, now)

    def _beat_interval(self) -> float:
        return min(self._order.ttl / 3, self._order.beat if self._talk.connected else PROGRAM_BEAT)

    def _round(self, now: float) -> None:
        """Ask who is left to end, or kill them; who does not die is tried again for as long as it takes (D14)."""
        if self._stage == leash.ASKED:
            self._pulse.looked(self._set.ask_to_end(without=self._talk.helper))
            self._alarms["round"] = now + ROUND_ASKED
        elif self._stage == leash.KILLING:
            seen = self._set.kill(without=self._talk.helper)
            stuck = {entry.identity for entry in seen.members}
            waits = stuck and stuck <= self._stuck  # they cannot die yet: no use in haste
            self._pause = min(self._pause * 2, ROUND_MOST) if waits else ROUND_KILLING
            self._stuck = stuck
            self._alarms["round"] = now + self._pause
        self._look_for_the_end(now)

    # --- the end ----------------------------------------------------------------------------------------------
    def _look_for_the_end(self, now: float) -> None:
        """See whether nothing of the run is left; a report program of ours must not stand in the way of the proof."""
        if not self._is_open():
            return
        if self._talk.helper and self._is_deserted():
            self._talk.hush()
        if self._set.proven_empty(childless=self._childless):
            self._finish(now)

    def _finish(self, now: float) -> None:
        """Nothing of the run is left: take the rest of its output and write down how it ended."""
        self._alarms.clear()
        self._enter(RECORDING, now)
        self._ended_ms = self._clock.now_ms()
        self._charge.drain(now)
        self._record(now)

    def _record(self, now: float) -> None:
        """Write the exit record; while that cannot be done the lock stays held, for a while (P45)."""
        try:
            times = (self._started_ms, self._ended_ms)
            found = self._charge.record(times, self._leash, self._pulse.peak_memory)
            runfiles.write_exit(self._order.folder, found)
        except Refusal:
            if now - self._since < RECORD_SECONDS:
                self._alarms["record"] = now + RECORD_AGAIN
                return
        self._charge.farewell()
        self._enter(LEAVING, now)
        while self._slots:
            os.close(self._slots.pop())
        self._program_asked = not self._talk.connected
        self._talk.tell(self._over(), now)
        self._await_farewell(now)

    def _farewell(self, answer: Answer, now: float) -> None:
        """The end was told. If the peer left over it, the report program tells it."""
        if answer is None and not self._program_asked:
            self._program_asked = True
            self._talk.deliver(self._over(), now)
            self._await_farewell(now)
        else:
            self._enter(GONE, now)

    def _await_farewell(self, now: float) -> None:
        self._alarms["answer"] = now + (PROGRAM_SECONDS + 1 if self._talk.helper else self._patience())

    def _patience(self) -> float:
        return min(FAREWELL_SECONDS, self._order.patience)

    # --- facts ------------------------------------------------------------------------------------------------
    def _is_open(self) -> bool:
        return self._phase in (HELD, WORKING)

    def _enter(self, phase: str, now: float) -> None:
        self._phase, self._since = phase, now

    def _is_deserted(self) -> bool:
        """Whether the worker has ended and nobody else can be seen, which is not yet the proof."""
        return not self._seen().members and self._charge.ends.leader is not None

    def _seen(self) -> Look:
        seen = self._set.look(without=self._talk.helper)
        self._pulse.looked(seen)
        return seen

    def _who(self) -> dict[str, Any]:
        return {"run": self._order.run, "lock": self._order.lock}

    def _started(self) -> dict[str, Any]:
        return {"op": "started", **self._who(), "shim": self._shim, "worker": self._charge.identity}

    def _hello(self) -> dict[str, Any]:
        return {**self._started(), "op": "hello"}

    def _over(self) -> dict[str, Any]:
        return {"op": "ended", "run": self._order.run}

    def _write_roster(self) -> None:
        try:
            looked = proctable.start_token_now()
        except OSError:
            return  # the former one stands
        found = Roster(
            run=self._order.run,
            boot=self._here,
            looked=looked,
            shim=self._shim,
            worker=self._charge.identity,
            known=self._set.known,
            sessions=self._set.sessions,
        )
        runfiles.write_roster(self._lock, found)


def _is_yes(answer: Mapping[str, Any]) -> bool:
    return answer["ok"] is True and answer.get("state") != CLOSED


ALARMS: dict[str, Callable[[Supervisor, float], None]] = {
    "answer": Supervisor._no_answer,
    "look": Supervisor._look,
    "beat": Supervisor._beat,
    "round": Supervisor._round,
    "record": Supervisor._record,
}
ANSWERS: dict[str, Callable[[Supervisor, Answer, float], None]] = {
    HELD: Supervisor._granted,
    WORKING: Supervisor._beat_answered,
    LEAVING: Supervisor._farewell,
}
