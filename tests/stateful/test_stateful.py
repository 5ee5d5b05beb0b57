"""The kernel and the model side by side: random verbs by random callers, the same answer and the same board (T2).

`HERMES_TEST_EXAMPLES` (default 150) says how many histories are made, `HERMES_TEST_STEPS` (default 50)
how long each is.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)

from hermes_kanban.base.errors import Refusal
from hermes_kanban.kernel.board import Board
from hermes_kanban.kernel.finish import Handoff
from hermes_kanban.kernel.query import Filter
from hermes_kanban.model import blocks
from hermes_kanban.model.claim import Claim
from hermes_kanban.model.task import TaskDraft
from tests.stateful.model import Model
from tests.stateful.rules import Kept, Limits, Refused, Seat
from tests.world import FULL_REASON, SqliteWorld

MOST_CARDS = 6
LIMITS = Limits(recurrences=2, lost_leases=3, rounds=3)
SCRIPTS = ("bot", "other", "rev")  # non-interactive callers that keep the tickets of their claims
RARE = ("stranger", "bridge", "late", "forger", "naming", "worker")
SEATS = st.sampled_from(["owner"] * 6 + ["worker", "ann", *SCRIPTS, *RARE])
YES = st.booleans()
KINDS = st.sampled_from([None, "needs_input", "needs_input", "capability", "transient", "dependency"])
NAMES = st.sampled_from([None, "bot", "rev", "other"])
TTL = st.sampled_from([30, 60, 600])
SHORT = blocks.from_text("it does not work")


def _told(ideal: Callable[[Any], Any], answer: Any) -> tuple[Refused | None, Any]:
    try:
        return None, ideal(answer)
    except Refused as refused:
        return refused, None


class Side(RuleBasedStateMachine):
    """The two boards, their callers, and how one call is made on both."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="hermes-model-"))
        self.world = SqliteWorld(self.folder)
        self.world.set(reclaim_limit=LIMITS.lost_leases, review_round_limit=LIMITS.rounds)
        self.person = self.world.person
        self.model = Model(self.world.clock.now_ms() // 1000, LIMITS)
        self.claims: dict[str, list[Claim]] = {name: [] for name in ("ann", *SCRIPTS)}
        self.closed: dict[int, tuple[object, ...]] = {}
        self.changed = True
        self.sound = True

    def teardown(self) -> None:
        try:
            if self.sound:  # else the step that failed is what is to be seen
                self.everything_agrees()
                assert self.person.verify() == ()  # P81
        finally:
            self.world.close()
            shutil.rmtree(self.folder)

    # --- callers -------------------------------------------------------------------------------------------------
    def caller(self, name: str, card: str | None) -> tuple[Board, Seat, dict[str, int]]:
        """Return the caller's board, its seat in the model, and the run that its call names."""
        if name in ("worker", "late", "forger", "naming"):
            return self._by_claim(name, card)
        if name == "owner":
            run = self.model.cards[card].run if card else None
            return self.caller(self.model.runs[run].name if run else "ann", card)
        if name == "bridge":
            return self.world.script("other", role="bridge"), Seat("other", bridge=True), {}
        if name == "stranger":
            return self.world.script("bot"), Seat("bot"), {}
        held = self.claims[name]
        tickets = tuple(claim.run.id for claim in held)
        if name == "ann":
            return self.world.script("ann", *held, interactive=True), Seat("ann", terminal=True, tickets=tickets), {}
        return self.world.script(name, *held), Seat(name, tickets=tickets), {}

    def _by_claim(self, name: str, card: str | None) -> tuple[Board, Seat, dict[str, int]]:
        made = sorted((c for held in self.claims.values() for c in held), key=lambda c: c.run.id)
        mine = [claim for claim in made if claim.task.id == card] or made
        if not mine:
            return self.caller("stranger", card)
        claim = mine[0] if name == "late" else mine[-1]
        who = claim.run.profile or ""
        if name == "naming":
            tickets = (*(c.run.id for c in self.claims[who]),)
            seat = Seat(who, terminal=who == "ann", tickets=tickets, named=claim.run.id)
            board = self.world.script(who, *self.claims[who], interactive=who == "ann")
            return board, seat, {"run": claim.run.id}
        lock = "host:1:0" if name == "forger" else claim.run.claim_lock
        env = (claim.run.id, claim.task.id, name != "forger")
        return self.world.worker(claim, who, lock=lock), Seat(who, env=env), {}

    def both(self, real: Callable[[], Any], ideal: Callable[[Any], Any]) -> tuple[Any, Any]:
        """Call the kernel, then the model (which hears the answer for new ids); both accept, or both refuse alike."""
        self.changed, self.sound = True, False
        before = self.person.last_event_id()
        answer, code = None, None
        try:
            answer = real()
        except Refusal as refusal:
            code = refusal.code
        refused, told = _told(ideal, answer)
        if refused is not None:
            assert code in refused.codes, f"the kernel says {code or 'yes'}, the rules {sorted(refused.codes)}"
            if code != "claim_lost" and not isinstance(refused, Kept):
                assert self.person.last_event_id() == before, f"{code} left an event"
            self.sound = True
            return None, None
        assert code is None, f"the kernel says {code}, the rules yes"
        self.sound = True
        return answer, told

    # --- what must hold after each step ----------------------------------------------------------------------------
    @invariant()
    def everything_agrees(self) -> None:
        """Rows equal the model's; P2, P4 and P14 hold on their own."""
        if not self.changed:
            return
        self.changed = False
        page = self.person.list(Filter(archived=True, sort="seq", limit=100))
        rows = {listed.task.id: listed.task for listed in page.cards}
        assert list(rows) == list(self.model.cards)
        for card_id, row in rows.items():
            card = self.model.cards[card_id]
            told = (card.status, card.phase, card.run, card.assignee, card.reviewer, card.implementer, card.tenant)
            said = (row.status, row.phase, row.current_run_id, row.assignee, row.reviewer, row.implementer, row.tenant)
            assert said == told, f"{card_id}: kernel {said}, rules {told}"
            counters = (card.recurrences, card.last_kind, card.lost_leases, card.rounds, card.was_done)
            stored = (row.block_recurrences, row.last_block_kind, row.reclaim_streak, row.review_rounds)
            assert (*stored, row.archived_done) == counters, f"{card_id}: kernel {stored}, rules {counters}"
            if row.status == "scheduled":
                assert row.scheduled_at == card.at
            self.one_card(card_id, row.status, row.current_run_id)

    def one_card(self, card_id: str, status: str, current: int | None) -> None:
        shown = self.person.show(card_id, events=1)
        still = [run for run in shown.runs if run.outcome is None]
        assert [run.id for run in still] == ([current] if status == "running" else [])  # P2
        waits = [p.id for p in shown.parents if p.status != "done" and not p.archived_done]
        assert status not in ("ready", "running") or not waits or status == "running"
        assert status != "todo" or waits  # P4
        for run in shown.runs:
            facts = (run.outcome, run.ended_ms, run.claim_lock, run.claim_expires, run.end_verb, run.summary)
            if run.outcome is not None:
                assert self.closed.setdefault(run.id, facts) == facts  # P14
        for run in still:
            assert run.claim_expires == self.model.runs[run.id].until  # P13
        assert shown.comment_count == self.model.cards[card_id].comments
        reasons = self.person.why(card_id)[1].claimable
        assert (not reasons) == self.model.may_start(self.model.cards[card_id])  # P3b


class Boards(Side):
    """The verbs."""

    cards = Bundle("cards")

    @initialize(target=cards)
    def begin(self) -> Any:
        made = [self._create("ann", {}), self._create("ann", {})]
        return multiple(*made)

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
        end=st.sampled_from(["complete", "block", "block", "request_review", "request_changes", "lapse"]),
        kind=KINDS,
    )
    def shift(self, seat: str, card: str, end: str, kind: str | None) -> None:
        """A script claims the card and ends its run, which other rules do apart: so that histories go deeper."""
        if self.model.cards[card].status in ("blocked", "scheduled"):
            self.release(seat="ann", card=card, promote=False)
        self.claim(seat=seat, card=card, ttl=60)
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

    @rule(seconds=st.sampled_from([1, 31, 61, 601]))
    def time_passes(self, seconds: int) -> None:
        self.world.clock.advance(seconds)
        self.model.advance(seconds)
        self.changed = True

    @rule()
    def the_log_rebuilds_the_board(self) -> None:
        assert self.person.verify() == ()  # P81


TestBoards = Boards.TestCase
TestBoards.settings = settings(
    max_examples=int(os.environ.get("HERMES_TEST_EXAMPLES", "150")),
    stateful_step_count=int(os.environ.get("HERMES_TEST_STEPS", "50")),
    deadline=None,
    derandomize=False,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestBoards.pytestmark = [pytest.mark.timeout(1800)]  # a failure is made small before it is shown
