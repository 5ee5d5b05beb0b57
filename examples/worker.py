"""The frame of a worker program: wait for a card, claim it, go to its workspace, work, never end in silence.

A program gives its work as a function; `serve` does the rest of the protocol. Before a claim a failure means: rest and
look again. After a claim every failure ends in a block that a person can act on; only a lost claim is dropped, since
somebody else has the card by then. A block that fails too ends the program with a word on stderr, the one channel left.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType
from typing import NoReturn

from examples.kanban_cli import Claim, ClaimLost, Kanban, Refused

PARTS_OF_A_TTL = 3  # a heartbeat is due after a third of the lease
CLAIM_ATTEMPTS = 3
REST_SECONDS = 1.0

Reason = dict[str, str | tuple[str, ...]]  # the options of `block` but for the dashes


@dataclass(frozen=True)
class Options:
    """How a worker program was started; times are seconds."""

    board: str
    assignee: str
    ttl: int
    wait: float
    pace: float
    beat: float


@dataclass
class Job:
    """One claimed card in a worker's hands."""

    board: Kanban
    claim: Claim
    options: Options
    last_beat: float = field(default_factory=time.monotonic)

    @property
    def task_id(self) -> str:
        """The id of the card."""
        return self.claim.task_id

    def beat(self, note: str) -> None:
        """Renew the lease and say how far the work is, if a heartbeat is due."""
        due = min(self.options.beat, self.options.ttl / PARTS_OF_A_TTL)
        if time.monotonic() - self.last_beat >= due:
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


def serve(work: Work, *claim_filters: str, description: str) -> int:
    """Work on card after card until none comes within the wait; return the exit code.

    Args:
        work: does one card and closes it.
        claim_filters: further options of `claim --next`; without any, the cards of the assignee are taken.
        description: what the program does, for `--help`.
    """
    options = _options(description)
    signal.signal(signal.SIGTERM, _end)
    board = Kanban(options.board)
    filters = claim_filters or ("--assignee", options.assignee)
    while claim := _next(board, filters, options):
        say(f"claimed {claim.task_id} as run {claim.run_id} in {claim.workspace}")
        _work_on(work, Job(board, claim, options))
    say("nothing more to do")
    return 0


def _next(board: Kanban, filters: tuple[str, ...], options: Options) -> Claim | None:
    """Claim the next card; None when none came within the wait. A claim that fails is tried again after a rest."""
    for attempt in range(1, CLAIM_ATTEMPTS + 1):
        try:
            return board.claim_next(*filters, ttl=options.ttl, wait=options.wait)
        except Refused as refused:
            say(f"no claim: {refused}")
            time.sleep(REST_SECONDS * attempt)
    sys.exit(f"alert: {CLAIM_ATTEMPTS} claims in a row failed")


def _work_on(work: Work, job: Job) -> None:
    try:
        os.chdir(job.claim.workspace)
        work(job)
    except ClaimLost as lost:
        say(f"dropped {job.task_id}: {lost}")
    except (Refused, OSError, SyntaxError, ValueError, LookupError) as fault:
        say(f"cannot go on with {job.task_id}: {fault!r}")
        _give_up(job, fault)


def _give_up(job: Job, fault: Exception) -> None:
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
        sys.exit(f"alert: {job.task_id} could not even be blocked: {refused}")


def say(text: str) -> None:
    """Print a line of the worker's own log."""
    print(f"{time.strftime('%H:%M:%S')} {os.getpid()} {text}", flush=True)


def _end(_number: int, _frame: FrameType | None) -> NoReturn:
    """End at once on SIGTERM: what is claimed comes back to the board when its lease is over."""
    sys.exit(0)


def _options(description: str) -> Options:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--board", required=True, help="the board's name")
    parser.add_argument("--assignee", required=True, help="whose cards to take")
    parser.add_argument("--ttl", type=int, default=30, help="seconds that a claim holds without a sign of life")
    parser.add_argument("--wait", type=float, default=5, help="seconds to wait for a card before ending")
    parser.add_argument("--pace", type=float, default=0, help="seconds to rest after each module, for those who watch")
    parser.add_argument("--beat", type=float, default=60, help="seconds between heartbeats, at most")
    return Options(**vars(parser.parse_args()))
