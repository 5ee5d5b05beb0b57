"""Heartbeats: a sign of life extends the lease, belongs to one run, and carries what is new (P13, P62b)."""

from __future__ import annotations

import pytest

from hermes_kanban.base.errors import ClaimLost, NotClaimable
from hermes_kanban.kernel.finish import Handoff
from hermes_kanban.model import status as s
from tests.world import World


def test_a_heartbeat_extends_the_claim_by_its_ttl(world: World) -> None:  # P13
    board, claim = world.claimed(ttl=60)
    world.clock.advance(50)
    now = world.clock.now_ms() // 1000
    run, _ = board.heartbeat(claim.task.id)
    assert (run.claim_expires, run.last_heartbeat_at) == (now + 60, now)
    card = world.task(claim.task)
    assert (card.claim_expires, card.last_heartbeat_at) == (now + 60, now)
    assert world.kinds(card)[-1] == "heartbeat"
    world.verified()


def test_a_heartbeat_keeps_others_away(world: World) -> None:  # P13, P10
    board, claim = world.claimed(ttl=60)
    for _ in range(5):
        world.clock.advance(59)
        board.heartbeat(claim.task.id)
    with world.refuses(claim.task, NotClaimable):
        world.script("other").claim(claim.task.id)
    world.clock.advance(60)
    world.script("other").claim(claim.task.id)
    world.verified()


def test_a_heartbeat_keeps_a_note(world: World) -> None:  # P13, P44
    board, claim = world.claimed()
    run, _ = board.heartbeat(claim.task.id, "half of the files are done")
    assert (run.heartbeat_note, run.progressed) == ("half of the files are done", True)
    assert world.person.events(task=claim.task.id)[-1].payload == {"note": "half of the files are done"}


def test_a_bare_heartbeat_is_life_but_no_progress(world: World) -> None:  # P13, P44, C32
    board, claim = world.claimed()
    run, _ = board.heartbeat(claim.task.id)
    assert (run.heartbeat_note, run.progressed) == (None, False)


def test_the_owners_comment_extends_the_claim(world: World) -> None:  # P13
    board, claim = world.claimed(ttl=60)
    world.clock.advance(50)
    assert board.comment(claim.task.id, "found it").delivery == "own_run"
    run = world.person.runs(claim.task.id)[0]
    now = world.clock.now_ms() // 1000
    assert (run.claim_expires, run.last_heartbeat_at, run.progressed) == (now + 60, now, True)
    world.verified()


@pytest.mark.parametrize("who", ["person", "script"])
def test_somebody_elses_comment_extends_nothing(world: World, who: str) -> None:  # P13
    _, claim = world.claimed(ttl=60)
    world.clock.advance(50)
    board = world.person if who == "person" else world.script("other")
    board.comment(claim.task.id, "how is it going?")
    assert world.person.runs(claim.task.id) == (claim.run,)


@pytest.mark.parametrize("state", [s.READY, s.TRIAGE, s.BLOCKED])
def test_a_card_that_nobody_runs_has_no_heartbeat(world: World, state: str) -> None:  # P13, P12
    card = world.card(status=None if state == s.READY else state, reason="later")
    with world.refuses(card, ClaimLost, logged=True):
        world.person.heartbeat(card.id)


def test_a_heartbeat_belongs_to_its_attempt(world: World) -> None:  # P13, C7
    board, first = world.claimed(ttl=60)
    board.heartbeat(first.task.id, "mine")
    board.complete(first.task.id, Handoff("done"))
    old = world.person.runs(first.task.id)[0]
    world.person.reopen(first.task.id)
    world.clock.advance(3600)
    again, second = world.claimed(world.task(first.task), "other")
    again.heartbeat(first.task.id)
    assert world.person.runs(first.task.id)[0] == old
    assert world.person.runs(first.task.id)[1].heartbeat_note is None
    assert second.run.last_heartbeat_at == old.claim_expires + 3540


def test_a_clock_that_was_set_back_frees_nothing(world: World) -> None:  # P13
    board, claim = world.claimed(ttl=60)
    world.clock.advance(-3600)
    with world.refuses(claim.task, NotClaimable):
        world.script("other").claim(claim.task.id)
    run, _ = board.heartbeat(claim.task.id)
    assert run.claim_expires == world.clock.now_ms() // 1000 + 60
    world.verified()


# --- what the worker hears -------------------------------------------------------------------------------------
def test_a_comment_on_a_running_card_says_when_it_is_read(world: World) -> None:  # P62b, C185
    card = world.card()
    assert world.person.comment(card.id, "first").delivery == "next_attempt"
    world.claimed(card)
    assert world.person.comment(card.id, "second").delivery == "next_heartbeat"


def test_a_heartbeat_brings_new_comments_once(world: World) -> None:  # P62b, C185
    card = world.card()
    world.person.comment(card.id, "before the claim: in the context already")
    board, _ = world.claimed(card)
    world.person.comment(card.id, "stop")
    world.script("other").comment(card.id, "go on")
    board.comment(card.id, "my own")
    _, news = board.heartbeat(card.id)
    assert [(c.author, c.body) for c in news] == [("ann", "stop"), ("other", "go on")]
    assert board.heartbeat(card.id)[1] == ()
    world.verified()


def test_the_next_attempt_hears_only_what_came_after_its_claim(world: World) -> None:  # P62b
    board, claim = world.claimed(ttl=60)
    world.person.comment(claim.task.id, "for the first attempt")
    world.clock.advance(60)
    second, _ = world.claimed(claim.task, "other")
    world.person.comment(claim.task.id, "for the second attempt")
    assert [c.body for c in second.heartbeat(claim.task.id)[1]] == ["for the second attempt"]
    with world.refuses(claim.task, ClaimLost, logged=True):
        board.heartbeat(claim.task.id)
