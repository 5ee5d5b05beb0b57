"""Task (card), the draft of a new one, and what changed columns may be written."""

from __future__ import annotations

from hermes_kanban.base.record import Record, record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


@record
class Task(Record):
    """One card. The fields are the columns of the view `tasks`, in their order."""

    seq: int
    id: str
    title: str
    body: str | None
    acceptance: str | None
    assignee: str | None
    reviewer: str | None
    implementer: str | None
    status: str
    phase: str
    priority: int
    tenant: str | None
    created_by: str
    created_at: int
    updated_at: int
    status_since: int
    started_at: int | None
    completed_at: int | None
    scheduled_at: int | None
    eligible_at: int | None
    eligible_reason: str | None
    workspace_kind: str
    workspace_path: str | None
    branch_name: str | None
    claim_lock: str | None
    claim_expires: int | None
    worker_pid: int | None
    last_heartbeat_at: int | None
    current_run_id: int | None
    idempotency_key: str | None
    result: str | None
    hold_reason: str | None
    hold_release: str | None
    block_kind: str | None
    block_fields: dict[str, Any] | None
    block_recurrences: int
    last_block_kind: str | None
    sticky: bool
    escalated: bool
    consecutive_failures: int
    counted_failures: int
    violation_streak: int
    reclaim_streak: int
    rate_limit_streak: int
    last_failure_error: str | None
    max_retries: int | None
    max_runtime_seconds: int | None
    review_rounds: int
    archived_done: bool
    skills: tuple[str, ...]
    model_override: str | None
    provider_override: str | None
    goal: bool
    goal_max_turns: int | None
    session_id: str | None
    created_run_id: int | None
    answer_comment_id: int | None
    workflow_template_id: str | None
    current_step_key: str | None
    probe_at: int | None
    guard: str | None


# Columns that `verify` does not fold: large texts, which the log only names, and the time of the last change.
TEXTS = ("body", "acceptance", "result")
UNFOLDED = (*TEXTS, "updated_at")

# Columns of the view that come from the open run alone (P2): empty without one.
OF_OPEN_RUN = ("claim_lock", "claim_expires", "worker_pid", "last_heartbeat_at")

# What a new row holds where its `created` event says nothing.
DEFAULTS: dict[str, Any] = dict.fromkeys(Task.FIELDS) | {
    "phase": "work",
    "priority": 0,
    "workspace_kind": "scratch",
    "skills": (),
    "goal": False,
    "sticky": False,
    "escalated": False,
    "archived_done": False,
    "block_recurrences": 0,
    "consecutive_failures": 0,
    "counted_failures": 0,
    "violation_streak": 0,
    "reclaim_streak": 0,
    "rate_limit_streak": 0,
    "review_rounds": 0,
}

# Columns of the view that come from the runs (P2): nobody writes them on a task.
DERIVED = ("started_at", "claim_lock", "claim_expires", "worker_pid", "last_heartbeat_at")


@record
class TaskDraft(Record):
    """A request for a new task. Local names of a graph may stand among the parents (P53)."""

    title: str
    body: str | None = None
    acceptance: str | None = None
    assignee: str | None = None
    reviewer: str | None = None
    parents: tuple[str, ...] = ()
    status: str | None = None
    reason: str | None = None
    scheduled_at: int | None = None
    priority: int = 0
    tenant: str | None = None
    workspace_kind: str = "scratch"
    workspace_path: str | None = None
    branch_name: str | None = None
    idempotency_key: str | None = None
    max_runtime_seconds: int | None = None
    max_retries: int | None = None
    skills: tuple[str, ...] = ()
    model_override: str | None = None
    provider_override: str | None = None
    goal: bool = False
    goal_max_turns: int | None = None
    session_id: str | None = None
    created_by: str | None = None
    name: str | None = None
