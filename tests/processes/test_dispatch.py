"""One pass and its dispatcher: order, isolation, one for each board, admission, dry run (D2, D3, D5, D7, D8)."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from hermes_kanban.base import settings
from hermes_kanban.dispatcher.host import GIB, LocalHost, memory
from hermes_kanban.model import status as s
from hermes_kanban.model.run import Run
from tests.processes.around import beside, cards, change, files, now
from tests.processes.home import HERMES, Home, home, kill, worker

PULLED = """
export HERMES_KANBAN_NAME=ann
hermes kanban claim "$1" && hermes kanban request-review "$1" --summary "please look" --reviewer "$2"
"""


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Home]:
    with home(tmp_path) as made:
        yield made


def in_review(here: Home, title: str, *words: str, reviewer: str = "puppet") -> str:
    """Make a card that somebody pulled and handed over."""
    card = here.create(title, *words, lane="ann")
    done = here.hermes.sh(PULLED, card, reviewer)
    assert done.code == 0, done
    return card


def tasks(rows: list[dict[str, Any]]) -> list[str]:
    return [row["task"] for row in rows]


def running(here: Home) -> list[str]:
    """Return which cards run, by title, in the order of their starts."""
    return [here.card(run.task_id).title for run in sorted(here.board.watched(), key=lambda run: run.id) if run.open]


def finish(here: Home, task: str) -> None:
    """Have a puppet close its card and end, and wait until nothing of it is left."""
    run = here.alive(task)
    here.ask(run, "complete")
    here.tell(run, "exit 0")
    here.ended(task)
    here.until(lambda: here.marked(run) == [])


def vanish(here: Home, task: str) -> None:
    """End a run so that nobody writes anything down about it."""
    run = here.alive(task)
    kill(run.shim_pid or 0)
    here.until(lambda: here.marked(run) == [])


# --- D2: the order of a pass, and what does not stop it -----------------------------------------------------------
def test_a_pass_collects_releases_and_starts_in_this_order(here: Home) -> None:  # D2
    here.configure(max_in_progress=1)
    lost, due = here.create("lost", "--priority", "1"), here.create("due", "--priority", "9", "--at", "+1h")
    here.dispatch()
    vanish(here, lost)
    assert change(here, "UPDATE task_rows SET scheduled_at = scheduled_at - 3600 WHERE id = ?", due) == 1
    here.until(lambda: now(here) >= (here.card(due).scheduled_at or 0))
    report = here.dispatch()
    assert [(row["task"], row["outcome"]) for row in report["ended"]] == [(lost, s.CRASHED)]
    assert report["released"] == [due]
    assert tasks(report["started"]) == [due]  # the slot that came free goes to the more urgent card at once
    order = [event.kind for event in here.board.events() if event.kind in ("crashed", "due", "claimed")]
    assert order == ["claimed", "crashed", "due", "claimed"]


def test_the_order_of_starts_is_priority_then_age_over_work_and_reviews(here: Home) -> None:  # D2, P16, C136, C137
    here.create("b")
    in_review(here, "a review", "--priority", "5")
    here.create("c")
    in_review(here, "d review")
    here.create("first", "--priority", "9")
    here.configure(max_in_progress=4)
    report = here.dispatch()
    assert [here.card(task).title for task in tasks(report["started"])] == ["first", "a review", "b", "c"]
    assert report["full"] == "every slot of this host is taken (kanban.max_in_progress)"
    here.until(lambda: len([run for run in here.board.watched() if run.process_state == s.ALIVE]) == 4)


def test_what_goes_wrong_with_one_card_stops_no_other(here: Home) -> None:  # D2
    bad = [
        here.create("no folder", "--workspace", "dir:/nowhere/at/all", "--priority", "9"),
        here.create("no program", "--priority", "8", lane="missing"),
    ]
    here.lanes |= {"missing": {"argv": ["no-such-program"]}, "broken": {"argv": "no list"}}
    here.configure()
    broken = here.create("broken lane", "--priority", "7", lane="broken")
    good = here.create("good")
    here.gateway()
    here.alive(good)
    for card in bad:
        here.until(lambda found=card: here.card(found).status == s.BLOCKED)
        assert [run.outcome for run in here.board.runs(card)] == [s.SPAWN_FAILED, s.GAVE_UP]
    assert here.card(broken).status == s.READY


@pytest.mark.parametrize("damage", ["link", "folder"])
def test_a_damaged_file_of_one_run_stops_no_other(here: Home, damage: str) -> None:  # D2
    card = here.create("damaged")
    here.dispatch()
    run = here.alive(card)
    lock = Path(here.place.runs, f"{run.id}.lock")
    lock.unlink()
    if damage == "link":
        lock.symlink_to("/nowhere")
    else:
        lock.mkdir()
    good = here.create("good")
    here.gateway()
    here.alive(good)


# --- D3: one dispatcher for each board and host ----------------------------------------------------------------
def test_a_second_gateway_idles_and_takes_over_at_once(here: Home) -> None:  # D3, C115, C116
    first = here.gateway()
    here.until(lambda: here.dispatcher() == first.pid)
    second = here.gateway()
    here.until(lambda: second.said("standby"))
    assert [(fact["board"], fact["holder"]) for fact in second.said("standby")] == [("default", first.pid)]
    lost, kept = here.create("lost"), here.create("kept")
    here.alive(lost)
    here.alive(kept)
    first.kill()
    here.until(lambda: here.dispatcher() == second.pid)
    third = here.gateway()
    here.until(lambda: third.said("standby"))
    vanish(here, lost)
    here.until(lambda: len(here.board.runs(lost)) == 2)
    finish(here, kept)
    assert here.kinds(lost).count("crashed") == 1  # booked once, by one of them
    assert here.kinds(kept) == ["created", "claimed", "spawned", "completed", "reconciled"]
    assert not second.said("loop_restarted")
    assert here.hermes("verify").code == 0


def test_gateways_for_different_boards_do_not_disturb_each_other(here: Home) -> None:  # D3, C118
    with beside(here, "one") as one, beside(here, "two") as two:
        first = here.gateway("--board", "one")
        second = here.gateway("--board", "two")
        cards = one.create(), two.create()
        started = one.alive(cards[0]), two.alive(cards[1])
        assert [int((run.claim_lock or "").split(":")[1]) for run in started] == [first.pid, second.pid]
        assert not first.said("standby")
        assert not second.said("standby")


def test_without_a_lease_nobody_dispatches(here: Home) -> None:  # D3: it fails closed
    lease = Path(here.place.folder, "dispatcher.lock")
    lease.symlink_to("/nowhere")
    gateway = here.gateway()
    here.until(lambda: gateway.said("board_trouble"))
    card = here.create()
    assert here.hermes("dispatch").code != 0
    assert here.run(card) is None
    lease.unlink()
    here.alive(card)


def test_dispatch_beside_a_gateway_pokes_it_and_prints_its_pass(here: Home) -> None:  # D3
    gateway = here.gateway()
    here.until(lambda: here.dispatcher() == gateway.pid)
    card = here.create("card", lane="stranger")
    report = here.dispatch()
    assert report["board"] == "default"
    assert [(row["name"], row["cards"]) for row in report["skipped_nonspawnable"]] == [("stranger", 1)]
    here.hermes.ok("assign", card, "puppet")
    here.dispatch()
    run = here.alive(card)
    assert int((run.claim_lock or "").split(":")[1]) == gateway.pid
    assert len(here.board.runs(card)) == 1


# --- D5: nobody answers ------------------------------------------------------------------------------------------
def test_a_card_that_no_lane_answers_for_waits_and_is_listed(here: Home) -> None:  # D5
    card = here.create("stranger's", lane="stranger")
    mine = here.create("mine")
    report = here.dispatch()
    assert tasks(report["started"]) == [mine]
    assert [(row["name"], row["cards"]) for row in report["skipped_nonspawnable"]] == [("stranger", 1)]
    assert report["stranded_in_ready"] == []
    assert change(here, "UPDATE task_rows SET status_since = status_since - 3600 WHERE id = ?", card) == 1
    assert here.dispatch()["stranded_in_ready"] == ["stranger"]
    assert here.card(card).status == s.READY
    assert "respawn_guarded" not in here.kinds(card)
    assert here.hermes("claim", card).code == 0  # it belongs to whoever pulls it


# --- D7: admission: caps, turns, dry run ---------------------------------------------------------------------------
def test_a_limit_counts_what_runs_not_what_a_pass_starts(here: Home) -> None:  # C133
    here.configure(max_in_progress=2)
    cards(here, *"01234")
    started = [len(here.dispatch()["started"]) for _ in range(4)]
    assert started == [2, 0, 0, 0]
    assert running(here) == ["0", "1"]


@pytest.mark.parametrize("other", ["max_in_progress_per_board", "max_in_progress_per_profile", "lane"])
def test_two_limits_together_make_one_budget(here: Home, other: str) -> None:  # C134
    here.create("runs")
    here.dispatch()
    if other == "lane":
        here.lanes["puppet"] = here.lanes["puppet"] | {"max_concurrency": 2}
        here.configure(max_in_progress=2)
    else:
        here.configure(max_in_progress=2, **{other: 2})
    cards(here, *"012")
    assert len(here.dispatch("--dry-run")["started"]) == 1
    assert len(here.dispatch()["started"]) == 1
    assert running(here) == ["runs", "0"]


def test_reviews_count_like_work(here: Home) -> None:  # C136
    here.configure(max_in_progress=2)
    for number in range(3):
        in_review(here, f"review {number}")
    assert len(here.dispatch()["started"]) == 2
    assert here.dispatch()["started"] == []
    assert running(here) == ["review 0", "review 1"]


def test_cards_that_cannot_be_started_cost_no_slot(here: Home) -> None:  # C137, D7
    here.lanes["broken"] = {"argv": []}
    here.configure(max_in_progress=1)
    for lane in ("stranger", "broken", "stranger", "broken"):
        here.create(f"{lane}'s", "--priority", "9", lane=lane)
    mine = here.create("mine")
    assert tasks(here.dispatch("--max", "1")["started"]) == [mine]


def test_caps_count_over_all_boards_of_the_host(here: Home) -> None:  # D7
    here.lanes["puppet"] = here.lanes["puppet"] | {"max_concurrency": 3}
    here.lanes["other"] = worker("obey")
    here.configure(max_in_progress=4)
    with beside(here, "second") as second:
        for board in (here, second):
            cards(board, "0", "1")
        assert len(here.dispatch()["started"]) == 2
        assert len(second.dispatch()["started"]) == 1  # the lane's three slots
        assert second.hermes.ask("why", second.create())["dispatchable"] is False
        second.create("other", lane="other")
        here.create("other", lane="other")
        assert len(second.dispatch()["started"]) == 1  # the host's four
        assert here.dispatch()["full"] == "every slot of this host is taken (kanban.max_in_progress)"
        assert here.slots() == 4


def test_scarce_slots_go_round_the_boards(here: Home) -> None:  # D7: fair turns
    here.configure(max_in_progress=1)
    with ExitStack() as stack:
        boards = {name: stack.enter_context(beside(here, name)) for name in ("one", "two")}
        busy = boards["one"].create("busy")
        here.gateway()
        boards["one"].alive(busy)
        waiting = {name: cards(board, "0", "1") for name, board in boards.items()}
        finish(boards["one"], busy)
        order = []
        for _ in range(4):
            here.until(lambda: any(board.board.watched() for board in boards.values()))
            name = next(name for name, board in boards.items() if board.board.watched())
            task = boards[name].board.watched()[0].task_id
            order.append(name)
            waiting[name].remove(task)
            finish(boards[name], task)
        assert not any(waiting.values())
        assert order in (["one", "two"] * 2, ["two", "one"] * 2)


def mixed(here: Home) -> dict[str, str]:
    """Fill a board with all that a pass would act on; return the cards by title."""
    here.lanes |= {"fast": worker("obey", max_concurrency=1), "tired": worker("exit 75"), "broken": {"argv": []}}
    here.configure(max_in_progress=6, max_in_progress_per_profile=3, rate_limit_cooldown_seconds=600)
    first = [{"title": "lost"}, {"title": "overdue"}, {"title": "tired", "assignee": "tired"}]
    later = [{"title": "due", "at": "+1h"}, {"title": "first", "priority": 9}]
    later += [{"title": "broken", "assignee": "broken", "priority": 8}, {"title": "stranger", "assignee": "stranger"}]
    later += [{"title": "fast", "assignee": "fast", "priority": 5}, {"title": "fast too", "assignee": "fast"}]
    later += [{"title": "tired too", "assignee": "tired", "priority": 3}, {"title": "nobody", "assignee": None}]
    later += [{"title": f"p{number}"} for number in range(4)]
    made = make(here, first)
    here.dispatch()
    here.ended(made["tired"])
    vanish(here, made["lost"])
    here.alive(made["overdue"])
    assert change(here, "UPDATE task_runs SET started_at = started_at - 90000 WHERE task_id = ?", made["overdue"])
    made |= make(here, later)
    made["review"] = in_review(here, "review", "--priority", "6", reviewer="fast")
    assert change(here, "UPDATE task_rows SET scheduled_at = scheduled_at - 3600 WHERE id = ?", made["due"])
    here.until(lambda: now(here) >= (here.card(made["due"]).scheduled_at or 0))
    return made


def make(here: Home, wanted: list[dict[str, Any]]) -> dict[str, str]:
    plain = [{"assignee": "puppet", "idempotency_key": f"key {one['title']}", **one} for one in wanted]
    given = [{name: value for name, value in one.items() if value is not None} for one in plain]
    return dict(zip((one["title"] for one in given), here.apply(given), strict=True))


@pytest.mark.skipif(sys.platform != "linux", reason="which signals are pending is read from /proc")
def test_a_dry_run_changes_nothing(here: Home) -> None:  # C139, D7
    made = mixed(here)
    run = here.alive(made["overdue"])
    kill(run.shim_pid or 0, signal.SIGSTOP)  # nobody but the dry run is at work now
    kill(run.worker_pid or 0, signal.SIGSTOP)
    here.hermes.ok("list")  # what a look leaves behind it has left
    before, log, kept, told = files(here.path), here.board.last_event_id(), here.locks(), pending(here, run)
    report = here.dispatch("--dry-run")
    text = here.hermes.ok("dispatch", "--dry-run")
    assert f"would start {made['first']} for puppet on lane puppet" in text.splitlines()
    assert report["started"]
    after = files(here.path)
    assert after.keys() == before.keys()
    assert {name for name, data in after.items() if data != before[name]} == set()
    assert (here.board.last_event_id(), here.locks()) == (log, kept)
    assert pending(here, run) == told
    assert here.card(made["due"]).status == s.SCHEDULED
    assert here.card(made["lost"]).status == s.RUNNING


def pending(here: Home, run: Run) -> dict[int, list[str]]:
    """Return what each process of a run still has to take in: those that are stopped keep it all."""
    status = {pid: Path(f"/proc/{pid}/status").read_text(encoding="utf-8") for pid in here.marked(run)}
    wanted = ("State:", "SigPnd:", "ShdPnd:")
    return {pid: [line for line in text.splitlines() if line.startswith(wanted)] for pid, text in status.items()}


def test_a_dry_run_says_exactly_what_the_run_starts(here: Home) -> None:  # C140, D7
    made = mixed(here)
    here.dispatch("--max", "1")  # books what has ended; what is over its time is told to end
    here.ended(made["overdue"])
    dry = here.dispatch("--dry-run")
    machine = LocalHost(here.env.evolve(values=settings.load(str(here.path))))
    answers = {title: here.board.why(card, machine)[1] for title, card in made.items()}  # as the verb `why` asks it
    real = here.dispatch()
    assert tasks(dry["started"]) == tasks(real["started"])
    assert len(real["started"]) >= 3
    for name in ("full", "left", "waiting", "skipped_nonspawnable"):
        assert dry[name] == real[name], name
    may = {title for title, answer in answers.items() if not answer.dispatchable}
    assert {here.card(task).title for task in tasks(real["started"])} <= may
    codes = {title: [why.code for why in answer.dispatchable] for title, answer in answers.items()}
    assert codes["tired too"] == ["lane_cool_down"]
    assert codes["broken"] == ["lane_problem"]
    assert codes["stranger"] == ["lane"]
    assert codes["nobody"] == ["assignee"]
    assert {row["name"]: row["reason"] for row in dry["waiting"]}.items() >= {"tired": "lane_cool_down"}.items()


def test_what_guards_a_card_is_recorded_once(here: Home) -> None:  # D7, C58: never silent, and never again and again
    here.lanes["tired"] = worker("exit 75")
    here.configure(rate_limit_cooldown_seconds=600)
    first = here.create("first", lane="tired")
    here.dispatch()
    here.ended(first)
    other = here.create("other", lane="tired")
    for _ in range(3):
        assert here.dispatch()["started"] == []
    assert here.kinds(other) == ["created", "respawn_guarded"]
    payload = here.board.events(task=other)[1].payload
    assert payload["reason"] == "lane_cool_down"
    assert payload["until"] == here.card(first).eligible_at  # a deferral has an end
    assert "respawn_guarded" not in here.kinds(first)
    Path(here.path, "kanban", "pauses").rename(here.path / "aside")
    assert tasks(here.dispatch()["started"]) == [other]


# --- D8 ------------------------------------------------------------------------------------------------------------
def test_what_a_fresh_install_starts_at_once_fits_the_machine(here: Home) -> None:  # D8, C38
    here.configure(max_in_progress=0)
    most = max(1, min(2 * (os.cpu_count() or 1), memory() // GIB))
    cards(here, *map(str, range(50)))
    assert len(here.dispatch()["started"]) == most
    assert here.dispatch()["started"] == []
    assert len(running(here)) == most


def test_pass_texts_for_people(here: Home) -> None:  # D7: each reason in words
    here.configure(max_in_progress=1)
    first, second = here.create("first"), here.create("second", lane="stranger")
    third = here.create("third")
    text = here.hermes.ok("dispatch").splitlines()
    assert text[0] == f"started {first} for puppet on lane puppet"
    assert "no lane answers for stranger: 1 ready" in text
    assert "every slot of this host is taken (kanban.max_in_progress)" in text
    assert here.hermes.run([HERMES, "kanban", "dispatch", "-q"]).out == ""
    assert {here.card(task).status for task in (second, third)} == {s.READY}
