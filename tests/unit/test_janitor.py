"""What settled runs leave is cleared away, and nothing else (D21)."""

from __future__ import annotations

import os
from pathlib import Path

from hermes_kanban.dispatcher.janitor import KEEP_SECONDS, sweep


def test_only_old_files_of_settled_runs_go(tmp_path: Path) -> None:  # D21
    names = ("1.lock", "1.exit", "2.lock", "3.lock", "notes.lock", "4.txt", "5.exit.part")
    for name in names:
        (tmp_path / name).write_text("{}")
    (tmp_path / "6.lock").mkdir()
    now = (tmp_path / "1.lock").stat().st_mtime
    os.utime(tmp_path / "3.lock", (now + 10, now + 10))
    assert sweep(str(tmp_path), frozenset({2}), now + KEEP_SECONDS + 5) == 3
    assert sorted(os.listdir(tmp_path)) == ["2.lock", "3.lock", "4.txt", "6.lock", "notes.lock"]


def test_a_folder_that_is_not_there_is_clean(tmp_path: Path) -> None:
    assert sweep(str(tmp_path / "none"), frozenset(), 1e12) == 0
