"""Claims: one winner, a lease, and what a card shows of its run (P2, P10, P11)."""

from __future__ import annotations

import multiprocessing
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hermes_kanban.base.errors import (
    ClaimLost,
    Gated,
    InvalidValue,
    NotClaimable,
    NothingReady,
    WorkspaceFailed,
    WrongState,
)
from hermes_kanban.kernel.finish import Handoff
from hermes_kanban.kernel.query import Filter
from hermes_kanban.model import status as s
from hermes_kanban.model.claim import Claim
from tests.conformance.threads import RACERS, race
from tests.world import FULL_REASON, World


def claim_in_process(kind: type[World], folder: Path, card: str, start: Any, answers: Any) -> None:
    """Claim in another process and tell how it went."""
    world = kind(folder)
    start.wait()
    try:
        answers.put(("won", world.script("racer").claim(card).run.id))
    except NotClaimable as refusal:
        answers.put((refusal.code, refusal.fields["reason"]))
    world.close()


# --- one winner ----------------------------------------------------------------------------------------------
def test_a_second_claimer_hears_who_holds_the_card(world: World) -> None:  # P10
    _, claim = world.claimed(ttl=60)
    with world.refuses(claim.task, NotClaimable) as refusal:
        world.script("other").claim(claim.task.id)
    assert "bot" in refusal.value.message
    assert refusal.value.fields["until"] == claim.run.claim_expires


def test_one_of_many_racing_claimers_wins(world: World) -> None:  # P10
    card = world.card()
    answers = race(world, lambda board, _: board.claim(card.id))
    won = [a for a in answers if isinstance(a, Claim)]
    lost = [a for a in answers if isinstance(a, NotClaimable)]
    assert (len(won), len(lost)) == (1, RACERS - 1)
    assert {a.fields["until"] for a in lost} == {won[0].run.claim_expires}
    assert world.kinds(card) == ["created", "claimed"]
    world.verified()


def test_one_of_several_racing_processes_wins(world: World) -> None:  # P10
    card = world.card()
    spawn = multiprocessing.get_context("spawn")
    start, answers = spawn.Barrier(3), spawn.Queue()
    arguments = (type(world), world.folder, card.id, start, answers)
    racers = [spawn.Process(target=claim_in_process, args=arguments) for _ in range(3)]
    for racer in racers:
        racer.start()
    heard = sorted(answers.get(timeout=120) for _ in racers)
    for racer in racers:
        racer.join()
    assert [word for word, _ in heard] == ["not_claimable", "not_claimable", "won"]
    assert world.task(card).current_run_id == heard[-1][1]
    world.verified()


def test_racers_for_the_next_card_never_get_the_same_one(world: World) -> None:  # P10, P16
    cards = {world.card(f"card {n}").id for n in range(RACERS - 2)}
    answers = race(world, lambda board, _: board.claim())
    won = [a.task.id for a in answers if isinstance(a, Claim)]
    assert sorted(won) == sorted(cards)
    assert sum(isinstance(a, NothingReady) for a in answers) == 2
    world.verified()


def test_one_of_many_takes_over_a_lapsed_claim(world: World) -> None:  # P10
    _, first = world.claimed(ttl=60)
    world.clock.advance(61)
    answers = race(world, lambda board, _: board.claim(first.task.id))
    assert sum(isinstance(a, Claim) for a in answers) == 1
    assert world.kinds(first.task) == ["created", "claimed", "reclaimed", "claimed"]
    world.verified()


@pytest.mark.parametrize("state", [s.TRIAGE, s.BLOCKED])
def test_a_held_card_cannot_be_claimed(world: World, state: str) -> None:  # P10, C64
    card = world.card(status=state, reason="later")
    with world.refuses(card, WrongState) as refusal:
        world.script().claim(card.id)
    assert state in refusal.value.message
    assert refusal.value.fields["works_from"] == [s.READY, s.REVIEW]


