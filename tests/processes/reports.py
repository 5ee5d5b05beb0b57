"""The report program of tests, seen from a test."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


class Report:
    """A report program (`fake_report`) with its answers, and what it was told."""

    def __init__(self, folder: Path, **answers: tuple[int, Any]) -> None:
        self._answers, self._seen = folder / "answers.json", folder / "seen.jsonl"
        self.answer(**answers)
        program = Path(__file__).with_name("fake_report.py")
        self.argv = [sys.executable, "-I", str(program), str(self._answers), str(self._seen)]

    def answer(self, **answers: tuple[int, Any]) -> None:
        """Set for each message the exit code and the text (or the object) that it prints."""
        texts = {
            op: [code, text if isinstance(text, str) else json.dumps(text)] for op, (code, text) in answers.items()
        }
        unfinished = self._answers.with_suffix(".new")
        unfinished.write_text(json.dumps(texts))
        unfinished.rename(self._answers)

    def seen(self, op: str = "") -> list[dict[str, Any]]:
        """Return what it was told so far, of one kind if one is named."""
        lines = self._seen.read_text().splitlines() if self._seen.exists() else []
        return [told for told in map(json.loads, lines) if not op or told["argv"][2] == op]
