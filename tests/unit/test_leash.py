"""The rules of a run's end, on made-up times (D14, D14b, D16, P14b)."""

from __future__ import annotations

from hermes_kanban.lanes.leash import ASKED, GOING, KILLING, Leash
from hermes_kanban.lanes.order import ALL, LEADER, Order


def leash(wait_for: str = LEADER, max_runtime: float | None = 100) -> Leash:
    order = Order(
        **{"run": 1, "task": "t", "lock": "l", "argv": ("x",), "workspace": "/", "log": "/l", "folder": "/f"},
        **{"socket": "/s", "kill_grace": 5, "closing_grace": 60, "max_runtime": max_runtime, "wait_for": wait_for},
    )
    made = Leash(order)
    made.released(0)
    return made


def stages(made: Leash, *times: float) -> list[str]:
    return [made.stage(at) for at in times]


def test_a_stop_is_a_question_and_then_a_kill() -> None:  # D14
    made = leash()
    assert (made.stage(10), made.deadline(10)) == (GOING, 100)
    made.stop("stale", 10)
    made.stop("memory", 12)
    assert stages(made, 10, 14.9, 15) == [ASKED, ASKED, KILLING]
    assert (made.reason, made.overstayed) == ("stale", False)
    assert (made.deadline(12), made.deadline(15)) == (15, None)


def test_max_runtime() -> None:  # D16
    made = leash()
    assert stages(made, 99.9, 100, 105) == [GOING, ASKED, KILLING]
    assert made.reason == "timed_out"
    assert leash(max_runtime=None).stage(1e9) == GOING
    assert leash(max_runtime=None).deadline(5) is None


def test_time_runs_from_the_release_only() -> None:  # C56
    made = leash()
    made.released(1000)
    assert stages(made, 1099, 1100) == [GOING, ASKED]


def test_closing_gives_one_grace_and_ends_the_count_of_time() -> None:  # D14b, P14b
    made = leash()
    made.closed(50)
    made.closed(90)
    assert stages(made, 100, 109.9, 110) == [GOING, GOING, ASKED]
    assert (made.reason, made.overstayed) == ("", True)


def test_a_good_end_leaves_a_grace_to_the_rest() -> None:  # D14b
    made = leash()
    made.leader_ended(10, well=True)
    assert stages(made, 69, 70) == [GOING, ASKED]
    assert (made.reason, made.overstayed) == ("", True)


def test_the_earlier_of_closing_and_end_counts() -> None:  # D14b
    made = leash()
    made.closed(10)
    made.leader_ended(40, well=True)
    assert stages(made, 69, 70) == [GOING, ASKED]


def test_a_bad_end_leaves_none() -> None:  # D14b
    made = leash()
    made.leader_ended(10, well=False)
    assert (made.stage(10), made.reason, made.overstayed) == (ASKED, "", False)


def test_what_follows_the_workers_end_is_not_its_reason() -> None:  # P14b
    made = leash()
    made.leader_ended(10, well=True)
    made.stop("gateway_stop", 20)
    assert (made.stage(20), made.reason, made.overstayed) == (ASKED, "", False)


def test_a_worker_that_ends_because_it_was_stopped_was_stopped() -> None:  # D14
    made = leash()
    made.stop("timed_out", 10)
    made.leader_ended(11, well=True)
    assert made.reason == "timed_out"


def test_a_launchers_end_says_nothing() -> None:  # C26
    made = leash(ALL)
    made.leader_ended(1, well=False)
    assert stages(made, 99, 100) == [GOING, ASKED]
    assert made.reason == "timed_out"
