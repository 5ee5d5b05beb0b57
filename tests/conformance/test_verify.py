"""Verify: every way of changing a board behind the kernel's back is reported (P81, P72)."""

from __future__ import annotations

import apsw
import pytest

from hermes_kanban.kernel.finish import Handoff
from hermes_kanban.model import status as s
from hermes_kanban.model.task import DERIVED, UNFOLDED, Task
from hermes_kanban.store.sqlite import GUARD
from tests.world import FULL_REASON, World


class Board:
    """A board with a parent, two children, a running card, one in review and a blocked one."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.parent = world.card("parent").id
        self.child = world.card("child", parents=(self.parent,)).id
        self.ready = world.card("ready", assignee="ann", skills=("sql",), body="text").id
        self.running = world.claimed(world.card("running"))[1].task.id
        self.review = world.in_review().id
        board, claim = world.claimed()
        self.blocked = board.block(claim.task.id, FULL_REASON, s.NEEDS_INPUT).task.id
        self.done = world.card("done").id
        world.person.complete(self.done, Handoff("ok"))

    def tamper(self, statement: str) -> None:
        """Write past the kernel, as somebody does who registers the guard's function."""
        connection = apsw.Connection(self.world.store.location)
        connection.create_scalar_function(GUARD, lambda *_: None, 0)
        connection.pragma("foreign_keys", False)
        connection.execute(statement.format(**vars(self)))
        assert connection.total_changes() or "TRIGGER" in statement, "the tampering itself must have worked"
        connection.close()


@pytest.fixture
def board(world: World) -> Board:
    return Board(world)


SET = "UPDATE task_rows SET {change} WHERE id = '{card}'"
COLUMNS = {
    "title": "'another'",
    "assignee": "'bot'",
    "reviewer": "'rev'",
    "implementer": "'bot'",
    "priority": "5",
    "tenant": "'south'",
    "created_by": "'human:nobody'",
    "created_at": "1",
    "status_since": "1",
    "completed_at": "1",
    "scheduled_at": "1",
    "eligible_at": "1",
    "eligible_reason": "'quarantine'",
    "phase": "'review'",
    "workspace_kind": "'worktree'",
    "workspace_path": "'/srv'",
    "branch_name": "'main'",
    "idempotency_key": "'k'",
    "hold_reason": "'because'",
    "hold_release": "'person'",
    "block_kind": "'transient'",
    "block_fields": "'{{}}'",
    "block_recurrences": "1",
    "last_block_kind": "'transient'",
    "sticky": "1",
    "escalated": "1",
    "consecutive_failures": "1",
    "counted_failures": "1",
    "violation_streak": "1",
    "reclaim_streak": "1",
    "rate_limit_streak": "1",
    "last_failure_error": "'boom'",
    "max_retries": "9",
    "max_runtime_seconds": "9",
    "review_rounds": "1",
    "archived_done": "1",
    "skills": "'[]'",
    "model_override": "'m'",
    "provider_override": "'p'",
    "goal": "1",
    "goal_max_turns": "1",
    "session_id": "'x'",
    "created_run_id": "1",
    "answer_comment_id": "1",
    "workflow_template_id": "'w'",
    "current_step_key": "'s'",
    "probe_at": "1",
    "guard": "'self_review'",
    "seq": "seq + 1000",
    "status": "'todo'",
}


@pytest.mark.parametrize("column", COLUMNS)
def test_a_changed_column_is_reported(board: Board, column: str) -> None:  # P81
    board.tamper(SET.format(change=f"{column} = {COLUMNS[column]}", card="{ready}"))
    findings = board.world.person.verify()
    assert [finding.task_id for finding in findings if column in finding.problem] == [board.ready]


def test_the_columns_are_all_that_the_log_folds() -> None:  # P81
    assert {*COLUMNS, "current_run_id", "id", *UNFOLDED, *DERIVED} == set(Task.FIELDS)


