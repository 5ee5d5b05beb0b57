"""A worker of a race's gateway: a few calls of its run, recorded, and then an end of any sort.

    python worker.py HISTORY SEED

What it does is fixed by the seed and its run's number. A lock on a file of its card's shows whether two workers are on
one card: it is the open file's own, so the kernel frees it when the last process that has it is gone.
"""

from __future__ import annotations

import fcntl
import os
import random
import signal
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.histories.recorder import Recorder  # noqa: E402

CODES = (0, 1, 1, 75, 78)
CLOSING = ("complete", "complete", "complete", "block", "request-review", "request-changes")


def main() -> None:
    """Work on the card of the environment."""
    history, run, card = Path(sys.argv[1]), int(os.environ["HERMES_KANBAN_RUN_ID"]), os.environ["HERMES_KANBAN_TASK"]
    recorder, dice = Recorder(str(history), f"run{run}.{os.getpid()}"), random.Random(f"{sys.argv[2]}/{run}")
    recorder.note("begun", task=card, run=run)
    folder = history.parent / "busy"
    busy = os.open(folder / card, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(busy, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        recorder.note("overlap", task=card, text=f"run {run} works on {card} beside another")
    time.sleep(dice.uniform(0, 0.02))
    if dice.random() < 0.6:
        _act(recorder, dice, run, card)
    if dice.random() < 0.15:
        os.kill(os.getpid(), dice.choice((signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV)))
    code = dice.choice(CODES)
    recorder.note("exit", task=card, run=run, code=code)
    os._exit(code)


def _act(recorder: Recorder, dice: random.Random, run: int, card: str) -> None:
    from hermes_kanban import boards, compose
    from hermes_kanban.kernel.finish import Handoff
    from hermes_kanban.model import blocks
    from tests.histories.racer import closed

    env = compose.environment()
    place = boards.choose(env.home, None, env.variables).place
    board = compose.open_board(env, place, write=True)
    lock = env.variables["HERMES_KANBAN_CLAIM_LOCK"]
    for number, verb in enumerate((*("heartbeat",) * dice.randint(0, 1), dice.choice(CLOSING))):
        token = f"run{run}.{number}"
        reason = blocks.from_fields("environment", token, ("A: on", "B: off"), "A", "choose")
        acts = {
            "heartbeat": lambda token=token: board.heartbeat(card, token),
            "complete": lambda token=token: board.complete(card, Handoff(token)),
            "block": lambda reason=reason: board.block(card, reason, "needs_input"),
            "request-review": lambda token=token: board.request_review(card, Handoff(token)),
            "request-changes": lambda token=token: board.request_changes(card, token),
        }
        args = {"task": card, "token": token, "run": run, "lock": lock}
        told = (lambda a: {"run": a[0].id}) if verb == "heartbeat" else closed
        recorder.call(verb, args, acts[verb], told)


if __name__ == "__main__":
    main()
