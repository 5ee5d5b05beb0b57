"""T4: a fault beneath an operation of any verb is a typed refusal; nothing is half done, and the board goes on.

With HERMES_TEST_CRASHES=all every fault befalls every operation of every scene; a quick run takes a few of each, a full
disk always among them (`injected.points`).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hermes_kanban.base.errors import Busy
from tests.crashes import deaths
from tests.crashes.injected import FAULTS, FULL, by_writer, held, in_queue, outcomes, points
from tests.crashes.runs import PLACES, Place
from tests.crashes.stage import BoardStage, BoardWorld, goes_on, rows
from tests.scenes import SCENES, Scene, every_scene

EVERY_KIND = "complete with an artifact"  # it does nearly every kind of operation, and each of them fails in each way


@pytest.mark.parametrize("hold", [by_writer, in_queue] if deaths.wide() else [in_queue], ids=lambda hold: hold.__name__)
@every_scene
def test_a_lock_that_is_held_for_ever_is_busy(  # T4, C112
    scene: Scene, hold: Callable[[str], object], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = BoardStage(folder, scene)
    monkeypatch.setattr(BoardWorld, "wait_seconds", 0.0)
    with held(hold, str(stage.live / "kanban.db")):
        world = stage.opened()
        with pytest.raises(Busy) as refusal:
            scene.act(world, stage.facts)
        assert (refusal.value.exit_code, bool(refusal.value.hint)) == (8, True)
        assert rows(world) == stage.before
    world.store._options = world.store._options.evolve(wait_seconds=60)  # the lock is on its way
    scene.act(world, stage.facts)
    scene.done(world, stage.facts)
    goes_on(world)
    world.close()


@every_scene
def test_a_fault_at_any_operation_is_refused_and_leaves_no_half(scene: Scene, folder: Path) -> None:  # T4
    stage = BoardStage(folder, scene)
    stage.turns = deaths.turns(stage)
    wanted = points(stage, SCENES.index(scene), every_kind=scene.name == EVERY_KIND)
    assert FULL in {fault for fault, _ in wanted}
    assert scene.name != EVERY_KIND or {fault for fault, _ in wanted} >= set(FAULTS[:-1])
    assert outcomes(stage, wanted) == []


@pytest.mark.parametrize("place", [place for place in PLACES if place.beside or deaths.wide()], ids=str)
def test_a_fault_while_a_file_beside_the_boards_is_written(place: Place, folder: Path) -> None:  # T4
    stage = place.make(folder)
    deaths.played(stage)
    stage.turns = stage.between()
    wanted = points(stage, PLACES.index(place), every_kind=place.beside)
    assert outcomes(stage, wanted) == []
