-- The first schema: every table and column of the whole protocol.
--
-- A task's row lives in `task_rows`; readers use the view `tasks`, which adds what belongs to a run (P2):
-- claim columns from the open run, `started_at` from the latest one. The triggers at the end refuse every
-- write from a connection that is not the kernel's (P72).

CREATE TABLE board_meta (
  key   TEXT PRIMARY KEY,
  value TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE task_rows (
  seq                  INTEGER PRIMARY KEY AUTOINCREMENT,  -- order of creation; never the time
  id                   TEXT NOT NULL UNIQUE CHECK (id GLOB 't_[0-9a-f]*' AND length(id) >= 10),
  title                TEXT NOT NULL CHECK (length(title) BETWEEN 1 AND 500),
  body                 TEXT,
  acceptance           TEXT,
  assignee             TEXT,
  reviewer             TEXT,
  implementer          TEXT,                               -- who ran the last implementer run (P30b)
  status               TEXT NOT NULL CHECK (status IN ('triage', 'todo', 'scheduled', 'ready', 'running',
                                                       'review', 'blocked', 'done', 'archived')),
  phase                TEXT NOT NULL DEFAULT 'work' CHECK (phase IN ('work', 'review')),
  priority             INTEGER NOT NULL DEFAULT 0 CHECK (priority BETWEEN -1000 AND 1000),
  tenant               TEXT,
  created_by           TEXT NOT NULL,
  created_at           INTEGER NOT NULL,
  updated_at           INTEGER NOT NULL,
  status_since         INTEGER NOT NULL,
  completed_at         INTEGER,
  scheduled_at         INTEGER,
  eligible_at          INTEGER,                            -- not claimable before (P14c, P15b, P44)
  eligible_reason      TEXT,
  workspace_kind       TEXT NOT NULL DEFAULT 'scratch' CHECK (workspace_kind IN ('scratch', 'dir', 'worktree')),
  workspace_path       TEXT,
  branch_name          TEXT,
  current_run_id       INTEGER REFERENCES task_runs (id) DEFERRABLE INITIALLY DEFERRED,
  idempotency_key      TEXT,
  result               TEXT,
  hold_reason          TEXT,                               -- why a held card is held (P26b)
  hold_release         TEXT CHECK (hold_release IN ('person', 'time', 'parents', 'reviewer')),
  block_kind           TEXT CHECK (block_kind IN ('needs_input', 'capability', 'transient', 'dependency')),
  block_fields         TEXT,
  block_recurrences    INTEGER NOT NULL DEFAULT 0,
  last_block_kind      TEXT,
  sticky               INTEGER NOT NULL DEFAULT 0 CHECK (sticky IN (0, 1)),
  escalated            INTEGER NOT NULL DEFAULT 0 CHECK (escalated IN (0, 1)),
  consecutive_failures INTEGER NOT NULL DEFAULT 0,
  counted_failures     INTEGER NOT NULL DEFAULT 0,         -- of these, the ones that are no violations (P40)
  violation_streak     INTEGER NOT NULL DEFAULT 0,
  reclaim_streak       INTEGER NOT NULL DEFAULT 0,
  rate_limit_streak    INTEGER NOT NULL DEFAULT 0,
  last_failure_error   TEXT,
  max_retries          INTEGER,
  max_runtime_seconds  INTEGER,
  review_rounds        INTEGER NOT NULL DEFAULT 0,
  archived_done        INTEGER NOT NULL DEFAULT 0 CHECK (archived_done IN (0, 1)),  -- was done when archived (P4)
  skills               TEXT NOT NULL DEFAULT '[]',
  model_override       TEXT,
  provider_override    TEXT,
  goal                 INTEGER NOT NULL DEFAULT 0 CHECK (goal IN (0, 1)),
  goal_max_turns       INTEGER,
  session_id           TEXT,
  created_run_id       INTEGER,
  answer_comment_id    INTEGER,                            -- what the last unblock answered (P26)
  workflow_template_id TEXT,
  current_step_key     TEXT,
  CHECK ((status = 'running') = (current_run_id IS NOT NULL)),              -- P2
  CHECK ((status = 'done') <= (completed_at IS NOT NULL)),
  CHECK ((status IN ('blocked', 'scheduled', 'triage')) <= (hold_release IS NOT NULL))  -- P26b
);

CREATE TABLE task_links (
  parent_id  TEXT NOT NULL REFERENCES task_rows (id) ON DELETE CASCADE,
  child_id   TEXT NOT NULL REFERENCES task_rows (id) ON DELETE CASCADE,
  created_at INTEGER NOT NULL,
  PRIMARY KEY (parent_id, child_id),
  CHECK (parent_id <> child_id)
) WITHOUT ROWID;

CREATE TABLE task_comments (
  id          INTEGER PRIMARY KEY AUTOINCREMENT,
  task_id     TEXT NOT NULL REFERENCES task_rows (id) ON DELETE CASCADE,
  run_id      INTEGER,
  author      TEXT NOT NULL,
  author_kind TEXT NOT NULL,
  body        TEXT NOT NULL CHECK (length(body) > 0),
  created_at  INTEGER NOT NULL,
  at_ms       INTEGER NOT NULL
);

-- No foreign key: the `deleted` event of a task stays after it.
CREATE TABLE task_events (
  id         INTEGER PRIMARY KEY AUTOINCREMENT,             -- grows in commit order (P80)
  task_id    TEXT,
  run_id     INTEGER,
  kind       TEXT NOT NULL,
  payload    TEXT NOT NULL DEFAULT '{}',
  actor      TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  at_ms      INTEGER NOT NULL
);

CREATE TABLE task_runs (
  id                INTEGER PRIMARY KEY AUTOINCREMENT,      -- grows: the fence (P12)
  task_id           TEXT NOT NULL REFERENCES task_rows (id) ON DELETE CASCADE,
  role              TEXT NOT NULL CHECK (role IN ('implementer', 'reviewer', 'manual')),
  profile           TEXT,
  worker_profile    TEXT GENERATED ALWAYS AS (profile) VIRTUAL,
  lane              TEXT,
  claimed_by        TEXT NOT NULL,
  claimed_from      TEXT NOT NULL,
  pull              INTEGER NOT NULL CHECK (pull IN (0, 1)),
  supervised        INTEGER NOT NULL DEFAULT 0 CHECK (supervised IN (0, 1)),
  orchestrates      INTEGER NOT NULL DEFAULT 0 CHECK (orchestrates IN (0, 1)),
  host              TEXT,
  boot_id           TEXT,
  pid_namespace     TEXT,
  worker_pid        INTEGER,
  worker_started    TEXT,
  process_state     TEXT NOT NULL CHECK (process_state IN ('starting', 'alive', 'closing', 'ended', 'unknown')),
  claim_lock        TEXT,
  claim_ttl         INTEGER NOT NULL,
  claim_expires     INTEGER NOT NULL,
  workspace         TEXT,
  started_at        INTEGER NOT NULL,
  started_ms        INTEGER NOT NULL,
  last_heartbeat_at INTEGER,
  heartbeat_note    TEXT,
  progressed        INTEGER NOT NULL DEFAULT 0 CHECK (progressed IN (0, 1)),
  notice_cursor     INTEGER NOT NULL DEFAULT 0,
  ended_at          INTEGER,
  ended_ms          INTEGER,
  outcome           TEXT CHECK (outcome IN ('completed', 'review_requested', 'changes_requested', 'blocked',
                                            'scheduled', 'failed', 'crashed', 'timed_out', 'reclaimed',
                                            'rate_limited', 'spawn_failed', 'protocol_violation', 'gave_up')),
  end_verb          TEXT,
  end_result        TEXT,
  end_reason        TEXT,
  exit_code         INTEGER,
  exit_kind         TEXT,
  summary           TEXT,
  metadata          TEXT CHECK (metadata IS NULL OR json_type(metadata) = 'object'),
  error             TEXT,
  log_path          TEXT,
  model             TEXT,
  provider          TEXT,
  session_id        TEXT,
  input_tokens      INTEGER,
  output_tokens     INTEGER,
  cost_usd          REAL,
  CHECK ((outcome IS NULL) = (ended_at IS NULL))            -- P14
);

CREATE TABLE task_attachments (
  id           INTEGER PRIMARY KEY AUTOINCREMENT,
  task_id      TEXT NOT NULL REFERENCES task_rows (id) ON DELETE CASCADE,
  run_id       INTEGER,
  name         TEXT NOT NULL,
  size         INTEGER NOT NULL,
  content_type TEXT NOT NULL,
  sha256       TEXT NOT NULL,
  path         TEXT NOT NULL,
  added_by     TEXT NOT NULL,
  source_url   TEXT,
  created_at   INTEGER NOT NULL
);

CREATE TABLE kanban_notify_subs (
  id               INTEGER PRIMARY KEY AUTOINCREMENT,
  task_id          TEXT NOT NULL REFERENCES task_rows (id) ON DELETE CASCADE,
  platform         TEXT NOT NULL,
  chat_id          TEXT NOT NULL CHECK (length(chat_id) > 0),
  thread_id        TEXT,
  user_id          TEXT,
  notifier_profile TEXT,
  delivery_mode    TEXT,
  created_at       INTEGER NOT NULL,
  last_event_id    INTEGER NOT NULL
);

-- The claim order (P16), one index per queue; claims name them with INDEXED BY, so that statistics taken on
-- an empty queue cannot talk the planner out of them.
CREATE INDEX task_rows_ready ON task_rows (priority DESC, seq) WHERE status = 'ready';
CREATE INDEX task_rows_ready_of ON task_rows (assignee, priority DESC, seq) WHERE status = 'ready';
CREATE INDEX task_rows_review ON task_rows (priority DESC, seq) WHERE status = 'review';
CREATE INDEX task_rows_review_of ON task_rows (reviewer, priority DESC, seq) WHERE status = 'review';
CREATE INDEX task_rows_due ON task_rows (scheduled_at) WHERE status = 'scheduled';
CREATE INDEX task_rows_status ON task_rows (status, priority DESC, seq);
CREATE INDEX task_rows_assignee ON task_rows (assignee, status);
CREATE UNIQUE INDEX task_rows_key ON task_rows (idempotency_key)
  WHERE idempotency_key IS NOT NULL AND status <> 'archived';            -- P51
CREATE INDEX task_links_child ON task_links (child_id, parent_id);
CREATE INDEX task_comments_task ON task_comments (task_id, id);
CREATE INDEX task_events_task ON task_events (task_id, id);
CREATE INDEX task_runs_task ON task_runs (task_id, id);
CREATE UNIQUE INDEX task_runs_open ON task_runs (task_id) WHERE outcome IS NULL;  -- P2
CREATE INDEX task_runs_lease ON task_runs (claim_expires) WHERE outcome IS NULL AND pull = 1;
CREATE INDEX task_runs_slots ON task_runs (profile, lane) WHERE outcome IS NULL AND pull = 0;  -- P15
CREATE INDEX task_runs_profile ON task_runs (profile);
CREATE INDEX task_attachments_task ON task_attachments (task_id, id);
CREATE INDEX kanban_notify_subs_task ON kanban_notify_subs (task_id);

CREATE VIEW tasks AS
SELECT
  t.seq, t.id, t.title, t.body, t.acceptance, t.assignee, t.reviewer, t.implementer, t.status, t.phase,
  t.priority, t.tenant, t.created_by, t.created_at, t.updated_at, t.status_since,
  (SELECT l.started_at FROM task_runs AS l WHERE l.task_id = t.id AND l.role <> 'manual'
    ORDER BY l.id DESC LIMIT 1) AS started_at,
  t.completed_at, t.scheduled_at, t.eligible_at, t.eligible_reason, t.workspace_kind, t.workspace_path,
  t.branch_name, r.claim_lock AS claim_lock, r.claim_expires AS claim_expires, r.worker_pid AS worker_pid,
  r.last_heartbeat_at AS last_heartbeat_at, t.current_run_id, t.idempotency_key, t.result, t.hold_reason,
  t.hold_release, t.block_kind, t.block_fields, t.block_recurrences, t.last_block_kind, t.sticky,
  t.escalated, t.consecutive_failures, t.counted_failures, t.violation_streak, t.reclaim_streak, t.rate_limit_streak,
  t.last_failure_error, t.max_retries, t.max_runtime_seconds, t.review_rounds, t.archived_done, t.skills,
  t.model_override, t.provider_override, t.goal, t.goal_max_turns, t.session_id, t.created_run_id,
  t.answer_comment_id,  t.workflow_template_id, t.current_step_key
FROM task_rows AS t LEFT JOIN task_runs AS r ON r.id = t.current_run_id;

-- P72: the function's name is the message. Only the kernel's connections register it.
CREATE TRIGGER guard_board_meta_insert BEFORE INSERT ON board_meta BEGIN
  SELECT "raw SQL cannot write to a board: use the command hermes kanban"();
END;
CREATE TRIGGER guard_board_meta_update BEFORE UPDATE ON board_meta BEGIN
  SELECT "raw SQL cannot write to a board: use the command hermes kanban"();
END;
CREATE TRIGGER guard_board_meta_delete BEFORE DELETE ON board_meta BEGIN
  SELECT "raw SQL cannot write to a board: use the command hermes kanban"();
END;
CREATE TRIGGER guard_task_rows_insert BEFORE INSERT ON task_rows BEGIN
  SELECT "raw SQL cannot write to a board: use the command hermes kanban"();
END;
CREATE TRIGGER guard_task_rows_update BEFORE UPDATE ON task_rows BEGIN
  SELECT "raw SQL cannot write to a board: use the command hermes kanban"();
END;
CREATE TRIGGER guard_task_rows_delete BEFORE DELETE ON task_rows BEGIN
  SELECT "raw SQL cannot write to a board: use the command hermes kanban"();
END;
CREATE TRIGGER guard_task_links_insert BEFORE INSERT ON task_links BEGIN
  SELECT "raw SQL cannot write to a board: use the command hermes kanban"();
END;
CREATE TRIGGER guard_task_links_update BEFORE UPDATE ON task_links BEGIN
  SELECT "raw SQL cannot write to a board: use the command hermes kanban"();
END;
CREATE TRIGGER guard_task_links_delete BEFORE DELETE ON task_links BEGIN
  SELECT "raw SQL cannot write to a board: use the command hermes kanban"();
END;
CREATE TRIGGER guard_task_comments_insert BEFORE INSERT ON task_comments BEGIN
  SELECT "raw SQL cannot write to a board: use the command hermes kanban"();
END;
CREATE TRIGGER guard_task_comments_update BEFORE UPDATE ON task_comments BEGIN
  SELECT "raw SQL cannot write to a board: use the command hermes kanban"();
END;
CREATE TRIGGER guard_task_comments_delete BEFORE DELETE ON task_comments BEGIN
  SELECT "raw SQL cannot write to a board: use the command hermes kanban"();
END;
CREATE TRIGGER guard_task_events_insert BEFORE INSERT ON task_events BEGIN
  SELECT "raw SQL cannot write to a board: use the command hermes kanban"();
END;
CREATE TRIGGER guard_task_events_update BEFORE UPDATE ON task_events BEGIN
  SELECT "raw SQL cannot write to a board: use the command hermes kanban"();
END;
CREATE TRIGGER guard_task_events_delete BEFORE DELETE ON task_events BEGIN
  SELECT "raw SQL cannot write to a board: use the command hermes kanban"();
END;
CREATE TRIGGER guard_task_runs_insert BEFORE INSERT ON task_runs BEGIN
  SELECT "raw SQL cannot write to a board: use the command hermes kanban"();
END;
CREATE TRIGGER guard_task_runs_update BEFORE UPDATE ON task_runs BEGIN
  SELECT "raw SQL cannot write to a board: use the command hermes kanban"();
END;
CREATE TRIGGER guard_task_runs_delete BEFORE DELETE ON task_runs BEGIN
  SELECT "raw SQL cannot write to a board: use the command hermes kanban"();
END;
CREATE TRIGGER guard_task_attachments_insert BEFORE INSERT ON task_attachments BEGIN
  SELECT "raw SQL cannot write to a board: use the command hermes kanban"();
END;
CREATE TRIGGER guard_task_attachments_update BEFORE UPDATE ON task_attachments BEGIN
  SELECT "raw SQL cannot write to a board: use the command hermes kanban"();
END;
CREATE TRIGGER guard_task_attachments_delete BEFORE DELETE ON task_attachments BEGIN
  SELECT "raw SQL cannot write to a board: use the command hermes kanban"();
END;
CREATE TRIGGER guard_kanban_notify_subs_insert BEFORE INSERT ON kanban_notify_subs BEGIN
  SELECT "raw SQL cannot write to a board: use the command hermes kanban"();
END;
CREATE TRIGGER guard_kanban_notify_subs_update BEFORE UPDATE ON kanban_notify_subs BEGIN
  SELECT "raw SQL cannot write to a board: use the command hermes kanban"();
END;
CREATE TRIGGER guard_kanban_notify_subs_delete BEFORE DELETE ON kanban_notify_subs BEGIN
  SELECT "raw SQL cannot write to a board: use the command hermes kanban"();
END;
CREATE TRIGGER guard_tasks_insert INSTEAD OF INSERT ON tasks BEGIN
  SELECT "raw SQL cannot write to a board: use the command hermes kanban"();
END;
CREATE TRIGGER guard_tasks_update INSTEAD OF UPDATE ON tasks BEGIN
  SELECT "raw SQL cannot write to a board: use the command hermes kanban"();
END;
CREATE TRIGGER guard_tasks_delete INSTEAD OF DELETE ON tasks BEGIN
  SELECT "raw SQL cannot write to a board: use the command hermes kanban"();
END;
