-- Attachments: what is known of files that lie beside the board (P61).

-- name: attachments.of_task
SELECT id, task_id, run_id, name, size, content_type, sha256, path, added_by, source_url, created_at
FROM task_attachments WHERE task_id = :task_id ORDER BY id;

-- name: attachments.by_id
SELECT id, task_id, run_id, name, size, content_type, sha256, path, added_by, source_url, created_at
FROM task_attachments WHERE id = :id;

-- name: attachments.add
INSERT INTO task_attachments
  (task_id, run_id, name, size, content_type, sha256, path, added_by, source_url, created_at)
VALUES
  (:task_id, :run_id, :file_name, :size, :content_type, :digest, :path, :added_by, :source_url, :created_at);

-- name: attachments.remove
DELETE FROM task_attachments WHERE id = :id;
