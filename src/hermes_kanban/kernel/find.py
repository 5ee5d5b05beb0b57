"""Look-ups by id that every verb begins with."""

from __future__ import annotations

from hermes_kanban.base.errors import RunNotFound, TaskNotFound, Usage
from hermes_kanban.base.ids import looks_like_task
from hermes_kanban.model.run import Run
from hermes_kanban.model.task import Task
from hermes_kanban.store import rows

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hermes_kanban.store.driver import Transaction

_SHOWN = 80


def task_id(tx: Transaction, text: str) -> str:
    """Return the full id for an id or a unique prefix of one.

    Raises:
        TaskNotFound: no task has it.
        Usage: several tasks begin with it.
    """
    lowered = text.strip().lower()
    if looks_like_task(lowered):
        found = [row[0] for row in tx.all("tasks.with_prefix", prefix=lowered, end=lowered + "g")]
        if lowered in found or len(found) == 1:
            return lowered if lowered in found else str(found[0])
        if found:
            raise Usage(f"{lowered} is the beginning of several ids: {', '.join(found)}", hint="give more of the id")
    raise TaskNotFound(
        f"no task {text[:_SHOWN]!r} on this board",
        hint="`hermes kanban list` shows the ids; `--board` names another board",
        task_id=text[:_SHOWN],
    )


def task(tx: Transaction, text: str) -> Task:
    """Return the task with this id or unique prefix.

    Raises:
        TaskNotFound: there is none.
    """
    row = tx.one("tasks.by_id", id=text) if looks_like_task(text) else None
    row = row or tx.one("tasks.by_id", id=task_id(tx, text))
    assert row is not None
    return rows.task(row)


def known_task(tx: Transaction, text: str) -> Task | None:
    """Return the task with this id or unique prefix, or None."""
    try:
        return task(tx, text)
    except (TaskNotFound, Usage):
        return None


def run(tx: Transaction, number: int) -> Run:
    """Return the run with this number.

    Raises:
        RunNotFound: there is none.
    """
    row = tx.one("runs.by_id", id=number)
    if row is None:
        raise RunNotFound(f"no run {number} on this board", hint="`hermes kanban runs ID` shows a card's runs")
    return rows.run(row)


def open_run(tx: Transaction, card: Task) -> Run | None:
    """Return the run that holds the card, if any."""
    return run(tx, card.current_run_id) if card.current_run_id is not None else None


def last_run(tx: Transaction, card_id: str) -> Run | None:
    """Return the newest run that was an attempt."""
    row = tx.one("runs.last_of_task", task_id=card_id)
    return rows.run(row) if row else None
