"""Create: what is refused before anything is written, where a card starts, keys, tenants (P3, P50 to P52)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hermes_kanban.base.errors import (
    Forbidden,
    InvalidValue,
    KeyRequired,
    NotClaimable,
    NothingReady,
    TaskNotFound,
    UnknownAssignee,
    WrongState,
)
from hermes_kanban.kernel.finish import Handoff
from hermes_kanban.model import status as s
from hermes_kanban.model.task import TaskDraft
from tests.conformance.racing import Home
from tests.world import FULL_REASON, SomeNames, World

AT_PERSON = "human:ann"

REFUSED = {
    "no title": {"title": ""},
    "a title of blanks": {"title": " \t "},
    "a title of 501 characters": {"title": "x" * 501},
    "a title of 100,000 characters": {"title": "x" * 100_000},
    "a title of two lines": {"title": "one\ntwo"},
    "an escape code in the title": {"title": "a\x1b[31mred"},
    "half a surrogate": {"title": "\udc80"},
    "a NUL in the body": {"body": "a\x00b"},
    "a body that is too long": {"body": "x" * 1_048_577},
    "priority too high": {"priority": 1001},
    "priority too low": {"priority": -1001},
    "a priority of 1e23": {"priority": 10**23},
    "an unknown state": {"status": "doing"},
    "a state that follows from the parents": {"status": s.READY},
    "done from the start": {"status": s.DONE},
    "triage and a start time": {"status": s.TRIAGE, "scheduled_at": 1_900_000_000},
    "a start time before 1970": {"scheduled_at": -1},
    "a start time in the year 10000": {"scheduled_at": 253_402_300_800},
    "a relative folder": {"workspace_kind": s.DIR, "workspace_path": "src/here"},
    "a folder without a path": {"workspace_kind": s.DIR},
    "a scratch folder with a path": {"workspace_kind": s.SCRATCH, "workspace_path": "/srv"},
    "an unknown workspace": {"workspace_kind": "cloud"},
    "no run time": {"max_runtime_seconds": 0},
    "a run time of 31 days": {"max_runtime_seconds": 2_592_001},
    "no retries": {"max_retries": 0},
    "no turns": {"goal_max_turns": 0},
    "an empty parent": {"parents": ("",)},
    "an empty skill": {"skills": ("",)},
    "an empty assignee": {"assignee": ""},
    "an assignee with blanks around it": {"assignee": " ann "},
    "an assignee of two lines": {"assignee": "ann\nbot"},
    "an empty key": {"idempotency_key": ""},
    "an empty tenant": {"tenant": ""},
    "a tenant of 101 characters": {"tenant": "x" * 101},
    "blocked without a reason": {"status": s.BLOCKED},
}


@pytest.mark.parametrize("fields", REFUSED.values(), ids=REFUSED.keys())
def test_a_wrong_value_is_refused_before_anything_is_written(world: World, fields: dict[str, object]) -> None:  # P50
    draft = TaskDraft(**({"title": "card"} | fields))  # type: ignore[arg-type]
    with world.unchanged(InvalidValue) as refusal:
        world.person.create(draft)
    assert refusal.value.hint


@pytest.mark.parametrize(("number", "low", "high"), [("priority", -1000, 1000), ("max_retries", 1, 1000)])
def test_the_error_prints_the_range_and_the_ends_belong_to_it(  # P50
    world: World, number: str, low: int, high: int
) -> None:
    for value in (low - 1, high + 1):
        with world.unchanged(InvalidValue) as refusal:
            world.person.create(TaskDraft(title="card", **{number: value}))
        assert f"from {low} to {high}" in refusal.value.message
        assert (refusal.value.fields["lowest"], refusal.value.fields["highest"]) == (low, high)
    for value in (low, high):
        assert getattr(world.card(**{number: value}), number) == value
    world.verified()


def test_a_title_is_trimmed_and_may_have_500_characters(world: World) -> None:  # P50
    assert world.card(f"  {'é' * 500}\n").title == "é" * 500
    world.verified()


def test_an_unknown_parent_leaves_no_card(world: World) -> None:  # P50
    known = world.card("parent")
    with world.unchanged(TaskNotFound) as refusal:
        world.person.create(TaskDraft(title="child", parents=(known.id, "t_00000000")))
    assert "t_00000000" in refusal.value.message


def test_a_parent_that_was_archived_unfinished_is_refused(world: World) -> None:  # P6
    gone = world.card("gone")
    world.person.archive(gone.id)
    with world.unchanged(InvalidValue):
        world.person.create(TaskDraft(title="child", parents=(gone.id,)))


def test_where_a_card_starts_follows_from_parents_time_and_wish(world: World) -> None:  # P3
    done, open_one = world.card("done"), world.card("open")
    world.person.complete(done.id, Handoff("ok"))
    later = world.clock.now_ms() // 1000 + 60
    starts = {
        s.READY: world.card(parents=(done.id,)),
        s.TODO: world.card(parents=(done.id, open_one.id)),
        s.SCHEDULED: world.card(scheduled_at=later, parents=(open_one.id,)),
        s.TRIAGE: world.card(status=s.TRIAGE, parents=(open_one.id,)),
        s.BLOCKED: world.card(status=s.BLOCKED, reason="waits for the key"),
    }
    assert {want: card.status for want, card in starts.items()} == {state: state for state in starts}
    assert world.card(scheduled_at=later - 61).status == s.READY, "a time that has passed does not hold"
    assert [world.kinds(card) for card in starts.values()] == [["created"]] * 4 + [["created", "blocked"]]
    world.verified()


def test_the_answer_says_whether_the_card_waits_and_for_whom(world: World) -> None:  # P3, C88
    one, two = world.card("one"), world.card("two")
    made = world.person.create(TaskDraft(title="child", parents=(two.id, one.id, two.id)))
    assert (made.created, made.gated, made.gated_by) == (True, True, (two.id, one.id))
    assert [parent.id for parent in world.person.show(made.task.id).parents] == [one.id, two.id]
    world.verified()


def test_a_card_created_as_blocked_is_held_for_a_person(world: World) -> None:  # P26b
    card = world.card(status=s.BLOCKED, reason=FULL_REASON.text)
    assert (card.hold_release, card.block_fields["cause"]) == (s.BY_PERSON, "spec undecided")  # type: ignore[index]
    with world.refuses(card, WrongState):
        world.script().claim(card.id)
    assert world.person.unblock(card.id, "B").status == s.READY
    assert world.person.show(card.id).comments[-1].body == "B: YAML"
    world.verified()


GIVEN: dict[str, object] = {
    "title": "card",
    "body": "what",
    "acceptance": "proof",
    "assignee": "bot",
    "reviewer": "rev",
    "priority": 3,
    "tenant": "north",
    "workspace_kind": s.DIR,
    "workspace_path": "/srv",
    "idempotency_key": "k",
    "max_runtime_seconds": 60,
    "max_retries": 4,
    "skills": ("sql", "python"),
    "model_override": "large",
    "provider_override": "someone",
    "goal": True,
    "goal_max_turns": 9,
    "session_id": "chat",
    "created_by": "sue",
    "scheduled_at": 1_800_000_060,
}
ELSEWHERE = {"parents", "status", "reason", "branch_name", "name"}  # each has a test of its own


def test_every_field_of_a_draft_is_kept(world: World) -> None:  # P50b, C71
    assert GIVEN.keys() | ELSEWHERE == set(TaskDraft.FIELDS)
    card = world.card(**GIVEN)
    assert {field: getattr(card, field) for field in GIVEN} == GIVEN
    world.verified()


def test_a_start_time_is_honoured(world: World) -> None:  # C71, P3
    card = world.card(scheduled_at=world.clock.now_ms() // 1000 + 60)
    world.clock.advance(59)
    with world.refuses(card, WrongState):
        world.script().claim(card.id)
    with world.unchanged(NothingReady):
        world.script().claim()
    world.clock.advance(1)
    assert world.script().claim().task.id == card.id
    assert world.kinds(card) == ["created", "due", "claimed"]
    world.verified()


# --- names (P50b) --------------------------------------------------------------------------------------------
def test_a_persons_unknown_assignee_is_accepted_with_the_nearest_name(world: World) -> None:  # P50b, C76
    world.names = SomeNames(lanes=("claude",), profiles=("auditor",))
    board = world.person
    assert board.create(TaskDraft(title="card", assignee="auditro")).task.assignee == "auditro"
    assert any("auditro" in text and "auditor" in text for text in board.warnings)
    world.verified()


@pytest.mark.parametrize("field", ["assignee", "reviewer"])
def test_an_agents_unknown_name_is_refused_with_the_list(world: World, field: str) -> None:  # P50b, C76
    world.names = SomeNames(lanes=("claude",), profiles=("auditor",))
    draft = TaskDraft(title="card", idempotency_key="k", **{field: "cluade"})
    with world.unchanged(UnknownAssignee) as refusal:
        world.script(role=s.BRIDGE).create(draft)
    assert refusal.value.fields["near"] == ["claude"]
    assert {"claude", "auditor", "ann"} <= set(refusal.value.fields["known"])


def test_unknown_assignees_can_be_refused_for_people_too(world: World) -> None:  # P50b
    world.set(unknown_assignee="refuse")
    with world.unchanged(UnknownAssignee):
        world.person.create(TaskDraft(title="card", assignee="nobdy"))


@pytest.mark.parametrize("who", ["claude", "auditor", "ann", "veteran"])
def test_lanes_profiles_declared_names_and_earlier_claimers_are_known(world: World, who: str) -> None:  # P50b
    world.names = SomeNames(lanes=("claude",), profiles=("auditor",))
    world.claimed(name="veteran")
    board = world.script(role=s.BRIDGE)
    assert board.create(TaskDraft(title="card", assignee=who, idempotency_key="k")).task.assignee == who
    assert board.warnings == []
    world.verified()


# --- keys (P51) ----------------------------------------------------------------------------------------------
def test_a_second_create_with_the_key_returns_the_first_card(world: World) -> None:  # P51
    first = world.person.create(TaskDraft(title="audit", body="a", idempotency_key="k"))
    board = world.board("other")
    before = world.everything()
    again = board.create(TaskDraft(title="audit", body="b", idempotency_key="k"))
    assert (again.task.id, first.created, again.created) == (first.task.id, True, False)
    assert world.everything() == before
    assert any("another body" in text for text in board.warnings)
    world.verified()


def test_a_key_holds_through_done_and_comes_free_with_archive(world: World) -> None:  # P51, C125
    first = world.card(idempotency_key="k")
    world.person.complete(first.id, Handoff("ok"))
    assert world.person.create(TaskDraft(title="card", idempotency_key="k")).task.id == first.id
    world.person.archive(first.id)
    second = world.person.create(TaskDraft(title="card", idempotency_key="k"))
    assert second.created
    assert second.task.id != first.id
    world.verified()


def test_an_archived_card_whose_key_was_given_again_stays_archived(world: World) -> None:  # P51
    first = world.card(idempotency_key="k")
    world.person.archive(first.id)
    second = world.card(idempotency_key="k")
    with world.unchanged(InvalidValue) as refusal:
        world.person.unarchive(first.id)
    assert second.id in refusal.value.message
    world.verified()


def test_a_bridge_must_give_a_key_and_sees_an_example(world: World) -> None:  # P51
    with world.unchanged(KeyRequired) as refusal:
        world.script(role=s.BRIDGE).create(TaskDraft(title="card"))
    assert "--idempotency-key" in refusal.value.hint


def test_a_person_without_a_terminal_is_warned(world: World) -> None:  # P51
    script, terminal = world.script(), world.person
    script.create(TaskDraft(title="card"))
    terminal.create(TaskDraft(title="card"))
    assert "idempotency" in script.warnings[0]
    assert terminal.warnings == []


def test_two_processes_with_one_key_make_one_card(tmp_path: Path) -> None:  # P51, C124
    home = Home(tmp_path)
    racers = [home.start(CREATE, "nightly", "30") for _ in range(2)]
    for racer in racers:
        racer.ready()
    for racer in racers:
        racer.go()
    answers = [[json.loads(line) for line in racer.finished()] for racer in racers]
    for left, right in zip(*answers, strict=True):
        assert left[0] == right[0], "both get the id of one card"
        assert sorted((left[1], right[1])) == [False, True]
    board = home.board()
    assert len({answer[0] for answer in answers[0]}) == 30 == len(board.events(limit=1000, kinds=("created",)))
    assert board.verify() == ()


CREATE = """
for n in range(int(sys.argv[2])):
    made = board.create(TaskDraft(title="card", idempotency_key=f"{sys.argv[1]}:{n}"))
    print(json.dumps([made.task.id, made.created]))
