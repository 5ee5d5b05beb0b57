"""What people do to cards: edit, assign, archive, unarchive, reopen, reclaim (P6, P12c, P50b)."""

from __future__ import annotations

from typing import Any

import pytest

from hermes_kanban.base.errors import (
    ClaimLost,
    InvalidValue,
    NotClaimable,
    OpenChildren,
    UnknownAssignee,
    WrongState,
)
from hermes_kanban.kernel.finish import Handoff
from hermes_kanban.model import status as s
from tests.world import World

# --- edit -----------------------------------------------------------------------------------------------------
EDITS: dict[str, Any] = {
    "title": "new title",
    "body": "new body",
    "acceptance": "it works",
    "tenant": "north",
    "reviewer": "rev",
    "branch_name": "fix/one",
    "priority": 7,
    "max_retries": 3,
    "max_runtime_seconds": 60,
    "skills": ("python", "sql"),
}


@pytest.mark.parametrize("field", EDITS)
def test_an_edit_changes_its_field_and_leaves_one_event(world: World, field: str) -> None:  # P1, P81
    card = world.card()
    edited = world.person.edit(card.id, {field: EDITS[field]})
    assert edited == card.evolve(**{field: EDITS[field]}) == world.task(card)
    assert world.kinds(card) == ["created", "reprioritized" if field == "priority" else "edited"]
    assert world.person.events(task=card.id)[-1].payload["fields"] == [field]
    world.verified()


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"status": s.DONE},
        {"id": "t_00000000"},
        {"current_run_id": 1},
        {"title": ""},
        {"title": "x" * 501},
        {"title": "good", "priority": 1001},
        {"skills": ("",)},
        {"max_retries": 0},
        {"tenant": ""},
    ],
    ids=str,
)
def test_a_wrong_edit_changes_nothing(world: World, changes: dict[str, Any]) -> None:  # P50, P50b, C179
    card = world.card()
    with world.refuses(card, InvalidValue):
        world.person.edit(card.id, changes)


def test_an_edited_reviewer_is_checked_like_a_new_one(world: World) -> None:  # P50b, C76
    card, board = world.card(), world.person
    board.edit(card.id, {"reviewer": "revv"})
    assert "rev" in board.warnings[0]
    world.set(unknown_assignee="refuse")
    with world.refuses(card, UnknownAssignee):
        world.person.edit(card.id, {"reviewer": "revvv"})
    world.verified()


def test_an_archived_card_is_not_edited(world: World) -> None:
    card = world.card()
    world.person.archive(card.id)
    with world.refuses(card, WrongState):
        world.person.edit(card.id, {"title": "new"})


# --- assign ----------------------------------------------------------------------------------------------------
def test_a_card_is_given_to_somebody_and_back_to_nobody(world: World) -> None:
    card = world.card()
    assert world.person.assign(card.id, "bot").assignee == "bot"
    assert world.person.assign(card.id, None).assignee is None
    assert world.kinds(card) == ["created", "assigned", "assigned"]
    world.verified()


def test_a_misspelt_assignee_is_named_with_its_neighbours(world: World) -> None:  # P50b, C76
    card = world.card()
    board = world.person
    board.assign(card.id, "bott")
    assert "bot" in board.warnings[0]
    world.set(unknown_assignee="refuse")
    with world.refuses(card, UnknownAssignee) as refusal:
        world.person.assign(card.id, "othr")
    assert refusal.value.fields["near"][0] == "other"
    world.verified()


def test_a_card_that_is_worked_on_or_closed_is_not_assigned(world: World) -> None:
    done = world.card()
    world.person.complete(done.id, Handoff("ok"))
    _, claim = world.claimed()
    for card in (done, claim.task):
        with world.refuses(card, WrongState) as refusal:
            world.person.assign(card.id, "bot")
        assert s.READY in refusal.value.fields["works_from"]


