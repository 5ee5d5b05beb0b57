-- What the dispatcher keeps: the shim of a run, the breaker's own second attempt, recorded guards.

ALTER TABLE task_runs ADD COLUMN shim_pid INTEGER;                          -- held against the caller's ancestors (P70)
ALTER TABLE task_runs ADD COLUMN shim_started TEXT;
ALTER TABLE task_runs ADD COLUMN standing_still INTEGER NOT NULL DEFAULT 0 CHECK (standing_still IN (0, 1));
ALTER TABLE task_runs ADD COLUMN deferred INTEGER NOT NULL DEFAULT 0 CHECK (deferred IN (0, 1));  -- said once (D14)
ALTER TABLE task_rows ADD COLUMN probe_at INTEGER;                          -- a tripped card's one fresh attempt (P27)
ALTER TABLE task_rows ADD COLUMN guard TEXT;                                -- the guard that was recorded last (D7)

CREATE INDEX task_runs_watched ON task_runs (id) WHERE supervised = 1 AND process_state <> 'ended';
CREATE INDEX task_rows_probe ON task_rows (probe_at) WHERE probe_at IS NOT NULL;
CREATE INDEX task_rows_eligible ON task_rows (eligible_at) WHERE eligible_at IS NOT NULL AND status IN ('ready', 'review');

DROP VIEW tasks;

CREATE VIEW tasks AS
SELECT
  t.seq, t.id, t.title, t.body, t.acceptance, t.assignee, t.reviewer, t.implementer, t.status, t.phase,
  t.priority, t.tenant, t.created_by, t.created_at, t.updated_at, t.status_since,
  (SELECT l.started_at FROM task_runs AS l WHERE l.task_id = t.id AND l.role <> 'manual'
    ORDER BY l.id DESC LIMIT 1) AS started_at,
  t.completed_at, t.scheduled_at, t.eligible_at, t.eligible_reason, t.workspace_kind, t.workspace_path,
  t.branch_name, r.claim_lock AS claim_lock, r.claim_expires AS claim_expires, r.worker_pid AS worker_pid,
  r.last_heartbeat_at AS last_heartbeat_at, t.current_run_id, t.idempotency_key, t.result, t.hold_reason,
  t.hold_release, t.block_kind, t.block_fields, t.block_recurrences, t.last_block_kind, t.sticky,
  t.escalated, t.consecutive_failures, t.counted_failures, t.violation_streak, t.reclaim_streak, t.rate_limit_streak,
  t.last_failure_error, t.max_retries, t.max_runtime_seconds, t.review_rounds, t.archived_done, t.skills,
  t.model_override, t.provider_override, t.goal, t.goal_max_turns, t.session_id, t.created_run_id,
  t.answer_comment_id, t.workflow_template_id, t.current_step_key, t.probe_at, t.guard
FROM task_rows AS t LEFT JOIN task_runs AS r ON r.id = t.current_run_id;

CREATE TRIGGER guard_tasks_insert INSTEAD OF INSERT ON tasks BEGIN
  SELECT "raw SQL cannot write to a board: use the command hermes kanban"();
END;
CREATE TRIGGER guard_tasks_update INSTEAD OF UPDATE ON tasks BEGIN
  SELECT "raw SQL cannot write to a board: use the command hermes kanban"();
END;
CREATE TRIGGER guard_tasks_delete INSTEAD OF DELETE ON tasks BEGIN
  SELECT "raw SQL cannot write to a board: use the command hermes kanban"();
END;
