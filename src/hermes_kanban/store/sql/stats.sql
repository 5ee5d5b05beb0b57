-- Counts.

-- name: stats.by_status
SELECT status, count(*) FROM task_rows GROUP BY status;

-- name: stats.by_assignee
SELECT assignee, count(*) FROM task_rows WHERE status NOT IN ('done', 'archived')
GROUP BY assignee ORDER BY 2 DESC, 1 LIMIT :limit;

-- name: stats.by_outcome
SELECT outcome, count(*) FROM task_runs WHERE role <> 'manual' GROUP BY outcome ORDER BY 2 DESC;

-- name: stats.oldest_ready
SELECT min(status_since) FROM task_rows INDEXED BY task_rows_ready WHERE status = 'ready';
