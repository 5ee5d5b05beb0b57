"""One of a crowd: `python -m tests.bounds.writer HOME NAME SECONDS SEED`.

It creates, claims, beats, comments and completes for so long, all on one connection, and then prints what it did.
"""

from __future__ import annotations

import json
import random
import sys
import time
from typing import Any

from hermes_kanban.base.errors import NothingReady, Refusal
from hermes_kanban.kernel.finish import Handoff
from hermes_kanban.model.claim import Claim
from hermes_kanban.model.task import TaskDraft
from tests.bounds.hand import Hand

SHOWN = 5  # errors that are told in full


class Writer:
    """Random verbs; every refusal is an error, save that nothing is ready."""

    def __init__(self, hand: Hand, seed: int) -> None:
        self._hand, self._dice = hand, random.Random(seed)
        self._number = 0
        self.created: list[str] = []
        self.claims: list[tuple[str, int]] = []  # card and run
        self.completed: list[str] = []
        self.commented: list[str] = []
        self.errors: list[str] = []

    def step(self) -> None:
        """Make a card or two, and finish one: this one's or another's."""
        for _ in range(self._dice.choice((1, 1, 2))):
            self._try(self._create)
        claim = self._try(lambda: self._hand.board().claim(ttl=3600))
        if claim is not None:
            self.claims.append((claim.task.id, claim.run.id))
            self._work(claim)

    def _create(self) -> None:
        self._number += 1
        key = f"{self._hand.name}-{self._number}"
        made = self._hand.board().create(TaskDraft(title=f"card {key}", body="x" * 300, idempotency_key=key))
        self.created.append(made.task.id)

    def _work(self, claim: Claim) -> None:
        board, card = self._hand.board(claim), claim.task.id
        for _ in range(self._dice.randint(0, 2)):
            self._try(lambda: board.heartbeat(card, "half way"))
        if self._dice.random() < 0.5 and self._try(lambda: board.comment(card, "a fact")) is not None:
            self.commented.append(card)
        if self._try(lambda: board.complete(card, Handoff("done"))) is not None:
            self.completed.append(card)

    def _try(self, call: Any) -> Any:
        try:
            return call()
        except NothingReady:
            return None
        except Refusal as error:
            self.errors.append(f"{error.code}: {error}")
            return None

    def told(self) -> dict[str, Any]:
        """Return what it did, as JSON."""
        waits = sorted(self._hand.waits) or [0.0]
        at = {
            name: waits[min(int(len(waits) * share), len(waits) - 1)] for name, share in (("p50", 0.5), ("p99", 0.99))
        }
        return {
            "name": self._hand.name,
            "writes": len(self._hand.waits),
            "longest": waits[-1],
            **at,
            "created": self.created,
            "claims": self.claims,
            "completed": self.completed,
            "commented": self.commented,
            "errors": len(self.errors),
            "first_errors": self.errors[:SHOWN],
        }


def main(home: str, name: str, seconds: str, seed: str) -> None:
    """Say that it is up, wait for the word, write, and tell."""
    writer = Writer(Hand(home, name), int(seed))
    print("up", flush=True)
    if not sys.stdin.readline():
        sys.exit(1)
    end = time.monotonic() + float(seconds)
    while time.monotonic() < end:
        writer.step()
    print(json.dumps(writer.told()), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
