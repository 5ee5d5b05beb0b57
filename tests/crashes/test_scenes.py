"""The table of scenes is whole (that each scene does what it says is seen in `test_kills`)."""

from __future__ import annotations

import inspect

from hermes_kanban.kernel import verbs
from hermes_kanban.kernel.supervision import Supervision
from tests.scenes import SCENES


def test_every_verb_has_a_scene() -> None:
    played = {scene.verb for scene in SCENES}
    declared = {verb.method for verb in verbs.VERBS if verb.writes and verb.method}
    supervised = {
        name
        for name, method in vars(Supervision).items()
        if not name.startswith("_") and "_act(" in inspect.getsource(method)
    }
    assert played == declared | supervised | {"give_back"}
    assert len({scene.name for scene in SCENES}) == len(SCENES)
    assert "settle" in supervised
