"""The kernel and the model side by side: their callers, one call made on both, and what must hold after each step."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis.stateful import RuleBasedStateMachine, invariant

from hermes_kanban.base.errors import Refusal
from hermes_kanban.kernel.board import Board
from hermes_kanban.kernel.query import Filter
from hermes_kanban.kernel.verify import verify
from hermes_kanban.model.claim import Claim
from tests.stateful.rules import Kept, Limits, Refused, Seat
from tests.stateful.supervised import Supervised
from tests.world import SqliteWorld

LIMITS = Limits(recurrences=2, lost_leases=3, rounds=2)
SCRIPTS = ("bot", "other", "rev")  # non-interactive callers that keep the tickets of their claims
SETTINGS = {  # no pause between failures, no bound on a day's starts: the model does not know them
    "reclaim_limit": LIMITS.lost_leases,
    "review_round_limit": LIMITS.rounds,
    "rate_limit_cooldown_seconds": LIMITS.cool_down,
    "failure_retry_seconds": LIMITS.retry,
    "retry_backoff_seconds": 0,
    "starts_per_day": 100_000,
    "workspace_retry_seconds": LIMITS.ticket,
}


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
        self.world.set(**SETTINGS)
        self.person = self.world.person
        self.model = Supervised(self.world.clock.now_ms() // 1000, LIMITS)
        self.claims: dict[str, list[Claim]] = {name: [] for name in ("ann", *SCRIPTS)}
        self.shims: list[Claim] = []  # claims of dispatchers, and those that a bridge starts a worker for, oldest first
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
    def caller(self, name: str, card: str | None) -> tuple[Board, Seat, dict[str, Any]]:
        """Return the caller's board, its seat in the model, and the run that its call names."""
        if name in ("worker", "late", "forger", "naming", "chief", "child"):
            return self._by_claim(name, card)
        if name == "owner":
            run = self.model.cards[card].run if card else None
            if run and not self.model.runs[run].pull:  # of a bridge's run both its script and its worker may act
                return self.caller("inside", card)
            return self.caller(self.model.runs[run].name if run else "ann", card)
        if name in ("inside", "below"):
            return self._inside(card, child=name == "below")
        if name == "bridge":
            return self.world.script("other", role="bridge"), Seat("other", bridge=True), {}
        if name == "stranger":
            return self.world.script("bot"), Seat("bot"), {}
        held = self.claims[name]
        tickets = tuple(claim.run.id for claim in held)
        if name == "ann":
            return self.world.script("ann", *held, interactive=True), Seat("ann", terminal=True, tickets=tickets), {}
        return self.world.script(name, *held), Seat(name, tickets=tickets), {}

    def _inside(self, card: str | None, *, child: bool) -> tuple[Board, Seat, dict[str, Any]]:
        """A process below the newest shim of the card (or of any): its worker or a child of it (P70)."""
        known = [c for c in self.shims if self.model.runs[c.run.id].known]
        mine = [claim for claim in known if claim.task.id == card] or known
        if not mine:
            return self.caller("stranger", card)
        claim = mine[-1]
        kind = "child" if child else "orchestrator" if self.model.runs[claim.run.id].chief else "worker"
        seat = Seat(claim.run.profile or "", env=(claim.run.id, claim.task.id, True), inside=True, kind=kind)
        return self.world.inside(claim, delegated=child), seat, {}

    def _by_claim(self, name: str, card: str | None) -> tuple[Board, Seat, dict[str, Any]]:
        pulled = [claim for held in self.claims.values() for claim in held]
        known = {claim.run.id: claim for claim in (pulled if name == "naming" else pulled + self.shims)}
        made = [known[number] for number in sorted(known)]
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
        facts: dict[str, Any] = {"chief": {"role": "orchestrator"}, "child": {"delegated": True}}.get(name, {})
        kind = {"chief": "orchestrator"}.get(name, "child" if name == "child" else "worker")
        return self.world.worker(claim, who, lock=lock, **facts), Seat(who, env=env, kind=kind), {}

    # --- which card: most calls on a card drawn at random would only be refused --------------------------------------
    def startable(self, card: str) -> str:
        """Return this card, or another one that somebody may start if this may not be."""
        return self._instead(card, [one.id for one in self.model.cards.values() if self.model.may_start(one)])

    def at_work(self, seat: str, card: str) -> str:
        """Return this card, or one that has an owner if that is who calls, or who says so with a wrong lock."""
        running = [one.id for one in self.model.cards.values() if one.run is not None]
        return self._instead(card, running) if seat in ("owner", "forger") else card

    def _instead(self, card: str, fitting: list[str]) -> str:
        if card in fitting or not fitting:
            return card
        return fitting[self.model.cards[card].seq % len(fitting)]

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
            assert (row.priority, row.max_retries, row.guard) == (card.priority, card.retries, card.guard)
            counters = (card.recurrences, card.last_kind, card.lost_leases, card.rounds, card.was_done)
            stored = (row.block_recurrences, row.last_block_kind, row.reclaim_streak, row.review_rounds)
            assert (*stored, row.archived_done) == counters, f"{card_id}: kernel {stored}, rules {counters}"
            ledger = (card.failures, card.counted, card.violations, card.rate_limits, card.sticky, card.probe_at)
            booked = (row.consecutive_failures, row.counted_failures, row.violation_streak, row.rate_limit_streak)
            assert (*booked, row.sticky, row.probe_at) == ledger, f"{card_id}: kernel {booked}, rules {ledger}"
            if row.status == "scheduled":
                assert row.scheduled_at == card.at
            self.one_card(card_id, row.status, row.current_run_id)
        with self.world.store.read() as tx:
            assert verify(tx) == ()  # P81: the log alone tells the same

    def one_card(self, card_id: str, status: str, current: int | None) -> None:
        shown = self.person.show(card_id, events=1)
        still = [run for run in shown.runs if run.outcome is None]
        assert [run.id for run in still] == ([current] if status == "running" else [])  # P2
        assert {p.id for p in shown.parents} == set(self.model.cards[card_id].parents)
        waits = [p.id for p in shown.parents if p.status != "done" and not p.archived_done]
        assert status != ("todo" if not waits else "ready")  # P3, P4
        for run in shown.runs:
            facts = (run.outcome, run.ended_ms, run.claim_lock, run.claim_expires, run.end_verb, run.summary)
            if run.outcome is not None:
                assert self.closed.setdefault(run.id, facts) == facts  # P14
            if run.id in self.model.runs:  # all but what a person said by hand (P21)
                assert run.process_state == self.model.runs[run.id].process, f"run {run.id}"  # P14c
        for run in still:
            assert run.claim_expires == self.model.runs[run.id].until  # P13
        assert shown.comment_count == self.model.cards[card_id].comments
        assert [one.id for one in shown.attachments] == self.model.cards[card_id].files
        reasons = self.person.why(card_id)[1].claimable
        told = self.model.may_start(self.model.cards[card_id])
        assert (not reasons) == told, f"{card_id} {status}: kernel {reasons}, rules {told}"  # P3b
