"""What a verb answers is what the board holds: the row it returns is the row that the next look shows."""

from __future__ import annotations

from collections.abc import Callable

import apsw
import pytest

from hermes_kanban.base.errors import Forbidden, InvalidValue, StoreRefused
from hermes_kanban.kernel.finish import Handoff
from hermes_kanban.kernel.query import Filter
from hermes_kanban.model import status as s
from hermes_kanban.model.claim import Caps
from hermes_kanban.model.task import Task, TaskDraft
from hermes_kanban.store.sqlite import GUARD
from tests.world import FULL_REASON, World

ENDINGS: dict[str, Callable[[World, str], Task]] = {
    "complete": lambda w, t: w.person.complete(t, Handoff("x"), override=True).task,
    "request-review": lambda w, t: w.person.request_review(t, Handoff("x"), override=True).task,
    "block": lambda w, t: w.person.block(t, FULL_REASON, override=True).task,
    "schedule": lambda w, t: w.person.schedule(t, override=True),
    "archive": lambda w, t: w.person.archive(t, override=True),
    "reclaim": lambda w, t: w.person.reclaim(t),
}


@pytest.mark.parametrize("verb", ENDINGS)
def test_a_card_without_a_run_has_no_claim_columns(world: World, verb: str) -> None:  # P2
    _, claim = world.claimed()
    answered = ENDINGS[verb](world, claim.task.id)
    assert answered.claim_lock is None
    assert answered == world.task(claim.task)
    world.verified()


def test_what_the_owner_s_verbs_answer_is_what_the_board_holds(world: World) -> None:  # P2
    board, claim = world.claimed()
    assert world.task(claim.task) == claim.task
    assert board.request_review(claim.task.id, Handoff("x"), "rev").task == world.task(claim.task)
    review = world.script("rev").claim(claim.task.id)
    answered = world.script("rev", review).request_changes(claim.task.id, "again").task
    assert answered == world.task(claim.task)
    world.verified()


# --- who is calling (P70) ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("role", ["Bridge", "BRIDGE", "bridge ", "viewer", "admin", "worker", "dispatcher"])
def test_a_role_that_is_none_fails_closed(world: World, role: str) -> None:  # P70
    card = world.card()
    with pytest.raises(Forbidden):
        world.board(role=role).archive(card.id)
    assert world.status(card) == s.READY


def test_a_ticket_goes_before_the_worker_s_environment(world: World) -> None:  # P70
    _, first = world.claimed(name="bot")
    _, second = world.claimed(name="bot")
    both = world.script("bot", second, task=first.task.id, run=str(first.run.id), lock=first.run.claim_lock)
    assert both.complete(second.task.id, Handoff("x")).task.status == s.DONE
    assert both.complete(first.task.id, Handoff("x")).task.status == s.DONE


def test_a_refusal_is_logged_under_the_name_of_who_asked(world: World) -> None:  # P12, P70
    _, claim = world.claimed()
    world.person.archive(world.card().id)
    for board, actor in (
        (world.board("ann", interactive=False), "human:ann"),
        (world.worker(claim, "late", run="77"), "worker:late"),
    ):
        with world.refuses(claim.task, Exception, logged=True):
            board.complete(claim.task.id, Handoff("x"))
        assert world.person.events(task=claim.task.id, limit=1000)[-1].actor == actor


# --- created as blocked, made by a worker ------------------------------------------------------------------------
def test_created_as_blocked_is_blocked_in_every_way(world: World) -> None:  # C65, P26b, P21
    made = world.card(status=s.BLOCKED, reason="waits for the key")
    blocked = world.card()
    world.person.block(blocked.id, FULL_REASON.evolve(text="waits for the key"))
    assert world.kinds(made) == ["created", "blocked"] == world.kinds(blocked)
    (said,), (other,) = world.person.runs(made.id), world.person.runs(blocked.id)
    assert (said.role, said.outcome, said.end_reason) == (other.role, other.outcome, other.end_reason)
    world.person.release_due()
    assert world.status(made) == s.BLOCKED
    world.verified()


