"""Reads: list and its filters, pages, show, columns, stats, inbox, why, events (P3b, P10, P15b, P16, P61b, P80)."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from hermes_kanban.base.errors import InvalidValue, TaskNotFound, Usage
from hermes_kanban.kernel.finish import Handoff
from hermes_kanban.kernel.query import Filter
from hermes_kanban.model import status as s
from hermes_kanban.model.event import KINDS
from hermes_kanban.model.task import Task
from tests.world import FULL_REASON, SomeNames, World


def titles(world: World, **wanted: Any) -> list[str]:
    return [listed.task.title for listed in world.person.list(Filter(**wanted)).cards]


def furnish(world: World) -> dict[str, Task]:
    """Put a card into every state."""
    later = world.clock.now_ms() // 1000 + 3600
    cards = {s.READY: world.card(s.READY)}
    cards[s.TRIAGE] = world.card(s.TRIAGE, status=s.TRIAGE)
    cards[s.TODO] = world.card(s.TODO, parents=(cards[s.READY].id,))
    cards[s.SCHEDULED] = world.card(s.SCHEDULED, scheduled_at=later)
    cards[s.BLOCKED] = world.card(s.BLOCKED, status=s.BLOCKED, reason="no")
    cards[s.RUNNING] = world.claimed(world.card(s.RUNNING))[1].task
    cards[s.REVIEW] = world.in_review(title=s.REVIEW)
    cards[s.DONE], cards[s.ARCHIVED] = world.card(s.DONE), world.card(s.ARCHIVED)
    world.person.complete(cards[s.DONE].id, Handoff("ok"))
    world.person.archive(cards[s.ARCHIVED].id)
    return cards


@pytest.mark.parametrize("state", s.STATES)
def test_a_list_of_one_state_holds_that_state(world: World, state: str) -> None:
    furnish(world)
    assert titles(world, statuses=(state,)) == [state]


def test_a_list_leaves_archived_cards_out_unless_asked(world: World) -> None:
    furnish(world)
    assert set(titles(world)) == set(s.STATES) - {s.ARCHIVED}
    assert set(titles(world, archived=True)) == set(s.STATES)
    assert set(titles(world, statuses=(s.DONE, s.ARCHIVED))) == {s.DONE, s.ARCHIVED}
    world.verified()


def test_filters_narrow_and_every_one_must_fit(world: World) -> None:
    parent = world.card("parent", assignee="ann", tenant="north")
    world.card("child", parents=(parent.id,), assignee="bot")
    world.card("alone", body="the Needle is here")
    world.card("50% off_now", tenant="south")
    assert titles(world, assignee="ann") == ["parent"]
    assert titles(world, assignee="none") == ["alone", "50% off_now"]
    assert titles(world, tenant="north") == ["parent", "child"]
    assert titles(world, tenant="north", assignee="bot") == ["child"]
    assert titles(world, parent=parent.id) == ["child"]
    assert titles(world, search="needle") == ["alone"]
    assert (titles(world, search="%"), titles(world, search="f_n"), titles(world, search="x")) == (
        ["50% off_now"],
        ["50% off_now"],
        [],
    )
    with pytest.raises(TaskNotFound):
        titles(world, parent="t_00000000")


def test_order_is_by_priority_then_seq_and_never_by_time(world: World) -> None:  # P16
    for title, priority in (("a", 0), ("b", 5), ("c", -5), ("d", 5)):
        world.card(title, priority=priority)
        world.clock.advance(-100)
    assert titles(world) == ["b", "d", "a", "c"]
    assert titles(world, sort="seq") == ["a", "b", "c", "d"]
    assert titles(world, sort="newest") == ["d", "c", "b", "a"]
    assert titles(world, sort="updated") == ["a", "b", "c", "d"]
    assert [world.script().claim().task.title for _ in range(4)] == ["b", "d", "a", "c"]


def test_pages_are_cut_and_say_so(world: World) -> None:
    for number in range(5):
        world.card(str(number))
    page = world.person.list(Filter(limit=2))
    assert ([listed.task.title for listed in page.cards], page.more) == (["0", "1"], True)
    last = world.person.list(Filter(limit=2, after=4))
    assert ([listed.task.title for listed in last.cards], last.more) == (["4"], False)


@pytest.mark.parametrize(
    "wanted",
    [{"limit": 0}, {"limit": -1}, {"limit": 10**23}, {"after": -1}, {"sort": "colour"}, {"statuses": ("doing",)}],
    ids=str,
)
def test_a_wrong_list_is_refused(world: World, wanted: dict[str, Any]) -> None:  # P50
    with pytest.raises(InvalidValue):
        world.person.list(Filter(**wanted))


def test_a_lapsed_pull_claim_lists_among_the_ready(world: World) -> None:  # P10
    _, claim = world.claimed(world.card("lapsed"), ttl=60)
    assert titles(world, statuses=(s.READY,)) == []
    world.clock.advance(60)
    (listed,) = world.person.list(Filter(statuses=(s.READY,))).cards
    assert (listed.task.id, listed.lease_over) == (claim.task.id, True)
    assert world.person.show(claim.task.id).lease_over
    world.script("other").claim()
    assert titles(world, statuses=(s.READY,)) == []
    world.verified()


def test_a_cooling_card_shows_until_when(world: World) -> None:  # P15b
    _, claim = world.claimed(ttl=60)
    world.person.reclaim(claim.task.id)
    (listed,) = world.person.list(Filter(statuses=(s.READY,))).cards
    assert (listed.task.eligible_at, listed.task.eligible_reason) == (claim.run.claim_expires, s.QUARANTINE)


def test_a_run_keeps_every_fact_of_the_attempt(world: World) -> None:  # P20, P11
    card = world.card(model_override="m1", provider_override="p1")
    board, claim = world.claimed(card, ttl=90)
    world.clock.advance(7.5)
    board.heartbeat(card.id, "half")
    board.complete(card.id, Handoff("sum", {"n": 1}))
    (run,) = world.person.runs(card.id)
    now = world.clock.now_ms()
    assert run.as_dict() == claim.run.as_dict() | {
        "process_state": s.ENDED,
        "claim_expires": now // 1000 + 90,
        "last_heartbeat_at": now // 1000,
        "heartbeat_note": "half",
        "progressed": True,
        "ended_at": now // 1000,
        "ended_ms": now,
        "outcome": s.COMPLETED,
        "end_verb": "complete",
        "end_result": {"to": s.DONE, "promoted": []},
        "summary": "sum",
        "metadata": {"n": 1},
    }
    known = (run.task_id, run.role, run.profile, run.host, run.claimed_from, run.pull, run.model, run.provider)
    assert known == (card.id, s.IMPLEMENTER, "bot", "host", s.READY, True, "m1", "p1")
    assert (run.started_at, run.started_ms, run.claim_ttl) == (now // 1000 - 7, now - 7500, 90)
    assert (run.claim_lock or "").split(":")[0] == "host"
    assert run.exit_code is run.error is run.log_path is run.cost_usd is None


# --- show (P61b) -------------------------------------------------------------------------------------------------
def test_show_holds_everything_about_a_card(world: World) -> None:  # P61b, P20
    parent = world.card("parent")
    board, claim = world.claimed(parent)
    board.comment(parent.id, "first")
    world.person.comment(parent.id, "second")
    board.complete(parent.id, Handoff("sum", {"n": 1}, "res"))
    child = world.card("child", parents=(parent.id,))
    shown = world.person.show(parent.id)
    assert [card.id for card in shown.children] == [child.id]
    assert [card.id for card in world.person.show(child.id).parents] == [parent.id]
    assert [(c.author, c.body, c.run_id) for c in shown.comments] == [
        ("bot", "first", claim.run.id),
        ("ann", "second", None),
    ]
    assert shown.comment_count == 2
    (run,) = shown.runs
    assert (run.outcome, run.summary, run.metadata, run.profile) == (s.COMPLETED, "sum", {"n": 1}, "bot")
    assert [event.kind for event in shown.events] == ["created", "claimed", "commented", "commented", "completed"]
    assert shown.task.result == "res"
    world.verified()


def test_show_keeps_the_newest_comments_and_events_in_their_order(world: World) -> None:  # P60, P61b
    card = world.card()
    for number in range(60):
        world.person.comment(card.id, str(number))
    shown = world.person.show(card.id, events=3)
    assert [c.body for c in shown.comments] == [str(number) for number in range(10, 60)]
    assert shown.comment_count == 60
    assert [e.payload["excerpt"] for e in shown.events] == ["57", "58", "59"]


def test_comments_are_facts_under_the_callers_name(world: World) -> None:  # P60
    card = world.card()
    world.person.comment(card.id, "as another", author="sue")
    with world.refuses(card, InvalidValue):
        world.person.comment(card.id, " \n ")
    (comment,) = world.person.show(card.id).comments
    assert (comment.author, comment.author_kind, comment.body) == ("sue", s.HUMAN, "as another")


def test_a_card_is_found_by_the_beginning_of_its_id(world: World) -> None:
    card = world.card()
    assert world.person.find_id(card.id[:9]) == card.id
    assert world.person.find_id(f" {card.id.upper()} ") == card.id
    for wrong in ("t_00000000", "", "nonsense", "t_%", card.id + "0"):
        with pytest.raises(TaskNotFound):
            world.person.find_id(wrong)
    world.card()
    with pytest.raises(Usage):
        world.person.find_id("t_")


# --- board, stats, inbox --------------------------------------------------------------------------------------------
def test_columns_and_stats_count_every_state(world: World) -> None:
    furnish(world)
    columns = world.person.columns(per_column=1)
    assert [(column.status, column.count) for column in columns] == [(state, 1) for state in s.STATES[:-1]]
    assert [column.cards[0].task.title for column in columns] == list(s.STATES[:-1])
    stats = world.person.stats()
    assert stats["status"] == dict.fromkeys(s.STATES, 1)
    assert stats["runs"] == {"open": 1, s.REVIEW_REQUESTED: 1}
    assert stats["events"] == world.person.last_event_id()
    world.clock.advance(90)
    assert world.person.stats()["oldest_ready_seconds"] == 90


def test_an_empty_board_counts_too(world: World) -> None:
    assert world.person.stats()["status"] == dict.fromkeys(s.STATES, 0)
    assert [column.count for column in world.person.columns()] == [0] * (len(s.STATES) - 1)
    assert world.person.stats()["oldest_ready_seconds"] is None


def test_the_inbox_is_what_waits_for_a_person_oldest_first(world: World) -> None:  # P26b
    cards = furnish(world)
    world.clock.advance(10)
    nobody = world.in_review(title="no reviewer", reviewer=None)
    world.clock.advance(10)
    parked = world.person.schedule(world.card("parked").id)
    waiting = [card.id for card in world.person.inbox()]
    assert waiting == [cards[s.TRIAGE].id, cards[s.BLOCKED].id, nobody.id, parked.id]
    assert [card.id for card in world.person.inbox(limit=1)] == [cards[s.TRIAGE].id]


# --- why (P3b) ------------------------------------------------------------------------------------------------------
def reasons(world: World, card: Task) -> tuple[list[str], list[str]]:
    _, startable = world.person.why(card.id)
    return [r.code for r in startable.claimable], [r.code for r in startable.dispatchable]


def test_why_gives_both_answers_for_every_state(world: World) -> None:  # P3b
    cards = furnish(world)
    found = {state: reasons(world, card) for state, card in cards.items()}
    assert found[s.READY] == ([], ["assignee"])
    assert found[s.TODO] == (["parents"], ["parents", "assignee"])
    assert found[s.REVIEW] == ([], ["lane"])
    assert {found[state][0][0] for state in (s.TRIAGE, s.SCHEDULED, s.BLOCKED)} == {"held"}
    assert found[s.RUNNING][0] == ["running"]
    assert {found[state][0][0] for state in (s.DONE, s.ARCHIVED)} == {"state"}


def test_every_waiting_card_has_a_reason_and_an_end(world: World) -> None:  # P3b
    for state, card in furnish(world).items():
        _, startable = world.person.why(card.id)
        for reason in startable.claimable:
            assert reason.text
            if state in s.OPEN_STATES:
                assert reason.until or reason.actor != "nobody" or reason.task_ids, f"{state} waits without an end"


def test_a_lane_or_profile_makes_a_card_dispatchable(world: World) -> None:  # P3b
    world.names = SomeNames(lanes=("claude",), profiles=("auditor",))
    assert reasons(world, world.card(assignee="claude")) == ([], [])
    assert reasons(world, world.card(assignee="auditor")) == ([], [])
    assert reasons(world, world.card(assignee="bot")) == ([], ["lane"])


def test_what_why_says_is_what_a_claim_does(world: World) -> None:  # P3b, P10
    _, claim = world.claimed(ttl=60)
    assert reasons(world, claim.task)[0] == ["running"]
    world.clock.advance(60)
    assert reasons(world, claim.task)[0] == []
    world.script("other").claim(claim.task.id)
    world.person.reclaim(claim.task.id)
    assert reasons(world, claim.task)[0] == [s.QUARANTINE]
    at = world.clock.now_ms() // 1000 + 60
    timed = world.card(scheduled_at=at)
    assert world.person.why(timed.id)[1].claimable[0].until == at
    world.clock.advance(60)
    assert reasons(world, timed)[0] == []
    assert world.script("third").claim(timed.id).task.status == s.RUNNING
    world.verified()


# --- events (P80) -----------------------------------------------------------------------------------------------------
def test_events_come_in_order_from_a_cursor_and_by_kind(world: World) -> None:  # P80
    furnish(world)
    events = world.person.events(limit=1000)
    ids = [event.id for event in events]
    assert ids == sorted(set(ids))
    assert {event.kind for event in events} <= KINDS.keys()
    assert world.person.events(since=ids[4], limit=3) == events[5:8]
    assert [e.kind for e in world.person.events(kinds=("claimed",))] == ["claimed", "claimed"]
    assert world.person.events(since=ids[-1]) == ()
    for event in events:
        assert event.at_ms // 1000 == event.created_at
        assert event.actor.partition(":")[0] in s.ACTORS


def test_events_of_an_unknown_card_are_not_found(world: World) -> None:
    with pytest.raises(TaskNotFound):
        world.person.events(task="t_00000000")
    with pytest.raises(TaskNotFound):
        world.person.runs("t_00000000")


def test_a_tailer_never_finds_an_event_below_what_it_read(world: World) -> None:  # P80
    seen: list[int] = []
    late: list[int] = []
    reader = type(world)(world.folder)
    stop = threading.Event()

    def tail() -> None:
        while not stop.is_set() or reader.person.last_event_id() > (seen[-1] if seen else 0):
            known = set(seen)
            fresh = [event.id for event in reader.person.events(limit=1000)]
            late.extend(number for number in fresh if seen and number < seen[-1] and number not in known)
            seen.extend(number for number in fresh if number not in known)

    tailer = threading.Thread(target=tail)
    tailer.start()
    for number in range(40):
        board, claim = world.claimed(world.card(str(number)))
        board.block(claim.task.id, FULL_REASON)
    stop.set()
    tailer.join(60)
    reader.close()
    assert late == []
    assert seen == [event.id for event in world.person.events(limit=1000)]
    world.verified()
