"""Claim and fence: the right to work on a task, and the number that proves it (P11, P12)."""

from __future__ import annotations

from hermes_kanban.base.record import Record, record
from hermes_kanban.model.run import Run
from hermes_kanban.model.task import Task


@record
class Fence(Record):
    """What a late writer cannot have: the open run's id together with its lock."""

    run_id: int
    lock: str


@record
class Claim(Record):
    """The answer to a claim. `workspace` is an absolute path, prepared before the claimer hears of it."""

    task: Task
    run: Run
    workspace: str

    @property
    def fence(self) -> Fence:
        """The proof to show with every later write."""
        return Fence(self.run.id, self.run.claim_lock or "")


@record
class Caps(Record):
    """How many attempts may run at once; None is no bound. They bind the dispatcher's claims (P15)."""

    board: int | None = None
    profile: int | None = None
    lane: int | None = None
