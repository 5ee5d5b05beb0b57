"""The reviewer: reads a report in its workspace, compares it with the analysts' results, decides.

`hermes kanban lanes add reviewer -- python -m examples.reviewer` makes it the worker of that name.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from examples import report
from examples.kanban_cli import results_of_parents
from examples.worker import Job, say, serve

REPORT = Path("report.md")


def review(job: Job) -> None:
    """Do one card: approve its report, or send it back with all that is wrong with it."""
    text = REPORT.read_text(encoding="utf-8")
    results = results_of_parents(job.board, job.board.show(job.task_id))
    wrong = report.findings(text, results)
    if wrong:
        job.board.ask("request-changes", job.task_id, "; ".join(wrong))
        say(f"sent {job.task_id} back: {wrong}")
        return
    job.board.ask(
        "complete",
        job.task_id,
        f"--summary=approved: the figures of {len(results)} analyses are right and there is a list of actions",
        f"--metadata={json.dumps({'report': str(REPORT.resolve()), 'bytes': len(text.encode())})}",
    )
    say(f"approved {job.task_id}")


if __name__ == "__main__":
    sys.exit(serve(review, description="review reports"))
