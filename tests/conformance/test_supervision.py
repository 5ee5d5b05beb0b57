"""Runs under a shim: they come alive once, are renewed, extended, deferred, and never outlive silence (D11 to D15)."""

from __future__ import annotations

from typing import Any

import pytest

from hermes_kanban.base.errors import ClaimLost, NotClaimable, RunNotFound, WrongState
from hermes_kanban.kernel.finish import Handoff
from hermes_kanban.kernel.supervise import HEARTBEAT_SECONDS, Beat, Process
from hermes_kanban.model import status as s
from hermes_kanban.model.claim import Claim
from hermes_kanban.model.exits import ExitRecord
from hermes_kanban.present import views
from tests.conformance.threads import race
from tests.world import FULL_REASON, PROCESS, SHIM, WORKER, World

LATE = Process((9001, "91"), (9002, "92"), "boot", "4026531836")


def now(world: World) -> int:
    return world.clock.now_ms() // 1000


def beat(world: World, claim: Claim, *, active: bool = True, idle: int = 0) -> Beat:
    return world.board().renew(claim.run.id, claim.fence.lock, active=active, idle=idle)


# --- coming alive (D11) -----------------------------------------------------------------------------------------
def test_a_dispatcher_s_claim_keeps_what_is_known_before_the_start(world: World) -> None:  # P11, P20, D12
    card = world.card(assignee="bot", model_override="m", provider_override="p")
    facts = {"orchestrates": True, "log_path": "/logs/x.log", "boot_id": "boot", "pid_namespace": "4026531836"}
    claim = world.dispatched(card, **facts)
    run = world.run(claim)
    assert run == claim.run
    assert (run.lane, run.profile, run.pull, run.supervised) == ("lane", "bot", False, True)
    assert (run.process_state, run.shim_pid, run.worker_pid) == (s.STARTING, None, None)
    assert {name: getattr(run, name) for name in facts} == facts
    assert (run.model, run.provider) == ("m", "p")
    assert world.person.events(task=card.id)[-1].actor == "dispatcher:host"
    world.verified()


def test_a_shim_turns_starting_into_alive_and_leaves_its_name(world: World) -> None:  # D11, D12, P70
    claim = world.dispatched(ttl=60)
    world.clock.advance(20)
    assert world.board().started(claim.run.id, claim.fence.lock, PROCESS) == Beat("open")
    run = world.run(claim)
    assert (run.process_state, run.supervised) == (s.ALIVE, True)
    assert (run.shim_pid, run.shim_started) == SHIM
    assert (run.worker_pid, run.worker_started) == WORKER
    assert (run.boot_id, run.pid_namespace) == ("boot", "4026531836")
    assert (run.last_heartbeat_at, run.claim_expires) == (now(world), now(world) + 60)
    event = world.person.events(task=claim.task.id)[-1]
    assert (event.kind, event.run_id, event.payload["pid"]) == ("spawned", run.id, WORKER[0])
    assert world.task(claim.task).worker_pid == WORKER[0]
    world.verified()


def refused(world: World, claim: Claim, lock: str | None = None, process: Process = LATE) -> None:
    """Let a shim report that the board does not wait for; nothing may change."""
    before = world.everything()
    with pytest.raises(ClaimLost) as refusal:
        world.board().started(claim.run.id, claim.fence.lock if lock is None else lock, process)
    assert refusal.value.fields["run_shown"] == claim.run.id
    assert world.everything() == before


@pytest.mark.parametrize("end", ["reclaimed", "grace", "archived", "ended by the dispatcher"])
def test_a_late_shim_cannot_start(world: World, end: str) -> None:  # D11, C8
    claim = world.dispatched()
    if end == "reclaimed":
        world.person.reclaim(claim.task.id)
    elif end == "archived":
        world.person.archive(claim.task.id, override=True)
    elif end == "grace":
        world.clock.advance(60)
        assert world.board().never_came_alive(claim.run.id)
    else:
        world.board().spawn_failed(claim.run, "no such program")
    refused(world, claim)


def test_a_shim_of_a_former_attempt_cannot_start_beside_the_next(world: World) -> None:  # D11, C1
    first = world.dispatched()
    world.board().spawn_failed(first.run, "no such program")
    world.clock.advance(3600)
    second = world.dispatched(world.task(first.task))
    refused(world, first)
    world.board().started(second.run.id, second.fence.lock, PROCESS)
    refused(world, first)
    assert (world.run(second).shim_pid, world.run(first).shim_pid) == (SHIM[0], None)


