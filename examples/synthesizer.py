"""The synthesiser: makes one report of what its parents handed over, and takes it to a reviewer.

`hermes kanban lanes add synthesizer -- python -m examples.synthesizer` makes it the worker of that name.

When a reviewer asks for changes the card comes back; what is to be changed stands in the card's context.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from examples import report
from examples.kanban_cli import parent_ids, results_of_parents
from examples.worker import Job, say, serve

REPORT = Path("report.md")
REVIEWER = "reviewer"


def synthesize(job: Job) -> None:
    """Do one card: write the report with every section asked for so far, request a review."""
    card = job.board.show(job.task_id)
    context = job.context()
    missing = [task_id for task_id in parent_ids(card) if task_id not in context]
    if missing:
        raise LookupError(f"the context does not tell of the parents {', '.join(missing)}")
    results = results_of_parents(job.board, card)
    demanded = report.demands(context)
    REPORT.write_text(report.write(results, demanded), encoding="utf-8")
    summary = f"report on {len(results)} analyses" + (f", now with: {', '.join(demanded)}" if demanded else "")
    facts = {"report": str(REPORT.resolve()), "analyses": len(results), "added": list(demanded)}
    job.board.ask(
        "request-review",
        job.task_id,
        f"--summary={summary}",
        f"--metadata={json.dumps(facts)}",
        f"--reviewer={REVIEWER}",
    )
    say(f"asked for a review of {job.task_id}: {summary}")


if __name__ == "__main__":
    sys.exit(serve(synthesize, description="write a report of what the parents of a card handed over"))
