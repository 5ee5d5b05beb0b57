-- Lists: one statement per order, and the filters that narrow it.

-- name: list.by_priority
SELECT t.* FROM tasks AS t WHERE {filters} ORDER BY t.priority DESC, t.seq LIMIT :limit OFFSET :offset;

-- name: list.by_seq
SELECT t.* FROM tasks AS t WHERE {filters} ORDER BY t.seq LIMIT :limit OFFSET :offset;

-- name: list.by_newest
SELECT t.* FROM tasks AS t WHERE {filters} ORDER BY t.seq DESC LIMIT :limit OFFSET :offset;

-- name: list.by_updated
SELECT t.* FROM tasks AS t WHERE {filters} ORDER BY t.updated_at DESC, t.seq DESC LIMIT :limit OFFSET :offset;

-- name: list.in_state
t.status = :state

-- name: list.in_states
t.status IN (SELECT value FROM json_each(:states)) AND :now IS NOT NULL

-- name: list.in_states_or_lapsed
-- A running card whose pull lease is over may be claimed: it shows in the queue that it would be taken from (P10).
(t.status IN (SELECT value FROM json_each(:states)) OR (t.status = 'running' AND EXISTS (
  SELECT 1 FROM task_runs AS x WHERE x.id = t.current_run_id AND x.pull = 1 AND x.claim_expires <= :now
    AND CASE x.role WHEN 'reviewer' THEN 'review' ELSE 'ready' END IN (SELECT value FROM json_each(:states)))))

-- name: list.not_archived
t.status <> 'archived'

-- name: list.of_assignee
t.assignee = :assignee

-- name: list.of_nobody
t.assignee IS NULL

-- name: list.of_tenant
t.tenant = :tenant

-- name: list.of_parent
EXISTS (SELECT 1 FROM task_links AS l WHERE l.parent_id = :parent AND l.child_id = t.id)

-- name: list.of_workflow_template_id
t.workflow_template_id = :workflow_template_id

-- name: list.of_current_step_key
t.current_step_key = :current_step_key

-- name: list.matching
(t.title LIKE :pattern ESCAPE '\' OR t.body LIKE :pattern ESCAPE '\')

-- name: list.inbox
-- What waits for a person, the longest first.
SELECT t.* FROM tasks AS t
WHERE t.status IN ('blocked', 'triage') OR (t.status = 'review' AND (t.reviewer IS NULL OR t.reviewer NOT IN (SELECT value FROM json_each(:agents))))
  OR (t.status = 'scheduled' AND t.scheduled_at IS NULL)
ORDER BY t.status_since, t.seq LIMIT :limit;
