"""The words of the protocol: states, outcomes, roles, kinds. Every literal of them lives here or in SQL."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

# --- states of a task ---------------------------------------------------------------------------------------
TRIAGE: Final = "triage"  # a rough idea; specified by a person or an orchestrator
TODO: Final = "todo"  # waits for a parent; the kernel moves it on
SCHEDULED: Final = "scheduled"  # waits for a time, or for somebody
READY: Final = "ready"  # may be claimed
RUNNING: Final = "running"  # held by one open run
REVIEW: Final = "review"  # handed over; waits for a verdict
BLOCKED: Final = "blocked"  # waits for a decision or for help
DONE: Final = "done"
ARCHIVED: Final = "archived"  # hidden from the board

STATES = (TRIAGE, TODO, SCHEDULED, READY, RUNNING, REVIEW, BLOCKED, DONE, ARCHIVED)
OPEN_STATES = (TRIAGE, TODO, SCHEDULED, READY, RUNNING, REVIEW, BLOCKED)
NOT_STARTED = (TRIAGE, TODO, SCHEDULED, READY)

# --- phases: which queue a card belongs to (P3) ---------------------------------------------------------------
WORK: Final = "work"
REVIEWING: Final = "review"

# --- roles of a run -------------------------------------------------------------------------------------------
IMPLEMENTER: Final = "implementer"
REVIEWER: Final = "reviewer"
MANUAL: Final = "manual"  # a person closed the card without a run (P21)

# --- outcomes of a run ----------------------------------------------------------------------------------------
COMPLETED: Final = "completed"
REVIEW_REQUESTED: Final = "review_requested"
CHANGES_REQUESTED: Final = "changes_requested"
OUT_BLOCKED: Final = "blocked"
OUT_SCHEDULED: Final = "scheduled"
FAILED: Final = "failed"
CRASHED: Final = "crashed"
TIMED_OUT: Final = "timed_out"
RECLAIMED: Final = "reclaimed"
RATE_LIMITED: Final = "rate_limited"
SPAWN_FAILED: Final = "spawn_failed"
PROTOCOL_VIOLATION: Final = "protocol_violation"
GAVE_UP: Final = "gave_up"

OUTCOMES = (
    COMPLETED,
    REVIEW_REQUESTED,
    CHANGES_REQUESTED,
    OUT_BLOCKED,
    OUT_SCHEDULED,
    FAILED,
    CRASHED,
    TIMED_OUT,
    RECLAIMED,
    RATE_LIMITED,
    SPAWN_FAILED,
    PROTOCOL_VIOLATION,
    GAVE_UP,
)
LOST = (FAILED, CRASHED, TIMED_OUT, RECLAIMED, RATE_LIMITED, SPAWN_FAILED, PROTOCOL_VIOLATION, GAVE_UP)

# --- process states of a run (P14c) ---------------------------------------------------------------------------
STARTING: Final = "starting"
ALIVE: Final = "alive"
CLOSING: Final = "closing"
ENDED: Final = "ended"
UNKNOWN: Final = "unknown"

# --- kinds of a block (P24) -----------------------------------------------------------------------------------
NEEDS_INPUT: Final = "needs_input"
CAPABILITY: Final = "capability"
TRANSIENT: Final = "transient"
DEPENDENCY: Final = "dependency"
BLOCK_KINDS = (NEEDS_INPUT, CAPABILITY, TRANSIENT, DEPENDENCY)

# --- who may release a held card (P26b) -----------------------------------------------------------------------
BY_PERSON: Final = "person"
BY_TIME: Final = "time"
BY_PARENTS: Final = "parents"
BY_REVIEWER: Final = "reviewer"

# --- why a ready card is not eligible yet (P15b) --------------------------------------------------------------
QUARANTINE: Final = "quarantine"
COOL_DOWN: Final = "cool_down"
BACK_OFF: Final = "back_off"
WORKSPACE: Final = "workspace"
TICKET: Final = "ticket"

# --- kinds of actors ------------------------------------------------------------------------------------------
HUMAN: Final = "human"
BRIDGE: Final = "bridge"
WORKER: Final = "worker"
ORCHESTRATOR: Final = "orchestrator"
DISPATCHER: Final = "dispatcher"
ACTORS = (HUMAN, BRIDGE, WORKER, ORCHESTRATOR, DISPATCHER)

# --- kinds of workspaces --------------------------------------------------------------------------------------
SCRATCH: Final = "scratch"
DIR: Final = "dir"
WORKTREE: Final = "worktree"
WORKSPACE_KINDS = (SCRATCH, DIR, WORKTREE)
