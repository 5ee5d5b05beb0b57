"""Apply: a graph of cards in one call, all or nothing (P53)."""

from __future__ import annotations

import pytest

from hermes_kanban.base.errors import Cycle, Forbidden, InvalidValue, Refusal, TaskNotFound
from hermes_kanban.kernel.finish import Handoff
from hermes_kanban.model import status as s
from hermes_kanban.model.task import TaskDraft
from tests.world import World


def draft(name: str, *parents: str, **fields: object) -> TaskDraft:
    return TaskDraft(title=f"do {name}", name=name, parents=parents, **fields)  # type: ignore[arg-type]


def test_a_graph_is_made_in_one_step_whatever_its_order(world: World) -> None:  # P53, C13
    outside = world.card("outside")
    last = world.person.last_event_id()
    drafts = (draft("ship", "test", "docs"), draft("test", "build"), draft("docs", outside.id), draft("build"))
    ship, test, docs, build = world.person.apply(drafts)
    assert [made.task.title for made in (ship, test, docs, build)] == ["do ship", "do test", "do docs", "do build"]
    assert [made.task.status for made in (ship, test, docs, build)] == [s.TODO, s.TODO, s.TODO, s.READY]
    assert (ship.gated_by, docs.gated_by) == ((test.task.id, docs.task.id), (outside.id,))
    made = [event.task_id for event in world.person.events(since=last)]
    assert made.index(build.task.id) < made.index(test.task.id) < made.index(ship.task.id)
    world.verified()


def test_the_graph_runs_in_its_order(world: World) -> None:  # P4, P53
    last, first = world.person.apply((draft("last", "first"), draft("first")))
    assert world.person.complete(first.task.id, Handoff("ok")).promoted == (last.task.id,)
    assert world.status(last.task) == s.READY
    world.verified()


FAULTS: dict[str, tuple[tuple[TaskDraft, ...], type[Refusal], str]] = {
    "an empty graph": ((), InvalidValue, "1 to 1000"),
    "more cards than fit": ((draft("x"),) * 1001, InvalidValue, "1001"),
    "a name twice": ((draft("a"), draft("a")), InvalidValue, "'a'"),
    "a circle": ((draft("a", "c"), draft("b", "a"), draft("c", "b")), Cycle, "a, b, c"),
    "a card that waits for itself": ((draft("a", "a"),), Cycle, "a"),
    "an unknown parent": ((draft("a"), draft("b", "nobody")), TaskNotFound, "nobody"),
    "one bad value after good cards": ((draft("a"), draft("b", priority=5000)), InvalidValue, "1000"),
    "one bad workspace": (
        (draft("a"), draft("b", workspace_kind=s.DIR, workspace_path="x")),
        InvalidValue,
        "absolute",
    ),
}


@pytest.mark.parametrize(("drafts", "error", "word"), FAULTS.values(), ids=FAULTS.keys())
def test_one_fault_and_nothing_is_made(  # P53, P50
    world: World, drafts: tuple[TaskDraft, ...], error: type[Refusal], word: str
) -> None:
    world.card("there before")
    with world.unchanged(error) as refusal:
        world.person.apply(drafts)
    assert word in refusal.value.message
    world.verified()


def test_a_circle_among_names_does_not_hide_behind_good_cards(world: World) -> None:  # P53, P5
    with world.unchanged(Cycle) as refusal:
        world.person.apply((draft("fine"), draft("a", "b"), draft("b", "a", "fine")))
    assert refusal.value.fields["cycle"] == ["a", "b"]


def test_a_dry_run_answers_the_same_and_keeps_nothing(world: World) -> None:  # P53
    drafts = (draft("child", "parent"), draft("parent"))
    before = world.everything()
    dry = world.person.apply(drafts, dry_run=True)
    assert world.everything() == before
    real = world.person.apply(drafts)
    assert [(d.task.title, d.task.status, d.gated) for d in dry] == [
        (r.task.title, r.task.status, r.gated) for r in real
    ]
    world.verified()


def test_a_repeated_graph_with_keys_makes_no_second_cards(world: World) -> None:  # P51, P53
    drafts = (draft("child", "parent", idempotency_key="c"), draft("parent", idempotency_key="p"))
    first = world.person.apply(drafts)
    before = world.everything()
    again = world.person.apply(drafts)
    assert [made.task.id for made in again] == [made.task.id for made in first]
    assert [made.created for made in again] == [False, False]
    assert world.everything() == before
    world.verified()


def test_an_orchestrator_may_apply_and_a_bridge_may_not(world: World) -> None:  # P70
    world.script(role=s.ORCHESTRATOR).apply((draft("a"), draft("b", "a")))
    with world.unchanged(Forbidden):
        world.script(role=s.BRIDGE).apply((draft("c", idempotency_key="k"),))
    world.verified()
