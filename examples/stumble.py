"""A worker program that goes wrong the first time: so that one can see what a board makes of it.

`python -m examples.stumble --code 75 --retry-after 2 analyst` says a note and ends with exit code 75, at the first
attempt at a card; from the second on it is the analyst. A mark in the workspace tells which one it is.

What the codes mean to whoever started it: 75, the provider is overloaded (come back later, no failure); 0 with the card
still open, it was forgotten (a violation, tried again); any other, a failure.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from examples.worker import Job, say

MARK = Path("stumbled")
NOTES = {75: "the provider is overloaded", 0: "on my way"}


def main() -> int:
    """Stumble, or become the program that was asked for."""
    options, words = _options()
    if MARK.exists():
        os.execv(sys.executable, [sys.executable, "-m", f"examples.{options.program}", *words])  # noqa: S606
    job = Job.mine()
    job.board.ask("heartbeat", job.task_id, f"--note={NOTES.get(options.code, 'something is wrong')}")
    MARK.touch()
    say(f"ends with {options.code} and leaves {job.task_id} as it is")
    if options.retry_after:
        print(f"[kanban-retry-after] {options.retry_after}", flush=True)
    return int(options.code)


def _options() -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(description="end with an exit code once, then be another program of this folder")
    parser.add_argument("--code", type=int, required=True, help="the exit code of the first attempt")
    parser.add_argument("--retry-after", type=int, help="seconds after which the provider may be asked again")
    parser.add_argument("program", choices=("analyst", "synthesizer", "reviewer"), help="what it is afterwards")
    return parser.parse_known_args()


if __name__ == "__main__":
    sys.exit(main())
