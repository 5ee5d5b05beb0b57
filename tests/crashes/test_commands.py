"""T4 through the real command: each verb on a full disk refuses with a code, a reason and a hint, and is done later.

Where nothing may be mounted this is skipped; a disk that is full beneath each verb is in `test_injected` too, without.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from hermes_kanban.kernel import verbs
from tests.scenes import SCENES
from tests.store.processes import ROOT, in_namespace

REFUSED = (7, 8, 9)  # 7: a claim whose workspace cannot be made


def test_every_verb_on_a_full_disk(tmp_path: Path) -> None:  # T4
    in_namespace("imports")  # skips where nothing may be mounted
    disk, graph = tmp_path / "disk", tmp_path / "graph.json"
    disk.mkdir()
    cards = [
        {"name": "goal", "title": "the goal", "idempotency-key": "goal"},
        {"title": "a step", "idempotency-key": "step"},
    ]
    graph.write_text(json.dumps(cards), encoding="utf-8")
    command = ["unshare", "-m", sys.executable, "-m", "tests.crashes.commands", str(disk), str(graph)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    for name, said in found.items():
        full, roomy = said["full"], said["roomy"]
        assert full["code"] in REFUSED, (name, full)
        assert "error: " in full["err"], (name, full)
        assert "hint: " in full["err"], (name, full)
        assert "Traceback" not in full["err"] + roomy["err"], name
        assert (roomy["code"], said["sound"]) == (0, []), (name, said)


def test_every_verb_on_cards_has_a_command() -> None:
    commanded = {scene.verb for scene in SCENES if scene.has_words}
    assert commanded == {verb.method for verb in verbs.VERBS if verb.writes and verb.method}
