"""The closed vocabulary of the log: one name per kind, each with a sentence.

An event that changes a task's row carries `set`: the columns it changed with their new values. Folding these
rebuilds every task's state (P81); nothing else reads them to decide anything.
"""

from __future__ import annotations

from hermes_kanban.base.record import Record, record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

KINDS: dict[str, str] = {
    "created": "a task came into being",
    "specified": "an idea in triage became a task",
    "decomposed": "a task was split; the new cards are its parents",
    "edited": "title, body or another field changed",
    "assigned": "the assignee changed",
    "reprioritized": "the priority changed",
    "linked": "a parent was added",
    "unlinked": "a parent was removed",
    "promoted": "the last open parent is done: the task may start",
    "claimed": "a run began",
    "claim_extended": "the lease was extended by the dispatcher",
    "spawned": "the worker's process is alive",
    "heartbeat": "the run is alive",
    "worker_progress": "the run reported progress",
    "commented": "a comment was added",
    "attached": "a file was attached",
    "detached": "an attachment was removed",
    "review_requested": "the work was handed over for review",
    "changes_requested": "the reviewer sent it back",
    "blocked": "the task waits for a decision or for help",
    "dependency_wait": "the task waits for a parent",
    "block_loop_detected": "the same block again and again: back to triage",
    "unblocked": "somebody released the task",
    "scheduled": "the task waits for a time",
    "due": "the time has come",
    "completed": "the task is done",
    "reopened": "a done task is open again",
    "archived": "the task is hidden from the board",
    "unarchived": "the task is back on the board",
    "deleted": "the task is gone",
    "reclaimed": "the run lost its claim",
    "reclaim_deferred": "a worker that survives its stop keeps the claim",
    "crashed": "the run's process died",
    "failed": "the run's process ended with an error",
    "timed_out": "the run took longer than allowed",
    "stale": "the run fell silent",
    "rate_limited": "the provider asked to wait",
    "spawn_failed": "the worker could not be started",
    "respawn_guarded": "the dispatcher left the task alone, and why",
    "protocol_violation": "the worker ended without closing its task",
    "gave_up": "the breaker tripped: a person must look",
    "reconciled": "the dispatcher put an orphan right",
    "tip_scratch_workspace": "where the first scratch folder is, and how long it stays",
    "regated": "a parent is open again: the task waits",
    "refused": "a late or foreign write was turned down",
    "compacted": "older events were folded into this one",
}


@record
class Event(Record):
    """One row of the append-only log."""

    id: int
    task_id: str | None
    run_id: int | None
    kind: str
    payload: dict[str, Any]
    actor: str
    created_at: int
    at_ms: int
