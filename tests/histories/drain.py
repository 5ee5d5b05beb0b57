"""The last caller of a race: brings every card to its end, to show that none waits for ever, or without a reason (P3b).

It does only what the board offers: it answers what is blocked, starts what is parked, claims what is ready, completes
what it claimed, decides what is in review. Its clock is days ahead, so every lease and every pause is over.
"""

from __future__ import annotations

from typing import Any

from hermes_kanban import compose
from hermes_kanban.base.clock import SystemClock
from hermes_kanban.dispatcher.host import LocalHost
from hermes_kanban.kernel.finish import Handoff
from hermes_kanban.kernel.query import Filter
from hermes_kanban.model import status as s
from hermes_kanban.model.task import Task
from tests.histories import doors
from tests.histories.doors import Door
from tests.histories.racer import closed, described
from tests.histories.recorder import Recorder

AHEAD = 3 * 86_400  # seconds
ENDS = (s.DONE, s.ARCHIVED)
MOST = 100_000
FREE = (s.READY, s.REVIEW, s.RUNNING)  # who is in one of these, or due, and has no reason to wait may be claimed
LONGEST = 3700  # seconds: no pause is longer than an hour
ROUNDS = 200  # each answers, starts and completes what it can: a card that still moves then goes in circles


class Drain:
    """Works until nothing moves any more; what is left then is noted as stuck."""

    def __init__(self, door: Door, recorder: Recorder, label: str) -> None:
        self._door, self._recorder, self._label = door, recorder, label
        self._board = door.board()
        self._due = compose.open_supervision(door.env, door.place)
        self._count = 0

    def run(self) -> None:
        """See the class."""
        self._reasons()
        doors.skew(AHEAD)
        rounds = 0
        while self._round() and rounds < ROUNDS:
            rounds += 1
        for card in self._left():
            _, answer = self._board.why(card.id)
            reasons = "; ".join(reason.text for reason in answer.claimable)
            self._recorder.note("stuck", task=card.id, text=f"{card.id} stays {card.status}: {reasons or 'no reason'}")

    def _reasons(self) -> None:
        """Every card that waits says why, and what ends it: a time, or somebody who must act."""
        host = LocalHost(self._door.env)
        for card in self._left():
            _, answer = self._board.why(card.id, host)
            now = SystemClock().now_ms() // 1000  # not before: its time may have come just now
            blind = [reason.code for reason in answer.claimable if reason.until is None and reason.actor == "nobody"]
            late = [reason.code for reason in answer.claimable if (reason.until or 0) > now + LONGEST]
            free = card.status in FREE or (card.status == s.SCHEDULED and (card.scheduled_at or now + 1) <= now)
            if blind or late or (not answer.claimable and not free):
                text = f"{card.id} is {card.status}, and nothing ends it: {blind + late}"
                self._recorder.note("stuck", task=card.id, text=text)

    def _left(self) -> list[Task]:
        cards = self._board.list(Filter(sort="seq", limit=MOST)).cards
        return [listed.task for listed in cards if listed.task.status not in ENDS]

    def _round(self) -> bool:
        """Move everything on that can be moved; whether anything was."""
        moved = False
        self._due.release_due()
        for card in self._left():
            if card.status in (s.BLOCKED, s.SCHEDULED):
                moved |= self._call("unblock", card.id, lambda token, c=card.id: self._board.unblock(c, token))
            elif card.status == s.TRIAGE:
                moved |= self._call("promote", card.id, lambda _, c=card.id: self._board.promote(c), token=False)
            elif card.status == s.REVIEW:
                act = lambda token, c=card.id: self._board.complete(c, Handoff(token), override=True)  # noqa: E731
                moved |= self._call("complete", card.id, act)
        for review in (False, True):
            while self._claim_and_complete(review):
                moved = True
        return moved

    def _claim_and_complete(self, review: bool) -> bool:
        taken = self._recorder.call(
            "claim",
            {"task": None},
            lambda: self._board.claim(ttl=60, review=review),
            lambda c: {"task": c.task.id, "run": c.run.id, "lock": c.run.claim_lock, "role": c.run.role},
        )
        if taken is None:
            return False
        board, fence = self._door.board(taken), {"run": taken.run.id, "lock": taken.run.claim_lock}
        act = lambda token: board.complete(taken.task.id, Handoff(token))  # noqa: E731
        done = self._call("complete", taken.task.id, act, **fence)
        self._door.forget(taken)
        return done

    def _call(self, verb: str, card: str, act: Any, *, token: bool = True, **fence: Any) -> bool:
        self._count += 1
        word = f"w{self._label}.{self._count}"
        args = {"task": card, **({"token": word} if token else {}), **fence}
        told = closed if verb == "complete" else described
        return self._recorder.call(verb, args, lambda: act(word), told) is not None