def test_only_the_right_lock_and_only_the_first_shim_starts(world: World) -> None:  # D11, P12
    claim = world.dispatched()
    for lock in ("", "host:1:0", world.dispatched().fence.lock):
        refused(world, claim, lock)
    world.board().started(claim.run.id, claim.fence.lock, PROCESS)
    refused(world, claim)
    before = world.everything()  # the same shim asks again where its first answer was lost: nothing changes by that
    assert world.board().started(claim.run.id, claim.fence.lock, PROCESS) == Beat("open")
    assert world.everything() == before
    with pytest.raises(RunNotFound):
        world.board().started(999, claim.fence.lock, PROCESS)


def test_of_many_shims_of_one_run_one_starts(world: World) -> None:  # D11
    claim = world.dispatched()

    def start(board: Any, name: str) -> Any:
        number = int(name.removeprefix("racer"))
        return board.started(claim.run.id, claim.fence.lock, Process((5000 + number, "1"), WORKER, "boot", "1"))

    answers = race(world, start)
    assert sorted(type(answer).__name__ for answer in answers).count("Beat") == 1
    assert world.kinds(claim.task).count("spawned") == 1
    world.verified()


def test_a_bridge_s_run_comes_alive_too_and_stays_a_pull_claim(world: World) -> None:  # D11, P10
    _, claim = world.claimed(ttl=60)
    world.board().started(claim.run.id, claim.fence.lock, PROCESS)
    run = world.run(claim)
    assert (run.process_state, run.supervised, run.pull) == (s.ALIVE, True, True)
    world.clock.advance(60)
    assert world.script("other").claim(claim.task.id).run.id > run.id
    assert beat(world, claim) == Beat("closed")
    world.verified()


# --- renewing (P13) -----------------------------------------------------------------------------------------------
def test_a_living_shim_keeps_the_lease_whatever_its_worker_does(world: World) -> None:  # P13, C29
    claim = world.alive(ttl=60)
    for _ in range(5):
        world.clock.advance(50)
        assert beat(world, claim, active=False) == Beat("open")
        assert world.run(claim).claim_expires == now(world) + 60
    assert world.run(claim).last_heartbeat_at == claim.run.started_at
    assert "heartbeat" not in world.kinds(claim.task)
    world.verified()


def test_a_heartbeat_is_written_at_most_once_in_a_minute_of_activity(world: World) -> None:  # P13, C31
    claim = world.alive(ttl=600)
    written = []
    for _ in range(24):
        world.clock.advance(10)
        beat(world, claim)
        written.append(world.kinds(claim.task).count("heartbeat"))
    assert HEARTBEAT_SECONDS == 60
    assert written == [0] * 5 + [1] * 6 + [2] * 6 + [3] * 6 + [4]
    assert world.run(claim).last_heartbeat_at == now(world)
    event = world.person.events(task=claim.task.id)[-1]
    assert (event.kind, event.actor, event.run_id) == ("heartbeat", "dispatcher:host", claim.run.id)
    world.verified()


def test_a_beat_never_shortens_a_lease(world: World) -> None:  # P13
    claim = world.alive(ttl=600)
    world.inside(claim).heartbeat(claim.task.id)
    until = world.run(claim).claim_expires
    world.clock.advance(-30)  # a clock that was set back
    beat(world, claim)
    assert world.run(claim).claim_expires == until


def test_a_beat_with_another_lock_renews_nothing(world: World) -> None:  # P12, P13
    claim, other = world.alive(), world.alive()
    world.clock.advance(30)
    for lock in ("", other.fence.lock):
        with world.refuses(claim.task, ClaimLost):
            world.board().renew(claim.run.id, lock, active=True)


@pytest.mark.parametrize("end", ["complete", "block", "request_review", "reclaim", "override", "spawn"])
def test_a_beat_of_a_closed_run_says_so_and_changes_nothing(world: World, end: str) -> None:  # P14, P14b, P12c
    claim = world.alive()
    worker = world.inside(claim)
    acts: dict[str, Any] = {
        "complete": lambda: worker.complete(claim.task.id, Handoff("done")),
        "block": lambda: worker.block(claim.task.id, FULL_REASON),
        "request_review": lambda: worker.request_review(claim.task.id, Handoff("look"), "rev"),
        "reclaim": lambda: world.person.reclaim(claim.task.id),
        "override": lambda: world.person.complete(claim.task.id, Handoff("mine"), override=True),
        "spawn": lambda: world.board().spawn_failed(claim.run, "gone"),
    }
    acts[end]()
    before = world.everything()
    world.clock.advance(100)
    by_owner = end in ("complete", "block", "request_review")
    assert beat(world, claim, idle=9999) == Beat("closed", by_owner)
    assert world.everything() == before


# --- alive, and getting somewhere (C32) ------------------------------------------------------------------------
def flags(world: World, claim: Claim) -> tuple[bool, int]:
    return world.run(claim).standing_still, world.kinds(claim.task).count("worker_progress")


