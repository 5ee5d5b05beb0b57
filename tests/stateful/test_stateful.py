"""The kernel and the model side by side: random verbs by random callers, the same answer and the same board (T2).

`HERMES_TEST_EXAMPLES` (default 250) says how many histories are made, `HERMES_TEST_STEPS` (default 50)
how long each is.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    initialize,
    multiple,
    precondition,
    rule,
)

from hermes_kanban.kernel.finish import Handoff
from hermes_kanban.model import blocks
from hermes_kanban.model.claim import Claim
from hermes_kanban.model.task import TaskDraft
from tests.stateful.dispatcher import CARDS, Dispatcher
from tests.stateful.rules import Seat
from tests.stateful.side import SCRIPTS
from tests.world import FULL_REASON

MOST_CARDS = 6
RARE = ("stranger", "bridge", "late", "forger", "naming", "worker", "inside")
SEATS = st.sampled_from(["owner"] * 6 + ["worker", "ann", *SCRIPTS, *RARE])
YES = st.booleans()
KINDS = st.sampled_from([None, "needs_input", "needs_input", "capability", "transient", "dependency"])
NAMES = st.sampled_from([None, "bot", "rev", "other"])
ENDS = st.sampled_from(["block", "block", "lapse", "request_review", "request_changes", "complete", "complete"])
TTL = st.sampled_from([30, 60, 600])
SHORT = blocks.from_text("it does not work")


class Boards(Dispatcher):
    """The verbs of people, scripts and workers."""

    cards = CARDS

    @initialize(target=cards)
    def begin(self) -> Any:
        """A chain of three: so that promotions and re-gates come early."""
        first = self._create("ann", {})
        second = self._create("ann", {"parents": (first,)})
        return multiple(first, second, self._create("ann", {"parents": (first, second)}))

    def _create(self, seat: str, draft: dict[str, Any]) -> str | None:
        board, who, _ = self.caller(seat, None)
        fields = {"key": "idempotency_key", "at": "scheduled_at"}
        real = TaskDraft(title="card", reason=FULL_REASON.text, **{fields.get(n, n): v for n, v in draft.items()})
        answer, told = self.both(
            lambda: board.create(real),
            lambda got: self.model.create(who, draft, got.task.id if got else "none"),
        )
        if answer is None:
            return None
        assert (answer.task.id, answer.created) == told  # P51
        return str(answer.task.id) if answer.created else None

    @precondition(lambda self: len(self.model.cards) < MOST_CARDS)
    @rule(
        target=cards,
        seat=st.sampled_from(["ann", "ann", "stranger", "bridge", "worker"]),
        parents=st.lists(cards, max_size=2, unique=True),
        status=st.sampled_from([None, None, None, "triage", "blocked"]),
        delay=st.sampled_from([None, None, -5, 50]),
        names=st.tuples(NAMES, NAMES),
        rest=st.tuples(st.sampled_from([None, "k1", "k2"]), st.sampled_from([None, "blue"]), st.integers(-1, 1)),
    )
    def create(
        self,
        seat: str,
        parents: list[str],
        status: str | None,
        delay: int | None,
        names: tuple[str | None, str | None],
        rest: tuple[str | None, str | None, int],
    ) -> Any:
        draft: dict[str, Any] = {"parents": tuple(parents), "key": rest[0], "tenant": rest[1], "priority": rest[2]}
        draft |= {"assignee": names[0], "reviewer": names[1], "status": status}
        if delay is not None and status is None:
            draft["at"] = self.model.now + delay
        made = self._create(seat, draft)
        return multiple(*([made] if made else []))

    @rule(seat=st.sampled_from(["ann", "ann", "ann", "bot", "worker"]), parent=cards, child=cards)
    def link(self, seat: str, parent: str, child: str) -> None:
        board, who, _ = self.caller(seat, child)
        answer, told = self.both(lambda: board.link(parent, child), lambda _: self.model.link(who, parent, child))
        if answer is not None:
            assert answer.created == told
            assert set(answer.gated_by) == set(self.model.waits_for(self.model.cards[child]))

    @rule(seat=st.sampled_from(["ann", "ann", "bot"]), child=cards, other=cards, real=YES)
    def unlink(self, seat: str, child: str, other: str, real: bool) -> None:
        parents = self.model.cards[child].parents
        parent = parents[0] if real and parents else other
        board, who, _ = self.caller(seat, child)
        self.both(lambda: board.unlink(parent, child), lambda _: self.model.unlink(who, parent, child))

    @rule(seat=st.sampled_from([*SCRIPTS, *SCRIPTS, "ann", *RARE]), card=cards, ttl=TTL)
    def claim(self, seat: str, card: str, ttl: int) -> None:
        board, who, _ = self.caller(seat, card)
        answer, _ = self.both(
            lambda: board.claim(card, ttl=ttl),
            lambda got: self.model.claim(who, card, ttl, got.run.id if got else -1),
        )
        self._claimed(who, answer)

    @rule(seat=SEATS, ttl=TTL, review=YES, assignee=st.sampled_from([None, None, None, "bot", "rev", "none"]))
    def claim_next(self, seat: str, ttl: int, review: bool, assignee: str | None) -> None:
        board, who, _ = self.caller(seat, None)
        answer, told = self.both(
            lambda: board.claim(ttl=ttl, review=review, assignee=assignee),
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
        board, who, run = self.caller(seat, card)
        answer, told = self.both(
            lambda: board.heartbeat(card, note, **run), lambda _: self.model.heartbeat(who, card, note)
        )
        if answer is not None:
            assert answer[0].claim_expires == told

    @rule(seat=SEATS, card=cards)
    def comment(self, seat: str, card: str) -> None:
        board, who, run = self.caller(seat, card)
        self.both(lambda: board.comment(card, "a fact", **run), lambda _: self.model.comment(who, card))

    @rule(seat=SEATS, card=cards, summary=st.sampled_from([True, True, True, False]), override=YES)
    def complete(self, seat: str, card: str, summary: bool, override: bool) -> None:
        board, who, run = self.caller(seat, card)
        handoff = Handoff("done" if summary else None)
        answer, told = self.both(
            lambda: board.complete(card, handoff, override=override, **run),
            lambda _: self.model.complete(who, card, summary=summary, override=override),
        )
        if answer is not None:
            assert answer.already == told[0]
            assert answer.already or answer.promoted == told[1]  # P4

    @rule(seat=SEATS, card=cards, reviewer=NAMES, override=YES)
    def request_review(self, seat: str, card: str, reviewer: str | None, override: bool) -> None:
        board, who, run = self.caller(seat, card)
        answer, told = self.both(
            lambda: board.request_review(card, Handoff("look"), reviewer, override=override, **run),
            lambda _: self.model.request_review(who, card, reviewer, override=override),
        )
        if answer is not None:
            assert answer.already == told

    @rule(seat=SEATS, card=cards, override=YES)
    def request_changes(self, seat: str, card: str, override: bool) -> None:
        board, who, run = self.caller(seat, card)
        answer, told = self.both(
            lambda: board.request_changes(card, "again", override=override, **run),
            lambda _: self.model.request_changes(who, card, override=override),
        )
        if answer is not None:
            assert answer.already == told

    @rule(seat=SEATS, card=cards, kind=KINDS, full=st.sampled_from([True, True, True, False]), override=YES)
    def block(self, seat: str, card: str, kind: str | None, full: bool, override: bool) -> None:
        board, who, run = self.caller(seat, card)
        answer, told = self.both(
            lambda: board.block(card, FULL_REASON if full else SHORT, kind, override=override, **run),
            lambda _: self.model.block(who, card, kind, full=full, override=override),
        )
        if answer is not None:
            assert answer.already == told

    @rule(
        seat=st.sampled_from(SCRIPTS),
        card=cards,
        ends=st.lists(ENDS, min_size=1, max_size=5),
        kind=KINDS,
    )
    def shifts(self, seat: str, card: str, ends: list[str], kind: str | None) -> None:
        """Scripts claim the card and end their runs again and again, so that counters and rounds are reached."""
        for end in ends:
            status = self.model.cards[card].status
            if status in ("blocked", "scheduled"):
                self.release(seat="ann", card=card, promote=False)
            who = "rev" if status == "review" else seat
            self.claim(seat=who, card=card, ttl=60)
            self._end(end, who, card, kind)

    def _end(self, end: str, seat: str, card: str, kind: str | None) -> None:
        if end == "lapse":
            self.time_passes(seconds=61)
        elif end == "complete":
            self.complete(seat=seat, card=card, summary=True, override=False)
        elif end == "block":
            self.block(seat=seat, card=card, kind=kind, full=True, override=False)
        elif end == "request_review":
            self.request_review(seat=seat, card=card, reviewer="rev", override=False)
        else:
            self.request_changes(seat=seat, card=card, override=False)

    @rule(seat=st.sampled_from(["ann", "ann", "ann", "stranger", "bot", "worker"]), card=cards, promote=YES)
    def release(self, seat: str, card: str, promote: bool) -> None:
        board, who, _ = self.caller(seat, card)
        verb = "promote" if promote else "unblock"
        self.both(lambda: getattr(board, verb)(card), lambda _: self.model.release(who, card, verb))

    @rule(
        seat=st.sampled_from(["ann", "ann", "stranger", "bot", "worker"]),
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
        self.both(self.person.release_due, lambda _: self.model.release_due())

    @rule(seat=st.sampled_from(["ann", "ann", "stranger", "worker"]), card=cards)
    def reopen(self, seat: str, card: str) -> None:
        board, who, _ = self.caller(seat, card)
        self.both(lambda: board.reopen(card), lambda _: self.model.reopen(who, card))

    @rule(
        seat=st.sampled_from(["ann", "ann", "stranger", "worker"]),
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

    @rule(seat=st.sampled_from(["ann", "ann", "worker"]), card=cards)
    def unarchive(self, seat: str, card: str) -> None:
        board, who, _ = self.caller(seat, card)
        self.both(lambda: board.unarchive(card), lambda _: self.model.unarchive(who, card))

    @rule(seat=st.sampled_from(["ann", "ann", "stranger", "worker", "bot"]), card=cards)
    def reclaim(self, seat: str, card: str) -> None:
        board, who, _ = self.caller(seat, card)
        self.both(lambda: board.reclaim(card), lambda _: self.model.reclaim(who, card))

    @rule()
    def the_log_rebuilds_the_board(self) -> None:
        assert self.person.verify() == ()  # P81


TestBoards = Boards.TestCase
TestBoards.settings = settings(
    max_examples=int(os.environ.get("HERMES_TEST_EXAMPLES", "250")),
    stateful_step_count=int(os.environ.get("HERMES_TEST_STEPS", "50")),
    deadline=None,
    derandomize=False,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestBoards.pytestmark = [pytest.mark.timeout(1800)]  # type: ignore[attr-defined] # a failure is made small before it is shown
