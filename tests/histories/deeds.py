"""Every call is held against the log, and the log against the calls: what was done, to what, by whose right.

A rule yields violations; `RULES` lists them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from tests.histories.fold import LEAVES, Fold, words
from tests.histories.history import Call, Event, History, Violation

FENCED = ("heartbeat", "comment", "attach", "complete", "block", "request-review", "request-changes")
CLOSING_LANES = ("plain",)  # lanes of the race whose policy completes the card after exit code 0
CHILD = "child"  # the seat of a worker's child
SYSTEM = "dispatcher:"  # the actor of what dispatchers, shims and claimers' sweeps do
TAKEN_AGAIN = ("claim_lost", "workspace_failed")  # refusals of a claim that was made, and did not last
# Verbs whose calls bear no token, and whose events nothing else causes.
COUNTED = {"assigned": "assign", "reopened": "reopen", "unarchived": "unarchive", "linked": "link"}


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
        else:
            yield from _as_asked(call, row, fold.claims[run])


def _as_asked(call: Call, row: dict[str, object], event: Event) -> Iterator[Violation]:
    role = "reviewer" if call.args.get("review") else "implementer"
    wrong = (call.answer or {}).get("role") not in (event["payload"]["role"], None)
    wrong |= "review" in call.args and call.args["task"] is None and event["payload"]["role"] != role
    wrong |= call.args["task"] not in (None, event["task_id"])
    wrong |= call.args.get("ttl") not in (None, row["claim_ttl"])
    if wrong:
        yield Violation("wrong answer", f"this claim is not what was asked: {event['payload']}", [call], [event])


def claimers(history: History, fold: Fold) -> Iterator[Violation]:
    """Every claim was asked for by a call that heard of it, or that could not hear any more."""
    told = {call.answer["run"] for call in history.calls if call.verb == "claim" and call.answer}
    deaf = [c for c in history.calls if c.verb == "claim" and (c.end is None or c.error in TAKEN_AGAIN)]
    nobody = [e for run, e in fold.claims.items() if run not in told and not e["actor"].startswith(SYSTEM)]
    if len(nobody) > len(deaf):
        text = f"{len(nobody)} claims reached nobody, {len(deaf)} calls could not hear of theirs"
        yield Violation("claim of nobody", text, deaf, nobody)


def acknowledged(history: History, fold: Fold) -> Iterator[Violation]:
    """Acknowledged means kept, once; refused means nothing happened; a killed call happened once or not (T1b)."""
    counted: dict[tuple[str, str], list[Call]] = defaultdict(list)
    for call in history.calls:
        if call.verb == "claim":
            continue
        if call.tokens:
            yield from _kept(call, fold.left_by(call))
        elif call.new:
            counted[call.verb, call.args["task"]].append(call)
    for (verb, card), calls in counted.items():
        there = [event for kind in LEAVES[verb] for event in fold.kinds[card, kind]]
        if len(there) < len(calls):
            text = f"{verb} of {card} was acknowledged {len(calls)} times, the log has it {len(there)} times"
            yield Violation("lost write", text, calls=calls, events=there)


def _kept(call: Call, found: list[Event]) -> Iterator[Violation]:
    whole, unheard = len(call.tokens), call.end is None
    if call.new and len(found) < whole:
        yield Violation("lost write", f"{call.verb} was acknowledged, and is not in the log", [call], found)
    if len(found) > (whole if call.new or unheard else 0):
        text = f"{call.verb} ({call.error or call.answer}) is {len(found)} times in the log"
        yield Violation("refused or repeated write", text, calls=[call], events=found)
    if unheard and 0 < len(found) < whole:
        yield Violation("half a verb", f"{call.verb} was cut off in the middle", [call], found)
    meant = call.args.get("task")
    if meant and any(event["task_id"] != meant for event in found):
        yield Violation("another card", f"{call.verb} of {meant} changed another card", [call], found)


def answers(history: History, fold: Fold) -> Iterator[Violation]:
    """What an answer says is what the log says."""
    for call in history.calls:
        left = fold.left_by(call) if call.new and call.verb != "claim" else []
        if left and not (_as_drawn(call, left) if call.verb == "apply" else _true(call, left[0], fold)):
            yield Violation("wrong answer", f"the log has this {call.verb} otherwise", [call], left)
    for call in history.calls:
        if call.verb == "create" and call.answer and not call.answer["created"]:
            made = fold.kinds[call.answer["task"], "created"]
            first = made and any(c.args.get("key") == call.args["key"] for c in history.calls if _made(c, made[0]))
            if not first:
                yield Violation("wrong answer", "this card was not made with that key", [call], made)


def _as_drawn(call: Call, events: list[Event]) -> bool:
    """Whether the cards of a graph wait for those that it names."""
    cards = {event["payload"]["set"]["title"]: event for event in events}
    wanted = {
        name: [cards[p]["task_id"] if p in cards else p for p in above] for name, above in call.args["links"].items()
    }
    return all(wanted[name] == event["payload"]["parents"] for name, event in cards.items())


def _made(call: Call, event: Event) -> bool:
    return call.verb == "create" and event["payload"].get("set", {}).get("title") in call.tokens


def _true(call: Call, event: Event, fold: Fold) -> bool:
    answer = call.answer or {}
    if call.verb == "create":
        same = answer["task"] == event["task_id"]
        return same and sorted(call.args["parents"]) == sorted(event["payload"]["parents"])
    if "promoted" in answer:
        after = range(event["id"] + 1, event["id"] + 2 + 2 * len(answer["promoted"]))
        freed = [any(e["id"] in after for e in fold.kinds[card, "promoted"]) for card in answer["promoted"]]
        return answer["run"] in (None, event["run_id"]) and all(freed)
    return True


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
    wanted = Counter((c.verb, c.args.get("task")) for c in history.calls if c.new or c.end is None)
    for (card, kind), events in fold.kinds.items():
        if kind in COUNTED and len(events) > wanted[COUNTED[kind], card]:
            yield Violation("phantom", f"{card} was {kind} more often than anybody asked", events=events)


def _leaves(verb: str) -> tuple[str, ...]:
    """What may bear a call's token: a verdict or an answer is a comment too."""
    return (*LEAVES[verb], "commented")


def _by_policy(history: History, event: Event) -> bool:
    """Whether the policy of its lane closed the card for a worker that ended well."""
    run = history.runs.get(event["run_id"], {})
    return event["kind"] == "completed" and run.get("lane") in CLOSING_LANES and run["exit_code"] == 0


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


def rights(history: History, fold: Fold) -> Iterator[Violation]:
    """A worker's child may only read (P71); who holds a run is not told that it lost it (P12)."""
    acted: dict[int, Call] = {}  # the last call that acted through a run
    for call in history.calls:
        if call.args.get("seat") == CHILD and call.answer is not None:
            yield Violation("rights", f"a worker's child was allowed to {call.verb}", [call], fold.left_by(call))
        if call.verb in FENCED and "run" in call.args and any(e["run_id"] for e in fold.left_by(call)):
            acted[call.args["run"]] = call
    for call in history.calls:
        later = acted.get(call.args.get("run", 0))
        if call.error != "claim_lost" or later is None or later.start < (call.end or 0):
            continue
        if call.args["lock"] == later.args["lock"] and call.args.get("seat") == later.args.get("seat"):
            yield Violation("rights", "the holder of a run was told that it had lost it", [call, later])


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


RULES = (winners, claimers, acknowledged, answers, phantoms, fences, rights, order, keys)
