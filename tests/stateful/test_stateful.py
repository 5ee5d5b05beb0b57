"""The kernel and the model side by side: random verbs by random callers, the same answer and the same board (T2).

`HERMES_TEST_EXAMPLES` (default 200) says how many histories are made, `HERMES_TEST_STEPS` (default 50)
how long each is.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, multiple, precondition, rule

from hermes_kanban.base.errors import Usage
from hermes_kanban.kernel.finish import Handoff
from hermes_kanban.model import blocks
from hermes_kanban.model.claim import Claim
from tests.stateful.cards import MOST_CARDS, NAMES, PEOPLE
from tests.stateful.dispatcher import CARDS, MOSTLY, YES
from tests.stateful.looks import Looks
from tests.stateful.rules import Seat
from tests.stateful.side import SCRIPTS
from tests.world import FULL_REASON

RARE = ("stranger", "bridge", "late", "forger", "naming", "worker", "inside", "below", "chief", "child")
SEATS = st.sampled_from(["owner"] * 6 + ["forger", "worker", "ann", *SCRIPTS, *RARE])
KINDS = st.sampled_from([None, "needs_input", "needs_input", "capability", "transient", "dependency"])
RARELY = st.sampled_from([False, False, False, True])
ENDS = st.sampled_from(
    [
        *("block", "block", "lapse", "sign_and_lapse", "note_and_lapse", "request_review", "request_changes"),
        *("complete", "complete"),
    ]
)
TTL = st.sampled_from([30, 60, 600])
SHORT = blocks.from_text("it does not work")


class Boards(Looks):
    """The verbs of people, scripts and workers."""

    cards = CARDS

    @initialize(target=cards)
    def begin(self) -> Any:
        """A chain of three: so that promotions and re-gates come early."""
        first = self._create("ann", {})
        second = self._create("ann", {"parents": (first,)})
        return multiple(first, second, self._create("ann", {"parents": (first, second)}))

    @rule(seat=st.sampled_from([*SCRIPTS, *SCRIPTS, "ann", *RARE]), card=cards, ttl=TTL)
    def claim(self, seat: str, card: str, ttl: int) -> None:
        board, who, _ = self.caller(seat, card)
        answer, _ = self.both(
            lambda: board.claim(card, ttl=ttl),
            lambda got: self.model.claim(who, card, ttl, got.run.id if got else -1),
        )
        self._claimed(who, answer)

    @rule(seat=st.sampled_from(SCRIPTS), card=cards)
    def cannot_be_told(self, seat: str, card: str) -> None:
        """A claim is taken back, for its ticket cannot be written (P12b)."""
        before = len(self.claims[seat])
        self.claim(seat=seat, card=self.startable(card), ttl=60)
        if len(self.claims[seat]) > before:
            claim = self.claims[seat].pop()
            board = self.world.script(seat)
            error = Usage("the ticket could not be written")
            self.both(lambda: board.give_back(claim, error), lambda _: self.model.give_back(claim.run.id))

    @rule(
        seat=SEATS,
        ttl=TTL,
        review=YES,
        assignee=st.sampled_from([None, None, None, "bot", "rev", "none"]),
        wait=st.sampled_from([None, None, None, 0.0]),
    )
    def claim_next(self, seat: str, ttl: int, review: bool, assignee: str | None, wait: float | None = None) -> None:
        board, who, _ = self.caller(seat, None)
        answer, told = self.both(
            lambda: board.claim(ttl=ttl, review=review, assignee=assignee, wait=wait),
            lambda got: self.model.claim_next(who, ttl, got.run.id if got else -1, review=review, assignee=assignee),
        )
        if answer is not None:
            assert answer.task.id == told.card  # P16
        self._claimed(who, answer)

    def _claimed(self, who: Seat, answer: Claim | None) -> None:
        if answer is None:
            return
        assert all(answer.run.id > c.run.id for held in self.claims.values() for c in held)  # P12: run ids grow
        assert os.path.isdir(answer.workspace)  # P11
        told = self.model.runs[answer.run.id]
        said = (answer.run.role, answer.run.profile, answer.run.claim_expires)
        assert said == (told.role, told.name, told.until)
        self.claims[who.name].append(answer)  # a caller without tickets leaves its claim to the script of its name

    @rule(seat=SEATS, card=cards, note=st.sampled_from([None, "half way"]))
    def heartbeat(self, seat: str, card: str, note: str | None) -> None:
        card = self.at_work(seat, card)
        board, who, run = self.caller(seat, card)
        answer, told = self.both(
            lambda: board.heartbeat(card, note, **run), lambda _: self.model.heartbeat(who, card, note)
        )
        if answer is not None:
            assert answer[0].claim_expires == told

    @rule(seat=SEATS, card=cards)
    def comment(self, seat: str, card: str) -> None:
        card = self.at_work(seat, card)
        board, who, run = self.caller(seat, card)
        self.both(lambda: board.comment(card, "a fact", **run), lambda _: self.model.comment(who, card))

    @rule(seat=SEATS, card=cards, summary=MOSTLY, override=YES, bulk=RARELY, unknown=RARELY)
    def complete(
        self, seat: str, card: str, summary: bool, override: bool, bulk: bool = False, unknown: bool = False
    ) -> None:
        card = self.at_work(seat, card)
        board, who, run = self.caller(seat, card)
        handoff = Handoff("done" if summary else None, created=("t_0badbad0",) if unknown else ())
        answer, told = self.both(
            lambda: board.complete(card, handoff, override=override, bulk=bulk, **run),
            lambda _: self.model.complete(who, card, summary=summary, override=override, bulk=bulk, unknown=unknown),
        )
        if answer is not None:
            assert answer.already == told[0]
            assert answer.already or answer.promoted == told[1]  # P4

    @rule(seat=SEATS, card=cards, reviewer=NAMES, override=YES)
    def request_review(self, seat: str, card: str, reviewer: str | None, override: bool) -> None:
        card = self.at_work(seat, card)
        board, who, run = self.caller(seat, card)
        answer, told = self.both(
            lambda: board.request_review(card, Handoff("look"), reviewer, override=override, **run),
            lambda _: self.model.request_review(who, card, reviewer, override=override),
        )
        if answer is not None:
            assert answer.already == told

    @rule(seat=SEATS, card=cards, override=YES)
    def request_changes(self, seat: str, card: str, override: bool) -> None:
        card = self.at_work(seat, card)
        board, who, run = self.caller(seat, card)
        answer, told = self.both(
            lambda: board.request_changes(card, "again", override=override, **run),
            lambda _: self.model.request_changes(who, card, override=override),
        )
        if answer is not None:
            assert answer.already == told

    @rule(seat=SEATS, card=cards, kind=KINDS, full=MOSTLY, override=YES)
    def block(self, seat: str, card: str, kind: str | None, full: bool, override: bool) -> None:
        card = self.at_work(seat, card)
        board, who, run = self.caller(seat, card)
        answer, told = self.both(
            lambda: board.block(card, FULL_REASON if full else SHORT, kind, override=override, **run),
            lambda _: self.model.block(who, card, kind, full=full, override=override),
        )
        if answer is not None:
            assert answer.already == told

    @rule(
        seats=st.lists(st.sampled_from(SCRIPTS), min_size=1, max_size=3),
        card=cards,
        ends=st.lists(ENDS, min_size=1, max_size=6),
        kind=KINDS,
        judges=RARELY,
    )
    def shifts(self, seats: list[str], card: str, ends: list[str], kind: str | None, judges: bool) -> None:
        """Scripts claim the card in turn and end their runs, so that counters and rounds are reached.

        Args:
            judges: they take its reviews too, also of their own work.
        """
        card = self.startable(card)
        for shift, end in enumerate(ends):
            seat, status = seats[shift % len(seats)], self.model.cards[card].status
            if status in ("blocked", "scheduled"):
                self.release(seat="ann", card=card, promote=False, answer=False)
            who = "rev" if status == "review" and not judges else seat
            self.claim(seat=who, card=card, ttl=60)
            self._end(end, who, card, kind)

    def _end(self, end: str, seat: str, card: str, kind: str | None) -> None:
        if end in ("lapse", "sign_and_lapse", "note_and_lapse"):
            if end != "lapse":
                self.time_passes(seconds=31)  # else the claim has its whole time left, and nothing is extended
                self.heartbeat(seat=seat, card=card, note="half way" if end == "note_and_lapse" else None)
            self.time_passes(seconds=61)
        elif end == "complete":
            self.complete(seat=seat, card=card, summary=True, override=False)
        elif end == "block":
            self.block(seat=seat, card=card, kind=kind, full=True, override=False)
        elif end == "request_review":
            self.request_review(seat=seat, card=card, reviewer="rev", override=False)
        else:
            self.request_changes(seat=seat, card=card, override=False)

    @precondition(lambda self: len(self.model.cards) < MOST_CARDS)
    @rule(card=cards)
    def ring(self, card: str) -> None:
        """Cards stand in a row, and a person links the last one to the first (P5)."""
        second = self._create("ann", {"parents": (card,)})
        third = second and self._create("ann", {"parents": (second,)})
        if third:
            self.link(seat="ann", parent=third, child=card)

    @rule(seat=st.sampled_from(SCRIPTS), parent=cards, card=cards)
    def link_to_who_runs(self, seat: str, parent: str, card: str) -> None:
        """A person links a card to another one that somebody has just claimed (P5)."""
        card = self.startable(card)
        self.claim(seat=seat, card=card, ttl=60)
        self.link(seat="ann", parent=parent, child=card)

    @rule(seat=st.sampled_from(SCRIPTS), card=cards, kind=KINDS)
    def blocks_again(self, seat: str, card: str, kind: str | None) -> None:
        """The same block again and again, the first time without its parts (P24, P25)."""
        card = self.startable(card)
        self.claim(seat=seat, card=card, ttl=60)
        self.block(seat=seat, card=card, kind=kind, full=False, override=False)
        self.shifts(seats=[seat], card=card, ends=["block"] * 3, kind=kind, judges=False)

    @rule(seat=st.sampled_from(["bot", "other"]), card=cards, more=YES)
    def rounds(self, seat: str, card: str, more: bool) -> None:
        """Work goes to the reviewer and back until the rounds are used up (P31)."""
        ends = ["request_review", "request_changes"] * (3 if more else 2)
        self.shifts(seats=[seat], card=card, ends=ends, kind=None, judges=False)

    @rule(seats=st.permutations(SCRIPTS), card=cards, verdict=st.sampled_from(["complete", "request_changes"]))
    def two_hands(self, seats: list[str], card: str, verdict: str) -> None:
        """One begins, another goes on and hands over, and each of three tries to judge (P30b)."""
        card = self.startable(card)
        self.shifts(seats=seats[:2], card=card, ends=["lapse", "request_review"], kind=None, judges=False)
        for seat in seats:
            self.claim(seat=seat, card=card, ttl=60)
            self._end(verdict, seat, card, None)

    @rule(seat=st.sampled_from(SCRIPTS), parent=cards, card=cards, begun=YES, by_id=YES)
    def parent_opens_again(self, seat: str, parent: str, card: str, begun: bool, by_id: bool) -> None:
        """A parent is opened again: a ready child waits, and nobody may claim one that was handed over (P6, P10)."""
        card = self._instead(card, [one.id for one in self.model.cards.values() if one.status in ("todo", "ready")])
        self.link(seat="ann", parent=parent, child=card)
        for before in self.model.cards[card].parents:
            self.complete(seat="ann", card=before, summary=True, override=True)
        if begun:
            self.shifts(seats=[seat], card=card, ends=["request_review"], kind=None, judges=False)
        self.reopen(seat="ann", card=next(iter(self.model.cards[card].parents), parent))
        if by_id:
            self.claim(seat="rev", card=card, ttl=60)
        else:
            self.claim_next(seat="rev", ttl=60, review=True, assignee=None)

    @rule(seat=PEOPLE, card=cards, promote=YES, answer=YES)
    def release(self, seat: str, card: str, promote: bool, answer: bool) -> None:
        board, who, _ = self.caller(seat, card)
        verb = "promote" if promote else "unblock"
        words = "as it was meant" if answer else None
        self.both(
            lambda: board.promote(card) if promote else board.unblock(card, words),
            lambda _: self.model.release(who, card, verb, answer),
        )

    @rule(
        seat=PEOPLE,
        card=cards,
        delay=st.sampled_from([None, -1, 40, 400]),
        override=YES,
    )
    def schedule(self, seat: str, card: str, delay: int | None, override: bool) -> None:
        board, who, _ = self.caller(seat, card)
        at = None if delay is None else self.model.now + delay
        self.both(
            lambda: board.schedule(card, at, override=override),
            lambda _: self.model.schedule(who, card, at, override=override),
        )

    @rule()
    def release_due(self) -> None:
        board = self.world.board()
        answer, told = self.both(board.release_due, lambda _: self.model.release_due())
        assert answer == told

    @rule(seat=PEOPLE, card=cards)
    def reopen(self, seat: str, card: str) -> None:
        board, who, _ = self.caller(seat, card)
        self.both(lambda: board.reopen(card), lambda _: self.model.reopen(who, card))

    @rule(
        seat=PEOPLE,
        card=cards,
        children=st.sampled_from([None, "release", "archive"]),
        override=YES,
    )
    def archive(self, seat: str, card: str, children: str | None, override: bool) -> None:
        board, who, _ = self.caller(seat, card)
        self.both(
            lambda: board.archive(card, children, override=override),
            lambda _: self.model.archive(who, card, children, override=override),
        )

    @rule(seat=PEOPLE, card=cards)
    def unarchive(self, seat: str, card: str) -> None:
        board, who, _ = self.caller(seat, card)
        self.both(lambda: board.unarchive(card), lambda _: self.model.unarchive(who, card))

    @rule(seat=PEOPLE, card=cards)
    def reclaim(self, seat: str, card: str) -> None:
        board, who, _ = self.caller(seat, card)
        self.both(lambda: board.reclaim(card), lambda _: self.model.reclaim(who, card))

    @rule()
    def the_log_rebuilds_the_board(self) -> None:
        assert self.person.verify() == ()  # P81


TestBoards = Boards.TestCase
TestBoards.settings = settings(
    max_examples=int(os.environ.get("HERMES_TEST_EXAMPLES", "200")),
    stateful_step_count=int(os.environ.get("HERMES_TEST_STEPS", "50")),
    deadline=None,
    derandomize=False,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
# A busy machine takes seconds for a history, and a failure is made small before it is shown.
PATIENCE = pytest.mark.timeout(1800 + 10 * TestBoards.settings.max_examples)
TestBoards.pytestmark = [PATIENCE]  # type: ignore[attr-defined]
