-- Statements about the file itself.

-- name: schema.begin_read
BEGIN;

-- name: schema.begin_write
-- Immediate: a deferred transaction that writes later would fail at once instead of waiting.
BEGIN IMMEDIATE;

-- name: schema.commit
COMMIT;

-- name: schema.rollback
ROLLBACK;

-- name: schema.tables
SELECT name FROM sqlite_schema WHERE type = 'table';

-- name: schema.objects
SELECT type || ' ' || name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%' ORDER BY 1;

-- name: schema.counters
-- `sqlite_sequence` cannot carry a guard. A counter that is not at its table's newest row was changed by raw SQL
-- (rows of runs may be deleted with their card: then it is ahead, but not by much).
SELECT q.name FROM sqlite_sequence AS q JOIN (
  SELECT 'task_events' AS name, (SELECT coalesce(max(id), 0) FROM task_events) AS newest
  UNION ALL SELECT 'task_runs', (SELECT coalesce(max(id), 0) FROM task_runs)
  UNION ALL SELECT 'task_comments', (SELECT coalesce(max(id), 0) FROM task_comments)
  UNION ALL SELECT 'task_rows', (SELECT coalesce(max(seq), 0) FROM task_rows)) AS n ON n.name = q.name
WHERE q.seq < n.newest OR q.seq > n.newest + 1000000000;

-- name: schema.integrity
PRAGMA integrity_check;

-- name: schema.foreign_keys
PRAGMA foreign_key_check;

-- name: schema.set_meta
INSERT INTO board_meta (key, value) VALUES (:key, :value);

-- name: schema.meta
SELECT value FROM board_meta WHERE key = :key;
