"""The worker in a shim's care: held, let go, read from, and what its end was (D10, D11, D13).

All descriptors and statuses of one worker are here; when to do what is `lanes.supervisor`'s.
"""

from __future__ import annotations

import os
import signal

from hermes_kanban.base import process
from hermes_kanban.lanes import ending, start
from hermes_kanban.lanes.ending import Ends
from hermes_kanban.lanes.output import Log, Output, iso_utc
from hermes_kanban.model.exits import ExitRecord

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from hermes_kanban.lanes.leash import Leash
    from hermes_kanban.lanes.order import Order
    from hermes_kanban.lanes.runfiles import Identity
    from hermes_kanban.lanes.start import Held

CHUNK, MOST_LEFT_OVER = 65_536, 4_194_304


class Charge:
    """One worker.

    Args:
        order: what to run.
        now: seconds of the monotonic clock.

    Attributes:
        output: what it prints.
        ends: how it ended.
        identity: pid and start token, None where no process could be had.
        spawn_error: why it could not be started and what to do, None if it could.
    """

    def __init__(self, order: Order, now: float) -> None:
        self._order = order
        self._held: Held | None = None
        self._said = b""  # by the held process: why it could not become its program
        self._pipe, self._trouble = -1, -1
        self.output = Output(Log(order.log, order.log_bytes), now)
        self.ends = Ends(order)
        self.identity: Identity | None = None
        self.spawn_error: tuple[str, str] | None = None

    def fork(self) -> bool:
        """Make the process and hold it (D11); whether there is one."""
        try:
            self._pipe, into = os.pipe()
            os.set_blocking(self._pipe, False)
            try:
                self._held = start.hold(self._order.argv, self._order.workspace, into)
            finally:
                os.close(into)
        except OSError as error:
            self.spawn_error = ending.no_process(error)
            return False
        self._trouble = self._held.trouble
        self.identity = identity_of(self._held.pid)
        return True

    def release(self, now: float, at_ms: int) -> None:
        """Let it become its program."""
        assert self._held is not None
        at = iso_utc(at_ms)
        self.output.log.mark(f"[kanban-worker-start] run={self._order.run} pid={self._held.pid} at={at}")
        self.output.news_at = now
        start.let_go(self._held)

    def withdraw(self) -> None:
        """Take it back: it was never let go."""
        assert self._held is not None
        os.kill(self._held.pid, signal.SIGKILL)
        os.waitpid(self._held.pid, 0)

    def is_leader(self, pid: int) -> bool:
        """Whether this child, which has ended, is the process that was started."""
        return self._held is not None and pid == self._held.pid and self.ends.leader is None

    def sources(self) -> dict[int, Callable[[float], object]]:
        """Return what is to be waited for, with whom to call when there is something."""
        found: dict[int, Callable[[float], object]] = {self._pipe: self._read_output, self._trouble: self._read_trouble}
        return {descriptor: reader for descriptor, reader in found.items() if descriptor >= 0}

    def drain(self, now: float) -> None:
        """Take in what is still in the pipes: nobody of the run is left who could print more."""
        left = MOST_LEFT_OVER
        while self._pipe >= 0 and left > 0 and (size := self._read_output(now)):
            left -= size
        self.output.end(now)
        self._read_trouble(now)
        if self._said:
            self.spawn_error = ending.trouble(self._order, self._said)

    def verdict(self) -> ending.Ended:
        """Return exit code and signal, neither where it never became its program."""
        return ending.NOT_STARTED if self.spawn_error else self.ends.verdict()

    def record(self, times: tuple[int, int], leash: Leash, peak_memory: int) -> ExitRecord:
        """Return what is to be known of its end (P45).

        Args:
            times: when it started and ended, milliseconds since the epoch.
            leash: why it was stopped, if it was.
            peak_memory: bytes of the whole set.
        """
        code, by_signal = self.verdict()
        error, hint = self.spawn_error or (None, "")
        return ExitRecord(
            run=self._order.run,
            task=self._order.task,
            lock=self._order.lock,
            code=code,
            signal=by_signal,
            started_ms=times[0],
            ended_ms=times[1],
            stop=leash.reason,
            overstayed=leash.overstayed,
            spawn_error=error,
            hint=hint,
            policy=self._order.policy,
            tail=self.output.tail(),
            retry_after=self.output.retry_after,
            output_bytes=self.output.total,
            worker=self.identity,
            peak_memory=peak_memory,
        )

    def farewell(self) -> None:
        """Write the log's last lines."""
        if self.spawn_error:
            self.output.log.mark(f"[kanban-worker-spawn] {self.spawn_error[0]}")
        self.output.log.mark(f"[kanban-worker-exit] rc={ending.rc(self.verdict())}")
        self.output.log.close()

    def _read_output(self, now: float) -> int:
        """Take a piece of what was printed; return its length."""
        try:
            data = os.read(self._pipe, CHUNK)
        except BlockingIOError:
            return 0
        if data:
            self.output.feed(data, now)
        else:
            os.close(self._pipe)
            self._pipe = -1
        return len(data)

    def _read_trouble(self, _now: float) -> None:
        if self._trouble < 0:
            return
        try:
            data = os.read(self._trouble, CHUNK)
        except BlockingIOError:
            return
        self._said += data
        if not data:
            os.close(self._trouble)
            self._trouble = -1


def identity_of(pid: int) -> Identity:
    """Return what a child of ours, or we ourselves, are known by; it cannot be gone."""
    found = process.describe(pid)
    return pid, found.started if found else ""
