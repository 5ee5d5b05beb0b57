"""Judges a recorded history against the protocol (T1, T1b). Pure: histories and final rows in, violations out.

The log is folded event by event (`fold`); then every call is held against it (`deeds`), and what workers, readers and
the rows in the end show (here). A violation carries the calls and events that prove it, and no others.

    python -m tests.histories.checker FILE        judge a saved history again
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

from tests.histories import deeds
from tests.histories.fold import Fold
from tests.histories.history import History, Violation, load

FAULTS = ("fault", "unexpected", "store_refused", "io_error", "disk_full")
# What a worker that closed nothing is judged by its exit code (P20, D18); `reclaimed`: somebody took the card away.
VERDICTS = {0: "protocol_violation", 1: "failed", 75: "rate_limited", 78: "crashed"}
TAKEN = "reclaimed"
ALWAYS = ("gave_up", TAKEN)
SEEN = {"overlap": "two workers", "torn": "torn read", "stuck": "stuck", "twice": "one name twice"}


def check(history: History) -> list[Violation]:
    """Return every violation, the fold's first."""
    fold = Fold(history)
    found = list(fold.violations())
    for rule in RULES:
        found += rule(history, fold)
    return found + [Violation("verify", text) for text in history.findings]


def ends_agree(history: History, fold: Fold) -> Iterator[Violation]:
    """The rows are what the log says (P81, P2)."""
    for card, status in fold.status.items():
        row = history.tasks.get(card, {"status": "gone", "current_run_id": None})
        held = fold.open[card]["run_id"] if card in fold.open else None
        if (row["status"], row["current_run_id"]) != (status, held):
            text = f"{card} is {row['status']}, run {row['current_run_id']}; the log says {status}, run {held}"
            yield Violation("row and log", text, events=fold.kinds[card, "created"])
        told = len(fold.kinds[card, "commented"])
        if history.comments.get(card, 0) != told:
            yield Violation("row and log", f"{card} has {history.comments.get(card, 0)} comments, the log {told}")
    for run, event in fold.claims.items():
        row = history.runs.get(run, {})
        if not row or (row["outcome"] is None) != (run not in fold.ends):
            yield Violation("row and log", f"run {run} is {row.get('outcome')}, the log disagrees", events=[event])


def tails(history: History, fold: Fold) -> Iterator[Violation]:
    """Whoever follows the log by id misses nothing, never meets an id below one that it has read, gets to the end."""
    there = {event["id"] for event in history.events}
    pages: dict[str, list[tuple[int, list[int]]]] = defaultdict(list)
    for note in history.noted("tail"):
        pages[note.process].append((note.facts["after"], note.facts["ids"]))
    for process, read_pages in pages.items():
        ids = [number for _, page in read_pages for number in page]
        if any(later <= earlier for earlier, later in pairwise(ids)):
            yield Violation("tail", f"{process} read ids that do not grow")
        begin = read_pages[0][0]
        missed = sorted({n for n in there if begin < n <= ids[-1]} - set(ids)) if ids else []
        if missed:
            events = [history.events[n - 1] for n in missed[:3]]
            yield Violation("tail", f"{process} read up to {ids[-1]} and missed {missed[:10]}", events=events)
    for note in history.noted("tail_end"):
        if note.facts["read"] < note.facts["there"]:
            yield Violation("tail", f"{note.process} stopped at {note.facts['read']} of {note.facts['there']}")


def verdicts(history: History, fold: Fold) -> Iterator[Violation]:
    """A worker that closed nothing is judged by how it ended, and an exit code is what the worker gave (P20, T5)."""
    hit = {note.facts["run"] for note in history.noted("hit")}
    begun: set[int] = set()
    for note in history.noted("begun"):
        if note.facts["run"] in begun:
            yield Violation("two workers", f"run {note.facts['run']} was started twice")
        begun.add(note.facts["run"])
    for note in history.noted("exit"):
        run, code = note.facts["run"], note.facts["code"]
        row = history.runs.get(run, {"exit_code": "gone", "outcome": None, "end_verb": None})
        ended = [fold.ends[run]] if run in fold.ends else []
        known = row["exit_code"] == code
        if not known and not (row["exit_code"] is None and (run in hit or row["outcome"] == TAKEN)):
            yield Violation("verdict", f"run {run} ended with {code}, its row says {row['exit_code']}", events=ended)
        elif known and row["end_verb"] is None and row["outcome"] not in (VERDICTS[code], *ALWAYS):
            yield Violation("verdict", f"run {run} ended with {code}: {row['outcome']}", events=ended)


def seen(history: History, fold: Fold) -> Iterator[Violation]:
    """What workers, readers and the last caller saw: two workers on a card, half a verb, a card that never ends."""
    for note in history.notes:
        if note.kind in SEEN:
            events = [e for e in history.events if e["task_id"] == note.facts.get("task")][-12:]
            yield Violation(SEEN[note.kind], f"{note.process}: {note.facts['text']}", events=events)


def faults(history: History, fold: Fold) -> Iterator[Violation]:
    """No call may end with a fault of ours."""
    for call in history.calls:
        if call.error in FAULTS:
            yield Violation("fault", call.text, calls=[call])


Rule = Callable[[History, Fold], Iterator[Violation]]
RULES: tuple[Rule, ...] = (ends_agree, *deeds.RULES, tails, verdicts, seen, faults)


def main() -> int:
    """Judge a saved history."""
    found = check(load(Path(sys.argv[1])))
    print("\n".join(violation.report() for violation in found) or "no violations")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