def test_a_run_that_lives_and_gets_nowhere_is_flagged_once(world: World) -> None:  # C32
    world.set(no_progress_seconds=600)
    claim = world.alive(ttl=600)
    seen = []
    for minute in range(1, 21):
        world.clock.advance(60)
        beat(world, claim, idle=60 * minute)  # the same failing call again and again
        seen.append(flags(world, claim))
    assert seen == [(False, 0)] * 9 + [(True, 1)] * 11
    event = world.person.events(task=claim.task.id, kinds=("worker_progress",))[0]
    assert (event.payload["standing_still"], event.run_id) == (600, claim.run.id)
    assert world.run(claim).open
    assert "open, stands still" in views.runs(world.person.runs(claim.task.id), now(world))
    world.verified()


@pytest.mark.parametrize("sign", ["output", "comment", "note"])
def test_any_news_takes_the_flag_off_and_it_may_come_again(world: World, sign: str) -> None:  # C32
    world.set(no_progress_seconds=600)
    claim = world.alive(ttl=600)
    world.clock.advance(600)
    beat(world, claim, idle=600)
    assert flags(world, claim) == (True, 1)
    worker = world.inside(claim)
    if sign == "comment":
        worker.comment(claim.task.id, "half of it is done")
    elif sign == "note":
        worker.heartbeat(claim.task.id, "half of it is done")
    world.clock.advance(60)
    beat(world, claim, idle=5 if sign == "output" else 660)
    assert flags(world, claim) == (False, 1)
    world.clock.advance(600)
    beat(world, claim, idle=605 if sign == "output" else 1260)
    assert flags(world, claim) == (True, 2)
    world.verified()


def test_a_person_s_comment_is_no_progress_of_the_worker(world: World) -> None:  # C32
    world.set(no_progress_seconds=600)
    claim = world.alive(ttl=600)
    world.clock.advance(599)
    world.person.comment(claim.task.id, "how is it going?")
    world.clock.advance(1)
    beat(world, claim, idle=600)
    assert flags(world, claim) == (True, 1)


def test_the_flag_can_be_switched_off(world: World) -> None:  # C32
    world.set(no_progress_seconds=0)
    claim = world.alive(ttl=600)
    world.clock.advance(100_000)
    beat(world, claim, idle=100_000)
    assert flags(world, claim) == (False, 0)


# --- the time ran out, and it lives (D15) -----------------------------------------------------------------------
def test_a_live_worker_whose_time_ran_out_keeps_its_claim(world: World) -> None:  # D15, C29
    claim = world.alive(ttl=60)
    assert not world.board().extend(claim.run.id)
    world.clock.advance(60)
    with pytest.raises(NotClaimable):
        world.script("other").claim(claim.task.id)
    assert world.board().extend(claim.run.id)
    assert world.run(claim).claim_expires == now(world) + 60
    assert not world.board().extend(claim.run.id)
    event = world.person.events(task=claim.task.id)[-1]
    assert (event.kind, event.payload) == ("claim_extended", {"until": now(world) + 60, "reason": "alive"})
    world.inside(claim).complete(claim.task.id, Handoff("done"))
    world.clock.advance(3600)
    assert not world.board().extend(claim.run.id)
    assert world.kinds(claim.task).count("claim_extended") == 1
    world.verified()


# --- it survives its stop (D14) ---------------------------------------------------------------------------------
def test_a_worker_that_survives_the_kill_keeps_the_claim(world: World) -> None:  # D14, C16
    claim = world.alive(ttl=60)
    said = []
    for _ in range(10):
        world.clock.advance(50)
        said.append(world.board().defer(claim.run.id, "timed_out"))
        with pytest.raises(NotClaimable):
            world.script("other").claim(claim.task.id)
    assert said == [True] + [False] * 9
    assert world.kinds(claim.task).count("reclaim_deferred") == 1
    assert world.status(claim.task) == s.RUNNING
    assert world.run(claim).claim_expires == now(world) + 60
    world.verified()


@pytest.mark.parametrize("how", ["reclaim", "block", "review"])
def test_the_card_of_a_closed_run_is_nobody_s_while_its_worker_survives(world: World, how: str) -> None:  # D14, P14c
    claim = world.alive(ttl=60)  # C16, C19, C20
    worker = world.inside(claim)
    if how == "reclaim":
        world.person.reclaim(claim.task.id)
    elif how == "block":
        worker.block(claim.task.id, FULL_REASON)
        world.person.unblock(claim.task.id)
    else:
        worker.request_review(claim.task.id, Handoff("look"), "rev")
    for _ in range(20):
        world.clock.advance(50)
        world.board().defer(claim.run.id, "its worker survives SIGKILL")
        with pytest.raises(NotClaimable):
            world.script("rev").claim(claim.task.id)
        with pytest.raises(NotClaimable):
            world.dispatched(claim.task, "rev")
    world.verified()
    world.board().settle(claim.run.id, ExitRecord(claim.run.id, claim.task.id, claim.fence.lock, signal=9))
    assert world.script("rev").claim(claim.task.id).run.id > claim.run.id
    world.verified()


