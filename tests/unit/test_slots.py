"""Slots are locks with one owner: nothing is left of a start that did not happen (P15, C23)."""

from __future__ import annotations

import os
from pathlib import Path

from hermes_kanban.dispatcher.slots import HOST, Held, Slots
from hermes_kanban.dispatcher.turns import Turns


def test_a_slot_is_one_s_until_it_is_given_back(tmp_path: Path) -> None:  # P15
    slots = Slots(str(tmp_path))
    taken = slots.take(((HOST, 2),))
    assert isinstance(taken, list)
    assert slots.free(HOST, 2) == 1
    held = Held(taken)
    held.close()
    held.close()
    assert slots.free(HOST, 2) == 2


def test_what_was_handed_over_is_not_closed(tmp_path: Path) -> None:
    slots = Slots(str(tmp_path))
    taken = slots.take(((HOST, 1),))
    assert isinstance(taken, list)
    held = Held(taken)
    held.put_first(os.open(os.devnull, os.O_RDONLY))
    given = held.hand_over()
    held.close()
    assert len(given) == 2
    assert slots.free(HOST, 1) == 0
    Held(given).close()
    assert slots.free(HOST, 1) == 1


def test_all_kinds_or_none(tmp_path: Path) -> None:  # D7
    slots = Slots(str(tmp_path))
    first = slots.take(((HOST, 5), ("lane-x", 1)))
    assert isinstance(first, list)
    assert slots.take(((HOST, 5), ("lane-x", 1))) == "lane-x"
    assert slots.free(HOST, 5) == 4
    assert slots.take(((HOST, 5), ("profile-y", 0))) == "profile-y"
    assert slots.free(HOST, 5) == 4
    Held(first).close()


def test_a_lowered_bound_counts_what_still_runs(tmp_path: Path) -> None:  # C133
    slots = Slots(str(tmp_path))
    many = [slots.take(((HOST, 4),)) for _ in range(4)]
    assert slots.free(HOST, 2) == 0
    assert slots.take(((HOST, 2),)) == HOST
    for one in many:
        assert isinstance(one, list)
        Held(one).close()


def test_boards_start_in_turns_and_one_that_leaves_stands_in_nobody_s_way() -> None:  # D4, D7
    woken: list[str] = []
    turns = Turns()
    for name in ("a", "b"):
        turns.join(name, lambda name=name: woken.append(name))  # type: ignore[misc]
    turns.wait("a")
    assert not turns.mine("b")
    assert turns.mine("a")
    turns.started("a")
    assert woken[-1] == "b"
    assert turns.mine("b")
    assert not turns.mine("a")
    turns.leave("b")
    assert turns.mine("a")
