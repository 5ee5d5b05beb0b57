"""The real command for each verb on a disk that is full: what it says, and what it leaves. Run in a mount namespace."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from hermes_kanban.base.clock import ManualClock, SystemClock
from tests.crashes.stage import BoardWorld, goes_on, lost_files
from tests.scenes import SCENES, Scene
from tests.surfaces.hermes import CONFIG, Answer, Hermes

SIZE = "size=8m"


def filled(path: str) -> None:
    """Take all the room there is."""
    with open(path, "wb", buffering=0) as handle:
        try:
            while True:
                handle.write(bytes(4096))
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise


def told(answer: Answer) -> dict[str, Any]:
    return {"code": answer.code, "err": answer.err}


def tried(scene: Scene, home: Path, graph: str) -> dict[str, Any]:
    """Run a scene's command on the full disk, make room, run it again, look."""
    home.mkdir()
    (home / "config.yaml").write_text(CONFIG, encoding="utf-8")
    now = SystemClock().now_ms() // 1000
    world = BoardWorld(home, ManualClock(now))
    facts = scene.prepare(world)
    facts.graph = graph
    assert scene.words
    words = scene.words(facts)
    world.close()
    roots = {
        "HERMES_KANBAN_ATTACHMENTS_ROOT": f"{home}/attachments",
        "HERMES_KANBAN_WORKSPACES_ROOT": f"{home}/workspaces",
    }
    command = Hermes(home, XDG_RUNTIME_DIR=f"{home}-run", HERMES_KANBAN_NAME="ann", **roots).set(**scene.env(facts))
    filler = f"{home}.filler"
    filled(filler)
    full = told(command(*words))
    os.unlink(filler)
    roomy = told(command(*words))
    world = BoardWorld(home, ManualClock(now))
    left = [name for _, _, files in os.walk(home) for name in files if name.endswith((".part", ".new", ".tmp"))]
    try:
        scene.done(world, facts)
        goes_on(world)
        sound = [*world.store.check_integrity(), *lost_files(world), *left]
    except AssertionError as error:
        sound = [f"it was not done: {error}"]
    world.close()
    return {"full": full, "roomy": roomy, "sound": sound}


def main(disk: str, graph: str) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", SIZE, "tmpfs", disk], check=True)
    found = {}
    for number, scene in enumerate(scene for scene in SCENES if scene.has_words):
        found[scene.name] = tried(scene, Path(disk, f"h{number}"), graph)
        subprocess.run(["rm", "-r", f"{disk}/h{number}"], check=True)
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
