-- Claims: the next card, in the order priority high to low, then seq (P16). The index is named, so that
-- statistics taken on an empty queue cannot make the planner scan the board.

-- name: claims.next_ready_any
SELECT t.* FROM tasks AS t WHERE t.seq = (
  SELECT q.seq FROM task_rows AS q INDEXED BY task_rows_ready
  WHERE q.status = 'ready' AND (:assignee IS NULL) AND (q.eligible_at IS NULL OR q.eligible_at <= :now)
  ORDER BY q.priority DESC, q.seq LIMIT 1);

-- name: claims.next_ready_of
SELECT t.* FROM tasks AS t WHERE t.seq = (
  SELECT q.seq FROM task_rows AS q INDEXED BY task_rows_ready_of
  WHERE q.status = 'ready' AND q.assignee = :assignee AND (q.eligible_at IS NULL OR q.eligible_at <= :now)
  ORDER BY q.priority DESC, q.seq LIMIT 1);

-- name: claims.next_ready_nobody
SELECT t.* FROM tasks AS t WHERE t.seq = (
  SELECT q.seq FROM task_rows AS q INDEXED BY task_rows_ready_of
  WHERE q.status = 'ready' AND q.assignee IS NULL AND :assignee IS NOT NULL AND (q.eligible_at IS NULL OR q.eligible_at <= :now)
  ORDER BY q.priority DESC, q.seq LIMIT 1);

-- name: claims.next_review_any
SELECT t.* FROM tasks AS t WHERE t.seq = (
  SELECT q.seq FROM task_rows AS q INDEXED BY task_rows_review
  WHERE q.status = 'review' AND (:assignee IS NULL) AND (q.eligible_at IS NULL OR q.eligible_at <= :now)
    AND (:mine IS NULL OR (q.implementer IS NOT :mine AND NOT EXISTS (
      SELECT 1 FROM task_runs AS w WHERE w.task_id = q.id AND w.role = 'implementer' AND w.profile = :mine
        AND w.id > coalesce((SELECT max(c.id) FROM task_runs AS c
                             WHERE c.task_id = q.id AND c.outcome = 'changes_requested'), 0))))
    AND NOT EXISTS (SELECT 1 FROM task_links AS l JOIN task_rows AS p ON p.id = l.parent_id
      WHERE l.child_id = q.id AND (p.status <> 'done' AND NOT (p.status = 'archived' AND p.archived_done = 1)))
  ORDER BY q.priority DESC, q.seq LIMIT 1);

-- name: claims.next_review_of
SELECT t.* FROM tasks AS t WHERE t.seq = (
  SELECT q.seq FROM task_rows AS q INDEXED BY task_rows_review_of
  WHERE q.status = 'review' AND q.reviewer = :assignee AND (q.eligible_at IS NULL OR q.eligible_at <= :now)
    AND (:mine IS NULL OR (q.implementer IS NOT :mine AND NOT EXISTS (
      SELECT 1 FROM task_runs AS w WHERE w.task_id = q.id AND w.role = 'implementer' AND w.profile = :mine
        AND w.id > coalesce((SELECT max(c.id) FROM task_runs AS c
                             WHERE c.task_id = q.id AND c.outcome = 'changes_requested'), 0))))
    AND NOT EXISTS (SELECT 1 FROM task_links AS l JOIN task_rows AS p ON p.id = l.parent_id
      WHERE l.child_id = q.id AND (p.status <> 'done' AND NOT (p.status = 'archived' AND p.archived_done = 1)))
  ORDER BY q.priority DESC, q.seq LIMIT 1);

-- name: claims.next_review_nobody
SELECT t.* FROM tasks AS t WHERE t.seq = (
  SELECT q.seq FROM task_rows AS q INDEXED BY task_rows_review_of
  WHERE q.status = 'review' AND q.reviewer IS NULL AND :assignee IS NOT NULL AND (q.eligible_at IS NULL OR q.eligible_at <= :now)
    AND (:mine IS NULL OR (q.implementer IS NOT :mine AND NOT EXISTS (
      SELECT 1 FROM task_runs AS w WHERE w.task_id = q.id AND w.role = 'implementer' AND w.profile = :mine
        AND w.id > coalesce((SELECT max(c.id) FROM task_runs AS c
                             WHERE c.task_id = q.id AND c.outcome = 'changes_requested'), 0))))
    AND NOT EXISTS (SELECT 1 FROM task_links AS l JOIN task_rows AS p ON p.id = l.parent_id
      WHERE l.child_id = q.id AND (p.status <> 'done' AND NOT (p.status = 'archived' AND p.archived_done = 1)))
  ORDER BY q.priority DESC, q.seq LIMIT 1);

-- name: claims.next_lapsed
-- A pull claim whose lease is over may be taken (P10). Few leases are over at a time: the index is by expiry.
SELECT t.* FROM tasks AS t WHERE t.id = (
  SELECT q.id FROM task_runs AS r INDEXED BY task_runs_lease JOIN task_rows AS q ON q.id = r.task_id
  WHERE r.outcome IS NULL AND r.pull = 1 AND r.claim_expires <= :now AND r.role = :role
    AND (:assignee IS NULL
      OR CASE r.role WHEN 'reviewer' THEN q.reviewer ELSE q.assignee END IS nullif(:assignee, 'none'))
    AND (:mine IS NULL OR (q.implementer IS NOT :mine AND NOT EXISTS (
      SELECT 1 FROM task_runs AS w WHERE w.task_id = q.id AND w.role = 'implementer' AND w.profile = :mine
        AND w.id > coalesce((SELECT max(c.id) FROM task_runs AS c
                             WHERE c.task_id = q.id AND c.outcome = 'changes_requested'), 0))))
  ORDER BY q.priority DESC, q.seq LIMIT 1);

-- name: claims.next_silent
-- A run under a shim of another host that renews nothing any more, its lease and the quarantine over (P14c).
SELECT t.* FROM tasks AS t WHERE t.id = (
  SELECT q.id FROM task_runs AS r INDEXED BY task_runs_watched JOIN task_rows AS q ON q.id = r.task_id
  WHERE r.supervised = 1 AND r.process_state <> 'ended' AND r.outcome IS NULL AND r.pull = 0
    AND r.host <> :host AND r.claim_expires + :quarantine <= :now AND r.role = :role
    AND (:assignee IS NULL
      OR CASE r.role WHEN 'reviewer' THEN q.reviewer ELSE q.assignee END IS nullif(:assignee, 'none'))
    AND (:mine IS NULL OR (q.implementer IS NOT :mine AND NOT EXISTS (
      SELECT 1 FROM task_runs AS w WHERE w.task_id = q.id AND w.role = 'implementer' AND w.profile = :mine
        AND w.id > coalesce((SELECT max(c.id) FROM task_runs AS c
                             WHERE c.task_id = q.id AND c.outcome = 'changes_requested'), 0))))
  ORDER BY q.priority DESC, q.seq LIMIT 1);

-- name: claims.due
SELECT t.* FROM tasks AS t WHERE t.status = 'scheduled' AND t.scheduled_at <= :now
ORDER BY t.scheduled_at, t.seq LIMIT :limit;

-- name: claims.is_due
-- A look without the write lock: is there a card to release?
SELECT 1 FROM task_rows INDEXED BY task_rows_due WHERE status = 'scheduled' AND scheduled_at <= :now LIMIT 1;
