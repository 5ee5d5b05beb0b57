-- Attachments.

-- name: attachments.of_task
SELECT id, task_id, run_id, name, size, content_type, sha256, path, added_by, source_url, created_at
FROM task_attachments WHERE task_id = :task_id ORDER BY id;
