-- The dispatcher's questions. Queues are asked name by name, so that a long queue that nobody answers for costs nothing.

-- name: dispatch.ready_names
-- Who has ready cards: one step of the index for each name, not one for each card.
WITH RECURSIVE names (name) AS (
  SELECT (SELECT min(assignee) FROM task_rows INDEXED BY task_rows_ready_of WHERE status = 'ready')
  UNION ALL
  SELECT (SELECT min(assignee) FROM task_rows INDEXED BY task_rows_ready_of WHERE status = 'ready' AND assignee > name)
  FROM names WHERE name IS NOT NULL)
SELECT name FROM names WHERE name IS NOT NULL;

-- name: dispatch.review_names
WITH RECURSIVE names (name) AS (
  SELECT (SELECT min(reviewer) FROM task_rows INDEXED BY task_rows_review_of WHERE status = 'review')
  UNION ALL
  SELECT (SELECT min(reviewer) FROM task_rows INDEXED BY task_rows_review_of WHERE status = 'review' AND reviewer > name)
  FROM names WHERE name IS NOT NULL)
SELECT name FROM names WHERE name IS NOT NULL;

-- name: dispatch.ready_of
SELECT t.* FROM tasks AS t WHERE t.seq IN (
  SELECT q.seq FROM task_rows AS q INDEXED BY task_rows_ready_of
  WHERE q.status = 'ready' AND q.assignee = :who AND (q.eligible_at IS NULL OR q.eligible_at <= :now)
  ORDER BY q.priority DESC, q.seq LIMIT :limit)
ORDER BY t.priority DESC, t.seq;

-- name: dispatch.review_of
-- Reviews that this name may judge: it did no work of the round (P30b; :mine is NULL where it may all the same).
SELECT t.* FROM tasks AS t WHERE t.seq IN (
  SELECT q.seq FROM task_rows AS q INDEXED BY task_rows_review_of
  WHERE q.status = 'review' AND q.reviewer = :who AND (q.eligible_at IS NULL OR q.eligible_at <= :now)
    AND (:mine IS NULL OR (q.implementer IS NOT :mine AND NOT EXISTS (
      SELECT 1 FROM task_runs AS w WHERE w.task_id = q.id AND w.role = 'implementer' AND w.profile = :mine
        AND w.id > coalesce((SELECT max(c.id) FROM task_runs AS c
                             WHERE c.task_id = q.id AND c.outcome = 'changes_requested'), 0))))
    AND NOT EXISTS (SELECT 1 FROM task_links AS l JOIN task_rows AS p ON p.id = l.parent_id
      WHERE l.child_id = q.id AND (p.status <> 'done' AND NOT (p.status = 'archived' AND p.archived_done = 1)))
  ORDER BY q.priority DESC, q.seq LIMIT :limit)
ORDER BY t.priority DESC, t.seq;

-- name: dispatch.own_reviews_of
-- The others: their reviewer did work of the round, so that a person decides. They never stand before those above.
SELECT t.* FROM tasks AS t WHERE t.seq IN (
  SELECT q.seq FROM task_rows AS q INDEXED BY task_rows_review_of
  WHERE q.status = 'review' AND q.reviewer = :who AND (q.eligible_at IS NULL OR q.eligible_at <= :now)
    AND (q.implementer IS :who OR EXISTS (
      SELECT 1 FROM task_runs AS w WHERE w.task_id = q.id AND w.role = 'implementer' AND w.profile = :who
        AND w.id > coalesce((SELECT max(c.id) FROM task_runs AS c
                             WHERE c.task_id = q.id AND c.outcome = 'changes_requested'), 0)))
    AND NOT EXISTS (SELECT 1 FROM task_links AS l JOIN task_rows AS p ON p.id = l.parent_id
      WHERE l.child_id = q.id AND (p.status <> 'done' AND NOT (p.status = 'archived' AND p.archived_done = 1)))
  ORDER BY q.priority DESC, q.seq LIMIT :limit)
ORDER BY t.priority DESC, t.seq;

-- name: dispatch.ready_counts
-- For the report of a pass: how many cards wait under each name, and since when the longest.
SELECT coalesce(assignee, ''), count(*), min(status_since) FROM task_rows
WHERE status = 'ready' GROUP BY assignee ORDER BY assignee;

-- name: dispatch.running
SELECT profile, lane, count(*) FROM task_runs INDEXED BY task_runs_slots
WHERE outcome IS NULL AND pull = 0 GROUP BY profile, lane;

-- name: dispatch.implementers
-- Who did work of the present round: since changes were requested last (P30b).
SELECT DISTINCT r.profile FROM task_runs AS r
WHERE r.task_id = :task_id AND r.role = 'implementer' AND r.id > coalesce(
  (SELECT max(c.id) FROM task_runs AS c WHERE c.task_id = :task_id AND c.outcome = 'changes_requested'), 0);

-- name: dispatch.probes
SELECT t.* FROM tasks AS t WHERE t.seq IN (
  SELECT q.seq FROM task_rows AS q INDEXED BY task_rows_probe
  WHERE q.probe_at IS NOT NULL AND q.probe_at <= :now AND q.status = 'blocked' LIMIT :limit)
ORDER BY t.seq;

-- name: dispatch.probe_due
SELECT 1 FROM task_rows INDEXED BY task_rows_probe
WHERE probe_at IS NOT NULL AND probe_at <= :now AND status = 'blocked' LIMIT 1;

-- name: dispatch.next_due
-- When something happens by itself next (D1): a start time, a pause's end, a fresh attempt.
SELECT min(due) FROM (
  SELECT min(scheduled_at) AS due FROM task_rows INDEXED BY task_rows_due
    WHERE status = 'scheduled' AND scheduled_at > :now
  UNION ALL
  SELECT min(eligible_at) FROM task_rows INDEXED BY task_rows_eligible
    WHERE eligible_at IS NOT NULL AND status IN ('ready', 'review') AND eligible_at > :now
  UNION ALL
  SELECT min(probe_at) FROM task_rows INDEXED BY task_rows_probe WHERE probe_at IS NOT NULL AND probe_at > :now);