def test_a_child_of_an_open_parent_cannot_be_claimed(world: World) -> None:  # P10, C13
    parent = world.card()
    child = world.card(parents=(parent.id,))
    with world.refuses(child, WrongState):
        world.script().claim(child.id)
    assert world.script().claim().task.id == parent.id
    with pytest.raises(NothingReady):
        world.script().claim()


def test_parents_are_checked_again_inside_the_claim(world: World) -> None:  # P10, C13
    parent = world.card()
    board, claim = world.claimed(parent)
    board.complete(parent.id, Handoff("done"))
    child = world.in_review(parents=(parent.id,))
    world.person.reopen(parent.id)
    with world.refuses(child, Gated) as refusal:
        world.script("rev").claim(child.id)
    assert refusal.value.fields["open_parents"] == [parent.id]
    with pytest.raises(NothingReady):
        world.script("rev").claim(review=True)
    assert claim.task.id == parent.id
    world.verified()


def test_a_lapsed_card_whose_parent_opened_again_waits_for_it(world: World) -> None:  # P10, P3
    parent, other = world.card("parent"), world.card("other")
    world.person.complete(parent.id, Handoff("done"))
    child = world.card("child", parents=(parent.id,), priority=9)
    world.claimed(child, ttl=60)
    world.person.reopen(parent.id)
    world.clock.advance(60)
    with pytest.raises(Gated):
        world.script("other").claim(child.id)
    assert (world.status(child), world.kinds(child)[-1]) == (s.TODO, "reclaimed")
    assert world.script("other").claim().task.title == "parent"
    assert world.script("other").claim().task.id == other.id
    world.verified()


# --- the lease -----------------------------------------------------------------------------------------------
def test_a_lapsed_claim_is_taken_over_in_one_step(world: World) -> None:  # P10, C10
    late, first = world.claimed(ttl=60)
    world.clock.advance(61)
    second = world.script("other").claim(first.task.id)
    assert second.run.id > first.run.id
    assert world.kinds(first.task)[-2:] == ["reclaimed", "claimed"]
    with pytest.raises(ClaimLost):
        late.complete(first.task.id, Handoff("too late"))
    assert world.status(first.task) == s.RUNNING
    assert world.kinds(first.task)[-1] == "refused"
    world.verified()


def test_a_lapsed_claim_is_listed_as_ready_and_taken_by_next(world: World) -> None:  # P10, C10
    _, first = world.claimed(ttl=60)
    ready = Filter(statuses=(s.READY,))
    assert world.person.list(ready).cards == ()
    world.clock.advance(60)
    (listed,) = world.person.list(ready).cards
    assert (listed.task.id, listed.lease_over) == (first.task.id, True)
    second = world.script("other").claim()
    assert second.task.id == first.task.id
    assert [run.outcome for run in world.person.runs(first.task.id)] == [s.RECLAIMED, None]
    world.verified()


def test_a_late_owner_keeps_its_claim_until_somebody_takes_it(world: World) -> None:  # P10, P13
    board, claim = world.claimed(ttl=60)
    world.clock.advance(600)
    run, _ = board.heartbeat(claim.task.id)
    assert run.claim_expires == claim.run.claim_expires + 600
    with world.refuses(claim.task, NotClaimable):
        world.script("other").claim(claim.task.id)
    board.complete(claim.task.id, Handoff("late but mine"))
    world.verified()


def test_a_claim_writes_lock_expiry_and_start_on_its_run(world: World) -> None:  # P11
    claim = world.script().claim(world.card().id, ttl=60)
    assert re.fullmatch(r"host:\d+:[0-9a-f-]{32,36}", claim.run.claim_lock or "")
    assert claim.run.claim_expires == claim.run.started_at + 60
    assert claim.run.last_heartbeat_at == claim.run.started_at
    assert (claim.run.role, claim.run.profile, claim.run.claimed_from) == (s.IMPLEMENTER, "bot", s.READY)
    assert Path(claim.workspace).is_dir()


