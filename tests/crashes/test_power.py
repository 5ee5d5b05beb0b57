"""T3: the power fails at any operation on the disk; what was flushed stays, all else may be lost or torn."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes_kanban.base.errors import Refusal
from tests.crashes import deaths, disks
from tests.crashes.places import CHANGES, Change, HomeStage, UpgradeStage, new_board
from tests.crashes.runs import RunStage
from tests.crashes.stage import BoardStage, Stage, digest
from tests.crashes.story import Story
from tests.scenes import Scene, every_scene

SEEDS = 5 if deaths.wide() else 0
VERBS = 30 if deaths.wide() else 5


def lost(stage: Stage, seeds: int = SEEDS) -> list[tuple[str, int, str]]:
    """Return every loss of power: where it was, how many answers were given before, what state is left."""
    steps = disks.recorded(stage)
    assert disks.agrees(stage, steps)
    stage.after = stage.after or stage.state()
    judge = deaths.Judge(stage)
    return [
        (where, answered, judge.state(digest(left), left))
        for where, answered, left in disks.losses(stage, steps, seeds)
    ]


@every_scene
def test_a_loss_of_power_leaves_the_verb_whole_or_absent(scene: Scene, folder: Path) -> None:  # T3, page 4
    stage = BoardStage(folder, scene)
    turns = deaths.turns(stage)
    kept = turns[1:] if scene.durable else turns  # a claim is kept; that it was told is telemetry (P11)
    stage.restore(stage.image)
    for where, answered, state in lost(stage):
        assert state in turns, where
        assert not answered or state in kept, f"{where}: acknowledged, and lost"


@pytest.mark.parametrize("change", [c for c in CHANGES if c.act is not new_board or deaths.wide()], ids=str)
def test_a_board_that_was_made_or_chosen_stays_so(change: Change, folder: Path) -> None:  # T3
    stage = HomeStage(folder, change)
    for where, answered, state in lost(stage):
        assert not answered or stage.lasting(state) == stage.lasting(stage.after), f"{where}: acknowledged, and lost"


def test_the_record_of_an_end_is_there_whole_or_not_at_all(folder: Path) -> None:  # T3, P45
    stage = RunStage(folder)
    for where, answered, state in lost(stage):
        assert state in (stage.before, stage.after)
        assert not answered or state == stage.after, f"{where}: acknowledged, and lost"


def test_an_upgrade_survives_the_power_with_its_backup(folder: Path) -> None:  # T3, T10, C109
    stage = UpgradeStage(folder)
    assert {state for _, _, state in lost(stage)} == {stage.after}


# --- many verbs in a row ----------------------------------------------------------------------------------------
def test_with_full_durability_every_answer_is_kept(folder: Path) -> None:  # T3, page 4
    story = Story(folder, VERBS, full_durability=True)
    for where, answered, state in lost(story):
        assert state in story.states[answered : answered + 2], f"{where}: {answered} were acknowledged"


def test_with_normal_durability_the_latest_answers_may_go_but_no_half_stays(folder: Path) -> None:  # T3, page 4
    story = Story(folder, VERBS, full_durability=False)
    went = 0
    for where, answered, state in lost(story):
        assert state in story.states[: answered + 2], where
        went += story.states.index(state) < answered
    assert went  # it is what the setting costs


def test_the_check_notices_a_board_that_flushes_nothing(folder: Path) -> None:
    story = Story(folder, VERBS, full_durability=True, flushes=False)
    faults: dict[str, int] = {"lost": 0, "broken": 0}
    steps = disks.recorded(story)
    judge = deaths.Judge(story)
    for _, answered, left in disks.losses(story, steps, SEEDS):
        try:
            state = judge.state(digest(left), left)
        except (AssertionError, Refusal):
            faults["broken"] += 1
        else:
            faults["lost"] += state not in story.states[answered : answered + 2]
        if all(faults.values()):
            return
    pytest.fail(f"it was not noticed: {faults}")
