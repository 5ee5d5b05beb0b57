"""Mistakes in the SQL and in the engine's use."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "came-alive-after-the-end",
        "store/sql/runs.sql",
        "WHERE id = :id AND claim_lock = :lock AND outcome IS NULL AND shim_pid IS NULL",
        "WHERE id = :id AND claim_lock = :lock AND shim_pid IS NULL",
        "D11",
        "stateful",
        "a late shim starts its worker although the run was ended",
    ),
    Mutant(
        "came-alive-twice",
        "store/sql/runs.sql",
        " AND outcome IS NULL AND shim_pid IS NULL\n  AND process_state IN ('starting', 'unknown');",
        " AND outcome IS NULL;",
        "D11",
        "stateful",
        "two shims come alive for one run",
    ),
    Mutant(
        "archived-parent-is-done",
        "store/sql/links.sql",
        "WHERE l.child_id = :child_id AND (p.status <> 'done' AND NOT (p.status = 'archived' AND p.archived_done = 1))",
        "WHERE l.child_id = :child_id AND p.status NOT IN ('done', 'archived')",
        "P4, P6",
        "stateful",
        "a parent that was archived unfinished counts as done",
    ),
    Mutant(
        "lapsed-too-early",
        "store/sql/claims.sql",
        "  WHERE r.outcome IS NULL AND r.pull = 1 AND r.claim_expires <= :now AND r.role = :role",
        "  WHERE r.outcome IS NULL AND r.pull = 1 AND r.role = :role",
        "P10, P16",
        "stateful",
        "`claim --next` offers cards that somebody holds",
    ),
    Mutant(
        "oldest-first",
        "store/sql/claims.sql",
        "  WHERE q.status = 'ready' AND (:assignee IS NULL) AND (q.eligible_at IS NULL OR q.eligible_at <= :now)\n"
        "  ORDER BY q.priority DESC, q.seq LIMIT 1);",
        "  WHERE q.status = 'ready' AND (:assignee IS NULL) AND (q.eligible_at IS NULL OR q.eligible_at <= :now)\n"
        "  ORDER BY q.seq LIMIT 1);",
        "P16",
        "stateful",
        "`claim --next` does not look at priorities",
    ),
    Mutant(
        "resting-card-offered",
        "store/sql/claims.sql",
        "  WHERE q.status = 'ready' AND (:assignee IS NULL) AND (q.eligible_at IS NULL OR q.eligible_at <= :now)\n",
        "  WHERE q.status = 'ready' AND (:assignee IS NULL)\n",
        "P15b, P16",
        "stateful",
        "`claim --next` meets a card that rests, and finds no other",
    ),
    Mutant(
        "probe-at-once",
        "store/sql/dispatch.sql",
        "  WHERE q.probe_at IS NOT NULL AND q.probe_at <= :now AND q.status = 'blocked' LIMIT :limit)",
        "  WHERE q.probe_at IS NOT NULL AND q.status = 'blocked' LIMIT :limit)",
        "P27",
        "stateful",
        "a tripped card gets its fresh attempt without a pause",
    ),
    Mutant(
        "repeated-event-in-tail",
        "store/sql/events.sql",
        "WHERE id > :since ORDER BY id LIMIT :limit;\n\n-- name: events.of_task_since",
        "WHERE id >= :since ORDER BY id LIMIT :limit;\n\n-- name: events.of_task_since",
        "P80",
        "race",
        "whoever follows the log reads the last event again",
    ),
    Mutant(
        "refusal-commits",
        "store/sqlite.py",
        '                except BaseException:\n                    self._end("schema.rollback")\n',
        '                except BaseException:\n                    self._end("schema.commit")\n',
        "P1",
        "stateful",
        "a refused verb keeps what it had done before it was refused",
    ),
    Mutant(
        "torn-reads",
        "store/sqlite.py",
        '            self._connection.execute(statements.statement("schema.begin_read"))\n            try:\n',
        "            try:\n",
        "P1",
        "race",
        "a read is no transaction: it sees half of what others do",
    ),
)
