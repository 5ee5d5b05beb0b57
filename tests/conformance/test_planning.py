"""What the dispatcher would start, in which order, and why it leaves the rest (D5, D7, P16, C133 to C142)."""

from __future__ import annotations

import pytest

from hermes_kanban.base.errors import AtCapacity, TaskNotFound
from hermes_kanban.kernel.finish import Handoff
from hermes_kanban.kernel.planning import Left, Plan
from hermes_kanban.kernel.query import Filter
from hermes_kanban.model import admission
from hermes_kanban.model import status as s
from hermes_kanban.model.claim import Caps, Claim
from hermes_kanban.model.reasons import Reason
from hermes_kanban.model.task import Task
from tests.conformance.machines import Machine, lane
from tests.world import SHIM, World


def plan(world: World, machine: Machine, most: int | None = None) -> Plan:
    return world.person.plan(machine, most)


def titles(found: Plan) -> list[str]:
    return [planned.card.title for planned in found.starts]


def left(found: Plan) -> dict[str, str]:
    return {one.card.title: one.reason.code for one in found.left}


def names(found: Plan) -> dict[str, str]:
    return {name: reason.code for name, reason in found.names.items()}


def start(world: World, found: Plan, caps: Caps | None = None) -> list[Claim]:
    """Claim what was planned, as the dispatcher does."""
    board = world.board()
    made = []
    for planned in found.starts:
        known = planned.lane
        task, run = board.claim_for_dispatch(
            planned.card.id, ttl=60, lane=known.lane, name=known.name, caps=caps or Caps()
        )
        made.append(Claim(task, run, run.workspace or ""))
    return made


# --- order (P16) ------------------------------------------------------------------------------------------------
def test_the_order_is_priority_then_age_over_all_names_and_both_queues(world: World) -> None:  # P16, C136, C137
    world.card("b", assignee="bot", priority=1)
    world.clock.advance(-100)  # age is by seq, not by the clock
    world.card("c", assignee="coder", priority=1)
    world.in_review("coder", "rev", title="a review", priority=5)
    world.card("d", assignee="bot")
    world.in_review("coder", "rev", title="e review")
    world.card("last", assignee="coder", priority=-3)
    found = plan(world, Machine("bot", "coder", "rev"))
    assert titles(found) == ["a review", "b", "c", "d", "e review", "last"]
    assert [planned.lane.name for planned in found.starts] == ["rev", "bot", "coder", "bot", "rev", "coder"]
    assert (found.left, found.names, found.full) == ((), {}, None)


@pytest.mark.parametrize("slots", [1, 2, 3])
def test_work_and_reviews_share_one_budget(world: World, slots: int) -> None:  # C136
    for number in range(3):
        world.in_review("coder", "rev", title=f"review {number}")
        world.card(f"work {number}", assignee="bot")
    found = plan(world, Machine("bot", "rev", free=slots))
    assert titles(found) == ["review 0", "work 0", "review 1"][:slots]
    assert found.full is not None
    assert found.full.code == "host_cap"


def test_most_bounds_one_pass(world: World) -> None:  # D7
    for number in range(4):
        world.card(f"{number}", assignee="bot")
    found = plan(world, Machine("bot"), most=3)
    assert titles(found) == ["0", "1", "2"]
    assert found.full is not None
    assert found.full.code == "most"
    assert titles(plan(world, Machine("bot"), most=0)) == []


# --- what cannot be started costs nothing (C137, D5) ---------------------------------------------------------------
def test_unspawnable_cards_first_and_one_slot(world: World) -> None:  # C137, D5
    for number in range(30):
        world.card(f"stranger's {number}", assignee="stranger", priority=9)
        world.card(f"broken {number}", assignee="broken", priority=8)
        world.card(f"nobody's {number}", priority=7)
    world.card("mine", assignee="bot")
    found = plan(world, Machine("bot", free=1, broken=lane("broken", problem="no config.yaml: write one")))
    assert titles(found) == ["mine"]
    assert names(found) == {"stranger": "lane", "broken": "lane_problem"}
    assert left(found) == {}