def test_deferring_an_older_run_holds_nothing(world: World) -> None:  # P14b
    claim = world.alive(ttl=60)
    world.person.reclaim(claim.task.id)
    world.clock.advance(60 + 120)
    again = world.script("other").claim(claim.task.id)
    world.person.reclaim(again.task.id)
    before = world.task(claim.task)
    world.board().defer(claim.run.id, "its worker survives SIGKILL")
    assert world.task(claim.task) == before
    world.verified()


# --- claims that were never answered for (D11, C8, C28) -----------------------------------------------------------
def test_a_claim_whose_worker_never_comes_alive_ends_counted(world: World) -> None:  # D11, C8
    claim = world.dispatched()
    world.clock.advance(59)
    assert not world.board().never_came_alive(claim.run.id)
    world.clock.advance(1)
    assert world.board().never_came_alive(claim.run.id)
    run, card = world.run(claim), world.task(claim.task)
    assert (run.outcome, run.exit_kind, run.process_state) == (s.SPAWN_FAILED, "spawn", s.ENDED)
    assert "spawn_grace_seconds" in (run.error or "")
    assert (card.status, card.consecutive_failures, card.eligible_reason) == (s.READY, 1, s.BACK_OFF)
    assert not world.board().never_came_alive(claim.run.id)
    world.clock.advance(60)
    assert world.dispatched(card).run.id > run.id
    world.verified()


def test_the_grace_is_a_setting_and_each_attempt_s_own(world: World) -> None:  # C28, D11
    world.set(spawn_grace_seconds=20)
    first = world.dispatched()
    world.clock.advance(20)
    assert world.board().never_came_alive(first.run.id)
    world.clock.advance(3600)
    second = world.dispatched(world.task(first.task))
    world.clock.advance(2)
    assert not world.board().never_came_alive(second.run.id)
    world.board().started(second.run.id, second.fence.lock, PROCESS)
    world.clock.advance(3600)
    assert not world.board().never_came_alive(second.run.id)
    assert world.run(second).open


def test_two_claims_that_nobody_answered_for_trip_the_breaker(world: World) -> None:  # P40, C14, C53
    card = world.card()
    for _ in range(2):
        claim = world.dispatched(world.task(card))
        world.clock.advance(60)
        world.board().never_came_alive(claim.run.id)
        world.clock.advance(3600)
    assert (world.status(card), world.kinds(card)[-1]) == (s.BLOCKED, "gave_up")
    with pytest.raises(WrongState):
        world.dispatched(card)
    world.verified()


def test_a_failed_start_says_what_to_do(world: World) -> None:  # D11, C58, P11
    claim = world.dispatched()
    card = world.board().spawn_failed(claim.run, "there is no program claude", "install it, or mend PATH")
    run = world.run(claim)
    assert (run.outcome, run.process_state) == (s.SPAWN_FAILED, s.ENDED)
    assert run.error == "there is no program claude; install it, or mend PATH" == card.last_failure_error
    assert (card.status, card.consecutive_failures) == (s.READY, 1)
    before = world.facts(card)
    assert world.board().spawn_failed(claim.run, "again") == world.task(card)
    assert world.facts(card) == before
    world.verified()


def test_a_start_that_failed_after_somebody_took_the_card_counts_nothing(world: World) -> None:  # P14b, P14c
    claim = world.dispatched()
    world.person.reclaim(claim.task.id)
    card = world.board().spawn_failed(claim.run, "no such program")
    assert (card.status, card.consecutive_failures, card.eligible_at) == (s.READY, 0, None)
    run = world.run(claim)
    assert (run.outcome, run.process_state) == (s.RECLAIMED, s.ENDED)
    assert world.script("other").claim(card.id).run.id > run.id
    world.verified()


def test_a_dispatcher_that_stops_hands_back_what_it_cannot_start(world: World) -> None:  # D6, P44
    world.set(reclaim_limit=2)
    card = world.card()
    for _ in range(4):
        claim = world.dispatched(world.task(card))
        card = world.board().hand_back(claim.run)
        assert (card.status, card.consecutive_failures, card.reclaim_streak) == (s.READY, 0, 0)
        assert (world.run(claim).outcome, world.run(claim).process_state) == (s.RECLAIMED, s.ENDED)
        world.clock.advance(3600)
    before = world.facts(card)
    world.board().hand_back(claim.run)
    assert world.facts(card) == before
    world.verified()
