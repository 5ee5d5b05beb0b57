-- Events: the append-only log.

-- name: events.append
INSERT INTO task_events (task_id, run_id, kind, payload, actor, created_at, at_ms)
VALUES (:task_id, :run_id, :kind, :payload, :actor, :created_at, :at_ms);

-- name: events.since
SELECT id, task_id, run_id, kind, payload, actor, created_at, at_ms FROM task_events
WHERE id > :since ORDER BY id LIMIT :limit;

-- name: events.of_task_since
SELECT id, task_id, run_id, kind, payload, actor, created_at, at_ms FROM task_events
WHERE task_id = :task_id AND id > :since ORDER BY id LIMIT :limit;

-- name: events.newest_of_task
SELECT * FROM (
  SELECT id, task_id, run_id, kind, payload, actor, created_at, at_ms FROM task_events
  WHERE task_id = :task_id ORDER BY id DESC LIMIT :limit)
ORDER BY id;

-- name: events.last_id
SELECT coalesce(max(id), 0) FROM task_events;

-- name: events.count_refusal
-- One event per refused run and verb, with a count (P12): the one update that the log knows.
UPDATE task_events SET payload = json_set(payload, '$.count', json_extract(payload, '$.count') + 1)
WHERE id = (
  SELECT id FROM task_events
  WHERE task_id = :task_id AND kind = 'refused' AND run_id IS :run_id AND json_extract(payload, '$.verb') = :verb
  ORDER BY id DESC LIMIT 1);
