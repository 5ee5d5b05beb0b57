"""THE table: its rows make sense, every state is reachable, and what is not listed is refused (P1, P2, C89)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hermes_kanban.base.errors import WrongState
from hermes_kanban.kernel.board import Board
from hermes_kanban.kernel.finish import Handoff
from hermes_kanban.model import status as s
from hermes_kanban.model import transitions
from hermes_kanban.model.event import KINDS
from hermes_kanban.model.task import DEFAULTS, Task
from hermes_kanban.model.transitions import BY_VERB, GATE, NONE, ORIGIN, TRANSITIONS, Transition
from tests.world import FULL_REASON, World

GATES = {GATE: {s.READY, s.TODO}, ORIGIN: {s.READY, s.TODO, s.REVIEW}, NONE: set()}


def targets(row: Transition) -> set[str]:
    return set().union(*(GATES.get(target, {target}) for target in row.targets))


# --- the table itself ----------------------------------------------------------------------------------------
def test_every_verb_has_one_row() -> None:
    assert len(BY_VERB) == len(TRANSITIONS)


@pytest.mark.parametrize("row", TRANSITIONS, ids=lambda row: row.verb)
def test_a_row_speaks_the_words_of_the_protocol(row: Transition) -> None:
    assert {*row.sources, *row.override_sources} <= set(s.STATES)
    assert not set(row.sources) & set(row.override_sources)
    assert targets(row) <= set(s.STATES)
    assert row.events
    assert set(row.events) <= KINDS.keys()
    assert row.outcome is None or row.outcome in s.OUTCOMES
    assert len(set(row.sources)) == len(row.sources)


def test_every_state_is_reachable_from_a_new_card() -> None:
    reached: set[str] = targets(BY_VERB["create"])
    while True:
        step = {t for row in TRANSITIONS if reached & {*row.sources, *row.override_sources} for t in targets(row)}
        if step <= reached:
            break
        reached |= step
    assert reached == set(s.STATES)


@pytest.mark.parametrize("state", s.STATES)
def test_from_every_state_there_is_a_way_to_done_and_to_work(state: str) -> None:
    """No state is a trap: nothing waits for ever."""
    reached = {state}
    for _ in s.STATES:
        reached |= {t for row in TRANSITIONS if reached & set(row.sources) for t in targets(row)}
    assert {s.DONE, s.RUNNING, s.READY, s.ARCHIVED} <= reached


def test_only_a_claim_leads_to_running() -> None:  # P2, P10
    assert {row.verb for row in TRANSITIONS if s.RUNNING in targets(row)} == {"claim", "take_over", "heartbeat"}


def test_whatever_leaves_running_ends_the_run() -> None:  # P2, P14
    for row in TRANSITIONS:
        if s.RUNNING in row.sources and s.RUNNING not in targets(row):
            assert row.outcome or row.verb == "end-run", f"{row.verb} would leave an open run behind"


def test_a_blocked_card_is_released_by_its_own_verbs_only() -> None:  # P26b, C64
    freed = {row.verb for row in TRANSITIONS if s.BLOCKED in row.sources and targets(row) & {s.READY, s.TODO}}
    assert freed == {"unblock", "promote", "probe"}


def test_the_specifications_rows_are_here() -> None:
    """The table of the specification, written down a second time."""
    wanted = {
        "claim": ({s.READY, s.REVIEW}, "claimed", None),
        "complete": ({s.RUNNING, s.READY, s.REVIEW, s.BLOCKED}, "completed", s.COMPLETED),
        "request-review": ({s.RUNNING, s.READY}, "review_requested", s.REVIEW_REQUESTED),
        "request-changes": ({s.RUNNING, s.REVIEW}, "changes_requested", s.CHANGES_REQUESTED),
        "block": ({s.RUNNING, s.READY, s.REVIEW, s.TODO}, "blocked", s.OUT_BLOCKED),
        "unblock": ({s.BLOCKED, s.SCHEDULED}, "unblocked", None),
        "schedule": (
            {s.TRIAGE, s.TODO, s.READY, s.RUNNING, s.REVIEW, s.BLOCKED},
            "scheduled",
            s.OUT_SCHEDULED,
        ),
        "promote": ({s.TRIAGE, s.BLOCKED, s.SCHEDULED}, "promoted", None),
        "reclaim": ({s.RUNNING}, "reclaimed", s.RECLAIMED),
        "archive": (set(s.STATES) - {s.ARCHIVED}, "archived", s.RECLAIMED),
        "unarchive": ({s.ARCHIVED}, "unarchived", None),
        "reopen": ({s.DONE}, "reopened", None),
        "delete": (set(s.STATES) - {s.RUNNING}, "deleted", None),
    }
    for verb, (sources, event, outcome) in wanted.items():
        row = BY_VERB[verb]
        assert (set(row.sources), row.event, row.outcome) == (sources, event, outcome), verb
    assert set(BY_VERB["complete"].override_sources) == {s.TODO, s.TRIAGE, s.SCHEDULED}


# --- check(): generated, every verb with every state ---
def card_in(state: str) -> Task:
    return Task(**(DEFAULTS | {"id": "t_0123abcd", "status": state}))


@pytest.mark.parametrize("state", s.STATES)
@pytest.mark.parametrize("row", TRANSITIONS, ids=lambda row: row.verb)
def test_the_check_lets_pass_what_is_listed_and_nothing_else(row: Transition, state: str) -> None:
    for override in (False, True):
        sources = row.sources + (row.override_sources if override else ())
        if state in sources:
            assert transitions.check(card_in(state), row.verb, override=override) is row
            continue
        with pytest.raises(WrongState) as refusal:
            transitions.check(card_in(state), row.verb, override=override)
        assert_named(refusal.value, row.verb, state, sources)


def assert_named(refusal: WrongState, verb: str, state: str, sources: tuple[str, ...]) -> None:
    """Check that the refusal names state, verb and the states from which the verb works."""
    assert (refusal.code, refusal.exit_code, refusal.http_status) == ("wrong_state", 4, 409)
    assert f" is {state}: {verb} works from " in refusal.message
    assert all(source in refusal.message for source in sources)
    assert (refusal.fields["status"], refusal.fields["verb"]) == (state, verb)
    assert refusal.fields["works_from"] == list(sources)
    assert refusal.hint


# --- the verbs of the board, on a real board ---
VERBS: dict[str, Callable[[Board, str], Any]] = {
    "claim": lambda board, card: board.claim(card),
    "complete": lambda board, card: board.complete(card, Handoff("ok")),
    "request-review": lambda board, card: board.request_review(card, Handoff("ok")),
    "request-changes": lambda board, card: board.request_changes(card, "again"),
    "block": lambda board, card: board.block(card, FULL_REASON),
    "unblock": lambda board, card: board.unblock(card, "an answer"),
    "promote": lambda board, card: board.promote(card),
    "schedule": lambda board, card: board.schedule(card),
    "reclaim": lambda board, card: board.reclaim(card),
    "archive": lambda board, card: board.archive(card),
    "unarchive": lambda board, card: board.unarchive(card),
    "reopen": lambda board, card: board.reopen(card),
}
LATER = 1_900_000_000


def put(world: World, state: str) -> Task:
    """Return a card in this state, as it comes there in life."""
    ways: dict[str, Callable[[], Task]] = {
        s.TRIAGE: lambda: world.card(status=s.TRIAGE),
        s.TODO: lambda: world.card(parents=(world.card("parent").id,)),
        s.SCHEDULED: lambda: world.card(scheduled_at=LATER),
        s.READY: world.card,
        s.RUNNING: lambda: world.claimed()[1].task,
        s.REVIEW: world.in_review,
        s.BLOCKED: lambda: world.card(status=s.BLOCKED, reason="no"),
        s.DONE: lambda: world.person.complete(world.card().id, Handoff("ok")).task,
        s.ARCHIVED: lambda: world.person.archive(world.card().id),
    }
    card = ways[state]()
    assert card.status == state
    return card


# A claim of a running card has an answer of its own: who holds it (P10).
NOT_LISTED = [
    (verb, state)
    for verb in VERBS
    for state in s.STATES
    if state not in BY_VERB[verb].sources and (verb, state) != ("claim", s.RUNNING)
]
LISTED = [(verb, state) for verb in VERBS for state in BY_VERB[verb].sources if state != s.RUNNING]


@pytest.mark.parametrize(("verb", "state"), NOT_LISTED)
def test_a_verb_from_a_wrong_state_is_refused_and_changes_nothing(world: World, verb: str, state: str) -> None:
    card = put(world, state)
    with world.unchanged(WrongState) as refusal:
        VERBS[verb](world.person, card.id)
    assert_named(refusal.value, verb, state, BY_VERB[verb].sources)
    world.verified()


@pytest.mark.parametrize(("verb", "state"), LISTED)
def test_a_verb_from_a_listed_state_works_and_leaves_its_event(world: World, verb: str, state: str) -> None:
    card = put(world, state)
    last = world.person.last_event_id()
    VERBS[verb](world.person, card.id)
    row = BY_VERB[verb]
    events = [event for event in world.person.events(since=last) if event.kind in row.events]
    assert len(events) == 1
    assert world.status(card) in targets(row) | {s.REVIEW}
    assert (events[0].payload["from"], events[0].payload["to"]) == (state, world.status(card))
    world.verified()


@pytest.mark.parametrize("state", BY_VERB["complete"].override_sources)
def test_a_person_may_complete_what_never_started(world: World, state: str) -> None:
    card = put(world, state)
    assert world.person.complete(card.id, Handoff("ok"), override=True).task.status == s.DONE
    world.verified()
