"""Makes a failing history small: the cards that a violation is about, and of their calls those that it needs.

A card is kept or dropped whole, with everything above it, for taking out single events would make faults of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tests.histories.checker import check
from tests.histories.fold import Fold
from tests.histories.history import Call, History, Violation

CALLS_MATTER = ("phantom", "claim of nobody", "wrong answer")  # rules by which a call that is missing is itself a fault
MOST_CALLS = 400


def shrink(history: History, found: Violation) -> History:
    """Return a smaller history in which the same rule is still broken; the same one where none is."""
    cards = _cards(history, found)
    small = _of(history, cards, found.rule) if cards else history
    if not _breaks(small, found.rule):
        return history
    if found.rule in CALLS_MATTER or len(small.calls) > MOST_CALLS:
        return small
    return replace(small, calls=_needed(small.calls, lambda calls: _breaks(replace(small, calls=calls), found.rule)))


def _breaks(history: History, rule: str) -> bool:
    return any(violation.rule == rule for violation in check(history))


def _cards(history: History, found: Violation) -> set[str]:
    """Return the cards that the proof names, and those above them."""
    fold = Fold(history)
    for _ in fold.violations():
        pass
    named = {event["task_id"] for event in found.events} | {call.args.get("task") for call in found.calls}
    for call in found.calls:
        named |= {event["task_id"] for event in fold.left_by(call)}
        named |= {(call.answer or {}).get("task")}
    above, wanted = {card for card in named if card}, set()
    while above:
        card = above.pop()
        wanted.add(card)
        above |= fold.parents[card] - wanted
        above |= {e["payload"]["parent"] for e in fold.kinds[card, "linked"]} - wanted
    return wanted


def _of(history: History, cards: set[str], rule: str) -> History:
    fold = Fold(history)
    for _ in fold.violations():
        pass
    kept = [event for event in history.events if event["task_id"] in cards]
    mine = {event["id"] for event in kept}
    calls = [
        call
        for call in history.calls
        if cards & {call.args.get("task"), (call.answer or {}).get("task")}
        or any(event["id"] in mine for event in fold.left_by(call))
    ]
    return History(
        calls=calls,
        notes=[note for note in history.notes if note.facts.get("task") in cards],
        events=[event | {"id": place} for place, event in enumerate(kept, start=1)],
        tasks={card: row for card, row in history.tasks.items() if card in cards},
        runs={run: row for run, row in history.runs.items() if row["task_id"] in cards},
        comments={card: many for card, many in history.comments.items() if card in cards},
        findings=history.findings if rule == "verify" else [],
    )


def _needed(calls: list[Call], breaks: Callable[[list[Call]], bool]) -> list[Call]:
    """Take calls out, halves first, as long as the rule stays broken."""
    size = max(len(calls) // 2, 1)
    while calls:
        place = 0
        while place < len(calls):
            fewer = calls[:place] + calls[place + size :]
            if breaks(fewer):
                calls = fewer
            else:
                place += size
        if size == 1:
            return calls
        size = max(size // 2, 1)
    return calls
