-- Comments: facts, never edited (P60).

-- name: comments.add
INSERT INTO task_comments (task_id, run_id, author, author_kind, body, created_at, at_ms)
VALUES (:task_id, :run_id, :author, :author_kind, :body, :created_at, :at_ms);

-- name: comments.by_id
SELECT id, task_id, run_id, author, author_kind, body, created_at, at_ms FROM task_comments WHERE id = :id;

-- name: comments.count
SELECT count(*) FROM task_comments WHERE task_id = :task_id;

-- name: comments.last_id
SELECT max(id) FROM task_comments WHERE task_id = :task_id;

-- name: comments.since
SELECT id, task_id, run_id, author, author_kind, body, created_at, at_ms FROM task_comments
WHERE task_id = :task_id AND id > :since ORDER BY id;

-- name: comments.newest
SELECT * FROM (
  SELECT id, task_id, run_id, author, author_kind, body, created_at, at_ms FROM task_comments
  WHERE task_id = :task_id ORDER BY id DESC LIMIT :limit)
ORDER BY id;
