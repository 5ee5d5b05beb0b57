"""Judges a recorded history against the protocol (T1, T1b). Pure: histories and final rows in, violations out.

The log is folded event by event; then every call is held against it: what was acknowledged must be there, what was
refused must not, what lost its claim must have changed nothing, and nothing may be there that nobody asked for. A
violation carries the calls and events that prove it, and no others.

    python -m tests.histories.checker FILE        judge a saved history again
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

from tests.histories.fold import LEAVES, Fold, words
from tests.histories.history import Call, Event, History, Violation, load, read

FENCED = ("heartbeat", "comment", "attach", "complete", "block", "request-review", "request-changes")
MAY_FAIL = ("busy",)  # refusals after which a call may be made again; every other fault is a violation
FAULTS = ("fault", "unexpected", "store_refused", "io_error", "disk_full")
SYSTEM = "dispatcher:"  # the actor of what dispatchers, shims and claimers' sweeps do
# What a worker that closed nothing is judged by its exit code (P20, D18); `reclaimed`: somebody took the card away.
VERDICTS = {0: "protocol_violation", 1: "failed", 75: "rate_limited", 78: "crashed"}
ALWAYS = ("gave_up", "reclaimed")


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


def winners(history: History, fold: Fold) -> Iterator[Violation]:
    """Nobody is told that it won a claim that another won; each answer is the run that is there (P10)."""
    told: dict[int, Call] = {}
    for call in history.calls:
        if call.verb != "claim" or call.answer is None:
            continue
        run, row = call.answer["run"], history.runs.get(call.answer["run"])
        if run in told:
            yield Violation("two winners", f"run {run} was given to two claimers", calls=[told[run], call])
        told[run] = call
        if row is None or run not in fold.claims:
            yield Violation("lost write", f"run {run} was given to a claimer, and is gone", calls=[call])
        elif (row["task_id"], row["claim_lock"]) != (call.answer["task"], call.answer["lock"]):
            yield Violation("two winners", f"run {run} is another's claim", calls=[call], events=[fold.claims[run]])


def acknowledged(history: History, fold: Fold) -> Iterator[Violation]:
    """Acknowledged means kept, once; refused means nothing happened; a killed call happened once or not (T1b)."""
    counted: dict[tuple[str, str], list[Call]] = defaultdict(list)
    for call in history.calls:
        if call.verb == "claim":
            continue
        if not call.tokens:
            if call.new:
                counted[call.verb, call.args["task"]].append(call)
            continue
        yield from _kept(call, fold.left_by(call))
    for (verb, card), calls in counted.items():
        there = [event for kind in LEAVES[verb] for event in fold.kinds[card, kind]]
        if len(there) < len(calls):
            text = f"{verb} of {card} was acknowledged {len(calls)} times, the log has it {len(there)} times"
            yield Violation("lost write", text, calls=calls, events=there)


def _kept(call: Call, found: list[Event]) -> Iterator[Violation]:
    whole = len(call.tokens)
    if call.new and len(found) < whole:
        yield Violation("lost write", f"{call.verb} was acknowledged, and is not in the log", [call], found)
    unheard = call.end is None or call.error in MAY_FAIL
    most = whole if call.new or unheard else 0
    if len(found) > most:
        text = f"{call.verb} ({call.error or call.answer}) is {len(found)} times in the log"
        yield Violation("refused or repeated write", text, calls=[call], events=found)
    if unheard and 0 < len(found) < whole:
        yield Violation("half a verb", f"{call.verb} was cut off in the middle", [call], found)


def phantoms(history: History, fold: Fold) -> Iterator[Violation]:
    """Nothing is in the log that nobody asked for (P81)."""
    asked = {(kind, token) for call in history.calls for token in call.tokens for kind in _leaves(call.verb)}
    told = {kind for kind, _ in asked}
    for event in history.events:
        kind, said = event["kind"], words(event)
        if kind not in told or not said or event["actor"].startswith(SYSTEM):
            continue
        if not any((kind, word) in asked for word in said) and not _by_policy(history, event):
            yield Violation("phantom", f"nobody asked for this {kind}", events=[event])


def _leaves(verb: str) -> tuple[str, ...]:
    """What may bear a call's token: a verdict or an answer is a comment too."""
    return (*LEAVES[verb], "commented")


def _by_policy(history: History, event: Event) -> bool:
    """Whether a lane's policy closed the card for a worker that ended well."""
    run = history.runs.get(event["run_id"], {})
    return event["kind"] == "completed" and bool(run.get("supervised")) and run["exit_code"] == 0


