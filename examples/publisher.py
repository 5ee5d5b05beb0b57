"""Makes a page of the report that the card before hands over: a plain program, which a bridge puts to work.

`hermes kanban bridge --assignee publisher -- python examples/publisher.py {task_id}`

It imports nothing of this folder and closes no card. It prints what it did and ends: exit code 0 closes the card, with
its last words as the summary, and any other becomes a question to a person.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from html import escape
from pathlib import Path
from typing import Any

PAGE = Path("report.html")
BLOCKS = (("# ", "h1"), ("## ", "h2"), ("- ", "li"), ("1. ", "li"))
HEAD = "<!doctype html>\n<meta charset=utf-8>\n<title>Report</title>"


def main(task_id: str) -> int:
    """Write the page into the workspace, the current folder, and add it to the card."""
    _note_beginning()
    report = _report(task_id)
    PAGE.write_text(page(report.read_text(encoding="utf-8")), encoding="utf-8")
    _hermes("attach", task_id, "--json", str(PAGE))
    print(f"published {report.name} as {PAGE}, {PAGE.stat().st_size} bytes")
    return 0


def _note_beginning() -> None:
    """Leave in the workspace which run began when by our own clock, in milliseconds since the epoch."""
    with Path("began").open("a", encoding="ascii") as file:
        file.write(f"{os.environ['HERMES_KANBAN_RUN_ID']} {time.time_ns() // 1_000_000}\n")


def _report(task_id: str) -> Path:
    """Return the file that the parents of the card name in what they handed over."""
    parents = [parent["id"] for parent in _hermes("show", task_id, "--json")["parents"]]
    runs = [run for parent in parents for run in _hermes("runs", parent, "--json")]
    named = [run["metadata"]["report"] for run in runs if "report" in (run["metadata"] or {})]
    if not named:
        sys.exit(f"no report: none of the parents {', '.join(parents)} names one")
    return Path(named[-1])


def page(text: str) -> str:
    """Return HTML of the little Markdown that a report is written in; nothing in it becomes markup by itself."""
    return "\n".join([HEAD, *(_block(line) for line in text.splitlines() if line)]) + "\n"


def _block(line: str) -> str:
    plain = re.sub(r"^\d+\. ", "1. ", line)
    mark, tag = next((block for block in BLOCKS if plain.startswith(block[0])), ("", "p"))
    words = re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(plain[len(mark) :]))
    return f"<{tag}>{words}</{tag}>"


def _hermes(*words: str) -> Any:
    done = subprocess.run(["hermes", "kanban", *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
