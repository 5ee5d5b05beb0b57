"""The log of a history, replayed event by event with rules of its own (P2, P4, P10, P12, P14b, P80)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from tests.histories.history import Call, Event, History, Violation

LEAVES: dict[str, tuple[str, ...]] = {
    "create": ("created",),
    "apply": ("created",),
    "heartbeat": ("heartbeat",),
    "comment": ("commented",),
    "attach": ("attached",),
    "detach": ("detached",),
    "complete": ("completed",),
    "block": ("blocked", "dependency_wait", "block_loop_detected"),
    "request-review": ("review_requested",),
    "request-changes": ("changes_requested",),
    "unblock": ("unblocked",),
    "schedule": ("scheduled",),
    "promote": ("promoted",),
    "link": ("linked",),
    "unlink": ("unlinked",),
    "edit": ("edited",),
    "assign": ("assigned",),
    "reopen": ("reopened",),
    "archive": ("archived",),
    "unarchive": ("unarchived",),
    "reclaim": ("reclaimed",),
}
_SAYS = ("note", "excerpt", "summary", "reason", "answer", "name")
# What may follow the end of its run: a late writer's refusal; that its worker still lives, or is gone (P14c, D14).
_AFTER = ("refused", "reclaim_deferred", "reconciled")
_CLOCKS = 2.0  # seconds by which two processes' clocks may differ here, and the fraction that whole seconds lose


class Fold:
    """States, open runs and links after each event.

    Args:
        history: whose events are folded by `violations`.
    """

    def __init__(self, history: History) -> None:
        self._events, self._runs = history.events, history.runs
        self.status: dict[str, str] = {}
        self.was_done: dict[str, bool] = defaultdict(bool)
        self.parents: dict[str, set[str]] = defaultdict(set)
        self.open: dict[str, Event] = {}  # the claim that holds a card
        self.claims: dict[int, Event] = {}
        self.ends: dict[int, Event] = {}
        self.said: dict[str, list[Event]] = defaultdict(list)
        self.kinds: dict[tuple[str, str], list[Event]] = defaultdict(list)
        self._signs: dict[int, Event] = {}  # the last sign of life of a run
        self._last: dict[str, Event] = {}
        self._rests: dict[str, int] = {}  # until when nobody may claim a card (P14c, P40)
        self._newest = 0  # the highest run so far

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
        if kind == "reclaimed":
            yield from self._too_soon(event)
        self._linked(event)
        if "eligible_at" in payload.get("set", {}):
            self._rests[card] = payload["set"]["eligible_at"] or 0
        if "to" in payload:
            self._moved(event)
        if payload.get("to") in ("ready", "running"):
            yield from self._too_early(event)
        self._last[card] = event

    def _acting(self, event: Event) -> Iterator[Violation]:
        """A claimed run leaves events only while it is open."""
        run = event["run_id"]
        if run in self.claims and event["kind"] not in _AFTER and run in self.ends:
            text = f"run {run} had ended, and still changed {event['task_id']}"
            yield Violation("late write", text, events=[self.claims[run], self.ends[run], event])
        if run is not None and event["kind"] in ("claimed", "heartbeat", "commented", "attached"):
            self._signs[run] = event

    def _claimed(self, event: Event) -> Iterator[Violation]:
        holder = self.open.get(event["task_id"])
        if holder is not None:
            text = f"{event['task_id']} was claimed by run {event['run_id']} while run {holder['run_id']} held it"
            yield Violation("two holders", text, events=[holder, event])
        if event["run_id"] <= self._newest:
            text = f"run {event['run_id']} came after run {self._newest}"
            yield Violation("run ids", text, events=[self.claims[self._newest], event])
        if event["created_at"] < self._rests.get(event["task_id"], 0) - _CLOCKS:
            text = f"{event['task_id']} was claimed although it had to rest until {self._rests[event['task_id']]}"
            yield Violation("rest", text, events=[self._last[event["task_id"]], event])
        self._newest = max(self._newest, event["run_id"])
        self.claims[event["run_id"]] = self.open[event["task_id"]] = event

    def _too_soon(self, event: Event) -> Iterator[Violation]:
        """A pull claim is taken over only when its lease is over: its last sign of life and its TTL (P10, P13)."""
        run = self._runs.get(event["run_id"], {})
        sign = self._signs.get(event["run_id"])
        if event["payload"].get("reason") != "lease" or not run.get("pull") or sign is None:
            return
        lasted = (event["at_ms"] - sign["at_ms"]) / 1000
        if lasted < run["claim_ttl"] - _CLOCKS:
            text = f"run {event['run_id']} lost a lease of {run['claim_ttl']} s {lasted:g} s after a sign of life"
            yield Violation("lease", text, events=[sign, event])

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
        for word in words(event):
            self.said[word].append(event)
        self.kinds[event["task_id"], event["kind"]].append(event)

    def left_by(self, call: Call) -> list[Event]:
        """Return the events that this call left, known by its tokens (or, for a claim, by its run)."""
        if call.verb == "claim":
            claim = self.claims.get((call.answer or {}).get("run", 0))
            return [claim] if claim else []
        return [e for token in call.tokens for e in self.said.get(token, ()) if e["kind"] in LEAVES[call.verb]]


def words(event: Event) -> set[str]:
    """Return the texts of an event in which callers put their tokens."""
    payload = event["payload"]
    found = {payload[name] for name in _SAYS if payload.get(name)}
    if event["kind"] in ("created", "edited"):
        found.add(payload.get("set", {}).get("title"))
    return found - {None}