def fences(history: History, fold: Fold) -> Iterator[Violation]:
    """Who shows a run acts through that run alone, with its lock (P12)."""
    for call in history.calls:
        if call.answer is None or call.verb not in FENCED or "run" not in call.args:
            continue
        run, row = call.args["run"], history.runs.get(call.args["run"], {})
        if call.verb == "comment":  # a late owner may still comment, as anybody may: not through its run
            wrong = [e for e in fold.left_by(call) if e["run_id"] not in (run, None)]
        elif call.answer.get("already"):
            wrong = [] if row.get("end_verb") == call.verb else [fold.ends.get(run) or fold.claims[run]]
        else:
            wrong = [e for e in fold.left_by(call) if e["run_id"] != run]
        if call.verb != "comment" and row and row["claim_lock"] != call.args["lock"]:
            wrong.append(fold.claims[run])
        if wrong:
            yield Violation("fence", f"{call.verb} with run {run} changed what it does not hold", [call], wrong)


def order(history: History, fold: Fold) -> Iterator[Violation]:
    """A call that began after another had its answer has a higher event id (P80)."""
    known = [(call, fold.left_by(call)) for call in history.calls if call.new and call.end is not None]
    placed = [(call, events[0]) for call, events in known if events]
    ended = sorted(placed, key=lambda pair: pair[0].end or 0)
    newest: tuple[Call, Event] | None = None
    position = 0
    for call, event in sorted(placed, key=lambda pair: pair[0].start):
        while position < len(ended) and (ended[position][0].end or 0) < call.start:
            if newest is None or ended[position][1]["id"] > newest[1]["id"]:
                newest = ended[position]
            position += 1
        if newest is not None and event["id"] < newest[1]["id"]:
            text = f"event {event['id']} was written after event {newest[1]['id']} had been acknowledged"
            yield Violation("commit order", text, [newest[0], call], [newest[1], event])


def keys(history: History, fold: Fold) -> Iterator[Violation]:
    """A key makes one card as long as that card is not archived (P51)."""
    last: dict[str, tuple[Call, Event]] = {}
    made = [(c, fold.left_by(c)) for c in history.calls if c.verb == "create" and c.args.get("key") and c.answer]
    for call, events in sorted((pair for pair in made if pair[1]), key=lambda pair: pair[1][0]["id"]):
        event, key = events[0], call.args["key"]
        before = last.get(key)
        hidden = fold.kinds[before[1]["task_id"], "archived"] if before else []
        if before and not any(before[1]["id"] < e["id"] < event["id"] for e in hidden):
            yield Violation("key", f"{key} made two cards", [before[0], call], [before[1], event])
        last[key] = (call, event)


def tails(history: History, fold: Fold) -> Iterator[Violation]:
    """Whoever follows the log by id misses nothing and never meets an id below one that it has read (P80)."""
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


def verdicts(history: History, fold: Fold) -> Iterator[Violation]:
    """A worker that closed nothing is judged by how it ended, and an exit code is what the worker gave (P20, T5)."""
    for note in history.noted("exit"):
        run, code = note.facts["run"], note.facts["code"]
        row = history.runs.get(run, {})
        ended = [fold.ends[run]] if run in fold.ends else []
        if row.get("exit_code") not in (code, None):
            text = f"run {run} ended with {code}, its row says {row['exit_code']}"
            yield Violation("verdict", text, events=ended)
        judged = row.get("exit_code") == code and row["end_verb"] is None
        if judged and row["outcome"] not in (VERDICTS[code], *ALWAYS):
            yield Violation("verdict", f"run {run} ended with {code}: {row['outcome']}", events=ended)


def seen(history: History, fold: Fold) -> Iterator[Violation]:
    """What workers, readers and the last caller saw: two workers on a card, half a verb, a card that never ends."""
    names = {"overlap": "two workers", "torn": "torn read", "stuck": "stuck"}
    for note in history.notes:
        if note.kind in names:
            events = [e for e in history.events if e["task_id"] == note.facts.get("task")][-12:]
            yield Violation(names[note.kind], f"{note.process}: {note.facts['text']}", events=events)


def faults(history: History, fold: Fold) -> Iterator[Violation]:
    """No call may end with a fault of ours."""
    for call in history.calls:
        if call.error in FAULTS:
            yield Violation("fault", call.text, calls=[call])


Rule = Callable[[History, Fold], Iterator[Violation]]
RULES: tuple[Rule, ...] = (
    *(ends_agree, winners, acknowledged, phantoms, fences, order, keys, tails, verdicts, seen, faults),
)


def main() -> int:
    """Judge a saved history (`.json`) or a recorded one, whose board is not known (`.jsonl`)."""
    path = Path(sys.argv[1])
    history = load(path) if path.suffix == ".json" else read(path.read_text(encoding="utf-8").splitlines())
    found = check(history)
    print("\n".join(violation.report() for violation in found) or "no violations")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