# --- archive (P6) ------------------------------------------------------------------------------------------------
def test_archiving_an_open_parent_needs_a_word_on_its_children(world: World) -> None:  # P6, C83
    parent = world.card("parent")
    child = world.card("child", parents=(parent.id,))
    with world.unchanged(OpenChildren) as refusal:
        world.person.archive(parent.id)
    assert refusal.value.fields["children"] == [child.id]
    assert "--release-children" in refusal.value.hint
    assert "--archive-children" in refusal.value.hint
    with world.unchanged(InvalidValue):
        world.person.archive(parent.id, "forget")


def test_released_children_go_at_once_with_events(world: World) -> None:  # P6, C83
    parent, other = world.card("parent"), world.card("other")
    free = world.card("free", parents=(parent.id,))
    waits = world.card("waits", parents=(parent.id, other.id))
    world.person.archive(parent.id, "release")
    assert (world.status(free), world.status(waits)) == (s.READY, s.TODO)
    assert world.kinds(free) == ["created", "unlinked", "promoted"]
    assert world.kinds(waits) == ["created", "unlinked"]
    world.verified()


def test_archived_children_take_their_own_with_them(world: World) -> None:  # P6, C83
    top = world.card("top")
    left = world.card("left", parents=(top.id,))
    right = world.card("right", parents=(top.id, left.id))
    bottom = world.card("bottom", parents=(left.id, right.id))
    world.person.archive(top.id, "archive")
    assert [world.status(card) for card in (top, left, right, bottom)] == [s.ARCHIVED] * 4
    assert world.kinds(right) == ["created", "archived"]
    world.verified()


def test_a_done_card_with_children_is_archived_without_a_word(world: World) -> None:  # P6, P4
    parent = world.card("parent")
    child = world.card("child", parents=(parent.id,))
    world.person.complete(parent.id, Handoff("ok"))
    assert world.person.archive(parent.id).archived_done
    assert world.status(child) == s.READY
    world.verified()


def test_a_card_that_somebody_runs_is_archived_by_override_only(world: World) -> None:  # P12c, C20
    worker, claim = world.claimed(ttl=60)
    with world.refuses(claim.task, ClaimLost, logged=True):
        world.person.archive(claim.task.id)
    board = world.person
    assert board.archive(claim.task.id, override=True).status == s.ARCHIVED
    assert any("refused from now on" in text for text in board.warnings)
    run = world.person.runs(claim.task.id)[-1]
    assert (run.outcome, run.process_state) == (s.RECLAIMED, s.CLOSING)
    with pytest.raises(ClaimLost):
        worker.complete(claim.task.id, Handoff("late"))
    world.verified()


def test_a_running_child_is_not_archived_behind_its_worker(world: World) -> None:  # P6, P12c
    parent = world.card("parent")
    world.person.complete(parent.id, Handoff("ok"))
    _, claim = world.claimed(world.card("child", parents=(parent.id,)))
    world.person.reopen(parent.id)
    with world.unchanged(ClaimLost):
        world.person.archive(parent.id, "archive")
    world.person.archive(parent.id, "archive", override=True)
    assert world.status(claim.task) == s.ARCHIVED
    world.verified()


# --- unarchive ---------------------------------------------------------------------------------------------------
def test_a_card_comes_back_to_where_it_belongs(world: World) -> None:  # P3
    done, ready, parent = world.card("done"), world.card("ready"), world.card("parent")
    todo = world.card("todo", parents=(parent.id,))
    world.person.complete(done.id, Handoff("ok"))
    for card in (done, ready, todo):
        world.person.archive(card.id)
    back = [world.person.unarchive(card.id).status for card in (done, ready, todo)]
    assert back == [s.DONE, s.READY, s.TODO]
    assert world.kinds(done)[-1] == "unarchived"
    assert world.task(done).archived_done is False
    world.verified()


