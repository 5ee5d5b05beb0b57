"""The report program: what a shim asks while no dispatcher is connected (D13).

`python -I -m hermes_kanban.lanes.report DATABASE RUN OP`, the message as JSON on standard input, the answer as JSON on
standard output. It serves only the shim of that run, which must be its parent.
"""

from __future__ import annotations

import json
import os
import sys

from hermes_kanban import boards, compose
from hermes_kanban.base import process
from hermes_kanban.base.errors import Forbidden, Refusal, Usage
from hermes_kanban.lanes import answers, channel
from hermes_kanban.lanes.settling import Pauses

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from hermes_kanban.kernel.supervision import Supervision

_MOST_INPUT = 65_536
_LONGEST_RUN = 19  # digits: no run has so many


def main(argv: list[str]) -> int:
    """Answer one message; exit 0 when there is an answer, else with the code of the refusal."""
    try:
        answer = _answer(argv)
    except Refusal as error:
        print(json.dumps({"ok": False, "retry": True, "message": error.message}))
        return error.exit_code
    print(json.dumps(answer))
    return 0


def _answer(argv: list[str]) -> dict[str, Any]:
    if len(argv) != 3 or not (argv[1].isascii() and argv[1].isdigit() and len(argv[1]) < _LONGEST_RUN):
        raise Usage("usage: report DATABASE RUN OP", hint="only shims call this")
    database, run = argv[0], int(argv[1])
    message = channel.parse(sys.stdin.buffer.read(_MOST_INPUT))
    env = compose.environment(forgiving=True)  # a mistake in config.yaml must not cost a worker its end
    place = boards.choose(env.home, None, env.variables).place
    if os.path.realpath(place.database) != os.path.realpath(database):
        raise Usage(f"{database} is not the board of this environment", hint="only shims call this")
    board = compose.open_supervision(env, place)
    _only_the_shim(board, database, run, message)
    found = answers.answer(board, answers.Desk(place.runs, Pauses(env.home)), run, message | {"op": argv[2]})
    return found or {"ok": False, "retry": True, "message": "the board cannot be written now"}


def _only_the_shim(board: Supervision, database: str, run: int, message: dict[str, Any]) -> None:
    """Serve only the parent that is this run's shim: by its command line, and by what the board knows of it (P70).

    It must be the outermost one: what a worker starts may look like the shim of another run.

    Raises:
        Forbidden: it is not.
    """
    parent = process.describe(os.getppid())
    itself = (parent.pid, parent.started) if parent else None
    held = board.run(run)
    known = [held.shim_pid, held.shim_started] if held.shim_pid else message.get("shim")
    if itself is None or process.shim_above(process.lineage()) != (database, run, itself) or known != list(itself):
        raise Forbidden("only the shim of a run reports about it", hint="let the dispatcher see to it")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
