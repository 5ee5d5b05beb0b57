"""An analyst: measures every module of the packages that a card names, hands the sum over.

`hermes kanban lanes add analyst -- python -m examples.analyst` makes it the worker of the name `analyst`.

Measures are kept in the workspace after each module. So a card whose worker died, or that waited for an answer, is not
begun again: the next analyst finds the measures there and goes on.
"""

from __future__ import annotations

import json
import re
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from examples.kanban_cli import Json, task_of
from examples.subjects import SUBJECTS, Measures, Subject, modules_of, read_module, stdlib
from examples.worker import Job, say, serve

MEASURES = Path("measures.json")
RESULT = Path("result.json")
ANSWER = re.compile(r"use threshold=(\d{1,4})")
CANDIDATES = (10, 15)


@dataclass(frozen=True)
class Order:
    """What a card asks for."""

    subject: Subject
    packages: tuple[str, ...]

    @classmethod
    def read(cls, body: str) -> Order:
        """Read the two lines `subject: NAME` and `packages: NAME, NAME` of a card's body.

        Raises:
            LookupError: a line is missing or the subject is unknown.
        """
        fields = dict(line.split(": ", 1) for line in body.splitlines() if ": " in line)
        packages = (name.strip() for name in fields["packages"].split(","))
        return cls(SUBJECTS[fields["subject"].strip()], tuple(packages))


def analyse(job: Job) -> None:
    """Do one card: measure, ask where a decision is missing, hand over."""
    order = Order.read(task_of(job.board.show(job.task_id))["body"])
    found_there = _kept_measures()
    measures = _measure(job, order, found_there)
    threshold = _threshold(job.context()) if order.subject.needs_threshold else 0
    if threshold is None:
        _ask_for_threshold(job, order.subject, measures)
        return
    result = {
        "subject": order.subject.title,
        "packages": list(order.packages),
        "modules": len(measures),
        "modules_found_measured": len(found_there),
        **order.subject.sum_up(measures, threshold),
    }
    _hand_over(job, result)


# --- measuring ----------------------------------------------------------------------------------------------
def _measure(job: Job, order: Order, known: Measures) -> Measures:
    measures = dict(known)
    files = [path for package in order.packages for path in modules_of(package, stdlib())]
    for count, path in enumerate(files, 1):
        source = read_module(path, stdlib())
        if source.name not in measures:
            measures[source.name] = order.subject.measure(source)
            _write(MEASURES, measures)
            time.sleep(job.options.pace)
        job.beat(f"{count} of {len(files)} modules")
    return measures


def _kept_measures() -> Measures:
    if not MEASURES.exists():
        return {}
    kept: Measures = json.loads(MEASURES.read_text(encoding="utf-8"))
    say(f"going on with {len(kept)} modules that are measured already")
    return kept


def _write(path: Path, document: Json) -> None:
    """Write a file whole or not at all: a worker can be killed at any moment."""
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(document, indent=1), encoding="utf-8")
    draft.replace(path)


# --- asking and handing over --------------------------------------------------------------------------------
def _threshold(context: str) -> int | None:
    """Return the number that a person decided on, out of the card's context; None while nobody has."""
    found = ANSWER.search(context)
    return int(found[1]) if found else None


def _ask_for_threshold(job: Job, subject: Subject, measures: Measures) -> None:
    counts = [(number, subject.sum_up(measures, number)["over"]) for number in CANDIDATES]
    letters = zip("AB", counts, strict=True)
    job.block(
        "needs_input",
        {
            "cause": "spec undecided",
            "what": f"the card does not say from which {subject.title} on a function counts as too complex",
            "option": tuple(f"{letter}: {number}, which {over} functions exceed" for letter, (number, over) in letters),
            "recommend": "B, which leaves a list short enough to act on",
            "next": "answer with the words: use threshold=NUMBER",
        },
    )
    say(f"asked which threshold to use for {job.task_id}")


def _hand_over(job: Job, result: Json) -> None:
    _write(RESULT, result)
    if result["findings"]:
        job.board.ask("comment", job.task_id, f"worst found: {result['findings'][0]}")
    job.board.ask(
        "complete",
        job.task_id,
        f"--summary={result['headline']}",
        f"--metadata={json.dumps(result)}",
    )
    say(f"completed {job.task_id}: {result['headline']}")


if __name__ == "__main__":
    sys.exit(serve(analyse, description="measure packages of the standard library"))