def test_a_start_time_survives_the_archive(world: World) -> None:  # P3
    at = world.clock.now_ms() // 1000 + 60
    early, late = world.card("early", scheduled_at=at), world.card("late", scheduled_at=at)
    for card in (early, late):
        world.person.archive(card.id)
    back = world.person.unarchive(early.id)
    assert (back.status, back.scheduled_at, back.hold_release) == (s.SCHEDULED, at, s.BY_TIME)
    world.clock.advance(60)
    assert world.person.unarchive(late.id).status == s.READY
    assert world.script().claim(early.id).task.status == s.RUNNING
    world.verified()


# --- reopen ------------------------------------------------------------------------------------------------------
def test_a_reopened_parent_calls_its_ready_children_back(world: World) -> None:  # P6
    parent = world.card("parent")
    ready, runs, ended, held = (world.card(name, parents=(parent.id,)) for name in ("a", "b", "c", "d"))
    world.person.complete(parent.id, Handoff("ok"))
    world.claimed(runs)
    world.person.complete(ended.id, Handoff("ok"))
    world.person.schedule(held.id)
    board = world.person
    opened = board.reopen(parent.id)
    assert (opened.task.status, opened.waiting, opened.started) == (s.READY, (ready.id,), (runs.id, ended.id))
    assert [world.status(card) for card in (ready, runs, ended, held)] == [s.TODO, s.RUNNING, s.DONE, s.SCHEDULED]
    assert runs.id in board.warnings[0]
    assert ended.id in board.warnings[0]
    assert world.kinds(ready)[-1] == "regated"
    world.verified()


def test_a_reopened_card_is_fresh(world: World) -> None:  # C7, C56
    card = world.in_review()
    world.script("rev").claim(card.id)
    world.person.complete(card.id, Handoff("ok"), override=True)
    opened = world.person.reopen(card.id).task
    assert (opened.completed_at, opened.phase, opened.review_rounds) == (None, s.WORK, 0)
    world.clock.advance(7200)
    _, claim = world.claimed(card)
    assert (claim.run.role, claim.run.last_heartbeat_at) == (s.IMPLEMENTER, world.clock.now_ms() // 1000)
    world.verified()


# --- reclaim (P12c) ------------------------------------------------------------------------------------------------
def test_reclaiming_takes_the_card_and_shuts_the_worker_out(world: World) -> None:  # P12c, P14
    worker, claim = world.claimed(ttl=60)
    card = world.person.reclaim(claim.task.id)
    assert (card.status, card.eligible_at, card.eligible_reason) == (s.READY, claim.run.claim_expires, s.QUARANTINE)
    assert world.kinds(card)[-1] == "reclaimed"
    with world.refuses(card, ClaimLost, logged=True):
        worker.complete(card.id, Handoff("late"))
    with world.refuses(card, NotClaimable) as refusal:
        world.script("other").claim(card.id)
    assert refusal.value.fields["until"] == claim.run.claim_expires
    world.clock.advance(60)
    assert world.script("other").claim(card.id).run.id > claim.run.id
    world.verified()


def test_a_reclaimed_review_returns_to_review(world: World) -> None:  # P32, C77
    card = world.in_review()
    world.script("rev").claim(card.id)
    assert world.person.reclaim(card.id).status == s.REVIEW
    assert world.task(card).consecutive_failures == 0
    world.verified()


def test_a_card_that_comes_back_does_not_wait_for_a_parent_archived_unfinished(world: World) -> None:  # P6
    parent = world.card("parent")
    child = world.card("child", parents=(parent.id,))
    world.person.archive(parent.id, "archive")
    assert world.status(child) == s.ARCHIVED
    assert world.person.unarchive(child.id).status == s.READY
    assert world.kinds(child)[-2:] == ["unlinked", "unarchived"]
    world.verified()


def test_a_reopened_card_does_not_wait_for_a_parent_archived_unfinished(world: World) -> None:  # P6
    parent = world.card("parent")
    child = world.card("child")
    world.person.complete(child.id, Handoff("done"))
    world.person.reopen(child.id)
    world.person.link(parent.id, child.id)
    world.person.complete(child.id, Handoff("done all the same"), override=True)
    world.person.archive(parent.id)
    assert world.person.reopen(child.id).task.status == s.READY
    world.verified()
