-- Tasks: look-ups and the two statements that write them.

-- name: tasks.by_id
SELECT * FROM tasks WHERE id = :id;

-- name: tasks.with_prefix
-- `end` is the prefix followed by a letter beyond the hex digits.
SELECT id FROM task_rows WHERE id >= :prefix AND id < :end ORDER BY id LIMIT 5;

-- name: tasks.by_key
SELECT * FROM tasks WHERE idempotency_key = :key AND idempotency_key IS NOT NULL AND status <> 'archived';

-- name: tasks.page
SELECT * FROM tasks WHERE seq > :after ORDER BY seq LIMIT :limit;

-- name: tasks.add
INSERT INTO task_rows (
  id, title, body, acceptance, assignee, reviewer, status, priority, tenant, created_by, created_at,
  updated_at, status_since, scheduled_at, workspace_kind, workspace_path, branch_name, idempotency_key,
  hold_reason, hold_release, block_kind, block_fields, max_retries, max_runtime_seconds, skills,
  model_override, provider_override, goal, goal_max_turns, session_id, created_run_id
) VALUES (
  :id, :title, :body, :acceptance, :assignee, :reviewer, :status, :priority, :tenant, :created_by,
  :created_at, :updated_at, :status_since, :scheduled_at, :workspace_kind, :workspace_path, :branch_name,
  :idempotency_key, :hold_reason, :hold_release, :block_kind, :block_fields, :max_retries,
  :max_runtime_seconds, :skills, :model_override, :provider_override, :goal, :goal_max_turns, :session_id,
  :created_run_id
);

-- name: tasks.assign
-- The only update of a task: conditional on the state and the run that the verb saw.
UPDATE task_rows SET {assignments}
WHERE id = :where_id AND status = :was_status AND current_run_id IS :was_run;
