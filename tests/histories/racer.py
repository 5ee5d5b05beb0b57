"""One racing process: random verbs on a shared board, or a reader that follows the log.

Started by `soak.Race` with an explicit environment; it opens the board as every command does. Half of the racers
keep their connections, half open the board anew for each call. They hold claims, forget them, act with claims that
they lost, and act as a person on everybody's cards. SIGTERM ends a racer after its call.
"""

from __future__ import annotations

import argparse
import random
import signal
import time
from collections.abc import Callable
from typing import Any

from hermes_kanban import boards, compose
from hermes_kanban.kernel.board import Board
from hermes_kanban.kernel.finish import Handoff
from hermes_kanban.kernel.query import Filter
from hermes_kanban.model import blocks
from hermes_kanban.model.claim import Claim
from hermes_kanban.model.task import TaskDraft
from tests.histories.recorder import Recorder

REREAD = 12  # calls between two looks at the list of cards
TAIL_PAGE = 200
KEYS = 40


class Stop:
    """Set by SIGTERM; looked at between calls."""

    def __init__(self) -> None:
        self.asked = False
        signal.signal(signal.SIGTERM, self._ask)

    def _ask(self, *_: object) -> None:
        self.asked = True


class Door:
    """Opens the board of this process's environment, once per claim or once per call."""

    def __init__(self, *, keep: bool) -> None:
        self._env = compose.environment()
        self.place = boards.choose(self._env.home, None, self._env.variables).place
        self._keep = keep
        self._kept: dict[int, Board] = {}

    def board(self, claim: Claim | None = None, lock: str | None = None) -> Board:
        """Return the board as a free caller, or as the owner of a claim (whose lock may be given wrongly)."""
        number = 0 if claim is None or lock is not None else claim.run.id
        if number in self._kept and lock is None:
            return self._kept[number]
        proof = {}
        if claim is not None:
            proof = {
                "HERMES_KANBAN_RUN_ID": str(claim.run.id),
                "HERMES_KANBAN_CLAIM_LOCK": lock or claim.run.claim_lock,
            }
        env = self._env.evolve(variables={**self._env.variables, **proof})
        made = compose.open_board(env, self.place, write=True)
        if self._keep and lock is None:
            self._kept[number] = made
        return made

    def forget(self, claim: Claim) -> None:
        self._kept.pop(claim.run.id, None)


