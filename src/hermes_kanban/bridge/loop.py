"""The loop of a bridge: one selector over the board's news, the channels of its shims, and its own wake-up.

Before a claim: wait for news, or back off and look again. After it: what happens to the run decides, and the outcome is
on disk before anybody is told; what cannot be booked is tried again shortly, then goes to the alert channel. The bridge
may die at any time: its shims go on by themselves (D13).
"""

from __future__ import annotations

import os
import selectors

from hermes_kanban.base import settings
from hermes_kanban.base.errors import (
    ClaimLost,
    NothingReady,
    Refusal,
    Retryable,
    SelfReview,
    StateRefusal,
    Unexpected,
    WorkspaceFailed,
)
from hermes_kanban.bridge import alert
from hermes_kanban.bridge.desk import STOPPED, Desk
from hermes_kanban.bridge.say import say
from hermes_kanban.dispatcher import links
from hermes_kanban.dispatcher.links import Link
from hermes_kanban.lanes import launch

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

BACK_OFF = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)  # seconds before the next try, while nothing can be claimed
PAUSES = (0.5, 2.0)  # between the tries to book an end
AGAIN = 1.0  # when a run is looked at again whose end is not proven yet
VERSION_SECONDS = 1.0  # how often the store itself is asked, should a poke get lost
LOOK_SECONDS = 10.0  # how often leases that ran out are looked for
UNUSABLE_AT_ONCE = 10  # cards whose workspace cannot be made, before a pause
TRIES_ONCE = 3  # of a bridge that is to leave when it is done
STOP_SECONDS = 4.0  # how long a stop waits for workers that are to end


class Hold:
    """One claim that this bridge looks after, until its end is booked."""

    def __init__(self, run: int, task: str, link: Link | None = None, pid: int | None = None) -> None:
        self.run, self.task, self.link, self.pid = run, task, link, pid
        self.tries = 0
        self.again: float | None = None  # when its end is to be booked, of the monotonic clock


