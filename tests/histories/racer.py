"""One racing process: random verbs with random proofs on a shared board.

It opens the board as every command does. Some racers keep their connections, some open the board anew for each call.
They hold claims, forget them, act with claims that they lost, act as a worker and as a worker's child, and act as a
person on everybody's cards.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from hermes_kanban.base.clock import SystemClock
from hermes_kanban.kernel.finish import Handoff
from hermes_kanban.kernel.query import Filter
from hermes_kanban.model import blocks
from hermes_kanban.model.claim import Claim
from hermes_kanban.model.task import TaskDraft
from tests.histories import doors
from tests.histories.doors import Door
from tests.histories.recorder import Recorder

REREAD = 12  # calls between two looks at the list of cards
KEYS = 40
LANES = ("hand", "foot", "plain")  # names that the gateway of the race starts workers for
FOR_LANES = 0.04  # share of the cards that are for a lane
HELD = 4  # claims that a racer holds at most

Move = tuple[str, dict[str, Any], Callable[[], Any]]  # a verb, what is recorded besides the card, the call


class Racer:
    """Random verbs, one at a time.

    Args:
        label: unique among all processes of the race; it makes the racer's tokens unique.
        seed: fixes what is tried, not how the system interleaves it.
    """

    def __init__(self, door: Door, recorder: Recorder, label: str, seed: int) -> None:
        self._door, self._recorder, self._label = door, recorder, label
        self._dice = random.Random(seed)
        self._held: list[Claim] = []
        self._lost: list[Claim] = []
        self._cards: list[str] = []
        self._count = 0

    def step(self) -> None:
        """Make one call."""
        if self._count % REREAD == 0:
            page = self._door.board().list(Filter(archived=True, sort="newest", limit=25))
            self._cards = [listed.task.id for listed in page.cards]
        self._count += 1
        dice = self._dice.random()
        if self._held and (dice < 0.5 or len(self._held) > HELD):
            self._work(self._dice.choice(self._held))
        elif self._lost and dice < 0.6:
            self._late(self._dice.choice(self._lost))
        elif dice < 0.68 or len(self._cards) < 5:
            self._create()
        elif dice < 0.7:
            self._apply()
        elif dice < 0.87:
            self._claim()
        else:
            self._decide(self._dice.choice(self._cards))

    def _token(self) -> str:
        return f"w{self._label}.{self._count}"

    def _now(self) -> int:
        return SystemClock().now_ms() // 1000

    # --- new cards ---
    def _draft(self, title: str, **extra: Any) -> TaskDraft:
        if self._dice.random() < FOR_LANES:
            extra |= {"assignee": self._dice.choice(LANES), "reviewer": self._dice.choice((None, *LANES))}
        return TaskDraft(title, priority=self._dice.randint(-2, 2), **extra)

    def _create(self) -> None:
        token = self._token()
        parents = tuple(self._dice.sample(self._cards, k=min(len(self._cards), self._dice.choice((0, 0, 1, 2)))))
        key = f"key{self._dice.randrange(KEYS)}" if self._dice.random() < 0.2 else None
        extra: dict[str, Any] = {"scheduled_at": self._now() + 2} if self._dice.random() < 0.05 else {}
        extra |= {"status": "triage"} if not extra and self._dice.random() < 0.05 else {}
        draft = self._draft(token, parents=parents, idempotency_key=key, **extra)
        self._recorder.call(
            "create",
            {"token": token, "parents": list(parents), "key": key},
            lambda: self._door.board().create(draft),
            lambda made: {"task": made.task.id, "created": made.created},
        )

    def _apply(self) -> None:
        """Make a chain of cards at once; now and then with an error at its end, so that none may come of it."""
        tokens = [f"{self._token()}.{number}" for number in range(self._dice.randint(2, 5))]
        drafts = [
            self._draft(token, name=token, parents=(tokens[place - 1],) if place else ())
            for place, token in enumerate(tokens)
        ]
        if self._dice.random() < 0.3:
            drafts[-1] = drafts[-1].evolve(parents=("t_0badbadbad",))
        links = {draft.name: draft.parents for draft in drafts}
        self._recorder.call(
            "apply",
            {"tokens": tokens, "links": links},
            lambda: self._door.board().apply(tuple(drafts)),
            lambda made: {"n": len(made)},
        )

    # --- claims ---
    def _claim(self) -> None:
        ttl, review = self._dice.randint(1, 3), self._dice.random() < 0.35
        card = self._dice.choice(self._cards) if self._dice.random() < 0.2 else None
        wait = 0.3 if card is None and self._dice.random() < 0.05 else None
        taken = self._recorder.call(
            "claim",
            {"task": card, "ttl": ttl, "review": review, "wait": wait},
            lambda: self._door.board().claim(card, ttl=ttl, review=review, wait=wait),
            lambda c: {"task": c.task.id, "run": c.run.id, "lock": c.run.claim_lock, "role": c.run.role},
        )
        if taken is not None:
            self._held.append(taken)

    def _work(self, claim: Claim) -> None:
        verbs = ["heartbeat", "heartbeat", "comment", "attach", "complete", "complete", "complete", "block"]
        verb = self._dice.choice([*verbs, "request-review", "request-review", "request-changes", "forget"])
        if verb == "forget":
            self._drop(claim)
            return
        seat = self._dice.choice((doors.OWNER, doors.OWNER, doors.OWNER, doors.WORKER, doors.CHILD))
        heard = self._fenced(claim, verb, seat=seat)
        if seat == doors.CHILD or (heard is not None and verb in ("heartbeat", "comment", "attach")):
            return
        if self._dice.random() < 0.1 and heard is not None:
            self._fenced(claim, verb, seat=seat)  # agents repeat calls
        self._drop(claim)

    def _drop(self, claim: Claim) -> None:
        self._held.remove(claim)
        self._lost = [*self._lost[-4:], claim]
        self._door.forget(claim)

    def _late(self, claim: Claim) -> None:
        wrong = "host:1:none" if self._dice.random() < 0.2 else None
        verb = self._dice.choice(["heartbeat", "comment", "attach", "complete", "block", "request-review"])
        self._fenced(claim, verb, wrong)

    def _fenced(self, claim: Claim, verb: str, lock: str | None = None, seat: str = doors.OWNER) -> Any:
        token, card = self._token(), claim.task.id
        self._count += 1
        kind = self._dice.choice([None, "needs_input", "dependency"])
        reason = blocks.from_fields("environment", token, ("A: on", "B: off"), "A", "choose")
        board = self._door.board(claim, lock, seat=seat)
        acts: dict[str, Callable[[], Any]] = {
            "heartbeat": lambda: board.heartbeat(card, token),
            "comment": lambda: board.comment(card, token),
            "attach": lambda: board.attach(card, ([token.encode()],), name=token),
            "complete": lambda: board.complete(card, Handoff(token)),
            "block": lambda: board.block(card, reason, kind),
            "request-review": lambda: board.request_review(card, Handoff(token)),
            "request-changes": lambda: board.request_changes(card, token),
        }
        told: dict[str, Callable[[Any], Any]] = {
            "heartbeat": lambda a: {"run": a[0].id},
            "comment": lambda a: {"comment": a.comment.id},
            "attach": lambda a: {"attachments": [one.id for one in a.attachments]},
        }
        args = {"task": card, "token": token, "run": claim.run.id, "lock": lock or claim.run.claim_lock, "seat": seat}
        return self._recorder.call(verb, args, acts[verb], told.get(verb, closed))

    # --- people ---
    def _decide(self, card: str) -> None:
        """Do what a person does."""
        moves = self._decisions(card)
        verb, args, act = self._dice.choice([*moves, *moves[:3], *moves[:1]])
        self._recorder.call(verb, {"task": card, **args}, act, described)

    def _decisions(self, card: str) -> list[Move]:
        token, board, other = self._token(), self._door.board(), self._dice.choice(self._cards)
        reason = blocks.from_text(token)
        children = self._dice.choice([None, "release", "archive"])
        soon = self._dice.choice([None, self._now() + 1])
        name = self._dice.choice([None, "racer0", "racer1", self._dice.choice(LANES)])
        return [
            ("unblock", {"token": token}, lambda: board.unblock(card, token)),
            ("promote", {}, lambda: board.promote(card)),
            ("link", {"parent": other}, lambda: board.link(other, card)),
            ("unlink", {"parent": other}, lambda: board.unlink(other, card)),
            ("reopen", {}, lambda: board.reopen(card)),
            ("archive", {"children": children}, lambda: board.archive(card, children, override=True)),
            ("unarchive", {}, lambda: board.unarchive(card)),
            ("reclaim", {}, lambda: board.reclaim(card)),
            ("schedule", {"token": token}, lambda: board.schedule(card, soon, token, override=True)),
            ("comment", {"token": token}, lambda: board.comment(card, token)),
            ("complete", {"token": token}, lambda: board.complete(card, Handoff(token), override=True)),
            ("block", {"token": token}, lambda: board.block(card, reason, override=True)),
            ("request-changes", {"token": token}, lambda: board.request_changes(card, token, override=True)),
            ("edit", {"token": token}, lambda: board.edit(card, {"title": token})),
            ("assign", {"who": name}, lambda: board.assign(card, name)),
        ]


def described(answer: Any) -> dict[str, Any]:
    """Return an answer of a person's verb as JSON."""
    if hasattr(answer, "already"):
        return closed(answer)
    return {"created": answer.created} if hasattr(answer, "created") else {}


def closed(answer: Any) -> dict[str, Any]:
    """Return the answer of a closing verb as JSON."""
    run = answer.run.id if answer.run else None
    return {"run": run, "already": answer.already, "promoted": list(answer.promoted)}
