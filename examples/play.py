"""The demonstration while it runs: it makes the board, starts gateway and bridge, and plays the person.

What it does on the board it does by the command line, as a person would: makes cards, answers what stands in the inbox.
Once it does what no person should: it kills a worker in mid-run.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from examples import plan
from examples.checks import Ending
from examples.crew import ROOT, News, Service, left_over
from examples.kanban_cli import HERMES, Json, Kanban, task_of
from examples.screen import Screen

DEADLINE = 180.0  # seconds for the whole play; it takes a fraction of it
PATIENCE = 0.5  # seconds without news until we look whether gateway and bridge are still there
ENDS = 15.0  # seconds after the last card until every worker must be gone
NOTHING_LEFT = 5.0  # seconds after gateway and bridge until no process may be left
PASSED_ON = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TERM", "TMPDIR", "TZ", "NO_COLOR")


def environment(home: Path) -> dict[str, str]:
    """Return the environment of all that the demonstration starts: nothing of Hermes but its own home gets in."""
    passed_on = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    return passed_on | {"HERMES_HOME": str(home), "HERMES_KANBAN_NAME": "person"}


class Play:
    """One performance.

    Args:
        home: the temporary home; it is kept.
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        self.logs = home / "demo-logs"
        self.ids: dict[str, str] = {}
        self.titles: dict[str, str] = {}
        self.events: list[Json] = []
        self.killed_pid = 0
        self.screen = Screen(self.titles)
        self.env = environment(home)
        self.board = Kanban(plan.BOARD, self.env)
        self.services: dict[str, Service] = {}
        self._deadline = time.monotonic() + DEADLINE

    # --- setting up -------------------------------------------------------------------------------------------
    def set_up(self) -> None:
        """Make lanes and board, start gateway and bridge, then make the cards: they begin at once."""
        (self.home / "config.yaml").write_text(plan.CONFIG, encoding="utf-8")
        anywhere = Kanban("", self.env)
        for name, argv in plan.LANES.items():
            anywhere.ask("lanes add", name, "--env=PYTHONPATH", "--", *argv)
        anywhere.ask("boards create", plan.BOARD)
        self._start("gateway", HERMES, "gateway", "start", "--stop-workers")
        bridge = ("bridge", f"--assignee={plan.BRIDGED}", "--stop-workers", "--", *plan.BRIDGE)
        self._start("bridge", HERMES, "kanban", "--board", plan.BOARD, *bridge)

    def make_cards(self) -> None:
        """Make the cards, the parents before their children."""
        for card in plan.CARDS:
            parents = (f"--parent={self.ids[title]}" for title in card.parents)
            key = f"--idempotency-key={plan.BOARD}:{card.title}"
            words = (f"--body={card.body}", f"--assignee={card.assignee}", key, *parents)
            task_id: str = task_of(self.board.ask("create", card.title, *words))["id"]
            self.ids[card.title] = task_id
            self.titles[task_id] = card.title

    def _start(self, name: str, *argv: str) -> None:
        env = self.env | {"PYTHONPATH": str(ROOT)}
        self.services[name] = Service(argv, env, self.logs / f"{name}.log")

    # --- the play ---------------------------------------------------------------------------------------------
    def perform(self, news: News) -> None:
        """Follow the board, and act where the plan says so, until every card is done and every worker is gone.

        Raises:
            TimeoutError: it takes too long, or gateway or bridge ended.
            EOFError: there is no news any more.
        """
        while not self._finished():
            self._follow(news)
            if time.monotonic() > self._deadline:
                raise TimeoutError(f"not done within {DEADLINE:.0f} s")
        deadline = time.monotonic() + ENDS
        while any(run["process_state"] != "ended" for runs in self._runs().values() for run in runs):
            self._follow(news)
            if time.monotonic() > deadline:
                raise TimeoutError(f"a worker is still there {ENDS:.0f} s after the last card was done")

    def _follow(self, news: News) -> None:
        """Take what is new, show it and act on it."""
        fresh = news.take(PATIENCE)
        for event in fresh:
            self.events.append(event)
            self.screen.tell(event)
            self._react(event)
        if fresh:
            self.screen.draw(lambda: self.board.ask("list"))
        for name, service in self.services.items():
            if service.exit_code is not None:
                raise TimeoutError(f"the {name} ended by itself with {service.exit_code}: see {service.log}")

    def _finished(self) -> bool:
        done = {event["task_id"] for event in self.events if event["kind"] == "completed"}
        return done >= set(self.ids.values())

    def _react(self, event: Json) -> None:
        """Do what the plan has for this moment."""
        match event["kind"]:
            case "heartbeat" if not self.killed_pid and event["task_id"] == self.ids[plan.KILLED.title]:
                self._kill_in_mid_run(event)
            case "blocked" if event["task_id"] == self.ids[plan.ASKED.title]:
                self._answer(event["task_id"])

    def _kill_in_mid_run(self, event: Json) -> None:
        """Kill, as a power cut or a lack of memory would, the process that the board names as the worker."""
        note = event["payload"].get("note")
        runs = self._runs_of(event["task_id"])
        pid = next((run["worker_pid"] for run in runs if run["outcome"] is None and run["id"] == event["run_id"]), None)
        if note and pid:
            with suppress(ProcessLookupError):  # it was quicker: the checks will miss its death
                os.kill(pid, signal.SIGKILL)
            self.killed_pid = pid
            self.screen.say(f"(killed the worker of {plan.KILLED.title!r}, process {pid}, at {note!r})")

    def _answer(self, task_id: str) -> None:
        """Answer, as a person, what stands in the inbox."""
        if task_id in {entry["id"] for entry in self.board.ask("inbox")}:
            self.board.ask("unblock", task_id, f"--answer={plan.ANSWER}")
            self.screen.say(f"(answered {self.titles[task_id]!r}: {plan.ANSWER})")

    # --- afterwards -------------------------------------------------------------------------------------------
    def stop(self) -> dict[str, int]:
        """Stop gateway and bridge, together with what still runs under them; return their exit codes."""
        return {name: service.stop() for name, service in reversed(self.services.items())}

    def ending(self, exit_codes: Mapping[str, int]) -> Ending:
        """Collect what the checks and the summary read, after the stop."""
        runs = self._runs()
        return Ending(self.ids, self.events, runs, _began(runs), self.killed_pid, exit_codes, self._left(runs))

    def _runs(self) -> dict[str, list[Json]]:
        return {task_id: self._runs_of(task_id) for task_id in self.titles}

    def _runs_of(self, task_id: str) -> list[Json]:
        return sorted(self.board.ask("runs", task_id), key=lambda run: run["id"])

    def _left(self, runs: Mapping[str, list[Json]]) -> list[str]:
        """Return the processes of workers that do not go away."""
        pids = [run[name] for all_ in runs.values() for run in all_ for name in ("shim_pid", "worker_pid") if run[name]]
        deadline = time.monotonic() + NOTHING_LEFT
        while (left := left_over(self.home, pids)) and time.monotonic() < deadline:
            time.sleep(0.1)
        return left


def _began(runs: Mapping[str, list[Json]]) -> dict[int, int]:
    """Return by run when its program began, as each program noted it in the workspace."""
    folders = {Path(run["workspace"]) for all_ in runs.values() for run in all_ if run["workspace"]}
    notes = [(folder / "began").read_text(encoding="ascii") for folder in folders if (folder / "began").exists()]
    lines = [line.split() for note in notes for line in note.splitlines()]
    return {int(run): int(began_ms) for run, began_ms in lines}