def test_what_no_lane_answers_for_stays_ready_and_is_listed(world: World) -> None:  # D5
    first = world.card("a", assignee="stranger")
    world.clock.advance(100)
    world.card("b", assignee="stranger")
    world.card("c")
    now = world.clock.now_ms() // 1000
    assert world.person.waiting() == (("", 1, now), ("stranger", 2, now - 100))
    reason = plan(world, Machine("bot")).names["stranger"]
    assert (reason.code, reason.actor) == ("lane", "worker")
    assert "stranger" in reason.text
    assert world.status(first) == s.READY
    assert world.script("stranger").claim(first.id).run.pull  # a bridge may still come for it


def test_a_half_made_lane_has_a_named_reason_on_the_card(world: World) -> None:  # C142
    card = world.card(assignee="bot")
    machine = Machine(bot=lane("bot", problem="profile bot has no config.yaml: write one"))
    assert plan(world, machine).starts == ()
    assert world.person.why(card.id, machine)[1].dispatchable == (
        Reason("lane_problem", "profile bot has no config.yaml: write one", None, s.BY_PERSON),
    )


def test_many_cards_that_are_left_alone_hide_none_that_may_start(world: World) -> None:  # C137, C58
    for number in range(30):
        own = world.in_review("rev", None, title=f"own {number}", priority=5)
        world.person.edit(own.id, {"reviewer": "rev"})
    world.in_review("coder", "rev", title="fine")
    found = plan(world, Machine("rev", free=1))
    assert titles(found) == ["fine"]
    assert set(left(found).values()) == {"self_review"}


# --- caps (P15, C133, C134) ---------------------------------------------------------------------------------------
def test_a_limit_is_on_what_runs_whatever_the_number_of_passes(world: World) -> None:  # C133, P15
    world.set(max_in_progress_per_board=2)
    for number in range(10):
        world.card(f"{number}", assignee="bot")
    started = [claim for _ in range(5) for claim in start(world, plan(world, Machine("bot")), Caps(board=2))]
    assert [claim.task.title for claim in started] == ["0", "1"]
    found = plan(world, Machine("bot"))
    assert found.full is not None
    assert (found.full.code, found.starts) == ("board_cap", ())


def test_with_two_limits_of_two_and_one_running_one_more_starts(world: World) -> None:  # C134
    world.set(max_in_progress_per_board=2, max_in_progress_per_profile=2)
    for number in range(3):
        world.card(f"{number}", assignee="bot")
    start(world, plan(world, Machine("bot"), most=1))
    assert titles(plan(world, Machine("bot"))) == ["1"]


def test_a_full_name_leaves_room_for_the_others(world: World) -> None:  # P15
    world.set(max_in_progress_per_profile=1)
    for number in range(3):
        world.card(f"bot {number}", assignee="bot", priority=5)
        world.card(f"coder {number}", assignee="coder")
    found = plan(world, Machine("bot", "coder"))
    assert titles(found) == ["bot 0", "coder 0"]
    assert left(found) == {
        "bot 1": "profile_cap",
        "bot 2": "profile_cap",
        "coder 1": "profile_cap",
        "coder 2": "profile_cap",
    }
    start(world, found)
    assert names(plan(world, Machine("bot", "coder"))) == {"bot": "profile_cap", "coder": "profile_cap"}


def test_two_names_on_one_lane_share_its_cap(world: World) -> None:  # P15
    machine = Machine(bot=lane("bot", lane="one", cap=2), coder=lane("coder", lane="one", cap=2))
    for name in ("bot", "coder", "bot", "coder"):
        world.card(name, assignee=name)
    found = plan(world, machine)
    assert titles(found) == ["bot", "coder"]
    start(world, found, Caps(lane=2))
    assert names(plan(world, machine)) == {"bot": "lane_cap", "coder": "lane_cap"}


def test_pull_claims_and_ended_runs_take_no_room(world: World) -> None:  # P15
    world.set(max_in_progress_per_board=1)
    world.claimed()
    first, _ = world.card("first", assignee="bot"), world.card("second", assignee="bot")
    (claim,) = start(world, plan(world, Machine("bot")))
    assert claim.task.id == first.id
    assert plan(world, Machine("bot")).starts == ()
    world.worker(claim).complete(first.id, Handoff("done"))
    assert titles(plan(world, Machine("bot"))) == ["second"]


