"""What a person asks in the morning: what failed, who starts it, what still runs (P3b, P27, P40, D6, D9)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_kanban.model import status as s
from tests.processes.home import LANES, Home, home, worker


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Home]:
    with home(tmp_path, LANES | {"fails": worker("exit 9")}, failure_limit=1) as made:
        yield made


def test_a_tripped_card_asks_for_no_answer(here: Home) -> None:  # P27, P40
    card = here.create("nightly", lane="fails")
    here.dispatch()
    here.until(lambda: here.dispatch() and here.card(card).status == s.BLOCKED)
    for text in (here.hermes.ok("inbox"), here.hermes.ok("why", card)):
        assert "exit code 9" in text
        assert "tried once more by itself in 2" in text  # 23 or 24 hours
        assert f"    hermes kanban unblock {card}\n" in f"{text}\n"
    runs = here.hermes.ok("runs", card)
    assert "EXIT" in runs
    assert f"\nlog: {here.place.logs}/{card}.log" in runs


def test_a_bare_question_asks_for_an_answer(here: Home) -> None:  # P26
    card = here.create()
    here.hermes.ok("block", card, "no parts")
    assert f"hermes kanban unblock {card} --answer TEXT" in here.hermes.ok("inbox")


def test_why_says_that_nobody_dispatches(here: Home) -> None:  # P3b, D3
    card = here.create()
    assert here.hermes.ask("why", card)["dispatched"] is False
    assert here.hermes.ok("why", card).endswith("now\n    hermes gateway start")
    gateway = here.gateway()
    here.until(lambda: here.dispatcher() == gateway.pid)
    assert here.hermes.ask("why", card)["dispatched"] is True


def test_workers_whose_gateway_has_gone_can_be_ended(here: Home) -> None:  # D6
    card = here.create("left over")
    here.dispatch()
    run = here.alive(card)
    assert "  left over" in here.hermes.run(["hermes", "gateway", "status"]).out
    answer = here.hermes.run(["hermes", "gateway", "stop", "--workers", "--json"])
    assert (answer.json["stopped"], answer.json["workers"]) == ([], [])
    _, ended = here.ended(card)
    assert (ended.id, ended.outcome, ended.end_reason) == (run.id, s.RECLAIMED, "gateway_stop")
    here.until(lambda: here.marked(run) == [])
