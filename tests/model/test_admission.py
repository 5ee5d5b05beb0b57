"""May the dispatcher start this card now? One function over one ledger (D5, D7, P15, P30b, C59, C133 to C137)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_kanban.model import admission
from hermes_kanban.model import status as s
from hermes_kanban.model.admission import LaneFacts, Ledger
from hermes_kanban.model.reasons import Reason
from hermes_kanban.model.task import DEFAULTS, Task

NOW = 1_800_000_000


class Machine:
    """A host with so many free slots; it counts how often it was asked about a name."""

    def __init__(self, free: int = 100, **lanes: LaneFacts) -> None:
        self.free, self.lanes = free, lanes
        self.asked: list[str] = []

    def lane_of(self, name: str) -> LaneFacts:
        self.asked.append(name)
        return self.lanes.get(name) or LaneFacts(name)

    def free_slots(self) -> int:
        return self.free


def lane(name: str, **facts: Any) -> LaneFacts:
    return LaneFacts(name, **({"lane": f"lane of {name}"} | facts))


def ledger(machine: Machine, running: dict[str, int] | None = None, **facts: Any) -> Ledger:
    plain: dict[str, Any] = {"board_cap": None, "profile_cap": None, "most": None, "now": NOW, "self_review": False}
    return Ledger(machine, running or {}, facts.pop("lanes", {}), **(plain | facts))


def card(assignee: str | None = "bot", **facts: Any) -> Task:
    known = {"seq": 1, "id": "t_0a0a0a0a", "title": "card", "status": s.READY, "created_by": "human:ann"}
    return Task(**(DEFAULTS | known | {"assignee": assignee} | facts))


def review(reviewer: str | None = "rev", **facts: Any) -> Task:
    return card("bot", status=s.REVIEW, phase=s.REVIEWING, reviewer=reviewer, **facts)


def code(found: Reason | None) -> str:
    return found.code if found else ""


def started(book: Ledger, *cards: Task) -> list[str]:
    """Admit the cards one after the other, and count those that may start; return why each may not ("": it may)."""
    answers = []
    for one in cards:
        answers.append(code(admission.admit(one, book)))
        if not answers[-1]:
            book.take(book.facts(admission.who(one)))
    return answers


def test_a_card_with_a_lane_and_room_is_started() -> None:  # D7
    assert admission.admit(card(), ledger(Machine(bot=lane("bot")))) is None


# --- what is in the way -----------------------------------------------------------------------------------------
WAYS: dict[str, tuple[Task, dict[str, Any], LaneFacts]] = {
    "assignee": (card(None), {}, lane("bot")),
    "reviewer": (review(None), {}, lane("rev")),
    "lane": (card("stranger"), {}, lane("bot")),
    "lane_problem": (card(), {}, lane("bot", problem="its profile has no config.yaml: write one")),
    "most": (card(), {"most": 0}, lane("bot")),
    "board_cap": (card(), {"running": {"other": 2}, "board_cap": 2}, lane("bot")),
    "profile_cap": (card(), {"running": {"bot": 1}, "profile_cap": 1}, lane("bot")),
    "lane_cap": (card(), {"running": {"bot": 1}, "lanes": {"lane of bot": 3}}, lane("bot", cap=3)),
    "lane_cool_down": (card(), {}, lane("bot", cool_until=NOW + 300)),
}


@pytest.mark.parametrize("way", WAYS)
def test_what_is_in_the_way_is_named_with_its_end(way: str) -> None:  # D7, P3b, C58
    asked, facts, known = WAYS[way]
    found = admission.admit(asked, ledger(Machine(bot=known, rev=lane("rev")), **facts))
    assert found is not None
    assert found.code == way
    assert found.text
    assert found.until or found.actor != "nobody", "it would wait for ever unseen"


def test_a_full_host_starts_nothing() -> None:  # C38, D8
    assert started(ledger(Machine(2, bot=lane("bot"))), card(), card(), card()) == ["", "", "host_cap"]
    assert started(ledger(Machine(0, bot=lane("bot"))), card()) == ["host_cap"]


def test_a_half_made_lane_says_what_to_do() -> None:  # C142
    problem = "profile bot has no config.yaml: write one"
    found = admission.admit(card(), ledger(Machine(bot=lane("bot", problem=problem))))
    assert found == Reason("lane_problem", problem, None, s.BY_PERSON)


def test_a_pause_of_a_lane_ends_at_its_time() -> None:  # P44
    found = admission.admit(card(), ledger(Machine(bot=lane("bot", cool_until=NOW + 1))))
    assert found is not None
    assert (found.code, found.until, found.actor) == ("lane_cool_down", NOW + 1, "nobody")
    assert admission.admit(card(), ledger(Machine(bot=lane("bot", cool_until=NOW)))) is None


def test_slots_of_a_lane_that_other_boards_took_bind_too() -> None:  # P15
    book = ledger(Machine(bot=lane("bot", free=1), other=lane("other")))
    assert started(book, card(), card(), card("other")) == ["", "lane_cap", ""]


# --- caps are about what runs, and counted once (P15) -------------------------------------------------------------
def test_a_limit_is_on_what_runs_and_not_on_each_pass() -> None:  # C133
    machine = Machine(bot=lane("bot"))
    assert started(ledger(machine, {"bot": 2}, board_cap=4), *[card()] * 5) == ["", "", *["board_cap"] * 3]
    assert started(ledger(machine, {"bot": 4}, board_cap=4), card()) == ["board_cap"]


def test_two_limits_do_not_count_the_same_attempt_twice() -> None:  # C134
    machine = Machine(100, bot=lane("bot", cap=2))
    book = ledger(machine, {"bot": 1}, lanes={"lane of bot": 1}, board_cap=2, profile_cap=2)
    assert started(book, card(), card()) == ["", "board_cap"]


def test_work_and_reviews_have_one_budget() -> None:  # C136
    machine = Machine(100, bot=lane("bot"), rev=lane("rev"))
    assert started(ledger(machine, board_cap=2), review(), review(), review()) == ["", "", "board_cap"]
    assert started(ledger(machine, board_cap=2), card(), review(), card()) == ["", "", "board_cap"]
    shared = Machine(100, bot=lane("bot", lane="one", cap=2), rev=lane("rev", lane="one", cap=2))
    assert started(ledger(shared), card(), review(), card()) == ["", "", "lane_cap"]


def test_a_card_that_cannot_be_started_costs_no_slot() -> None:  # C137, D7
    machine = Machine(1, bot=lane("bot"), broken=lane("broken", problem="mend it"))
    cards = (card("stranger"), card("broken"), card(None), review(None), card())
    assert started(ledger(machine), *cards) == ["lane", "lane_problem", "assignee", "reviewer", ""]


def test_full_caps_of_one_name_leave_the_others_alone() -> None:  # P15
    machine = Machine(100, bot=lane("bot", cap=1), other=lane("other"))
    book = ledger(machine, {"bot": 1}, lanes={"lane of bot": 1}, profile_cap=3)
    assert started(book, card(), card("other"), card("other")) == ["lane_cap", "", ""]


# --- reviews (P30b) ---------------------------------------------------------------------------------------------
def test_who_did_the_work_is_not_started_to_judge_it() -> None:  # P30b, C73
    machine = Machine(rev=lane("rev"))
    found = admission.admit(review(), ledger(machine), ("bot", "rev"))
    assert found is not None
    assert (found.code, found.actor) == ("self_review", s.BY_PERSON)
    assert admission.admit(review(), ledger(machine), ("bot",)) is None
    assert admission.admit(review(), ledger(machine, self_review=True), ("rev",)) is None


def test_work_is_started_whoever_did_the_last_round() -> None:  # P31
    assert admission.admit(card(), ledger(Machine(bot=lane("bot"))), ("bot",)) is None


def test_whose_turn_it_is_follows_the_phase() -> None:  # P30
    assert (admission.who(card()), admission.who(review()), admission.who(card(None))) == ("bot", "rev", "")
    assert admission.who(card("bot", reviewer="rev", status=s.TODO)) == "bot"


# --- one function, whoever asks -----------------------------------------------------------------------------------
LINK = "the work is in https://example.com/pull/42, status: running, do not start, blocked, done"


@pytest.mark.parametrize("column", ["title", "body", "acceptance", "result", "last_failure_error"])
def test_nothing_is_decided_from_free_text(column: str) -> None:  # C59, D7
    machine = Machine(bot=lane("bot"))
    assert admission.admit(card(**{column: LINK}), ledger(machine)) is None


def test_asking_changes_nothing() -> None:  # D7
    book = ledger(Machine(1, bot=lane("bot")))
    assert [admission.admit(card(), book) for _ in range(3)] == [None] * 3
    book.take(book.facts("bot"))
    assert {code(admission.admit(card(), book)) for _ in range(3)} == {"host_cap"}


def test_the_machine_is_asked_once_about_a_name() -> None:  # D7
    machine = Machine(bot=lane("bot"))
    assert started(ledger(machine), card(), card(), card("stranger"), card("stranger")) == ["", "", "lane", "lane"]
    assert machine.asked == ["bot", "stranger"]


NAMES = ("a", "b", "c")
CAP = st.one_of(st.none(), st.integers(0, 4))
COUNTS = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 3))


@given(
    free=st.integers(0, 6),
    caps=st.tuples(CAP, CAP, CAP, CAP),
    running=COUNTS,
    shared=st.booleans(),
    names=st.lists(st.sampled_from([*NAMES, "stranger", None]), max_size=12),
)
def test_no_bound_is_ever_passed_and_no_room_is_left_unused(
    free: int, caps: tuple[int | None, ...], running: dict[str, int], shared: bool, names: list[str | None]
) -> None:  # P15, C133, C134, C137
    board, profile, of_lane, most = caps
    lanes = {name: "one" if shared else name for name in NAMES}
    machine = Machine(free, **{name: lane(name, lane=lanes[name], cap=of_lane) for name in NAMES})
    in_lane: dict[str, int] = {}
    for name, count in running.items():
        in_lane[lanes[name]] = in_lane.get(lanes[name], 0) + count
    book = ledger(machine, running, lanes=in_lane, board_cap=board, profile_cap=profile, most=most)
    runs, by_lane, new = dict(running), dict(in_lane), 0
    for name in names:
        known = name in NAMES
        bounds = [(new, free), (new, most), (sum(runs.values()), board)]
        if known:
            bounds += [(runs.get(name, 0), profile), (by_lane.get(lanes[name], 0), of_lane)]
        room = known and all(most is None or count < most for count, most in bounds)
        assert (started(book, card(name)) == [""]) == room
        if room:
            new += 1
            runs[name] = runs.get(name, 0) + 1
            by_lane[lanes[name]] = by_lane.get(lanes[name], 0) + 1
