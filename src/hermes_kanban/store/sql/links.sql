-- Links. A parent counts as done when it is done, or archived after having been done (P4).

-- name: links.add
INSERT INTO task_links (parent_id, child_id, created_at) VALUES (:parent_id, :child_id, :created_at);

-- name: links.remove
DELETE FROM task_links WHERE parent_id = :parent_id AND child_id = :child_id;

-- name: links.one
SELECT 1 FROM task_links WHERE parent_id = :parent_id AND child_id = :child_id;

-- name: links.open_parents
SELECT p.id FROM task_links AS l JOIN task_rows AS p ON p.id = l.parent_id
WHERE l.child_id = :child_id AND (p.status <> 'done' AND NOT (p.status = 'archived' AND p.archived_done = 1))
ORDER BY p.seq;

-- name: links.promotable_children
-- Children in todo of this parent that have no open parent.
SELECT c.* FROM task_links AS l JOIN tasks AS c ON c.id = l.child_id
WHERE l.parent_id = :parent_id AND c.status = 'todo' AND NOT EXISTS (
  SELECT 1 FROM task_links AS o JOIN task_rows AS p ON p.id = o.parent_id
  WHERE o.child_id = c.id AND (p.status <> 'done' AND NOT (p.status = 'archived' AND p.archived_done = 1)))
ORDER BY c.seq;

-- name: links.children
SELECT c.* FROM task_links AS l JOIN tasks AS c ON c.id = l.child_id WHERE l.parent_id = :parent_id ORDER BY c.seq;

-- name: links.open_children
SELECT c.* FROM task_links AS l JOIN tasks AS c ON c.id = l.child_id
WHERE l.parent_id = :parent_id AND c.status NOT IN ('done', 'archived') ORDER BY c.seq;

-- name: links.parents
SELECT p.* FROM task_links AS l JOIN tasks AS p ON p.id = l.parent_id WHERE l.child_id = :child_id ORDER BY p.seq;

-- name: links.parent_ids
SELECT parent_id FROM task_links WHERE child_id = :child_id;

-- name: links.child_ids
SELECT child_id FROM task_links WHERE parent_id = :parent_id;

-- name: links.reaches
-- Whether a card leads to another down its children; UNION visits each card once.
WITH RECURSIVE below (id) AS (
  SELECT :start
  UNION
  SELECT l.child_id FROM below JOIN task_links AS l ON l.parent_id = below.id)
SELECT 1 FROM below WHERE id = :goal;
