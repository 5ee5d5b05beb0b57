"""Fencing: only the open run's owner acts on a card; a person needs an override (P12, P12c, P14)."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hermes_kanban.base.errors import ClaimLost, Forbidden, NotClaimable, NothingReady, Unexpected
from hermes_kanban.kernel import find, runs
from hermes_kanban.kernel.board import Board
from hermes_kanban.kernel.context import Context
from hermes_kanban.kernel.finish import Handoff
from hermes_kanban.model import status as s
from hermes_kanban.model.actors import Actor
from hermes_kanban.model.claim import Caps, Claim
from tests.world import FULL_REASON, World

# Every verb by which a run acts on its card (comment is open to everybody, so it counts only with a run shown).
VERBS: dict[str, Callable[..., Any]] = {
    "heartbeat": lambda board, card, **how: board.heartbeat(card, **how),
    "complete": lambda board, card, **how: board.complete(card, Handoff("done"), **how),
    "block": lambda board, card, **how: board.block(card, FULL_REASON, s.NEEDS_INPUT, **how),
    "request-review": lambda board, card, **how: board.request_review(card, Handoff("look"), **how),
    "request-changes": lambda board, card, **how: board.request_changes(card, "again", **how),
}
ENDINGS = {name: verb for name, verb in VERBS.items() if name != "heartbeat"}
every_verb = pytest.mark.parametrize("verb", VERBS)


def taken_over(world: World) -> tuple[Claim, Claim]:
    """Return a claim that was lost, and the one that holds its card now."""
    _, first = world.claimed(ttl=60)
    world.clock.advance(60)
    return first, world.script("other").claim(first.task.id, ttl=60)


def claim_and_hang(kind: type[World], folder: Path, card: str, answer: Any) -> None:
    """Claim in another process, tell the fence, and never come back."""
    claim = kind(folder).script().claim(card, ttl=60)
    answer.send((claim.run.id, claim.run.claim_lock))
    signal.pause()


# --- who may not -----------------------------------------------------------------------------------------------
@every_verb
def test_a_lost_claim_closes_nothing(world: World, verb: str) -> None:  # P12, C1
    first, _ = taken_over(world)
    with world.refuses(first.task, ClaimLost, logged=True) as refusal:
        VERBS[verb](world.script("bot", first), first.task.id)
    assert refusal.value.exit_code == 5
    assert "run 2 (other)" in refusal.value.message
    world.verified()


@pytest.mark.parametrize("verb", [*VERBS, "comment"])
def test_a_killed_process_has_no_late_word(world: World, verb: str) -> None:  # P12, C1
    card = world.card()
    spawn = multiprocessing.get_context("spawn")
    hear, tell = spawn.Pipe(duplex=False)
    process = spawn.Process(target=claim_and_hang, args=(type(world), world.folder, card.id, tell))
    process.start()
    run, lock = hear.recv()
    os.kill(process.pid or 0, signal.SIGKILL)
    process.join()
    world.clock.advance(60)
    world.script("other").claim(card.id)
    late = world.board("bot", interactive=False, task=card.id, run=str(run), lock=lock)
    act = VERBS.get(verb, lambda board, card: board.comment(card, "late"))
    with world.refuses(card, ClaimLost, logged=True):
        act(late, card.id)
    world.verified()


@every_verb
@pytest.mark.parametrize("shown", [None, "", "abc", "-2", "2.0", "99", "1"])
def test_without_a_readable_run_of_its_own_a_worker_does_nothing(
    world: World, verb: str, shown: str | None
) -> None:  # P12, C2
    first, second = taken_over(world)
    assert (first.run.id, second.run.id) == (1, 2)
    worker = world.board("other", interactive=False, task=second.task.id, run=shown, lock=second.run.claim_lock)
    with world.refuses(second.task, ClaimLost, logged=True):
        VERBS[verb](worker, second.task.id)
    world.verified()


@every_verb
def test_the_right_run_with_a_wrong_lock_does_nothing(world: World, verb: str) -> None:  # P12
    _, claim = world.claimed()
    thief = world.board("bot", interactive=False, task=claim.task.id, run=str(claim.run.id), lock="host:1:guessed")
    with world.refuses(claim.task, ClaimLost, logged=True):
        VERBS[verb](thief, claim.task.id)


def test_the_run_with_its_lock_is_the_fence(world: World) -> None:  # P12, C2
    _, second = taken_over(world)
    assert world.worker(second, "other").complete(second.task.id, Handoff("done")).task.status == s.DONE
    world.verified()


@every_verb
def test_a_card_claimed_by_hand_is_not_closed_by_a_stranger(world: World, verb: str) -> None:  # P12, C11
    _, claim = world.claimed()
    with world.refuses(claim.task, ClaimLost, logged=True):
        VERBS[verb](world.script("other"), claim.task.id)
    world.verified()


@every_verb
def test_a_claim_of_one_card_opens_no_other(world: World, verb: str) -> None:  # P12, C143
    _, mine = world.claimed()
    _, theirs = world.claimed(name="other")
    with world.refuses(theirs.task, ClaimLost, logged=True):
        VERBS[verb](world.script("bot", mine), theirs.task.id)
    with world.refuses(theirs.task, Forbidden):
        VERBS[verb](world.worker(mine), theirs.task.id)


@pytest.mark.parametrize("verb", ["complete", "block", "request-review"])
def test_a_person_closes_a_card_that_nobody_runs(world: World, verb: str) -> None:  # P12
    card = world.card()
    assert ENDINGS[verb](world.person, card.id).task.status in (s.DONE, s.BLOCKED, s.REVIEW)
    world.verified()


@pytest.mark.parametrize("verb", ["complete", "block", "request-review"])
def test_a_worker_closes_no_card_that_nobody_runs(world: World, verb: str) -> None:  # P12
    _, claim = world.claimed()
    world.person.reclaim(claim.task.id)
    with world.refuses(claim.task, ClaimLost, logged=True):
        ENDINGS[verb](world.worker(claim), claim.task.id)


def test_refusals_are_logged_once_per_run_and_verb_with_a_count(world: World) -> None:  # P12
    first, _ = taken_over(world)
    late = world.script("bot", first)
    for _ in range(3):
        with pytest.raises(ClaimLost):
            late.heartbeat(first.task.id)
    with pytest.raises(ClaimLost):
        late.complete(first.task.id, Handoff("late"))
    refused = world.person.events(task=first.task.id, kinds=("refused",))
    facts = {"code": "claim_lost", "run_shown": first.run.id}
    assert [event.payload for event in refused] == [
        facts | {"verb": "heartbeat", "count": 3},
        facts | {"verb": "complete", "count": 1},
    ]
    assert {event.run_id for event in refused} == {first.run.id}
    world.verified()


# --- the same call again ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("verb", ["complete", "block", "request-review"])
def test_the_same_closing_call_again_gets_the_same_answer(world: World, verb: str) -> None:  # P12
    board, claim = world.claimed()
    first = ENDINGS[verb](board, claim.task.id)
    before = world.facts(claim.task)
    again = ENDINGS[verb](board, claim.task.id)
    assert (first.already, again.already) == (False, True)
    assert (again.run, again.task.status, again.promoted) == (first.run, first.task.status, first.promoted)
    assert world.facts(claim.task) == before


def test_a_repeated_request_for_changes_gets_the_same_answer(world: World) -> None:  # P12
    card = world.in_review()
    claim = world.script("rev").claim(card.id)
    reviewer = world.script("rev", claim)
    reviewer.request_changes(card.id, "again")
    before = world.facts(card)
    assert reviewer.request_changes(card.id, "again").already
    assert world.facts(card) == before


def test_a_repeated_complete_names_the_promoted_children_again(world: World) -> None:  # P12, P4
    board, claim = world.claimed()
    child = world.card(parents=(claim.task.id,))
    assert board.complete(claim.task.id, Handoff("done")).promoted == (child.id,)
    world.claimed(child)
    assert board.complete(claim.task.id, Handoff("done")).promoted == (child.id,)


def test_a_repeated_call_does_not_touch_a_later_attempt(world: World) -> None:  # P12, P14, C1
    board, claim = world.claimed()
    board.complete(claim.task.id, Handoff("done"))
    world.person.reopen(claim.task.id)
    world.script("other").claim(claim.task.id)
    before = world.facts(claim.task)
    assert board.complete(claim.task.id, Handoff("done"), run=claim.run.id).already  # it names its run
    assert world.facts(claim.task) == before
    with world.refuses(claim.task, ClaimLost, logged=True):
        board.complete(claim.task.id, Handoff("done"))  # it does not: this may mean the card as it is now


@pytest.mark.parametrize("verb", ["heartbeat", "block", "request-review", "request-changes"])
def test_another_verb_after_the_end_is_refused(world: World, verb: str) -> None:  # P12, P14, P14b
    board, claim = world.claimed()
    board.complete(claim.task.id, Handoff("done"))
    with world.refuses(claim.task, ClaimLost, logged=True):
        VERBS[verb](board, claim.task.id)
    world.verified()


# --- override --------------------------------------------------------------------------------------------------
OVERRIDES: dict[str, Callable[[Board, str, bool], Any]] = {
    "complete": lambda board, card, over: board.complete(card, Handoff("by hand"), override=over),
    "block": lambda board, card, over: board.block(card, FULL_REASON, override=over),
    "request-review": lambda board, card, over: board.request_review(card, Handoff("look"), override=over),
    "schedule": lambda board, card, over: board.schedule(card, override=over),
    "archive": lambda board, card, over: board.archive(card, override=over),
}


@pytest.mark.parametrize("verb", OVERRIDES)
def test_a_person_needs_an_override_on_a_running_card(world: World, verb: str) -> None:  # P12c
    _, claim = world.claimed()
    with world.refuses(claim.task, ClaimLost, logged=True):
        OVERRIDES[verb](world.person, claim.task.id, False)
    world.verified()


@pytest.mark.parametrize("verb", OVERRIDES)
def test_an_override_ends_the_run_at_once_and_says_so(world: World, verb: str) -> None:  # P12c, P14c, C20
    worker, claim = world.claimed(ttl=60)
    person = world.person
    OVERRIDES[verb](person, claim.task.id, True)
    run = world.person.runs(claim.task.id)[0]
    assert (run.outcome, run.end_reason, run.process_state) == (s.RECLAIMED, f"override:{verb}", s.CLOSING)
    assert "run 1 of bot was ended" in person.warnings[0]
    assert world.task(claim.task).eligible_at == claim.run.claim_expires
    with world.refuses(claim.task, ClaimLost, logged=True):
        worker.complete(claim.task.id, Handoff("late"))
    world.verified()


def test_an_override_of_a_review_sends_the_card_back(world: World) -> None:  # P12c, P31
    card = world.in_review()
    claim = world.script("rev").claim(card.id)
    with world.refuses(card, ClaimLost, logged=True):
        world.person.request_changes(card.id, "no")
    assert world.person.request_changes(card.id, "no", override=True).task.status == s.READY
    with world.refuses(card, ClaimLost, logged=True):
        world.script("rev", claim).complete(card.id, Handoff("fine"))
    world.verified()


@pytest.mark.parametrize("verb", ["complete", "block", "request-review"])
@pytest.mark.parametrize("role", [s.BRIDGE, s.ORCHESTRATOR, s.WORKER])
def test_agents_cannot_override(world: World, verb: str, role: str) -> None:  # P12c, P70
    _, claim = world.claimed()
    agent = world.board("other", interactive=False, role=role)
    error = ClaimLost if role == s.BRIDGE else Forbidden
    with world.refuses(claim.task, error, logged=role == s.BRIDGE):
        OVERRIDES[verb](agent, claim.task.id, True)


def test_reclaim_is_its_own_override(world: World) -> None:  # P12c, P14c
    worker, claim = world.claimed(ttl=60)
    card = world.person.reclaim(claim.task.id)
    assert (card.status, card.eligible_at) == (s.READY, claim.run.claim_expires)
    assert world.kinds(card)[-1] == "reclaimed"
    with world.refuses(card, ClaimLost, logged=True):
        worker.heartbeat(card.id)
    world.verified()


def test_after_an_override_the_lease_alone_holds_the_card(world: World) -> None:  # P12c, P14c
    _, claim = world.claimed(ttl=60)
    world.person.reclaim(claim.task.id)
    world.clock.advance(59)
    with world.refuses(claim.task, NotClaimable):
        world.script("other").claim(claim.task.id)
    with pytest.raises(NothingReady):
        world.script("other").claim()
    world.clock.advance(1)
    assert world.script("other").claim().run.id == 2
    world.verified()


def test_a_released_card_stays_in_quarantine(world: World) -> None:  # P12c, P14c
    _, claim = world.claimed(ttl=60)
    world.person.block(claim.task.id, FULL_REASON, override=True)
    world.person.unblock(claim.task.id)
    with world.refuses(claim.task, NotClaimable) as refusal:
        world.script("other").claim(claim.task.id)
    assert refusal.value.fields["reason"] == s.QUARANTINE
    world.clock.advance(60)
    world.script("other").claim(claim.task.id)
    world.verified()


def test_a_completed_and_reopened_card_stays_in_quarantine(world: World) -> None:  # P12c, P14c
    _, claim = world.claimed(ttl=60)
    world.person.complete(claim.task.id, Handoff("by hand"), override=True)
    world.person.reopen(claim.task.id)
    with world.refuses(claim.task, NotClaimable):
        world.script("other").claim(claim.task.id)
    world.verified()


# --- a run ends once -------------------------------------------------------------------------------------------
def test_a_run_is_closed_exactly_once(world: World) -> None:  # P14
    board, claim = world.claimed()
    board.complete(claim.task.id, Handoff("done"))
    before = world.facts(claim.task)
    with world.store.write() as tx:
        ctx = Context(tx, Actor(s.DISPATCHER, "host"), world.settings)
        with pytest.raises(Unexpected, match="closed already"):
            runs.close(ctx, find.run(tx, claim.run.id), s.TIMED_OUT, by_owner=False)
    assert world.facts(claim.task) == before


def test_nothing_is_extended_after_the_end_of_a_run(world: World) -> None:  # P14, P14b, C5
    board, claim = world.claimed()
    board.complete(claim.task.id, Handoff("done"))
    before = world.facts(claim.task)
    world.clock.advance(10)
    with world.store.write() as tx:
        ctx = Context(tx, Actor(s.DISPATCHER, "host"), world.settings)
        runs.touch(ctx, find.run(tx, claim.run.id), note="late", progress=True)
    assert world.facts(claim.task) == before


def test_the_owner_of_a_pull_claim_frees_its_card_by_closing(world: World) -> None:  # P14c
    board, claim = world.claimed()
    card = board.request_review(claim.task.id, Handoff("look"), "rev").task
    assert world.person.runs(card.id)[0].process_state == s.ENDED
    assert world.script("rev").claim(card.id).run.role == s.REVIEWER


def test_a_supervised_worker_that_closed_its_card_is_still_closing(world: World) -> None:  # P14c, C19
    card, run = world.board("host").claim_for_dispatch(world.card().id, ttl=60, lane="shell", name="coder", caps=Caps())
    worker = world.board("coder", interactive=False, task=card.id, run=str(run.id), lock=run.claim_lock)
    worker.complete(card.id, Handoff("done"))
    assert world.person.runs(card.id)[0].process_state == s.CLOSING
    world.verified()


def test_a_claimer_that_lost_its_card_during_preparation_is_told(world: World) -> None:  # P11, P14b
    card = world.card()
    board = world.script()
    prepare = board._ports.workspaces.prepare

    def slow(*place: Any) -> str:
        world.person.reclaim(card.id)
        return prepare(*place)

    board._ports.workspaces.prepare = slow  # type: ignore[method-assign]
    with pytest.raises(ClaimLost):
        board.claim(card.id)
    assert world.status(card) == s.READY
