"""The loop of a bridge: one selector over the board's news, the channels of its shims, and its own wake-up.

Before a claim: wait for news, or back off and look again. After it: what happens to the run decides, and the outcome is
on disk before anybody is told; what cannot be booked is tried again shortly, then goes to the alert channel. The bridge
may die at any time: its shims go on by themselves (D13).
"""

from __future__ import annotations

import os

from hermes_kanban.base.errors import (
    ClaimLost,
    NothingReady,
    Refusal,
    Retryable,
    RunNotFound,
    SelfReview,
    StateRefusal,
    Unexpected,
    WorkspaceFailed,
)
from hermes_kanban.bridge import alert
from hermes_kanban.bridge.channels import Channels, Hold
from hermes_kanban.bridge.desk import OVERRIDDEN, STOPPED, Desk
from hermes_kanban.bridge.pace import Pace
from hermes_kanban.bridge.say import say
from hermes_kanban.dispatcher.links import Link
from hermes_kanban.lanes import registry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from hermes_kanban.base.clock import Clock
    from hermes_kanban.boards import Place
    from hermes_kanban.bridge.job import Job
    from hermes_kanban.compose import Environment
    from hermes_kanban.model.claim import Claim
    from hermes_kanban.model.run import Run
    from hermes_kanban.store.driver import ChangeFeed

PAUSES = (0.5, 2.0)  # seconds between the tries to book an end
AGAIN = 1.0  # when a run is looked at again whose end is not proven yet
VERSION_SECONDS = 1.0  # how often the store itself is asked, should a poke get lost
LOOK_SECONDS = 10.0  # how often leases that ran out, and ends that nobody saw, are looked for
UNUSABLE_AT_ONCE = 10  # cards whose workspace cannot be made, before a pause
TRIES_ONCE = 3  # of a bridge that is to leave when it is done
STOP_SECONDS = 4.0  # how long a stop waits for workers that are to end


