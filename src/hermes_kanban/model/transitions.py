"""THE table of transitions. Kernel, help, docs, errors and the state diagram read it; nobody keeps a copy.

A row says from which states a verb works, where it may lead, which event it leaves and how an open run ends.
`GATE` stands for "ready if every parent is done, else todo" (P3), `ORIGIN` for the state that the claim came
from. Anything that is not listed is refused as `wrong_state`.
"""

from __future__ import annotations

from hermes_kanban.base.errors import WrongState
from hermes_kanban.base.record import Record, record
from hermes_kanban.model import status as s
from hermes_kanban.model.task import Task

GATE = "gate"
ORIGIN = "origin"
NONE = "–"


@record
class Transition(Record):
    """One row: a verb, its sources, its possible targets, its events, the outcome of the open run."""

    verb: str
    sources: tuple[str, ...]
    targets: tuple[str, ...]
    events: tuple[str, ...]
    outcome: str | None = None
    override_sources: tuple[str, ...] = ()

    @property
    def event(self) -> str:
        """The kind of event in the usual case."""
        return self.events[0]


_ANY_OPEN = s.OPEN_STATES

TRANSITIONS: tuple[Transition, ...] = (
    Transition("create", (), (s.TRIAGE, s.SCHEDULED, s.BLOCKED, GATE), ("created",)),
    Transition("specify", (s.TRIAGE,), (GATE, s.SCHEDULED), ("specified",)),
    Transition("decompose", (s.TRIAGE,), (s.TODO,), ("decomposed",)),
    Transition("claim", (s.READY, s.REVIEW), (s.RUNNING,), ("claimed",)),
    Transition("take_over", (s.RUNNING,), (s.RUNNING,), ("reclaimed",), s.RECLAIMED),
    Transition("heartbeat", (s.RUNNING,), (s.RUNNING,), ("heartbeat",)),
    Transition(
        "complete",
        (s.RUNNING, s.READY, s.REVIEW, s.BLOCKED),
        (s.DONE,),
        ("completed",),
        s.COMPLETED,
        override_sources=(s.TODO, s.TRIAGE, s.SCHEDULED),
    ),
    Transition("request-review", (s.RUNNING, s.READY), (s.REVIEW,), ("review_requested",), s.REVIEW_REQUESTED),
    Transition(
        "request-changes", (s.RUNNING, s.REVIEW), (GATE, s.BLOCKED), ("changes_requested",), s.CHANGES_REQUESTED
    ),
    Transition(
        "block",
        (s.RUNNING, s.READY, s.REVIEW, s.TODO),
        (s.BLOCKED, s.TODO, s.TRIAGE),
        ("blocked", "dependency_wait", "block_loop_detected"),
        s.OUT_BLOCKED,
    ),
    Transition("unblock", (s.BLOCKED, s.SCHEDULED), (GATE, s.REVIEW), ("unblocked",)),
    Transition(
        "schedule",
        (s.TRIAGE, s.TODO, s.READY, s.RUNNING, s.REVIEW, s.BLOCKED),
        (s.SCHEDULED,),
        ("scheduled",),
        s.OUT_SCHEDULED,
    ),
    Transition("promote", (s.TRIAGE, s.BLOCKED, s.SCHEDULED), (s.READY, s.REVIEW), ("promoted",)),
    Transition("reclaim", (s.RUNNING,), (GATE, s.REVIEW), ("reclaimed",), s.RECLAIMED),
    Transition("archive", (*_ANY_OPEN, s.DONE), (s.ARCHIVED,), ("archived",), s.RECLAIMED),
    Transition("unarchive", (s.ARCHIVED,), (s.DONE, s.SCHEDULED, GATE, s.REVIEW), ("unarchived",)),
    Transition("reopen", (s.DONE,), (GATE,), ("reopened",)),
    Transition("promote-child", (s.TODO,), (s.READY, s.REVIEW), ("promoted",)),
    Transition("regate", (s.READY, s.REVIEW), (s.TODO,), ("regated",)),
    Transition("release-due", (s.SCHEDULED,), (GATE, s.REVIEW), ("due",)),
    Transition(
        "end-run",
        (s.RUNNING,),
        (ORIGIN,),
        ("failed", "crashed", "timed_out", "reclaimed", "stale", "rate_limited", "spawn_failed", "protocol_violation"),
    ),
    Transition("trip", (s.RUNNING,), (s.BLOCKED,), ("gave_up",), s.GAVE_UP),
    Transition("probe", (s.BLOCKED,), (GATE, s.REVIEW), ("unblocked",)),
    Transition("delete", (*s.NOT_STARTED, s.REVIEW, s.BLOCKED, s.DONE, s.ARCHIVED), (NONE,), ("deleted",)),
)

BY_VERB: dict[str, Transition] = {row.verb: row for row in TRANSITIONS}


def check(task: Task, verb: str, *, override: bool = False) -> Transition:
    """Return the row of the verb if it works from the task's state.

    Raises:
        WrongState: it does not; the error names the state, the verb and the states from which it works.
    """
    row = BY_VERB[verb]
    sources = row.sources + (row.override_sources if override else ())
    if task.status in sources:
        return row
    works = ", ".join(row.sources)
    extra = f" (by a person's override also from {', '.join(row.override_sources)})" if row.override_sources else ""
    raise WrongState(
        f"{task.id} is {task.status}: {verb} works from {works}{extra}",
        hint=f"look at it with `hermes kanban show {task.id}`",
        task_id=task.id,
        status=task.status,
        verb=verb,
        works_from=list(sources),
    )
