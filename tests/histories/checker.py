"""Judges a recorded history against the protocol (T1, T1b). Pure: histories and final rows in, violations out.

The log is folded event by event with rules of this module's own; then every call is held against it: what was
acknowledged must be there, what was refused must not, and what lost its claim must have changed nothing. A violation
carries the calls and events that prove it, and no others: that is its minimal history.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

Event = dict[str, Any]

FENCED = ("heartbeat", "comment", "complete", "block", "request-review", "request-changes")
MAY_FAIL = ("busy",)  # refusals after which a call may be made again; every other fault is a violation
FAULTS = ("fault", "unexpected", "store_refused", "io_error", "disk_full")
LEAVES: dict[str, tuple[str, ...]] = {
    "create": ("created",),
    "heartbeat": ("heartbeat",),
    "comment": ("commented",),
    "complete": ("completed",),
    "block": ("blocked", "dependency_wait", "block_loop_detected"),
    "request-review": ("review_requested",),
    "request-changes": ("changes_requested",),
    "unblock": ("unblocked",),
    "schedule": ("scheduled",),
    "promote": ("promoted",),
    "link": ("linked",),
    "unlink": ("unlinked",),
    "reopen": ("reopened",),
    "archive": ("archived",),
    "unarchive": ("unarchived",),
    "reclaim": ("reclaimed",),
}
_SAYS = ("note", "excerpt", "summary", "reason", "answer")


@dataclass
class Call:
    """One call; `end` is None when its process was killed before it heard."""

    process: str
    n: int
    verb: str
    args: dict[str, Any]
    start: int
    end: int | None = None
    answer: dict[str, Any] | None = None
    error: str | None = None
    text: str = ""


@dataclass
class History:
    """What was recorded, and what the board holds in the end."""

    calls: list[Call] = field(default_factory=list)
    tails: dict[str, list[tuple[int, list[int]]]] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    tasks: dict[str, dict[str, Any]] = field(default_factory=dict)
    runs: dict[int, dict[str, Any]] = field(default_factory=dict)
    comments: dict[str, int] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)


@dataclass
class Violation:
    """A broken rule and its proof."""

    rule: str
    text: str
    calls: list[Call] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    def report(self) -> str:
        """Return the rule, what is wrong, and the smallest history that shows it."""
        lines = [f"{self.rule}: {self.text}"]
        lines += [f"  call  {json.dumps(call.__dict__)}" for call in sorted(self.calls, key=lambda c: c.start)]
        lines += [f"  event {json.dumps(event)}" for event in sorted(self.events, key=lambda e: e["id"])]
        return "\n".join(lines)


def read(lines: Iterable[str]) -> History:
    """Read a recorded file; the last line of a killed process may be torn."""
    history, calls = History(), {}
    for text in lines:
        try:
            line = json.loads(text)
        except ValueError:
            continue
        key = (line["process"], line.get("n"))
        if line["line"] == "tail":
            history.tails.setdefault(line["process"], []).append((line["after"], line["ids"]))
        elif line["line"] == "call":
            calls[key] = Call(line["process"], line["n"], line["verb"], line["args"], line["at"])
        else:
            call = calls[key]
            call.end, call.answer = line["at"], line.get("answer")
            call.error, call.text = line.get("error"), line.get("text", "")
    history.calls = sorted(calls.values(), key=lambda c: c.start)
    return history


def check(history: History) -> list[Violation]:
    """Return every violation, the fold's first."""
    fold = Fold(history)
    found = list(fold.violations())
    for rule in (ends_agree, winners, acknowledged, fences, order, keys, tails, faults):
        found += rule(history, fold)
    return found + [Violation("verify", text) for text in history.findings]