TAMPERINGS: dict[str, tuple[str, str, str]] = {
    "a card made running": (
        "UPDATE task_rows SET status = 'running', current_run_id = 1 WHERE id = '{ready}'",
        "ready",
        "open runs are",
    ),
    "a card made done": (
        "UPDATE task_rows SET status = 'done', completed_at = 1 WHERE id = '{ready}'",
        "ready",
        "status is 'done'",
    ),
    "a child let go": ("UPDATE task_rows SET status = 'ready' WHERE id = '{child}'", "child", "is not done (P3)"),
    "a parent made done": (
        "UPDATE task_rows SET status = 'done', completed_at = 1 WHERE id = '{parent}'",
        "child",
        "no parent is open (P4)",
    ),
    "a run closed": (
        "UPDATE task_runs SET outcome = 'crashed', ended_at = 1 WHERE task_id = '{running}'",
        "running",
        "(P2)",
    ),
    "a run opened": (
        "UPDATE task_runs SET outcome = NULL, ended_at = NULL WHERE task_id = '{review}'",
        "review",
        "(P2)",
    ),
    "another run pointed at": (
        "UPDATE task_rows SET current_run_id = current_run_id + 1 WHERE id = '{running}'",
        "running",
        "current_run_id",
    ),
    "a link removed": ("DELETE FROM task_links WHERE child_id = '{child}'", "child", "the log says ['t_"),
    "a link added": (
        "INSERT INTO task_links VALUES ('{ready}', '{blocked}', 1)",
        "blocked",
        "the log says []",
    ),
    "a link turned round": (
        "UPDATE task_links SET parent_id = '{ready}' WHERE child_id = '{child}'",
        "child",
        "parents are",
    ),
    "a card removed": ("DELETE FROM task_rows WHERE id = '{ready}'", "ready", "its row is gone"),
    "a card's birth removed": (
        "DELETE FROM task_events WHERE task_id = '{ready}'",
        "ready",
        "no event says how it came to be",
    ),
    "an event removed": (
        "DELETE FROM task_events WHERE task_id = '{blocked}' AND kind = 'claimed'",
        "blocked",
        "starts from running, not ready",
    ),
    "an event forged": (
        "INSERT INTO task_events (task_id, kind, payload, actor, created_at, at_ms) VALUES ('{ready}', 'completed', "
        '\'{{"from": "ready", "to": "done", "set": {{"status": "done"}}}}\', \'human:ann\', 1, 1)',
        "ready",
        "the log says 'done'",
    ),
    "an event rewritten": (
        "UPDATE task_events SET payload = json_set(payload, '$.set.title', 'forged') WHERE task_id = '{ready}'",
        "ready",
        "title is",
    ),
    "an event given to another card": (
        "UPDATE task_events SET task_id = '{ready}' WHERE task_id = '{done}' AND kind = 'completed'",
        "done",
        "status is 'done'",
    ),
}


@pytest.mark.parametrize(("statement", "card", "words"), TAMPERINGS.values(), ids=TAMPERINGS.keys())
def test_tampering_is_reported(board: Board, statement: str, card: str, words: str) -> None:  # P81
    board.world.verified()
    board.tamper(statement)
    found = [finding.problem for finding in board.world.person.verify() if finding.task_id == getattr(board, card)]
    assert any(words in problem for problem in found), found


def test_a_card_without_events_is_reported(board: Board) -> None:  # P81, C121
    board.tamper(
        "INSERT INTO task_rows (id, title, status, created_by, created_at, updated_at, status_since)"
        " VALUES ('t_0badc0de', 'from nowhere', 'ready', 'x', 1, 1, 1)"
    )
    (finding,) = board.world.person.verify()
    assert (finding.task_id, finding.problem) == ("t_0badc0de", "no event says how it came to be")


def test_dangling_references_are_reported(board: Board) -> None:  # P81
    board.tamper(
        "INSERT INTO task_comments (task_id, author, author_kind, body, created_at, at_ms)"
        " VALUES ('t_ffffffff', 'x', 'human', 'text', 1, 1)"
    )
    assert any("dangling reference" in finding.problem for finding in board.world.person.verify())


def test_the_database_refuses_the_impossible_even_so(board: Board) -> None:  # P2, P14, P51
    for statement in (
        "UPDATE task_rows SET status = 'running' WHERE id = '{ready}'",
        "UPDATE task_rows SET status = 'doing' WHERE id = '{ready}'",
        "UPDATE task_rows SET status = 'done' WHERE id = '{ready}'",
        "UPDATE task_rows SET status = 'blocked' WHERE id = '{ready}'",
        "UPDATE task_rows SET current_run_id = 1 WHERE id = '{ready}'",
        "UPDATE task_rows SET id = '{child}' WHERE id = '{ready}'",
        "UPDATE task_rows SET priority = 1001 WHERE id = '{ready}'",
        "UPDATE task_runs SET outcome = NULL WHERE task_id = '{review}'",
        "UPDATE task_runs SET metadata = '[]' WHERE task_id = '{review}'",
        "UPDATE task_links SET parent_id = child_id",
        "UPDATE task_rows SET idempotency_key = 'same'",
    ):
        with pytest.raises(apsw.ConstraintError):
            board.tamper(statement)
    board.world.verified()


def test_a_board_that_was_left_alone_has_no_findings(board: Board) -> None:  # P81
    board.world.verified()
    board.world.person.reclaim(board.running)
    board.world.person.request_changes(board.review, "again")
    board.world.person.reopen(board.done)
    board.world.person.archive(board.parent, "release")
    board.world.verified()


def test_large_texts_are_marked_in_the_log_but_not_kept(board: Board) -> None:  # P81
    board.world.person.edit(board.ready, {"body": "x" * 100_000})
    event = board.world.person.events(task=board.ready)[-1]
    assert event.payload["texts"].keys() == {"body"}
    assert len(str(event.payload)) < 200
    board.world.verified()
