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

-- name: schema.integrity
PRAGMA integrity_check;

-- name: schema.foreign_keys
PRAGMA foreign_key_check;

-- name: schema.set_meta
INSERT INTO board_meta (key, value) VALUES (:key, :value);

-- name: schema.meta
SELECT value FROM board_meta WHERE key = :key;