def test_a_card_that_a_worker_makes_has_its_card_s_subscribers(world: World) -> None:  # P52
    card = world.card()
    _, run = world.board().claim_for_dispatch(card.id, ttl=60, lane="lane", name="bot", caps=Caps())
    columns = "task_id, platform, chat_id, thread_id, created_at, last_event_id"
    connection = apsw.Connection(world.store.location)
    connection.create_scalar_function(GUARD, lambda *_: None, 0)
    connection.execute(f"INSERT INTO kanban_notify_subs ({columns}) VALUES (?, 'chat', 'c1', 't1', 0, 0)", (card.id,))
    facts = {"task": card.id, "run": str(run.id), "lock": run.claim_lock, "role": s.ORCHESTRATOR}
    made = world.board("bot", interactive=False, **facts).create(TaskDraft(title="child")).task
    found = connection.execute(
        "SELECT platform, chat_id, thread_id, last_event_id FROM kanban_notify_subs WHERE task_id = ?", (made.id,)
    ).fetchall()
    connection.close()
    assert found == [("chat", "c1", "t1", world.person.last_event_id())]  # from now on
    assert (made.created_by, made.created_run_id) == ("orchestrator:bot", run.id)


# --- tampering ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("column", ["body", "acceptance", "result"])
def test_a_changed_text_is_reported(world: World, column: str) -> None:  # P81
    card = world.card(body="one", acceptance="two")
    world.person.complete(card.id, Handoff(result="three"))
    world.verified()
    raw(world, f"UPDATE task_rows SET {column} = 'other' WHERE id = '{card.id}'")
    assert [finding.task_id for finding in world.person.verify()] == [card.id]


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TRIGGER guard_task_rows_update;"
        " CREATE TRIGGER guard_task_rows_update BEFORE UPDATE ON task_rows BEGIN SELECT 1; END",
        "DROP INDEX task_runs_open",
        "CREATE TABLE notes (text TEXT)",
    ],
)
def test_a_changed_schema_is_reported(world: World, statement: str) -> None:  # P72
    raw(world, statement)
    assert len(world.person.verify()) == 1


def raw(world: World, statement: str) -> None:
    """Write past the kernel, as somebody does who registers the guard's function."""
    connection = apsw.Connection(world.store.location)
    connection.create_scalar_function(GUARD, lambda *_: None, 0)
    connection.execute(statement)
    connection.close()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE task_events SET payload = '[]' WHERE id = 1",
        "UPDATE task_events SET payload = 'junk' WHERE id = 1",
        "UPDATE task_events SET payload = '{{\"set\": 5}}' WHERE id = 1",
        "UPDATE task_events SET kind = 'linked' WHERE kind = 'claimed'",
        "UPDATE task_events SET kind = 'imagined' WHERE kind = 'claimed'",
        "UPDATE task_rows SET skills = 'x'",
        "UPDATE task_rows SET block_fields = '5'",
        "DROP VIEW tasks",
        "UPDATE sqlite_sequence SET seq = 9223372036854775807 WHERE name = 'task_events'",
    ],
)
def test_no_tampering_stops_the_check_itself(world: World, statement: str) -> None:  # P81, P72
    world.claimed()
    raw(world, statement.replace("{{", "{").replace("}}", "}"))
    assert world.person.verify() != ()


def test_a_damaged_row_is_told_as_such(world: World) -> None:
    world.card()
    raw(world, "UPDATE task_rows SET skills = 'x'")
    with pytest.raises(StoreRefused, match="damaged"):
        world.person.list(Filter())


def test_counters_at_their_end_are_no_full_disk(world: World) -> None:  # P72
    world.card()
    raw(world, "UPDATE sqlite_sequence SET seq = 9223372036854775807 WHERE name = 'task_events'")
    with pytest.raises(StoreRefused) as refusal:
        world.card("one more")
    assert refusal.value.fields["reason"] == "damaged"


def test_a_long_chain_is_archived_as_a_whole(world: World) -> None:  # P6
    drafts = tuple(TaskDraft(title=f"t{n}", name=f"n{n}", parents=(f"n{n - 1}",) if n else ()) for n in range(600))
    made = world.person.apply(drafts)
    world.person.archive(made[0].task.id, "archive")
    assert world.person.stats()["status"] == dict.fromkeys(s.STATES, 0) | {s.ARCHIVED: 600}  # type: ignore[comparison-overlap]
    world.verified()


def test_a_graph_of_too_many_links_is_refused(world: World) -> None:  # P50
    drafts = tuple(TaskDraft(title=f"t{n}", name=f"n{n}", parents=tuple(f"n{m}" for m in range(n))) for n in range(110))
    with world.unchanged(InvalidValue):
        world.person.apply(drafts)


def test_a_worker_s_comment_on_another_card_extends_nothing(world: World) -> None:  # P13, P70
    _, mine = world.claimed()
    _, other = world.claimed()
    thief = world.worker(mine, run=str(other.run.id), lock=other.run.claim_lock)
    world.clock.advance(30)
    thief.comment(other.task.id, "a fact")
    assert world.task(other.task).claim_expires == other.run.claim_expires
