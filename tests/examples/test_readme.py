"""README.md: what it tells a newcomer to type works as it stands there, in an empty home."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
BLOCKS = re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.S)
PATIENCE = 120  # seconds; only a test that hangs ever waits so long

# What cannot be typed here, and what stands for it: the environment is made already; nobody presses Ctrl-C.
IN_PLACE = {
    "make install": ":",
    "hermes kanban board --watch": 'until [ "$(hermes kanban list --status done -q | wc -l)" -eq 2 ]; do :; done',
}
STOP = "trap 'hermes gateway stop --workers' EXIT\n"
ONE_MORE = 'hermes kanban create "one more" --assignee scribe -q\n'
CLOSE = 'hermes kanban complete "$id" --summary "one more done"\n'
AFTERWARDS = "hermes kanban list --status done -q | wc -l; hermes kanban verify; hermes gateway status"


@pytest.mark.timeout(2 * PATIENCE)
def test_a_newcomer_can_type_what_the_readme_says(tmp_path: Path) -> None:
    _make, first, agent, bridge, by_hand, script = BLOCKS
    typed = "".join(("set -eu\n", STOP, first, agent, bridge, by_hand, ONE_MORE, script, CLOSE))
    for line, instead in IN_PLACE.items():
        assert line in typed
        typed = typed.replace(line, instead)

    def sh(text: str) -> subprocess.CompletedProcess[str]:
        env = {"HOME": str(tmp_path), "PATH": f"{BIN}:{os.environ['PATH']}", "LANG": "C.UTF-8"}
        given: dict[str, Any] = {"env": env, "cwd": ROOT, "stdin": subprocess.DEVNULL, "timeout": PATIENCE}
        return subprocess.run(["sh", "-c", text], capture_output=True, text=True, check=False, **given)

    done = sh(typed)
    assert done.returncode == 0, done
    assert "error:" not in done.stdout + done.stderr
    assert sh(AFTERWARDS).stdout.split("\n")[:3] == ["5", "ok", "no gateway runs"]
