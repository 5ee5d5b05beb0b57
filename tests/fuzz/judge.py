"""What is right after any call whatever: a declared exit code, an error that helps, and no change by a refusal (T6)."""

from __future__ import annotations

import json
from typing import Any

from hermes_kanban.base import errors
from hermes_kanban.base.errors import Refusal
from hermes_kanban.cli.app import INTERRUPTED
from tests.fuzz.ground import Ground, Seen, State

# What may stand at the beginning of a line on stderr; other lines go on with a message of several lines.
MARKS = ("error: ", "hint: ")
OBEYED = [chr(n) for n in (*range(9), *range(11, 32), *range(127, 160), 0x2028, 0x2029, 0xFEFF, 0x200B)]
OBEYED += [chr(n) for n in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))]


def declared() -> frozenset[int]:
    """Return the exit codes that the classes of refusals declare, but that of a fault of ours."""
    found: list[type[Refusal]] = [Refusal]
    for one in found:
        found += one.__subclasses__()
    return frozenset(one.exit_code for one in found) - {errors.Unexpected.exit_code}


CODES = declared() | {0, INTERRUPTED}


def judge(here: Ground, seen: Seen, *, several: bool = False) -> None:
    """Say what is wrong with a call, by failing.

    Args:
        several: it may have named several cards: each is a call of its own, and is done, or left as it was.
    """
    assert seen.code in CODES, seen
    assert "Traceback" not in seen.err, seen
    harmless(seen.err)
    if "--json" not in seen.words:
        harmless(seen.out)
    if seen.code not in (0, INTERRUPTED):
        _told(seen, several)
        done = _done(seen) if several else set()
        if done:
            only_these(seen, done)
        else:
            unchanged(seen, several=several)
    elif asked_for_json(seen.words) and seen.out and seen.words[0] not in ("watch",) and seen.code == 0:
        _answered(seen)
    if seen.before.rows != seen.after.rows:
        assert here.problems() == (), seen


def harmless(text: str) -> None:
    """No character that a terminal obeys (T7)."""
    assert not [char for char in OBEYED if char in text], ascii(text)


def asked_for_json(words: list[str]) -> bool:
    return "--json" in (words[: words.index("--")] if "--" in words else words)


def _answered(seen: Seen) -> None:
    if not seen.out.startswith(("usage: ", "hermes ")):  # help is help, also with `--json`
        json.loads(seen.out)


def _told(seen: Seen, several: bool) -> None:
    """The error and what to do are on stderr; stdout holds the document, if one was asked for, and nothing else."""
    lines = seen.err.splitlines()
    for mark in MARKS:
        assert any(line.startswith(mark) and line != mark.strip() for line in lines), seen
    if not asked_for_json(seen.words):
        assert several or not seen.out, seen
        return
    document = json.loads(seen.out)
    for error in [one["error"] for one in (document if isinstance(document, list) else [document]) if "error" in one]:
        assert error["code"], seen
        assert error["message"], seen
        assert error["hint"], seen


def unchanged(seen: Seen, *, several: bool = False) -> None:
    """A refusal leaves every row and every file as it was, but for the note of a late writer (P12).

    Args:
        several: the code is the worst of several refusals; one of the others may have been the late writer's.
    """
    if seen.words[:1] == ["claim"] and ("was given back" in seen.err or "workspace" in seen.err):
        return  # a claim was made, and its end is on the card (P11)
    lost = several or seen.code == errors.ClaimLost.exit_code
    before, after = (_without_notes(one) if lost else one.rows for one in (seen.before, seen.after))
    assert before == after, (seen, difference(before, after))
    assert seen.before.others == seen.after.others, (seen, difference(seen.before.others, seen.after.others))
    assert seen.before.files == seen.after.files, (seen, difference(seen.before.files, seen.after.files))


_ID = 1  # in a row of `task_rows`


# --- several cards in one call ----------------------------------------------------------------------------------
def _done(seen: Seen) -> set[str]:
    """Return the cards that the answer calls done."""
    known = {row[_ID] for row in seen.before.rows["task_rows"]}
    if asked_for_json(seen.words):
        found = json.loads(seen.out)
        named = {one.get("id") for one in found if "error" not in one} if isinstance(found, list) else set()
    else:
        named = {line.partition(" ")[0] for line in seen.out.splitlines()}
    return known & named


def only_these(seen: Seen, done: set[str]) -> None:
    """What changed is a card that was done, or one below it: a refused card is as it was, whatever became of others."""
    reached, links = set(done), seen.before.rows["task_links"]
    while more := {child for parent, child, *_ in links if parent in reached} - reached:
        reached |= more
    before, after = _by_card(seen.before), _by_card(seen.after)
    changed = {card for card in {*before, *after} if before.get(card) != after.get(card)}
    assert changed <= reached, (seen, {card: (before.get(card), after.get(card)) for card in changed - reached})
    assert seen.before.others == seen.after.others, seen


def _by_card(state: State) -> dict[str, Any]:
    """Return for each card the rows that name it."""
    kept = _without_notes(state)
    ids = [row[_ID] for row in kept["task_rows"]]
    return {card: [row for name in sorted(kept) for row in kept[name] if card in row] for card in ids}


def _without_notes(state: State) -> dict[str, list[Any]]:
    kept: dict[str, list[Any]] = {name: found for name, found in state.rows.items() if name != "sqlite_sequence"}
    kept["task_events"] = [row for row in kept["task_events"] if row[3] != "refused"]
    return kept


def difference(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Return what differs, for the message of a failure."""
    return {
        name: (before.get(name), after.get(name)) for name in {*before, *after} if before.get(name) != after.get(name)
    }