class Bridge:
    """One bridge.

    Args:
        env, place: whose board.
        job: what it does.
        clock: the time.
    """

    def __init__(self, env: Environment, place: Place, job: Job, clock: Clock) -> None:
        self._env, self._place, self._job, self._clock = env, place, job, clock
        self._selector = selectors.DefaultSelector()
        self._wake_in, self._wake_out = os.pipe()
        os.set_blocking(self._wake_in, False)
        os.set_blocking(self._wake_out, False)
        self._selector.register(self._wake_in, selectors.EVENT_READ, None)
        self._holds: dict[int, Hold] = {}
        self._children: set[int] = set()
        self._dirty, self._idle = True, False
        self._look_at = self._paused_until = 0.0
        self._failures = self._bad_starts = 0
        self._over = False
        self.stopping = False
        self.code = 0

    # --- from the main thread ----------------------------------------------------------------------------------
    def stop(self) -> None:
        """Claim no more and leave soon; workers run on, or are told to end. Safe in a signal handler."""
        self.stopping = True
        try:
            os.write(self._wake_out, b"!")
        except OSError:
            return

    def run(self) -> None:
        """Work until told to stop, until nothing is left (`once`), or until the board cannot be used; set `code`."""
        try:
            self._open()
            while not (self.stopping or self._over or self._done()):
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
        self._desk = Desk(self._env, self._place, self._job, self._clock)
        self._feed: ChangeFeed = self._desk.board.feed()
        if self._feed.fileno() >= 0:
            self._selector.register(self._feed.fileno(), selectors.EVENT_READ, None)
        job = self._job
        say("bridge_started", pid=os.getpid(), board=self._place.slug, name=job.name, concurrency=job.concurrency)
        for run, goes_on in self._desk.left_behind():
            self._find(run, goes_on=goes_on)

    def _find(self, run: Run, *, goes_on: bool) -> None:
        """Take over what an earlier bridge left: an end to book, or a worker that goes on."""
        hold = Hold(run.id, run.task_id, pid=run.worker_pid)
        if not goes_on:
            self._holds[run.id] = hold
            self._deliver(hold, "delivered")
        elif self._desk.orphaned(run):
            self._holds[run.id] = hold
            self._connect(hold)
            say("found", task=run.task_id, run=run.id, pid=run.worker_pid)

    def _turn(self) -> None:
        """Do what is due, then wait for news."""
        try:
            for hold in self._due():
                self._deliver(hold)
            if self._wants():
                self._claim()
            self._wait()
        except Retryable as error:
            self._back_off(error)

    def _done(self) -> bool:
        return self._job.once and self._idle and not self._holds

    def _due(self) -> list[Hold]:
        now = self._clock.monotonic()
        return [hold for hold in self._holds.values() if hold.again is not None and hold.again <= now]

    def _room(self) -> int:
        return max(0, self._job.concurrency - len(self._holds))

    def _next_claim(self) -> float:
        return max(self._paused_until, 0.0 if self._dirty else self._look_at)

    def _wants(self) -> bool:
        return self._room() > 0 and self._clock.monotonic() >= self._next_claim() and not self._over

    def _wait(self) -> None:
        """Wait for news, at most until something is due; the store itself is asked each second."""
        times = [hold.again for hold in self._holds.values() if hold.again is not None]
        times += [self._next_claim()] if self._room() else []
        left = min([VERSION_SECONDS, *(at - self._clock.monotonic() for at in times)])
        for key, _ in self._selector.select(max(0.0, left) if not self._over else 0.0):
            if key.data is not None:
                self._hear(key.data)
            elif key.fd == self._wake_in:
                os.read(self._wake_in, 512)
        self._children = {pid for pid in self._children if not links.collect_child(pid)}
        if self._feed.changed():
            self._dirty = True
            self._follow()

    # --- before the work ---------------------------------------------------------------------------------------
    def _claim(self) -> None:
        """Claim while there is room and anything is ready."""
        self._dirty, unusable = False, 0
        if self._cooling():
            return
        while self._room() and not self.stopping and unusable < UNUSABLE_AT_ONCE:
            try:
                made = self._desk.take()
            except NothingReady:
                if self._desk.sweep():
                    continue
                self._idle = True
                self._look_at = self._clock.monotonic() + self._seconds_until(self._desk.next_due())
                return
            except WorkspaceFailed as error:  # the card went back already
                unusable += 1
                say("workspace_failed", message=error.message)
                continue
            except (StateRefusal, ClaimLost, SelfReview) as error:
                self._back_off(error)
                return
            self._failures, self._idle = 0, False
            self._begin(made)
        self._look_at = self._clock.monotonic() + (AGAIN if unusable else 0.0)

    def _cooling(self) -> bool:
        """Whether the provider of this lane wants to be left alone (P42, P44)."""
        until = self._desk.cool_until()
        if until <= self._desk.now:
            return False
        self._idle = True
        self._look_at = self._clock.monotonic() + self._seconds_until(until)
        return True

    def _seconds_until(self, instant: int | None) -> float:
        return LOOK_SECONDS if instant is None else min(LOOK_SECONDS, max(0.05, instant - self._clock.now_ms() / 1000))

    def _back_off(self, error: Refusal) -> None:
        """Claim nothing for a while, longer each time."""
        pause = BACK_OFF[min(self._failures, len(BACK_OFF) - 1)]
        self._failures += 1
        say("waits", seconds=pause, code=error.code, message=error.message)
        if self._job.once and self._failures >= TRIES_ONCE:
            raise error
        self._pause(pause)

    def _pause(self, seconds: float) -> None:
        self._paused_until = self._clock.monotonic() + seconds
        self._dirty = True

    def _begin(self, made: Claim) -> None:
        """Start the worker of a card that was claimed."""
        say("claimed", task=made.task.id, run=made.run.id, role=made.run.role, workspace=made.workspace)
        hold = self._holds[made.run.id] = Hold(made.run.id, made.task.id)
        try:
            if self.stopping:
                self._desk.return_unused(made)
            shim = None if self.stopping else self._desk.start(made)
        except Retryable as error:
            hold.again = self._clock.monotonic() + PAUSES[0]
            self._back_off(error)
            return
        if shim is None:
            self._deliver(hold)
            return
        self._children.add(shim.pid)
        self._watch(hold, Link(made.run.id, shim.channel, shim.pid))

    # --- while it lasts ----------------------------------------------------------------------------------------
    def _watch(self, hold: Hold, link: Link) -> None:
        hold.link = link
        self._selector.register(link.sock, selectors.EVENT_READ, hold)

    def _connect(self, hold: Hold) -> None:
        """Connect to the shim of a run that goes on; it is looked at again where that is not possible."""
        runtime = settings.runtime_folder(self._env.variables)
        found = links.connect(launch.socket_path(runtime, self._place.database, hold.run), hold.run)
        if found is not None:
            self._watch(hold, found)
        else:
            hold.again = self._clock.monotonic() + AGAIN

    def _unwatch(self, hold: Hold) -> None:
        if hold.link is not None:
            self._selector.unregister(hold.link.sock)
            hold.link.close()
            hold.link = None

    def _hear(self, hold: Hold) -> None:
        """Answer what a shim says. Its end is answered when it is booked; without an answer it asks elsewhere."""
        assert hold.link is not None
        messages, goes_on = hold.link.receive()
        for message in messages:
            op = message.get("op")
            if op == "ended":
                self._deliver(hold)
            elif op in ("started", "beat"):
                self._answer(hold, message)
            elif op == "refused":
                say("refused", task=hold.task, run=hold.run, message=str(message.get("message"))[:300])
        if not goes_on and hold.link is not None:
            self._unwatch(hold)
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
        """Tell the shims of cards that were closed meanwhile: by their own worker, or over its head (P12c, D14b)."""
        for hold in self._holds.values():
            link = hold.link
            if link is None or link.closing or link.stopped:
                continue
            run = self._desk.board.run(hold.run)
            if run.open:
                continue
            if run.end_verb is not None:
                link.closing = link.say({"do": "close"})
            else:
                link.stopped = link.say({"do": "stop", "reason": "override"})

    # --- the end -----------------------------------------------------------------------------------------------
    def _deliver(self, hold: Hold, word: str = "ended") -> None:
        """Book the end of a run; what is not proven, or cannot be booked now, is tried again (D13, P45)."""
        hold.again = None
        try:
            booked = self._desk.book(hold.run)
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
            self._let_go(hold, booked[0], booked[1].status, word)
        elif hold.link is None:
            self._connect(hold)

    def _let_go(self, hold: Hold, run: Run, status: str, word: str) -> None:
        if hold.link is not None:
            hold.link.say({"ok": True, "state": "closed", "by_owner": run.end_verb is not None})
        self._unwatch(hold)
        del self._holds[hold.run]
        self._dirty = True
        facts = {"outcome": run.outcome, "exit_code": run.exit_code, "exit_kind": run.exit_kind, "status": status}
        say(word, task=hold.task, run=hold.run, **facts)
        if run.exit_kind == "spawn":  # the next card would fare no better
            self._pause(BACK_OFF[min(self._bad_starts, len(BACK_OFF) - 1)])
            self._bad_starts += 1
        else:
            self._bad_starts = 0

    def _undelivered(self, hold: Hold, error: Refusal) -> None:
        """The board cannot be told: tell somebody else, and leave; the record stays for the next bridge."""
        self._over = True
        self.code = error.exit_code
        facts = {"task": hold.task, "run": hold.run} | self._desk.facts(hold.run)
        self._alarm(error, facts)

    def _fail(self, error: Refusal) -> None:
        self.code = error.exit_code
        self._alarm(error, {"task": None, "run": None, "outcome": None, "record": None})

    def _alarm(self, error: Refusal, facts: dict[str, Any]) -> None:
        say("failed", **facts, **error.as_dict())
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
            self._unwatch(hold)
        say("bridge_stopped", pid=os.getpid(), code=self.code)