def test_the_lease_is_what_the_caller_says_else_the_setting(world: World) -> None:  # P11
    assert world.script().claim(world.card().id).run.claim_ttl == 900
    world.set(claim_ttl_seconds=30)
    assert world.script().claim(world.card().id).run.claim_ttl == 30
    assert world.script().claim(world.card().id, ttl=7).run.claim_ttl == 7


@pytest.mark.parametrize("ttl", [0, -1, 86_401])
def test_a_lease_out_of_range_is_refused(world: World, ttl: int) -> None:  # P11, P50
    card = world.card()
    with world.refuses(card, InvalidValue) as refusal:
        world.script().claim(card.id, ttl=ttl)
    assert "1 to 86400" in refusal.value.message


def test_a_workspace_that_cannot_be_made_leaves_nothing_running(world: World) -> None:  # P11, P15b
    place = world.folder / "project"
    card = world.card(workspace_kind=s.DIR, workspace_path=str(place))
    with pytest.raises(WorkspaceFailed) as refusal:
        world.script().claim(card.id)
    assert refusal.value.exit_code == 7
    waiting = world.task(card)
    assert (waiting.status, waiting.current_run_id, waiting.consecutive_failures) == (s.READY, None, 0)
    assert waiting.eligible_at == world.clock.now_ms() // 1000 + 30
    (run,) = world.person.runs(card.id)
    assert (run.outcome, run.process_state) == (s.RECLAIMED, s.ENDED)
    with pytest.raises(NothingReady):
        world.script().claim()
    place.mkdir()
    world.clock.advance(30)
    assert world.script().claim().workspace == str(place)
    world.verified()


# --- what a card shows of its run ----------------------------------------------------------------------------
def test_claim_columns_of_a_card_come_from_its_open_run(world: World) -> None:  # P2
    board, claim = world.claimed()
    card = world.task(claim.task)
    assert (card.current_run_id, card.claim_lock, card.claim_expires, card.started_at) == (
        claim.run.id,
        claim.run.claim_lock,
        claim.run.claim_expires,
        claim.run.started_at,
    )
    world.clock.advance(5)
    board.complete(card.id, Handoff("done"))
    card = world.task(card)
    assert (card.current_run_id, card.claim_lock, card.claim_expires, card.last_heartbeat_at) == (None,) * 4
    assert card.started_at == claim.run.started_at
    world.verified()


@pytest.mark.parametrize("end", ["complete", "block", "request_review", "schedule", "archive", "reclaim"])
def test_a_card_runs_exactly_as_long_as_it_has_an_open_run(world: World, end: str) -> None:  # P2
    board, claim = world.claimed()
    card = claim.task.id
    ends: dict[str, Callable[[], object]] = {
        "complete": lambda: board.complete(card, Handoff("done")),
        "block": lambda: world.person.block(card, FULL_REASON, override=True),
        "request_review": lambda: board.request_review(card, Handoff("look")),
        "schedule": lambda: world.person.schedule(card, override=True),
        "archive": lambda: world.person.archive(card, override=True),
        "reclaim": lambda: world.person.reclaim(card),
    }
    assert [run.open for run in world.person.runs(card)] == [True]
    ends[end]()
    assert world.task(card).status != s.RUNNING
    assert [run.open for run in world.person.runs(card) if run.role != s.MANUAL] == [False]
    world.verified()


def test_a_new_attempt_does_not_inherit_the_last_heartbeat(world: World) -> None:  # P11, P13, C7
    board, first = world.claimed()
    board.heartbeat(first.task.id)
    board.complete(first.task.id, Handoff("done"))
    world.clock.advance(7200)
    world.person.reopen(first.task.id)
    second = world.script("other").claim(first.task.id)
    assert second.run.last_heartbeat_at == world.clock.now_ms() // 1000
    assert world.task(first.task).last_heartbeat_at == second.run.last_heartbeat_at
