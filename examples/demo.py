"""`make demo`: real work through a board in a temporary home, by small programs that pull it from the command line.

Four analysts measure packages of Python's standard library at the same time, a synthesiser waits for all four and
writes a report, a reviewer sends it back once. On the way one analyst is killed and its card taken over when the lease
is over, and one asks a person (whom this program plays) a question. In the end everything is checked.

Exit codes: 0 all is as it must be, 1 something is not (each thing is named), 130 interrupted.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import NoReturn

from examples.checks import Ending, problems, report_path
from examples.crew import Crew, News
from examples.history import hand_over_lines, hand_overs, run_lines
from examples.kanban_cli import HERMES, Json, Kanban, Refused, task_of
from examples.screen import Screen

BOARD = "demo"
ORDERS = {  # title, which names the subject: packages; the first is the first to be claimed
    "dead imports": "asyncio, concurrent",
    "complexity": "json, email",
    "doc coverage": "unittest, logging",
    "public names": "http, xml",
}
KILLED, ASKED, REVIEWED = "dead imports", "complexity", "report"
VICTIM = "analyst-1"
OTHERS = ("analyst-2", "analyst-3", "analyst-4")
SHORT_TTL, TTL = 3, 20  # seconds: the victim's lease is short, so that its card is soon free
PACE, BEAT, ANALYST_WAIT, LONG_WAIT = 0.12, 1, 15, 50  # seconds
THRESHOLD = 15
ANSWER = f"B: use threshold={THRESHOLD}, a list that one can act on"
DEADLINE = 55.0  # seconds for the whole play
PATIENCE = 0.5  # seconds without news until we look whether anybody still works

CONFIG = "kanban:\n  external_assignees: [analyst, synthesizer, reviewer]\n"
PASSED_ON = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TERM", "TMPDIR", "TZ", "NO_COLOR")


def environment(home: Path) -> dict[str, str]:
    """Return the environment of all that the demonstration starts: nothing of Hermes but its own home gets in."""
    passed_on = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    return passed_on | {"HERMES_HOME": str(home), "HERMES_KANBAN_NAME": "person"}


@dataclass
class Play:
    """The demonstration while it runs: what the person knows and does.

    Args:
        home: the temporary home; it is kept.
    """

    home: Path
    ids: dict[str, str] = field(default_factory=dict)
    parents: dict[str, list[str]] = field(default_factory=dict)
    events: list[Json] = field(default_factory=list)
    titles: dict[str, str] = field(default_factory=dict)
    killed: bool = False
    all_called: bool = False

    def __post_init__(self) -> None:
        env = environment(self.home)
        self.board = Kanban(BOARD, env)
        self.crew = Crew(env, self.home / "demo-logs")
        self.screen = Screen(self.titles)
        self.deadline = time.monotonic() + DEADLINE

    # --- setting up -----------------------------------------------------------------------------------------
    def set_up(self) -> None:
        """Make the board and its cards: four orders, and a report that needs all four."""
        (self.home / "config.yaml").write_text(CONFIG, encoding="utf-8")
        Kanban("", self.board.env).ask("boards", "create", BOARD)
        for title, packages in ORDERS.items():
            self._create(title, "analyst", f"subject: {title}\npackages: {packages}")
        self.parents[self._create(REVIEWED, "synthesizer", "One report of all analyses.", *self.ids.values())] = [
            self.ids[title] for title in ORDERS
        ]

    def _create(self, title: str, assignee: str, body: str, *parents: str) -> str:
        words = [f"--body={body}", f"--assignee={assignee}", f"--idempotency-key={BOARD}:{title}"]
        answer = self.board.ask("create", title, *words, *(f"--parent={parent}" for parent in parents))
        task_id: str = task_of(answer)["id"]
        self.ids[title] = task_id
        self.titles[task_id] = title
        return task_id

    # --- the play -------------------------------------------------------------------------------------------
    def perform(self, news: News) -> None:
        """Follow the board, and act where the play says so, until every card is done.

        Raises:
            TimeoutError: the deadline is over, or nobody works any more.
            EOFError: there is no news any more.
        """
        self._call(VICTIM, "analyst", "analyst", SHORT_TTL, ANALYST_WAIT)
        while not self._finished():
            fresh = news.take(PATIENCE)
            for event in fresh:
                self.events.append(event)
                self.screen.tell(event)
                self._react(event)
            if fresh:
                self.screen.draw(self.board.ask("list"))
            elif not self.crew.working():
                raise TimeoutError("every worker has ended, and the board is not done")
            if time.monotonic() > self.deadline:
                raise TimeoutError(f"not done within {DEADLINE:.0f} s")

    def _finished(self) -> bool:
        done = {event["task_id"] for event in self.events if event["kind"] == "completed"}
        return done >= set(self.ids.values())

    def _call(self, name: str, program: str, assignee: str, ttl: int, wait: int) -> None:
        words = ("--board", BOARD, "--assignee", assignee, "--ttl", str(ttl), "--wait", str(wait))
        self.crew.start(name, program, *words, "--pace", str(PACE), "--beat", str(BEAT))

    def _react(self, event: Json) -> None:
        """Do what the play has for this moment."""
        match event["kind"]:
            case "claimed" if not self.all_called:
                self._call_the_others()
            case "heartbeat" if not self.killed and event["task_id"] == self.ids[KILLED]:
                self._kill_in_mid_run()
            case "blocked" if event["task_id"] == self.ids[ASKED]:
                self._answer(event["task_id"])

    def _call_the_others(self) -> None:
        """Start everybody else, once the victim has its card."""
        self.all_called = True
        for name in OTHERS:
            self._call(name, "analyst", "analyst", TTL, ANALYST_WAIT)
        # These two work under the name that the cards are assigned to: changes go back to the implementer by name.
        self._call("synthesizer", "synthesizer", "synthesizer", TTL, LONG_WAIT)
        self._call("reviewer", "reviewer", "reviewer", TTL, LONG_WAIT)

    def _kill_in_mid_run(self) -> None:
        card = self.board.show(self.ids[KILLED])
        attempt = next((run for run in card["runs"] if run["outcome"] is None), None)
        if attempt and attempt["profile"] == VICTIM and attempt["heartbeat_note"]:
            pid = self.crew.kill(VICTIM)
            self.killed = True
            self.screen.say(f"(killed {VICTIM}, process {pid}, at {attempt['heartbeat_note']!r})")

    def _answer(self, task_id: str) -> None:
        """Answer, as a person, what stands in the inbox."""
        if task_id in {entry["id"] for entry in self.board.ask("inbox")}:
            self.board.ask("unblock", task_id, f"--answer={ANSWER}")
            self.screen.say(f"(answered {self.titles[task_id]!r}: {ANSWER})")

    # --- afterwards -----------------------------------------------------------------------------------------
    def ending(self) -> Ending:
        """Collect what the checks and the summary read."""
        codes = {name: code for name, code in self.crew.exit_codes().items() if not (self.killed and name == VICTIM)}
        runs = {task_id: sorted(self.board.ask("runs", task_id), key=lambda run: run["id"]) for task_id in self.titles}
        return Ending(self.ids, self.parents, self.events, runs, THRESHOLD, KILLED, ASKED, REVIEWED, codes)


def main() -> int:
    """Run the demonstration; return the exit code."""
    signal.signal(signal.SIGTERM, _terminated)
    if not Path(HERMES).exists():
        print(f"error: there is no {HERMES}\nhint: run `make install` first", file=sys.stderr)
        return 1
    play = Play(Path(tempfile.mkdtemp(prefix="hermes-demo-")))
    try:
        return _show(play)
    except KeyboardInterrupt:
        print("\ninterrupted; every process of the demonstration is stopped", file=sys.stderr)
        return 130
    except Refused as refused:
        print(f"error: {refused}", file=sys.stderr)
        return 1
    finally:
        print(f"the board is kept in {play.home}")


def _show(play: Play) -> int:
    play.set_up()
    print(f"look on from elsewhere: HERMES_HOME={play.home} {HERMES} kanban --board {BOARD} board --watch")
    news = News(BOARD, environment(play.home))
    try:
        return _judge(play, _perform(play, news))
    finally:
        play.crew.stop()
        news.stop()


def _perform(play: Play, news: News) -> list[str]:
    """Let the play run; return what kept it from its end."""
    try:
        with play.screen:
            play.perform(news)
    except (TimeoutError, EOFError) as fault:
        return [str(fault)]
    code = news.stop()
    return [f"`watch` ended with {code} after Ctrl-C, not with 0"] if code else []


def _judge(play: Play, wrong: list[str]) -> int:
    """Print the end of the play and say whether all is as it must be."""
    ending = play.ending()
    wrong = [*wrong, *problems(play.board, ending)]
    print("\nattempts")
    print(*run_lines(ending.runs, play.titles, play.screen.start_ms), sep="\n")
    print("\nhand-overs")
    print(*hand_over_lines(hand_overs(ending.events, ending.parents), play.titles), sep="\n")
    print(f"\nreport: {report_path(ending) or 'none'}")
    for problem in wrong:
        print(f"not as it must be: {problem}")
    print(f"workers' logs: {play.home / 'demo-logs'}" if wrong else "all is as it must be")
    return 1 if wrong else 0


def _terminated(_number: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(143)


if __name__ == "__main__":
    sys.exit(main())
