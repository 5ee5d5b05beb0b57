"""T3: a death at any statement and any operation on a file leaves a verb whole or absent, and the board goes on.

Every point of every scene, in a quick run too; second deaths and real ones at a few points of each, at all of them with
HERMES_TEST_CRASHES=all.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crashes import deaths, disks
from tests.crashes.places import CHANGES, Change, HomeStage, UpgradeStage
from tests.crashes.runs import RunStage
from tests.crashes.stage import BoardStage, image
from tests.scenes import SCENES, Scene, every_scene

SECOND, REAL = 1, 2  # for each scene so many images are the beginning of a second death, so many deaths are real


@every_scene
def test_a_death_at_any_point_leaves_the_verb_whole_or_absent(scene: Scene, folder: Path) -> None:  # T3, T1b, P1
    played = BoardStage(folder, scene)
    with played.world() as world, pytest.raises((AssertionError, IndexError)):
        scene.done(world, played.facts)
    played.restore(played.image)
    trace = deaths.enumerated(played)
    assert trace.escaped == []  # no file was changed behind the back of the taps
    played.after = played.state()
    judge = deaths.Judge(played)
    states = judge.states(trace)
    turns = deaths.in_turn(states)
    assert (turns[0], turns[-1], len(turns)) == (played.before, played.after, scene.commits + 1)
    assert set(states[trace.answered :]) == {played.after}  # acknowledged means kept
    place = SCENES.index(scene)
    second_deaths_change_nothing(judge, trace, states, place)
    real_deaths_leave_the_same(judge, trace, states, place)


def second_deaths_change_nothing(judge: deaths.Judge, trace: deaths.Trace, states: list[str], place: int) -> None:
    """A death at any point of what the next process does first; in a quick run after one death of each scene."""
    known = dict(zip((mark for _, mark in trace.points), states, strict=True))
    marks = list(known)
    for at in deaths.share(place, len(marks), SECOND):
        judge.stage.restore(trace.images[marks[at]])
        assert set(judge.states(deaths.recovered(judge.stage))) == {known[marks[at]]}, at


def real_deaths_leave_the_same(judge: deaths.Judge, trace: deaths.Trace, states: list[str], place: int) -> None:
    """A process that is killed leaves what was seen at that point, byte for byte; in a quick run at two points."""
    points = len(trace.points) - 1  # the last one is the end itself
    for point in deaths.share(place, points, REAL):
        judge.stage.restore(judge.stage.image)
        assert deaths.killed(judge.stage, point)
        left, seen = (disks.lasting(found) for found in (image(judge.stage.live), trace.images[trace.points[point][1]]))
        assert [name for name in {*left, *seen} if left.get(name, 0) != seen.get(name, 0)] == [], trace.points[point]
        assert judge.known(judge.here()) == states[point], trace.points[point]
    judge.stage.restore(judge.stage.image)
    assert not deaths.killed(judge.stage, points)


# --- boards as such ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_a_death_while_a_board_is_made_is_mended_by_the_next(change: Change, folder: Path) -> None:  # T3, C109
    played = HomeStage(folder, change)
    trace = deaths.enumerated(played)
    assert trace.escaped == []
    played.after = played.state()
    states = deaths.Judge(played).states(trace)
    turns = deaths.in_turn(states)
    assert (turns[0], turns[-1]) == (played.before, played.after)
    assert len(turns) == len(set(turns)) <= change.steps
    assert set(states[trace.answered :]) == {played.after}


def test_a_death_leaves_the_record_of_an_end_whole_or_absent(folder: Path) -> None:  # T3, P45
    played = RunStage(folder)
    trace = deaths.enumerated(played)
    assert trace.escaped == []
    played.after = played.state()
    states = deaths.Judge(played).states(trace)
    assert deaths.in_turn(states) == [played.before, played.after]
    assert set(states[trace.answered :]) == {played.after}


def test_a_death_in_the_midst_of_an_upgrade_loses_neither_board_nor_backup(folder: Path) -> None:  # T3, T10, C109
    played = UpgradeStage(folder)
    trace = deaths.enumerated(played)
    assert trace.escaped == []
    assert set(deaths.Judge(played).states(trace)) == {played.after}