class Fold:
    """The log, replayed: states, open runs and links after each event (P2, P4, P10, P12, P14b, P80)."""

    def __init__(self, history: History) -> None:
        self._events = history.events
        self.status: dict[str, str] = {}
        self.was_done: dict[str, bool] = defaultdict(bool)
        self.parents: dict[str, set[str]] = defaultdict(set)
        self.open: dict[str, Event] = {}  # the claim that holds a card
        self.claims: dict[int, Event] = {}
        self.ends: dict[int, Event] = {}
        self.said: dict[str, list[Event]] = defaultdict(list)
        self.kinds: dict[tuple[str, str], list[Event]] = defaultdict(list)
        self._last: dict[str, Event] = {}

    def violations(self) -> Iterator[Violation]:
        for position, event in enumerate(self._events, start=1):
            if event["id"] != position:
                yield Violation("event ids", f"event {event['id']} stands at place {position} (P80)", events=[event])
                return
            yield from self._one(event)

    def _one(self, event: Event) -> Iterator[Violation]:
        card, payload, kind = event["task_id"], event["payload"], event["kind"]
        self._index(event)
        if kind == "created":
            self.status[card], self.parents[card] = payload["to"], set(payload["parents"])
        elif payload.get("from", self.status.get(card)) != self.status.get(card):
            text = f"{card} was {self.status.get(card)}, the event leads on from {payload['from']}"
            yield Violation("lost event", text, events=[self._last[card], event])
        yield from self._acting(event)
        if kind == "claimed":
            yield from self._claimed(event)
        self._linked(event)
        if "to" in payload:
            self._moved(event)
        if kind in ("promoted", "claimed", "created") and payload.get("to") in ("ready", "running"):
            yield from self._too_early(event)
        self._last[card] = event

    def _acting(self, event: Event) -> Iterator[Violation]:
        """A claimed run leaves events only while it is open."""
        run = event["run_id"]
        if run in self.claims and event["kind"] != "refused" and run in self.ends:
            text = f"run {run} had ended, and still changed {event['task_id']}"
            yield Violation("late write", text, events=[self.claims[run], self.ends[run], event])

    def _claimed(self, event: Event) -> Iterator[Violation]:
        holder = self.open.get(event["task_id"])
        if holder is not None:
            text = f"{event['task_id']} was claimed by run {event['run_id']} while run {holder['run_id']} held it"
            yield Violation("two holders", text, events=[holder, event])
        self.claims[event["run_id"]] = self.open[event["task_id"]] = event

    def _moved(self, event: Event) -> None:
        card, to = event["task_id"], event["payload"]["to"]
        if to != "running" and card in self.open:
            self.ends[self.open.pop(card)["run_id"]] = event
        if to == "archived":
            self.was_done[card] = self.status[card] == "done"
        self.status[card] = to

    def _linked(self, event: Event) -> None:
        if event["kind"] == "linked":
            self.parents[event["task_id"]].add(event["payload"]["parent"])
        elif event["kind"] == "unlinked":
            self.parents[event["task_id"]].discard(event["payload"]["parent"])

    def waits_for(self, card: str) -> list[str]:
        def done(parent: str) -> bool:
            status = self.status.get(parent)
            return status == "done" or (status == "archived" and self.was_done[parent])

        return sorted(p for p in self.parents[card] if not done(p))

    def _too_early(self, event: Event) -> Iterator[Violation]:
        waits = self.waits_for(event["task_id"])
        if waits:
            text = f"{event['task_id']} is {event['payload']['to']} although {', '.join(waits)} is not done"
            last = [self._last[parent] for parent in waits if parent in self._last]
            yield Violation("child before parent", text, events=[*last, event])

    def _index(self, event: Event) -> None:
        payload = event["payload"]
        words = {payload[name] for name in _SAYS if payload.get(name)}
        if event["kind"] == "created":
            words.add(payload.get("set", {}).get("title"))
        for word in words:
            self.said[word].append(event)
        self.kinds[event["task_id"], event["kind"]].append(event)

    def left_by(self, call: Call) -> list[Event]:
        """Return the events that this call left, known by its token (or, for a claim, by its run)."""
        if call.verb == "claim":
            claim = self.claims.get((call.answer or {}).get("run", 0))
            return [claim] if claim else []
        token = call.args.get("token")
        return [e for e in self.said.get(token, ()) if e["kind"] in LEAVES[call.verb]] if token else []


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
        found = fold.left_by(call)
        new = call.answer is not None and not call.answer.get("already") and call.answer.get("created", True)
        if "token" not in call.args:
            if new:
                counted[call.verb, call.args["task"]].append(call)
            continue
        least, most = (1, 1) if new else (0, 0 if call.end is not None and call.error not in MAY_FAIL else 1)
        if len(found) < least:
            yield Violation("lost write", f"{call.verb} was acknowledged, and is not in the log", calls=[call])
        if len(found) > most:
            text = f"{call.verb} ({call.error or call.answer}) is {len(found)} times in the log"
            yield Violation("refused or repeated write", text, calls=[call], events=found)
    for (verb, card), calls in counted.items():
        there = [event for kind in LEAVES[verb] for event in fold.kinds[card, kind]]
        if len(there) < len(calls):
            text = f"{verb} of {card} was acknowledged {len(calls)} times, the log has it {len(there)} times"
            yield Violation("lost write", text, calls=calls, events=there)


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
    known = [(c, fold.left_by(c)) for c in history.calls if c.answer is not None and c.end is not None]
    placed = [(call, events[0]) for call, events in known if events and not call.answer.get("already")]  # type: ignore[union-attr]
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
    for process, pages in history.tails.items():
        ids = [number for _, page in pages for number in page]
        if any(later <= earlier for earlier, later in pairwise(ids)):
            yield Violation("tail", f"{process} read ids that do not grow")
        begin = pages[0][0]
        missed = sorted({n for n in there if begin < n <= ids[-1]} - set(ids)) if ids else []
        if missed:
            events = [history.events[n - 1] for n in missed[:3]]
            yield Violation("tail", f"{process} read up to {ids[-1]} and missed {missed[:10]}", events=events)


def faults(history: History, fold: Fold) -> Iterator[Violation]:
    """No call may end with a fault of ours."""
    for call in history.calls:
        if call.error in FAULTS:
            yield Violation("fault", call.text, calls=[call])
