"""The frame of a worker program: read which card it is for, do the work, close the card, never end in silence.

Whoever starts the program (a lane of the gateway, or a bridge) has claimed the card, made its workspace, which is the
current folder, and keeps the claim alive as long as the program lives. What the program does for the board it does by
the command line, which knows by the processes above it whose run it is; nothing has to be handed on.

A failure ends in a block that a person can act on; only a lost claim is dropped, since somebody else has the card by
then. Where even the block fails the program ends with exit code 1, and whoever started it books a failed attempt.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from examples.kanban_cli import ClaimLost, Kanban, Refused

BEGAN = Path("began")  # in the workspace: for each attempt its run, and when its program began (ms by its own clock)

Reason = dict[str, str | tuple[str, ...]]  # the options of `block` but for the dashes


@dataclass(frozen=True)
class Options:
    """How a worker program was started; times are seconds."""

    pace: float = 0
    beat: float = 60


@dataclass
class Job:
    """The card that this process was started for."""

    board: Kanban
    task_id: str
    run_id: int
    options: Options = field(default_factory=Options)
    last_beat: float = field(default_factory=time.monotonic)

    @classmethod
    def mine(cls, options: Options | None = None) -> Job:
        """Return the job of this process, which its environment names.

        Raises:
            SystemExit: it was not started for a card.
        """
        try:
            board, task_id, run = (os.environ[f"HERMES_KANBAN_{name}"] for name in ("BOARD", "TASK", "RUN_ID"))
        except KeyError as missing:
            sys.exit(f"error: {missing.args[0]} is not set\nhint: a lane or a bridge starts this program for a card")
        return cls(Kanban(board), task_id, int(run), options or Options())

    def beat(self, note: str) -> None:
        """Say how far the work is, if it is time to."""
        if time.monotonic() - self.last_beat >= self.options.beat:
            self.board.ask("heartbeat", self.task_id, f"--note={note}")
            self.last_beat = time.monotonic()

    def context(self) -> str:
        """Return the text that the board has prepared for whoever works on the card."""
        answer = self.board.ask("context", self.task_id)
        return answer if isinstance(answer, str) else str(answer["context"])

    def block(self, kind: str, reason: Reason) -> None:
        """Give the card to a person, with the five parts of a reason: cause, what, option, recommend, next."""
        words = [
            f"--{name}={text}"
            for name, given in reason.items()
            for text in ((given,) if isinstance(given, str) else given)
        ]
        self.board.ask("block", self.task_id, f"--kind={kind}", *words)


Work = Callable[[Job], None]


def serve(work: Work, *, description: str) -> int:
    """Do the card that this process was started for; return the exit code.

    Args:
        work: does the card and closes it.
        description: what the program does, for `--help`.
    """
    began_ms = time.time_ns() // 1_000_000
    job = Job.mine(_options(description))
    try:
        with BEGAN.open("a", encoding="ascii") as file:
            file.write(f"{job.run_id} {began_ms}\n")
        work(job)
    except ClaimLost as lost:
        say(f"dropped {job.task_id}: {lost}")
    except (Refused, OSError, SyntaxError, ValueError, LookupError) as fault:
        say(f"cannot go on with {job.task_id}: {fault!r}")
        return _give_up(job, fault)
    return 0


def _give_up(job: Job, fault: Exception) -> int:
    reason: Reason = {
        "cause": "environment",
        "what": f"{type(fault).__name__}: {fault}",
        "option": ("A: fix what is named above and let a worker try again", "B: archive the card"),
        "recommend": "A",
        "next": "say which option, after the fix for A",
    }
    try:
        job.block("capability", reason)
    except Refused as refused:
        say(f"alert: {job.task_id} could not even be blocked: {refused}")
        return 1
    return 0


def say(text: str) -> None:
    """Print a line of the worker's own log, which the board keeps."""
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def _options(description: str) -> Options:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--pace", type=float, default=0, help="seconds to rest after each module, for those who watch")
    parser.add_argument("--beat", type=float, default=60, help="seconds between notes of progress, at least")
    return Options(**vars(parser.parse_args()))
