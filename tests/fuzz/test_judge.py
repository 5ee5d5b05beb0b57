"""The judge of fuzzed calls notices a refusal that changed something."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fuzz import ground
from tests.fuzz.judge import judge
from tests.fuzz.words import _several


def changed(state: ground.State, card: str) -> ground.State:
    """Return a state in which one card has another title."""
    rows = [tuple("other" if value == row[2] and card in row else value for value in row) for row in _cards(state)]
    return state._replace(rows=state.rows | {"task_rows": rows})


def _cards(state: ground.State) -> list[tuple[Any, ...]]:
    return state.rows["task_rows"]


@pytest.mark.parametrize("json", [[], ["--json"]])
def test_a_refused_card_that_changed_is_noticed_among_several(json: list[str]) -> None:  # T6
    with ground.fresh() as here:
        seen = here.call(["archive", "<ready>", "<archived>", *json], ground.PERSON)
        assert seen.code
        judge(here, seen, several=True)
        for card in ("<archived>", "<blocked>"):
            with pytest.raises(AssertionError):
                judge(here, seen._replace(after=changed(seen.after, here.known[card])), several=True)
        judge(here, seen._replace(after=changed(seen.after, here.known["<ready>"])), several=True)


@pytest.mark.parametrize("words", [["archive", "<archived>"], ["archive", "<archived>", "<nobody>"]])
def test_a_call_that_did_nothing_may_change_nothing(words: list[str]) -> None:  # T6
    with ground.fresh() as here:
        seen = here.call(words, ground.PERSON)
        assert seen.code
        judge(here, seen, several=len(words) > 2)
        other = {"side": {"task_rows": [(1,)]}}
        for after in (changed(seen.after, here.known["<ready>"]), seen.after._replace(others=other)):
            with pytest.raises(AssertionError):
                judge(here, seen._replace(after=after), several=len(words) > 2)


def test_a_list_is_several() -> None:
    assert _several([["a"], ["b"]])
    assert _several([["a,b"]])
    assert not _several([["a"]])