class Racer:
    """Random verbs until it is stopped."""

    def __init__(self, door: Door, recorder: Recorder, label: str, seed: int) -> None:
        self._door, self._recorder, self._label = door, recorder, label
        self._random = random.Random(seed)
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
        dice = self._random.random()
        if self._held and dice < 0.5:
            self._work(self._random.choice(self._held))
        elif self._lost and dice < 0.6:
            self._late(self._random.choice(self._lost))
        elif dice < 0.72 or len(self._cards) < 5:
            self._create()
        elif dice < 0.87:
            self._claim()
        else:
            self._decide(self._random.choice(self._cards))

    def _token(self) -> str:
        return f"w{self._label}.{self._count}"

    def _create(self) -> None:
        token = self._token()
        parents = tuple(self._random.sample(self._cards, k=min(len(self._cards), self._random.choice((0, 0, 1, 2)))))
        key = f"key{self._random.randrange(KEYS)}" if self._random.random() < 0.2 else None
        extra: dict[str, Any] = {"scheduled_at": int(time.time()) + 2} if self._random.random() < 0.05 else {}
        draft = TaskDraft(token, parents=parents, idempotency_key=key, priority=self._random.randint(-2, 2), **extra)
        args = {"token": token, "parents": list(parents), "key": key}
        self._recorder.call(
            "create",
            args,
            lambda: self._door.board().create(draft),
            lambda made: {"task": made.task.id, "created": made.created},
        )

    def _claim(self) -> None:
        ttl, review = self._random.randint(1, 3), self._random.random() < 0.35
        card = self._random.choice(self._cards) if self._random.random() < 0.2 else None
        taken = self._recorder.call(
            "claim",
            {"task": card, "ttl": ttl, "review": review},
            lambda: self._door.board().claim(card, ttl=ttl, review=review),
            lambda c: {"task": c.task.id, "run": c.run.id, "lock": c.run.claim_lock, "role": c.run.role},
        )
        if taken is not None:
            self._held.append(taken)

    def _work(self, claim: Claim) -> None:
        verbs = ["heartbeat", "heartbeat", "comment", "complete", "complete", "complete", "block", "request-review"]
        verb = self._random.choice([*verbs, "request-changes", "forget"])
        if verb == "forget":
            self._drop(claim)
            return
        heard = self._fenced(claim, verb)
        if heard is None or verb not in ("heartbeat", "comment"):
            if self._random.random() < 0.1 and heard is not None:
                self._fenced(claim, verb)  # agents repeat calls
            self._drop(claim)

    def _drop(self, claim: Claim) -> None:
        self._held.remove(claim)
        self._lost = [*self._lost[-4:], claim]
        self._door.forget(claim)

    def _late(self, claim: Claim) -> None:
        wrong = "host:1:none" if self._random.random() < 0.2 else None
        self._fenced(claim, self._random.choice(["heartbeat", "comment", "complete", "block", "request-review"]), wrong)

    def _fenced(self, claim: Claim, verb: str, lock: str | None = None) -> Any:
        token, card = self._token(), claim.task.id
        self._count += 1
        kind = self._random.choice([None, "needs_input", "dependency"])
        reason = blocks.from_fields("environment", token, ("A: on", "B: off"), "A", "choose")
        board = self._door.board(claim, lock)
        acts: dict[str, Callable[[], Any]] = {
            "heartbeat": lambda: board.heartbeat(card, token),
            "comment": lambda: board.comment(card, token),
            "complete": lambda: board.complete(card, Handoff(token)),
            "block": lambda: board.block(card, reason, kind),
            "request-review": lambda: board.request_review(card, Handoff(token)),
            "request-changes": lambda: board.request_changes(card, token),
        }
        told = {"heartbeat": lambda a: {"run": a[0].id}, "comment": lambda a: {"comment": a.comment.id}}
        args = {"task": card, "token": token, "run": claim.run.id, "lock": lock or claim.run.claim_lock}
        return self._recorder.call(verb, args, acts[verb], told.get(verb, _closed))

    def _decide(self, card: str) -> None:
        """Do what a person does."""
        token, board, other = self._token(), self._door.board(), self._random.choice(self._cards)
        reason = blocks.from_text(token)
        children = self._random.choice([None, "release", "archive"])
        soon = self._random.choice([None, int(time.time()) + 1])
        verbs: list[tuple[str, dict[str, Any], Callable[[], Any]]] = [
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
        ]
        verb, args, act = self._random.choice([*verbs, *verbs[:3], *verbs[:1]])
        self._recorder.call(verb, {"task": card, **args}, act, _described)


def _described(answer: Any) -> dict[str, Any]:
    if hasattr(answer, "already"):
        return _closed(answer)
    return {"created": answer.created} if hasattr(answer, "created") else {}


def _closed(answer: Any) -> dict[str, Any]:
    run = answer.run.id if answer.run else None
    return {"run": run, "already": answer.already, "promoted": list(answer.promoted)}


def follow(door: Door, recorder: Recorder, stop: Stop) -> None:
    """Read the log by id, as `watch` does, and note what was read (P80)."""
    board = door.board()
    feed = board.feed()
    last = board.last_event_id()
    try:
        while not stop.asked:
            ids = [event.id for event in board.events(since=last, limit=TAIL_PAGE)]
            if ids:
                recorder.tail(last, ids)
                last = ids[-1]
            else:
                feed.wait(0.2)
    finally:
        feed.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--history", required=True)
    parser.add_argument("--label", required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--style", choices=("kept", "fresh", "tail"), required=True)
    given = parser.parse_args()
    stop = Stop()
    door, recorder = Door(keep=given.style != "fresh"), Recorder(given.history, given.label)
    if given.style == "tail":
        follow(door, recorder, stop)
        return
    racer = Racer(door, recorder, given.label, given.seed)
    while not stop.asked:
        racer.step()


if __name__ == "__main__":
    main()
