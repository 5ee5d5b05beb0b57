"""The verbs of people: release, park, take back, open again."""

from __future__ import annotations

from hermes_kanban.cli.call import Call
from hermes_kanban.present import documents

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from hermes_kanban.model.task import Task


def unblock(call: Call) -> int:
    """Release held cards, with an answer for the next worker (P26)."""
    board = call.board(*call["id"])

    def act(task: str) -> tuple[Task, dict[str, Any]]:
        return _row(board.unblock(task, call["answer"]))

    return call.each(call["id"], act)


def promote(call: Call) -> int:
    """Send held cards to work by hand."""
    board = call.board(*call["id"])

    def act(task: str) -> tuple[Task, dict[str, Any]]:
        return _row(board.promote(task))

    return call.each(call["id"], act)


def schedule(call: Call) -> int:
    """Park cards until a time, or until somebody releases them."""
    at = call.start_time()
    board = call.board(*call["id"])

    def act(task: str) -> tuple[Task, dict[str, Any]]:
        return _row(board.schedule(task, at, call["reason"], override=call["override"]))

    return call.each(call["id"], act)


def reclaim(call: Call) -> int:
    """Take a card from its run (P12c)."""
    return call.changed(*_row(call.board(call["id"]).reclaim(call["id"])))


def reopen(call: Call) -> int:
    """Open a done card again; children that were ready wait again (P6)."""
    answer = call.board(call["id"]).reopen(call["id"])
    document = documents.task(answer.task) | {"waiting": list(answer.waiting), "started": list(answer.started)}
    notes = [f"note: {child} waits again" for child in answer.waiting]
    return call.changed(answer.task, document, *(notes if not call.out.json else ()))


def _row(card: Task) -> tuple[Task, dict[str, Any]]:
    return card, documents.task(card)


HANDLERS = {"unblock": unblock, "promote": promote, "schedule": schedule, "reclaim": reclaim, "reopen": reopen}
