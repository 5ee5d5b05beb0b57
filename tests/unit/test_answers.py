"""What a shim is answered: only the word that its run is over ends a worker (D11, D14)."""

from __future__ import annotations

from typing import Any

import pytest

from hermes_kanban.base.errors import BoardNotFound, Busy, ClaimLost, Refusal, RunNotFound, StoreRefused
from hermes_kanban.kernel.supervise import Beat
from hermes_kanban.lanes.answers import Desk, answer
from hermes_kanban.lanes.settling import Pauses

BEAT = {"op": "beat", "run": 7, "lock": "l", "active": True, "idle": 0}


class Board:
    """A board that answers every renewal the same way."""

    def __init__(self, outcome: Beat | Refusal) -> None:
        self._outcome = outcome

    def renew(self, *_words: object, **_named: object) -> Beat:
        if isinstance(self._outcome, Refusal):
            raise self._outcome
        return self._outcome


def asked(outcome: Beat | Refusal, message: dict[str, Any]) -> dict[str, Any] | None:
    return answer(Board(outcome), Desk("/nowhere", Pauses("/nowhere")), 7, message)  # type: ignore[arg-type]


@pytest.mark.parametrize("error", [StoreRefused("newer schema"), BoardNotFound("replaced"), Busy("locked")])
def test_a_board_that_cannot_be_used_says_nothing_about_the_run(error: Refusal) -> None:  # D14
    assert asked(error, BEAT) is None


@pytest.mark.parametrize("error", [ClaimLost("another's"), RunNotFound("none")])
def test_a_run_that_is_another_s_is_over(error: Refusal) -> None:  # D11, P12
    found = asked(error, BEAT)
    assert found is not None
    assert found["ok"] is False


def test_how_a_run_stands_is_told() -> None:  # P14c
    assert asked(Beat("open"), BEAT) == {"ok": True, "state": "open", "by_owner": False}
    assert asked(Beat("closed", True), BEAT) == {"ok": True, "state": "closed", "by_owner": True}


@pytest.mark.parametrize("message", [BEAT | {"run": 8}, {"op": "dance", "run": 7}, {"op": "started", "run": 7}])
def test_what_is_no_report_of_this_run_is_refused(message: dict[str, Any]) -> None:
    found = asked(Beat("open"), message)
    assert found is not None
    assert found["ok"] is False
