"""What a worker is spared: a file named from another home, and a mistake that somebody makes in config.yaml."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_kanban.lanes import runfiles
from hermes_kanban.model import status as s
from tests.processes.home import Home, home
from tests.surfaces.hermes import Hermes

BROKEN = ["kanban: [", "kanban:\n  claim_ttl_seconds: never\n"]
INVALID = 7  # exit code
NOTHING_READY = 4  # exit code


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Home]:
    with home(tmp_path) as made:
        yield made


@pytest.mark.parametrize("sort", ["other home", "other board", "link"])
def test_who_comes_from_elsewhere_sees_that_a_worker_lives(here: Home, tmp_path: Path, sort: str) -> None:  # D3, D13
    task = here.create()
    here.dispatch()
    run = here.alive(task)
    file = Path(here.place.database)
    (tmp_path / "link.db").symlink_to(file)
    meant = tmp_path / "link.db" if sort == "link" else file
    variables = here.hermes.variables | {"HERMES_KANBAN_DB": str(meant)}
    if sort == "other board":
        variables["HERMES_KANBAN_BOARD"] = "other"
    elsewhere = Hermes(here.path if sort == "other board" else tmp_path / "elsewhere", **variables)
    assert elsewhere("claim", "--next").code == NOTHING_READY
    assert runfiles.held(here.place.runs, run.id)
    assert here.marked(run)
    assert here.find(run).process_state == s.ALIVE
    here.ask(run, "complete")
    here.tell(run, "exit 0")
    card, last = here.ended(task)
    assert (card.status, last.id, last.outcome) == (s.DONE, run.id, s.COMPLETED)


@pytest.mark.parametrize("text", BROKEN)
def test_a_mistake_in_the_config_costs_no_worker_its_work(here: Home, text: str) -> None:  # D13
    task = here.create()
    here.dispatch()
    run = here.alive(task)
    (here.path / "config.yaml").write_text(text, encoding="utf-8")
    assert here.hermes("list").code == INVALID  # people are told at once
    here.ask(run, "complete")
    here.tell(run, "exit 0")
    card, last = here.ended(task)  # nobody dispatches: the report program has told of the end
    assert (card.status, last.outcome, last.exit_code) == (s.DONE, s.COMPLETED, 0)


@pytest.mark.parametrize("text", BROKEN)
def test_who_is_inside_a_claim_is_warned_only(hermes: Hermes, text: str) -> None:
    config = hermes.home / "config.yaml"
    config.write_text("kanban: {claim_ttl_seconds: 7200, external_assignees: [ann]}\n", encoding="utf-8")
    task = hermes.create("card", "--assignee", "ann")
    claim = hermes.ask("claim", task)
    config.write_text(text, encoding="utf-8")
    assert hermes("heartbeat", task).code == INVALID
    worker = hermes.set(
        HERMES_KANBAN_TASK=task,
        HERMES_KANBAN_RUN_ID=str(claim["run_id"]),
        HERMES_KANBAN_CLAIM_LOCK=claim["claim_lock"],
    )
    for words in (["heartbeat", task], ["complete", task, "--summary", "made"]):
        answer = worker(*words, "--json")
        assert answer.code == 0, answer
        assert str(config) in answer.json["warnings"][0]
        assert "the last good values are used" in answer.err
    for words in (["dispatch"], ["gateway", "start"], ["lanes", "list"]):
        assert worker(*words).code == INVALID  # nothing is started on a guess
    (hermes.home / ".config.json").unlink()
    assert "the default values are used" in worker("list").err
    config.unlink()
    assert hermes.status(task) == s.DONE
