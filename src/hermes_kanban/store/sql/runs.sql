-- Runs: one attempt each. `task_runs` has a generated column besides, so the columns are named.

-- name: runs.by_id
SELECT
  id, task_id, role, profile, lane, claimed_by, claimed_from, pull, supervised, orchestrates, host, boot_id,
  pid_namespace, worker_pid, worker_started, process_state, claim_lock, claim_ttl, claim_expires, workspace,
  started_at, started_ms, last_heartbeat_at, heartbeat_note, progressed, notice_cursor, ended_at, ended_ms,
  outcome, end_verb, end_result, end_reason, exit_code, exit_kind, summary, metadata, error, log_path, model,
  provider, session_id, input_tokens, output_tokens, cost_usd, shim_pid, shim_started, standing_still, deferred
FROM task_runs WHERE id = :id;

-- name: runs.of_task
SELECT
  id, task_id, role, profile, lane, claimed_by, claimed_from, pull, supervised, orchestrates, host, boot_id,
  pid_namespace, worker_pid, worker_started, process_state, claim_lock, claim_ttl, claim_expires, workspace,
  started_at, started_ms, last_heartbeat_at, heartbeat_note, progressed, notice_cursor, ended_at, ended_ms,
  outcome, end_verb, end_result, end_reason, exit_code, exit_kind, summary, metadata, error, log_path, model,
  provider, session_id, input_tokens, output_tokens, cost_usd, shim_pid, shim_started, standing_still, deferred
FROM task_runs WHERE task_id = :task_id ORDER BY id;

-- name: runs.last_of_task
SELECT
  id, task_id, role, profile, lane, claimed_by, claimed_from, pull, supervised, orchestrates, host, boot_id,
  pid_namespace, worker_pid, worker_started, process_state, claim_lock, claim_ttl, claim_expires, workspace,
  started_at, started_ms, last_heartbeat_at, heartbeat_note, progressed, notice_cursor, ended_at, ended_ms,
  outcome, end_verb, end_result, end_reason, exit_code, exit_kind, summary, metadata, error, log_path, model,
  provider, session_id, input_tokens, output_tokens, cost_usd, shim_pid, shim_started, standing_still, deferred
FROM task_runs WHERE task_id = :task_id AND role <> 'manual' ORDER BY id DESC LIMIT 1;

-- name: runs.last_completed
-- What a child reads of its parent: the newest run that completed it, a person's word included.
SELECT
  id, task_id, role, profile, lane, claimed_by, claimed_from, pull, supervised, orchestrates, host, boot_id,
  pid_namespace, worker_pid, worker_started, process_state, claim_lock, claim_ttl, claim_expires, workspace,
  started_at, started_ms, last_heartbeat_at, heartbeat_note, progressed, notice_cursor, ended_at, ended_ms,
  outcome, end_verb, end_result, end_reason, exit_code, exit_kind, summary, metadata, error, log_path, model,
  provider, session_id, input_tokens, output_tokens, cost_usd, shim_pid, shim_started, standing_still, deferred
FROM task_runs WHERE task_id = :task_id AND outcome = 'completed' ORDER BY id DESC LIMIT 1;

-- name: runs.open_ids
SELECT id FROM task_runs WHERE task_id = :task_id AND outcome IS NULL;

-- name: runs.open
INSERT INTO task_runs (
  task_id, role, profile, lane, claimed_by, claimed_from, pull, supervised, orchestrates, host, boot_id,
  pid_namespace, process_state, claim_lock, claim_ttl, claim_expires, workspace, started_at, started_ms,
  last_heartbeat_at, notice_cursor, model, provider, log_path
) VALUES (
  :task_id, :role, :profile, :lane, :claimed_by, :claimed_from, :pull, :supervised, :orchestrates, :host,
  :boot_id, :pid_namespace, :process_state, :claim_lock, :claim_ttl, :claim_expires, :workspace, :started_at,
  :started_ms, :last_heartbeat_at, :notice_cursor, :model, :provider, :log_path
);

-- name: runs.close
-- A run is closed exactly once (P14).
UPDATE task_runs SET {assignments} WHERE id = :where_id AND (outcome IS NULL OR role = 'manual');

-- name: runs.update_open
UPDATE task_runs SET {assignments} WHERE id = :where_id AND outcome IS NULL;

-- name: runs.started_since
SELECT count(*) FROM task_runs WHERE task_id = :task_id AND role <> 'manual' AND started_at > :since;

-- name: runs.running_of_board
-- Caps count attempts that the dispatcher started; a pull claim takes no slot (P15).
SELECT count(*) FROM task_runs WHERE outcome IS NULL AND pull = 0 AND :value IS NULL;

-- name: runs.running_of_profile
SELECT count(*) FROM task_runs WHERE outcome IS NULL AND pull = 0 AND profile = :value;

-- name: runs.running_of_lane
SELECT count(*) FROM task_runs WHERE outcome IS NULL AND pull = 0 AND lane = :value;

-- name: runs.profile_known
SELECT 1 FROM task_runs WHERE profile = :profile LIMIT 1;

-- name: runs.profiles
SELECT DISTINCT profile FROM task_runs WHERE profile IS NOT NULL ORDER BY profile LIMIT :limit;

-- name: runs.ended
UPDATE task_runs SET process_state = 'ended' WHERE id = :id AND outcome IS NOT NULL AND process_state <> 'ended';

-- name: runs.implemented
-- Whether this name did work of the present round: since changes were requested last (P30b).
SELECT 1 FROM task_runs AS r
WHERE r.task_id = :task_id AND r.role = 'implementer' AND r.profile = :profile AND r.id > coalesce(
  (SELECT max(c.id) FROM task_runs AS c WHERE c.task_id = :task_id AND c.outcome = 'changes_requested'), 0)
LIMIT 1;

-- name: runs.came_alive
-- The shim's first act, a compare-and-set: a run that was ended meanwhile, or whose lock is another, stays as it is (D11).
UPDATE task_runs SET process_state = 'alive', supervised = 1, shim_pid = :shim_pid, shim_started = :shim_started,
  worker_pid = :worker_pid, worker_started = :worker_started, boot_id = :boot_id, pid_namespace = :pid_namespace,
  last_heartbeat_at = :now, claim_expires = :now + claim_ttl
WHERE id = :id AND claim_lock = :lock AND outcome IS NULL AND shim_pid IS NULL
  AND process_state IN ('starting', 'unknown');

-- name: runs.note
-- Telemetry of a run, also of one that ended (P14c); it never touches the card.
UPDATE task_runs SET {assignments} WHERE id = :where_id;

-- name: runs.watched
-- Every attempt under a shim that is not proven ended, whichever host has it (D3).
SELECT r.id FROM task_runs AS r INDEXED BY task_runs_watched
WHERE r.supervised = 1 AND r.process_state <> 'ended' ORDER BY r.id;

-- name: runs.pulled
SELECT r.id FROM task_runs AS r INDEXED BY task_runs_lease WHERE r.outcome IS NULL AND r.pull = 1 ORDER BY r.id;

-- name: runs.last_act
-- When this run last did something itself: a note, a comment, a file (P13). The dispatcher's own events do not count.
SELECT max(created_at) FROM task_events WHERE task_id = :task_id AND run_id = :run_id AND actor NOT LIKE 'dispatcher:%';