class Bridge:
    """One bridge.

    Args:
        env, place: whose board.
        job: what it does.
        clock: the time.
    """

    def __init__(self, env: Environment, place: Place, job: Job, clock: Clock) -> None:
        self._env, self._place, self._job, self._clock = env, place, job, clock
        self._channels = Channels(env, place)
        self._pace = Pace(clock)
        self._holds: dict[int, Hold] = {}
        self._looked_back = self._idle = self._over = False
        self._sweep_at = 0.0
        self.stopping = False
        self.code = 0

    # --- from the main thread ----------------------------------------------------------------------------------
    def stop(self) -> None:
        """Claim no more and leave soon; workers run on, or are told to end. Safe in a signal handler."""
        self.stopping = True
        self._channels.wake()

    def run(self) -> None:
        """Work until told to stop, until nothing is left (`once`), or until the board cannot be used; set `code`."""
        try:
            self._open()
            while not self._finished():
                self._turn()
            if self.stopping and self._job.stop_workers:
                self._end_workers()
        except Refusal as error:
            self._fail(error)
        except Exception as error:
            words = " ".join(str(error).split())[:300]
            self._fail(Unexpected(f"unexpected {type(error).__name__}: {words}", hint="report this fault of hermes"))
        finally:
            self._leave()

    # --- the loop ----------------------------------------------------------------------------------------------
    def _open(self) -> None:
        """Open the board; one that is locked now is tried again."""
        job = self._job
        facts = {"board": self._place.slug, "name": job.name, "concurrency": job.concurrency}
        say("bridge_started", pid=os.getpid(), withheld=registry.health(job.lane).withheld, **facts)
        while not self.stopping:
            try:
                self._desk = Desk(self._env, self._place, job, self._clock)
                self._feed: ChangeFeed = self._desk.board.feed()
            except Retryable as error:
                self._channels.wait(self._back_off(error))
            else:
                self._channels.listen(self._feed.fileno())
                return

    def _finished(self) -> bool:
        return self.stopping or self._over or (self._job.once and self._idle and not self._holds)

    def _turn(self) -> None:
        """Do what is due, then wait for news."""
        try:
            if not self._looked_back:
                self._look_back()
            for hold in self._due():
                self._deliver(hold)
            if self._room() and self._clock.monotonic() >= self._pace.due and not self._over:
                self._claim()
            if not self._finished():
                self._wait()
        except Retryable as error:
            self._back_off(error)

    def _look_back(self) -> None:
        """Take over what an earlier bridge left: ends to book, and workers that go on."""
        for run, goes_on in self._desk.left_behind():
            if goes_on and not self._desk.orphaned(run):
                continue
            hold = self._holds[run.id] = Hold(run.id, run.task_id, run.worker_pid, "ended" if goes_on else "delivered")
            if goes_on:
                say("found", task=run.task_id, run=run.id, pid=run.worker_pid)
                self._connect(hold)
            else:
                hold.again = 0.0
        self._looked_back = True

    def _due(self) -> list[Hold]:
        now = self._clock.monotonic()
        return [hold for hold in self._holds.values() if hold.again is not None and hold.again <= now]

    def _room(self) -> int:
        return max(0, self._job.concurrency - len(self._holds))

    def _wait(self) -> None:
        """Wait for news, at most until something is due; the store itself is asked each second."""
        times = [hold.again for hold in self._holds.values() if hold.again is not None]
        times += [self._pace.due] if self._room() else []
        left = min([VERSION_SECONDS, *(at - self._clock.monotonic() for at in times)])
        for hold in self._channels.wait(left):
            self._hear(hold)
        if self._feed.changed():
            self._pace.news()
            self._follow()

    # --- before the work ---------------------------------------------------------------------------------------
    def _claim(self) -> None:
        """Claim while there is room and anything is ready."""
        until, unusable = self._desk.cool_until(), 0
        if until > self._desk.now:  # the provider of this lane wants to be left alone (P42, P44)
            self._wait_until(until)
            return
        self._pace.looked(AGAIN)
        while self._room() and not self.stopping and unusable < UNUSABLE_AT_ONCE:
            try:
                made = self._desk.take()
            except NothingReady:
                if self._swept():
                    continue
                self._wait_until(self._desk.next_due())
                return
            except WorkspaceFailed as error:  # the card went back already
                unusable += 1
                say("workspace_failed", message=error.message)
                continue
            except (StateRefusal, ClaimLost, SelfReview) as error:
                self._back_off(error)
                return
            self._pace.claimed()
            self._idle = False
            self._begin(made)

    def _swept(self) -> bool:
        """Whether an end that nobody saw was booked just now, on a board without a dispatcher (C46)."""
        if self._clock.monotonic() < self._sweep_at:
            return False
        self._sweep_at = self._clock.monotonic() + LOOK_SECONDS
        return self._desk.sweep(frozenset(self._holds))

    def _wait_until(self, instant: int | None) -> None:
        """There is nothing to claim: look again at this instant (epoch seconds), or after a while."""
        left = LOOK_SECONDS if instant is None else max(0.05, instant - self._clock.now_ms() / 1000)
        self._pace.looked(min(LOOK_SECONDS, left))
        self._idle = True

    def _back_off(self, error: Refusal) -> float:
        """Claim nothing for a while, longer each time; return the seconds.

        Raises:
            Refusal: this bridge is to leave when it is done, and that was the last try.
        """
        seconds = self._pace.back_off()
        say("waits", seconds=seconds, code=error.code, message=error.message)
        if self._job.once and self._pace.failures >= TRIES_ONCE:
            raise error
        return seconds

    def _begin(self, made: Claim) -> None:
        """Start the worker of a card that was claimed."""
        say("claimed", task=made.task.id, run=made.run.id, role=made.run.role, workspace=made.workspace)
        if self.stopping:
            self._desk.return_unused(made)
            say("returned", task=made.task.id, run=made.run.id)
            return
        hold = self._holds[made.run.id] = Hold(made.run.id, made.task.id)
        try:
            shim = self._desk.start(made)
        except Retryable as error:
            hold.again = self._clock.monotonic() + PAUSES[0]
            self._back_off(error)
            return
        if shim is None:  # the card is blocked already
            hold.again = 0.0
            return
        self._channels.watch(hold, Link(made.run.id, shim.channel, shim.pid))

    # --- while it lasts ----------------------------------------------------------------------------------------
    def _connect(self, hold: Hold) -> None:
        """Listen to the shim of a run that goes on; it is looked at again where that is not possible."""
        if not self._channels.connect(hold):
            hold.again = self._clock.monotonic() + AGAIN

    def _hear(self, hold: Hold) -> None:
        """Answer what a shim says. Its end is answered when it is booked; without an answer it asks elsewhere."""
        if hold.link is None:
            return
        messages, goes_on = hold.link.receive()
        for message in messages:
            op = message.get("op")
            if hold.run not in self._holds:
                return
            if op == "ended":
                self._deliver(hold)
            elif op in ("started", "beat"):
                self._answer(hold, message)
            elif op == "refused":
                say("refused", task=hold.task, run=hold.run, message=str(message.get("message"))[:300])
        if not goes_on and hold.link is not None:
            self._channels.unwatch(hold)
            hold.again = hold.again or self._clock.monotonic()

    def _answer(self, hold: Hold, message: dict[str, Any]) -> None:
        answer = self._desk.answer(hold.run, message)
        if answer is None or hold.link is None:
            return
        hold.link.say(answer)
        if message["op"] == "started":
            hold.pid = message["worker"][0] if answer["ok"] else None
            say("started" if answer["ok"] else "not_started", task=hold.task, run=hold.run, pid=hold.pid)

    def _follow(self) -> None:
        """Tell the shims of runs that were closed meanwhile: by their own worker, or over its head (P12c, D14b)."""
        for hold in self._holds.values():
            link = hold.link
            if link is None or link.closing or link.stopped:
                continue
            word = self._desk.closed(hold.run)
            if word == OVERRIDDEN:
                link.stopped = link.say({"do": "stop", "reason": word})
            elif word:
                link.closing = link.say({"do": "close"})

    # --- the end -----------------------------------------------------------------------------------------------
    def _deliver(self, hold: Hold) -> None:
        """Book the end of a run; what is not proven, or cannot be booked now, is tried again (D13, P45)."""
        hold.again = None
        try:
            booked = self._desk.book(hold.run)
        except RunNotFound:  # somebody deleted the card: nobody waits for its end any more
            self._drop(hold)
            return
        except Retryable as error:
            hold.tries += 1
            if hold.tries > len(PAUSES):
                self._undelivered(hold, error)
                return
            hold.again = self._clock.monotonic() + PAUSES[hold.tries - 1]
            say("not_booked", task=hold.task, run=hold.run, code=error.code, message=error.message)
            return
        except Refusal as error:
            self._undelivered(hold, error)
            return
        if booked is not None:
            self._let_go(hold, booked[0], booked[1].status)
        elif hold.link is None:
            self._connect(hold)

    def _let_go(self, hold: Hold, run: Run, status: str) -> None:
        if hold.link is not None:
            hold.link.say({"ok": True, "state": "closed", "by_owner": run.end_verb is not None})
        self._drop(hold)
        facts = {"outcome": run.outcome, "exit_code": run.exit_code, "exit_kind": run.exit_kind, "status": status}
        say(hold.word, task=hold.task, run=hold.run, **facts)
        self._pace.ended(started=run.exit_kind != "spawn")

    def _drop(self, hold: Hold) -> None:
        self._channels.unwatch(hold)
        del self._holds[hold.run]
        self._idle = False  # its end may have made others ready
        self._pace.news()

    def _undelivered(self, hold: Hold, error: Refusal) -> None:
        """The board cannot be told: tell somebody else, and leave; the record stays for the next bridge."""
        self._drop(hold)
        self._over = True
        self._alarm(error, {"task": hold.task, "run": hold.run} | self._desk.facts(hold.run))

    def _fail(self, error: Refusal) -> None:
        self._alarm(error, {"task": None, "run": None, "outcome": None, "record": None})

    def _alarm(self, error: Refusal, facts: dict[str, Any]) -> None:
        self.code = error.exit_code
        say("failed", **(error.as_dict() | facts))
        words = {"board": self._place.slug, "error": f"{error.code}: {error.message}"}
        trouble = alert.send(self._job.alert, words | facts)
        if trouble:
            say("alert_failed", message=trouble)

    # --- leaving -----------------------------------------------------------------------------------------------
    def _end_workers(self) -> None:
        """Tell the workers to end, and book those that do while there is time; their shims see to the rest."""
        deadline = self._clock.monotonic() + STOP_SECONDS
        for hold in self._holds.values():
            if hold.link is not None:
                hold.link.say({"do": "stop", "reason": STOPPED})
        while self._holds and not self._over and self._clock.monotonic() < deadline:
            self._wait()
            for hold in self._due():
                self._deliver(hold)

    def say_who_runs_on(self) -> None:
        """Name the runs that go on without this bridge."""
        for hold in list(self._holds.values()):
            say("runs_on", task=hold.task, run=hold.run, pid=hold.pid)

    def _leave(self) -> None:
        self.say_who_runs_on()
        for hold in list(self._holds.values()):
            self._channels.unwatch(hold)
        say("bridge_stopped", pid=os.getpid(), code=self.code)