"""

# C13: a parent and its child are made in one call, and more links are added, while another process claims.
WEAVE = """
parent = board.create(TaskDraft(title="first")).task.id
for n in range(int(sys.argv[1])):
    child = board.create(TaskDraft(title=f"child {n}", parents=(parent,))).task.id
    if n % 3 == 0:
        extra = board.create(TaskDraft(title=f"extra {n}")).task.id
        with suppress(Refusal):
            board.link(extra, child)
    parent = child if n % 5 else parent
print("woven")
"""
GRAB = """
for _ in range(int(sys.argv[1])):
    with suppress(Refusal):
        claim = board.claim(wait=0.05)
        who = board.show(claim.task.id)
        print(json.dumps([claim.task.id, [p.id for p in who.parents if p.status != "done"]]))
        board.complete(claim.task.id, Handoff("ok"), override=True)
"""


def test_no_child_ever_runs_before_its_parents(tmp_path: Path) -> None:  # C13, P4, P10
    home = Home(tmp_path)
    weaver, grabber = home.start(WEAVE, "200"), home.start(GRAB, "120", HERMES_KANBAN_NAME="bot")
    for racer in (weaver, grabber):
        racer.ready()
    for racer in (weaver, grabber):
        racer.go()
    assert weaver.finished() == ["woven"]
    claims = [json.loads(line) for line in grabber.finished()]
    assert claims, "the race must have taken place"
    assert all(open_parents == [] for _, open_parents in claims)
    assert home.broken_order() == []
    assert home.board().verify() == ()


# --- tenant, author, inheritance (P52) -------------------------------------------------------------------------
def test_a_child_takes_its_first_parents_tenant(world: World) -> None:  # P52
    one, two = world.card("one", tenant="north"), world.card("two", tenant="south")
    assert world.card(parents=(one.id, two.id)).tenant == "north"
    assert world.card(parents=(two.id, one.id)).tenant == "south"
    assert world.card(parents=(one.id,), tenant="own").tenant == "own"
    world.verified()


def test_a_card_made_by_a_run_names_it_and_its_session(world: World) -> None:  # P52
    mother = world.card("mother", session_id="chat-7")
    _, claim = world.claimed(mother)
    inside = world.worker(claim, role=s.ORCHESTRATOR)
    made = inside.create(TaskDraft(title="follow-up", created_by="somebody else")).task
    assert (made.created_by, made.created_run_id, made.session_id) == ("orchestrator:bot", claim.run.id, "chat-7")
    assert world.card("by hand").created_by == AT_PERSON
    world.verified()


def test_a_worker_may_not_create(world: World) -> None:  # P70
    _, claim = world.claimed()
    with world.unchanged(Forbidden):
        world.worker(claim).create(TaskDraft(title="card", idempotency_key="k"))


def test_a_waiting_child_cannot_be_claimed(world: World) -> None:  # P3b, P10
    parent = world.card("parent")
    child = world.card("child", parents=(parent.id,))
    with world.refuses(child, WrongState):
        world.script().claim(child.id)
    world.claimed(parent)
    with world.refuses(parent, NotClaimable):
        world.script("other").claim(parent.id)
    world.verified()