def test_a_lane_that_cools_down_waits_and_the_others_do_not(world: World) -> None:  # P44, D7
    until = world.clock.now_ms() // 1000 + 300
    world.card("bot's", assignee="bot")
    world.card("coder's", assignee="coder")
    found = plan(world, Machine("coder", bot=lane("bot", cool_until=until)))
    assert titles(found) == ["coder's"]
    assert [(one.card.title, one.reason.until) for one in found.left] == [("bot's", until)]
    world.clock.advance(300)
    assert titles(plan(world, Machine("coder", bot=lane("bot", cool_until=until)))) == ["bot's", "coder's"]


# --- what is not claimable is not planned (P3b) -------------------------------------------------------------------
def test_a_card_in_a_pause_is_not_planned_before_its_time(world: World) -> None:  # P15b, P42
    claim = world.alive(world.card(assignee="bot"))
    world.person.reclaim(claim.task.id)
    world.board().prove_ended(claim.run.id)
    assert titles(plan(world, Machine("bot"))) == ["card"]
    again = world.alive(world.task(claim.task))
    world.board().spawn_failed(again.run, "no such program")
    until = world.task(claim.task).eligible_at
    assert until
    assert titles(plan(world, Machine("bot"))) == []
    assert world.board().next_due() == until
    world.clock.advance(until - world.clock.now_ms() // 1000)
    assert titles(plan(world, Machine("bot"))) == ["card"]


def test_a_review_whose_parent_opened_again_is_not_planned(world: World) -> None:  # P3b, C13
    parent = world.card()
    world.person.complete(parent.id, Handoff("done"))
    world.in_review("coder", "rev", parents=(parent.id,))
    assert titles(plan(world, Machine("rev"))) == ["card"]
    world.person.reopen(parent.id)
    assert titles(plan(world, Machine("rev"))) == []


def test_who_did_the_work_is_not_planned_to_judge_it(world: World) -> None:  # P30b, C73
    card = world.in_review("bot", None)
    world.person.edit(card.id, {"reviewer": "bot"})
    assert left(plan(world, Machine("bot"))) == {"card": "self_review"}
    world.set(allow_self_review=True)
    assert titles(plan(world, Machine("bot"))) == ["card"]


# --- whoever asks (D7, C139, C140) --------------------------------------------------------------------------------
def mixed(world: World) -> Machine:
    """Furnish a board with a bit of everything."""
    world.set(max_in_progress_per_board=5, max_in_progress_per_profile=3)
    for number in range(4):
        world.card(f"work {number}", assignee="bot", priority=number % 2)
        world.card(f"code {number}", assignee="coder", priority=number % 3)
        world.in_review("coder", "rev", title=f"review {number}")
    own = world.in_review("rev", None, title="own work")
    world.person.edit(own.id, {"reviewer": "rev"})
    world.card("stranger's", assignee="stranger", priority=9)
    world.card("nobody's", priority=9)
    return Machine("bot", coder=lane("coder", cap=1), rev=lane("rev", free=2), free=50)


def test_what_is_predicted_is_what_is_started(world: World) -> None:  # C140, D7
    machine = mixed(world)
    predicted = plan(world, machine)
    caps = {"coder": Caps(5, 3, 1), "bot": Caps(5, 3), "rev": Caps(5, 3)}
    board = world.board()
    for planned in predicted.starts:
        name = planned.lane.name
        _, run = board.claim_for_dispatch(planned.card.id, ttl=60, lane=planned.lane.lane, name=name, caps=caps[name])
        assert run.profile == name
    assert len(predicted.starts) == 5
    assert plan(world, machine).starts == ()
    more = world.card()
    with world.refuses(more, AtCapacity):
        board.claim_for_dispatch(more.id, ttl=60, lane="bot's", name="bot", caps=Caps(5))
    world.verified()


def test_why_and_the_plan_agree_on_every_card(world: World) -> None:  # D7, P3b
    machine = mixed(world)
    found = plan(world, machine)
    for one in found.left:
        if one.reason.code in admission.GUARDS:
            assert world.person.why(one.card.id, machine)[1].dispatchable == (one.reason,)
    for name, reason in found.names.items():
        for listed in world.person.list(Filter(statuses=(s.READY,))).cards:
            if listed.task.assignee == name:
                assert world.person.why(listed.task.id, machine)[1].dispatchable == (reason,)
    first = found.starts[0].card
    assert world.person.why(first.id, machine)[1].dispatchable == ()
    full = plan(world, Machine("bot", "coder", "rev", free=0))
    assert world.person.why(first.id, Machine("bot", "coder", "rev", free=0))[1].dispatchable == (full.full,)


def test_planning_changes_nothing(world: World) -> None:  # C139, D7
    machine = mixed(world)
    before = world.everything()
    assert plan(world, machine) == plan(world, machine)
    assert world.everything() == before


# --- guards are said once (D7) ------------------------------------------------------------------------------------
def guarded(world: World) -> tuple[Task, Machine]:
    card = world.in_review("bot", None)
    world.person.edit(card.id, {"reviewer": "bot"})
    return card, Machine("bot", "rev")


def passes(world: World, machine: Machine) -> tuple[str, ...]:
    """Note the guards of one pass."""
    return world.board().guard(plan(world, machine).left)


def test_a_guard_is_recorded_once_and_not_on_every_pass(world: World) -> None:  # D7
    card, machine = guarded(world)
    assert [passes(world, machine) for _ in range(4)] == [(card.id,), (), (), ()]
    event = world.person.events(task=card.id, kinds=("respawn_guarded",))
    assert [(one.payload["reason"], one.actor) for one in event] == [("self_review", "dispatcher:host")]
    assert world.task(card).guard == "self_review"
    assert world.status(card) == s.REVIEW
    world.verified()


def test_another_guard_is_recorded_again_and_a_start_forgets_it(world: World) -> None:  # D7
    card, machine = guarded(world)
    passes(world, machine)
    world.person.edit(card.id, {"reviewer": "rev"})
    until = world.clock.now_ms() // 1000 + 300
    cooling = Machine(rev=lane("rev", cool_until=until))
    assert [passes(world, cooling) for _ in range(2)] == [(card.id,), ()]
    assert world.person.events(task=card.id)[-1].payload["until"] == until
    world.clock.advance(300)
    start(world, plan(world, cooling))
    assert world.task(card).guard is None
    world.verified()


def test_a_card_that_moved_on_or_went_away_stops_no_other_s_guard(world: World) -> None:  # D2, D7
    gone, machine = guarded(world)
    moved, _ = guarded(world)
    stays, _ = guarded(world)
    found = plan(world, machine).left
    assert len(found) == 3
    world.person.archive(moved.id)
    unknown = found[0].card.evolve(id="t_ffffffff")  # as if it had been deleted
    with pytest.raises(TaskNotFound):
        world.task(unknown)
    rest = tuple(Left(unknown, one.reason) if one.card.id == gone.id else one for one in found)
    assert world.board().guard(rest) == (stays.id,)
    assert world.task(moved).guard is None
    world.verified()


# --- what is watched and when something happens by itself (D1) -----------------------------------------------------
def test_every_run_under_a_shim_is_watched_until_it_is_proven_ended(world: World) -> None:  # D3, P14c
    world.claimed()
    starting, alive = world.dispatched(), world.alive()
    far = world.dispatched(host="far")
    assert [run.id for run in world.person.watched()] == [starting.run.id, alive.run.id, far.run.id]
    world.inside(alive, SHIM).complete(alive.task.id, Handoff("done"))
    assert alive.run.id in [run.id for run in world.person.watched()]
    world.board().settle(alive.run.id, None)
    assert [run.id for run in world.person.watched()] == [starting.run.id, far.run.id]


def test_the_next_thing_that_happens_by_itself_is_the_first_of_all(world: World) -> None:  # D1
    now = world.clock.now_ms() // 1000
    assert world.board().next_due() is None
    world.set(failure_retry_seconds=1000, failure_limit=1)
    claim = world.alive()
    world.board().spawn_failed(claim.run, "no such program")
    assert world.board().next_due() == now + 1000  # the fresh attempt (P27)
    world.card(scheduled_at=now + 500)
    assert world.board().next_due() == now + 500
    taken = world.claimed(ttl=60)[1]
    world.person.reclaim(taken.task.id)
    assert world.board().next_due() == now + 60  # the quarantine's end
    assert not world.board().anything_due()
    world.clock.advance(500)
    assert world.board().anything_due()
    assert world.board().next_due() == now + 1000
    world.board().release_due()
    assert not world.board().anything_due()
    world.clock.advance(500)
    assert world.board().anything_due()
