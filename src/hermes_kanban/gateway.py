"""The gateway: one process that runs the dispatcher of every board, and later the notifier and the server (D4, D6, D9).

Each board has a loop of its own in a thread; asyncio watches over them, over boards that come and go, and over the
signals. A loop that died is started again.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
from contextlib import suppress

from hermes_kanban import boards
from hermes_kanban.base import process, strictjson
from hermes_kanban.base.clock import SystemClock
from hermes_kanban.dispatcher.service import BoardService
from hermes_kanban.dispatcher.turns import Turns
from hermes_kanban.workspace.base import make_private

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from hermes_kanban.compose import Environment

LOOK_SECONDS = 1.0  # how often the folder of boards and the loops are looked at
_REGISTERED = {"pid": int, "started": str, "since_ms": int}
STOP_SECONDS = 4.8  # after which the process leaves, whatever its loops do (D6)


class Loop:
    """One supervised service and its thread.

    Args:
        service: what it runs.
        former: the loop that died before it, whose error is not said twice unless something worked in between.
    """

    def __init__(self, service: BoardService, former: Loop | None) -> None:
        self.service = service
        self.database = service.place.database
        self.error: str = ""
        self._known = former.error if former else ""
        self.thread = threading.Thread(target=self._run, name=service.place.slug, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.service.run()
        except BaseException as error:
            self.error = f"{type(error).__name__}: {error}"

    @property
    def news(self) -> bool:
        """Whether its death is to be said: a loop that dies again and again of the same has been reported."""
        return self.error != self._known or self.service.last_pass_ms > 0


class Gateway:
    """One gateway of one home.

    Args:
        env: home and settings.
        only: the one board to dispatch; None: all of them, also those that are made later (D4).
        dispatch: False leaves the dispatcher out.
        workers: end the workers when the gateway is stopped.
    """

    def __init__(self, env: Environment, only: str | None, *, dispatch: bool, workers: bool) -> None:
        self._env, self._only, self._dispatch, self.workers = env, only, dispatch, workers
        self._clock = SystemClock()
        self._turns = Turns()
        self._loops: dict[str, Loop] = {}
        self._over = asyncio.Event()
        self._trouble = ""
        self._registry = registry_folder(env.home)

    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._told, False)
        loop.add_signal_handler(signal.SIGUSR1, self._told, True)  # `gateway stop --workers`
        self._register()
        say("gateway_started", pid=os.getpid(), home=self._env.home, dispatch=self._dispatch)
        try:
            while not self._over.is_set():
                if self._dispatch:
                    self._look()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._over.wait(), LOOK_SECONDS)
            await self._stop()
        finally:
            with suppress(OSError):
                os.unlink(self._entry())
        say("gateway_stopped", pid=os.getpid())

    def _told(self, workers: bool) -> None:
        self.workers = self.workers or workers
        self._over.set()

    def _look(self) -> None:
        """Begin with new boards, drop removed ones, start loops again that died (D4, D9)."""
        names = (self._only,) if self._only else boards.names(self._env.home, self._env.variables)
        try:
            for name in names:
                self._begin(name)
        except (OSError, RuntimeError) as error:  # no descriptor, no thread is to be had now: it is tried again
            self._report_trouble(f"{type(error).__name__}: {error}")
        else:
            self._report_trouble("")
        gone = [n for n, loop in self._loops.items() if n not in names and not os.path.lexists(loop.database)]
        for name in gone:
            say("board_gone", board=name)
            self._loops.pop(name).service.stop()

    def _begin(self, name: str) -> None:
        """Have a loop for a board, another one where it has died."""
        former = self._loops.get(name)
        if former is not None and former.thread.is_alive():
            return
        variables = self._env.variables
        plain = variables if self._only else {n: v for n, v in variables.items() if n != "HERMES_KANBAN_DB"}
        place = boards.place(self._env.home, name, plain)
        self._loops[name] = Loop(BoardService(self._env, place, self._clock, self._turns, say), former)
        if former is not None and former.news:
            say("loop_restarted", board=name, error=former.error)

    def _report_trouble(self, message: str) -> None:
        """Say what keeps loops from being started once, and once when it is over."""
        if message != self._trouble:
            say("gateway_trouble" if message else "gateway_recovered", message=message)
        self._trouble = message

    async def _stop(self) -> None:
        for loop in self._loops.values():
            loop.service.stop(workers=self.workers)
        deadline = self._clock.monotonic() + STOP_SECONDS
        while any(one.thread.is_alive() for one in self._loops.values()) and self._clock.monotonic() < deadline:
            await asyncio.sleep(0.02)

    # --- who runs here, for `gateway status` and `gateway stop` -----------------------------------------------
    def _entry(self) -> str:
        return os.path.join(self._registry, str(os.getpid()))

    def _register(self) -> None:
        make_private(self._registry)
        me = process.describe(os.getpid())
        facts = {"pid": os.getpid(), "started": me.started if me else "", "since_ms": self._clock.now_ms()}
        boards.write_file(self._entry(), json.dumps(facts))


def registry_folder(home: str) -> str:
    """Return where the running gateways of a home are written down."""
    return os.path.join(home, "kanban", "gateways")


def running(home: str) -> list[dict[str, Any]]:
    """Return the gateways of a home that live, the oldest first; entries of dead ones are passed over."""
    found = []
    folder = registry_folder(home)
    with suppress(OSError):
        for name in os.listdir(folder):
            with suppress(OSError, ValueError), open(os.path.join(folder, name), "rb") as handle:
                facts = strictjson.fitting(strictjson.parse(handle.read(4096)), _REGISTERED)
                if len(facts) == len(_REGISTERED) and process.alive(facts["pid"], facts["started"]):
                    found.append(facts)
    return sorted(found, key=lambda facts: int(facts["since_ms"]))


def say(what: str, **facts: Any) -> None:
    """Write one line of the log: an instant, a word, and facts as JSON."""
    stamp = SystemClock().now_ms() / 1000
    line = json.dumps({"at": stamp, "event": what} | facts, ensure_ascii=True, default=str)
    with suppress(OSError, ValueError):  # a log that nobody takes is no reason to stop (D9)
        sys.stderr.write(line + "\n")
        sys.stderr.flush()


def silent(_what: str, **_facts: Any) -> None:
    """Write no log: who does a single pass prints its report instead."""
