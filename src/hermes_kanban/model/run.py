"""Run: one attempt at a task (P20). The facts of an attempt live here and nowhere else (P2)."""

from __future__ import annotations

from hermes_kanban.base.record import Record, record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


@record
class Run(Record):
    """One attempt. The fields are the columns of `task_runs`, in their order."""

    id: int
    task_id: str
    role: str
    profile: str | None
    lane: str | None
    claimed_by: str
    claimed_from: str
    pull: bool
    supervised: bool
    orchestrates: bool
    host: str | None
    boot_id: str | None
    pid_namespace: str | None
    worker_pid: int | None
    worker_started: str | None
    process_state: str
    claim_lock: str | None
    claim_ttl: int
    claim_expires: int
    workspace: str | None
    started_at: int
    started_ms: int
    last_heartbeat_at: int | None
    heartbeat_note: str | None
    progressed: bool
    notice_cursor: int
    ended_at: int | None
    ended_ms: int | None
    outcome: str | None
    end_verb: str | None
    end_result: dict[str, Any] | None
    end_reason: str | None
    exit_code: int | None
    exit_kind: str | None
    summary: str | None
    metadata: dict[str, Any] | None
    error: str | None
    log_path: str | None
    model: str | None
    provider: str | None
    session_id: str | None
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None
    shim_pid: int | None
    shim_started: str | None
    standing_still: bool
    deferred: bool

    @property
    def open(self) -> bool:
        """Whether the attempt goes on."""
        return self.outcome is None

    def lease_over(self, now: int) -> bool:
        """Whether a pull claim's time ran out, so that the next claimer may take the card (P10)."""
        return self.open and self.pull and self.claim_expires <= now
