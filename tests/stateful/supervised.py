"""The model's other half: runs that a dispatcher starts under a shim, and what the breaker does (P27, P40 to P45)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.stateful.model import Model
from tests.stateful.rules import Card, Run, Seat, refuse

CLOSING_POLICIES = ("complete", "request_review", "block_for_review")
COUNTED = ("failed", "crashed", "timed_out", "spawn_failed", "refused")  # refused: by the provider, exit 78
LATER = ("rate_limited", "reclaimed", "decided")  # ends that give a bridge's card back
NAMES = ("bot", "rev", "other")  # for whom there is a lane


@dataclass(frozen=True)
class Way:
    """How a worker ended, in the words of the rules.

    `means`: the outcome, `violation`, `refused`, `decided` (somebody ended it), `vanished` (no record), or a policy.
    """

    means: str
    code: int | None = None
    signal: int | None = None
    stop: str = ""
    retry_after: int | None = None
    spawn_error: str | None = None


WAYS = (
    Way("violation", code=0),
    Way("failed", code=1),
    Way("failed", signal=9, stop="memory"),
    Way("crashed", signal=11),
    Way("vanished"),
    Way("timed_out", signal=15, stop="timed_out"),
    Way("spawn_failed", spawn_error="no such program"),
    Way("reclaimed", signal=15, stop="stale"),
    Way("decided", signal=15, stop="gateway_stop"),
    Way("rate_limited", code=75),
    Way("rate_limited", code=75, retry_after=45),
    Way("refused", code=78),
    *(Way(policy, code=0) for policy in CLOSING_POLICIES),
)


class Supervised(Model):
    """The board with its dispatchers: one on this host, one far away."""

    def dispatch(
        self, card_id: str, name: str, ttl: int, run_id: int, *, far: bool, chief: bool = False, cap: int | None = None
    ) -> Run:  # P11, P15
        with self.whole():
            run = self.claim(Seat(name), card_id, ttl, run_id, far=far)
            others = [r for r in self.runs.values() if r.open and not r.pull and r is not run]
            refuse(at_capacity=cap is not None and len(others) >= cap)
        run.pull, run.shim, run.far, run.chief, run.process = False, True, far, chief, "starting"
        return run

    def started(self, run_id: int, *, right: bool, same: bool = True) -> None:  # D11
        run = self.runs[run_id]
        if right and same and run.open and run.known:
            return  # the same shim asks again
        refuse(claim_lost=not right or not run.open or run.process not in ("starting", "unknown"))
        run.process, run.known, run.shim, run.until = "alive", True, True, self.now + run.ttl

    def renew(self, run_id: int, *, right: bool) -> tuple[str, bool]:  # P13
        run = self.runs[run_id]
        refuse(claim_lost=not right)
        if not run.open:
            if run.rests and self._stays_until(run) <= self.now + run.ttl:
                self._keep_off(run)
            return "closed", run.by not in ("lease", "override", "end")
        run.until = max(run.until, self.now + run.ttl)
        return "open", False

    def _keep_off(self, run: Run) -> None:  # P14c, D14: something of a closed run was seen alive
        pause = self.limits.quarantine + 2 * max(run.ttl, self.limits.interval)
        if self.newest(run) and run.process != "ended" and self._stays_until(run) <= self.now + pause // 2:
            run.rests, run.kept = True, self.now + pause

    def defer(self, run_id: int) -> bool:  # D14
        run = self.runs[run_id]
        if run.process == "ended":
            return False
        if run.open:
            run.until = self.now + run.ttl
        else:
            self._keep_off(run)
        before, run.deferred = run.deferred, True
        return not before

    def extend(self, run_id: int) -> bool:  # D15
        run = self.runs[run_id]
        if not run.open or run.until > self.now:
            return False
        run.until = self.now + run.ttl
        return True

    def never_came_alive(self, run_id: int) -> bool:  # D11
        run = self.runs[run_id]
        if not run.open or run.process != "starting" or self.now - run.began < self.limits.grace:
            return False
        self._end(run, "spawn_failed", None)
        return True

    def fell_silent(self, run_id: int) -> bool:  # P14c, D3
        run = self.runs[run_id]
        if run.process == "ended" or not self.silent(run, False):
            return False
        if run.open:
            self._end(run, "reclaimed", None)
        run.process = "ended"
        return True

    def settle(self, run_id: int, way: Way) -> None:  # P45, P14b
        run = self.runs[run_id]
        if run.process == "ended":
            return
        if not run.open:
            run.process = "ended"
        elif way.means in CLOSING_POLICIES:
            run.process = "ended"
            self._by_policy(run, way.means)
        else:
            self._conclude(run, "crashed" if way.means == "vanished" else way.means, way.retry_after)

    def spawn_failed(self, run_id: int) -> None:  # D11
        self._give_up(run_id, "spawn_failed")

    def hand_back(self, run_id: int) -> None:
        self._give_up(run_id, "decided")

    def _give_up(self, run_id: int, means: str) -> None:
        if self.runs[run_id].open:
            self._conclude(self.runs[run_id], means)
        else:
            self.prove_ended(run_id)

    def prove_ended(self, run_id: int) -> None:  # P14c
        if not self.runs[run_id].open:
            self.runs[run_id].process = "ended"

    def guard(self, card_id: str, reason: str) -> bool:  # D7
        before, self.cards[card_id].guard = self.cards[card_id].guard, reason
        return before != reason

    def _conclude(self, run: Run, means: str, retry_after: int | None = None) -> None:
        """A dispatcher's run goes onto the ledger; a bridge's blocks its card for a person."""
        if run.pull and means not in LATER:
            run.process = "ended"
            self.block(Seat(run.name, env=(run.id, run.card, True)), run.card, None, full=True, override=False)
        else:
            self._end(run, means, retry_after)

    def _by_policy(self, run: Run, policy: str) -> None:
        seat = Seat(run.name, env=(run.id, run.card, True))
        if policy == "complete" or (policy == "request_review" and run.role == "reviewer"):
            self.complete(seat, run.card, summary=True, override=False)
        elif policy == "request_review":
            self.request_review(seat, run.card, None, override=False)
        else:
            self.block(seat, run.card, "needs_input", full=True, override=False)

    def _end(self, run: Run, means: str, retry_after: int | None) -> None:
        card = self.cards[run.card]
        run.by, run.process, card.run = "end", "ended" if run.shim or run.until <= self.now else "closing", None
        book: dict[str, Callable[[], None]] = {
            "violation": lambda: self._violated(card),
            "rate_limited": lambda: self._limited(card, retry_after),
            "reclaimed": lambda: self._lost(card, run),
            "decided": lambda: self._back(card),
        }
        book.get(means, lambda: self._failed(card, means))()

    def _back(self, card: Card) -> None:
        card.status = self.gate(card)  # P32: a review's card is one still

    def _violated(self, card: Card) -> None:  # P41
        card.failures += 1
        card.violations += 1
        card.rate_limits = 0
        enough = card.violations >= self.limits.violations
        self._judged(card, enough if card.retries is None else card.failures >= card.retries, sticky=True)

    def _failed(self, card: Card, means: str) -> None:  # P40, P43
        assert means in COUNTED
        card.failures += 1
        card.counted += 1
        card.violations = card.rate_limits = 0
        enough = card.counted >= self.limits.failures if card.retries is None else card.failures >= card.retries
        self._judged(card, means == "refused" or enough, sticky=means == "refused")

    def _judged(self, card: Card, enough: bool, *, sticky: bool) -> None:
        if enough:
            self._trip(card, sticky=sticky)
        else:
            self._back(card)

    def _limited(self, card: Card, retry_after: int | None) -> None:  # P42
        card.rate_limits += 1
        growing = min(3600, self.limits.cool_down * 2 ** (card.rate_limits - 1))
        card.cool_until = self.now + (growing if retry_after is None else retry_after)
        self._back(card)

    def probe(self) -> tuple[str, ...]:  # P27
        due = [c for c in self.cards.values() if c.status == "blocked" and (c.probe_at or self.now + 1) <= self.now]
        for card in due:
            card.probe_at, card.status = None, self.gate(card)
        return tuple(card.id for card in sorted(due, key=lambda c: c.seq))

    def planned(self) -> list[str]:
        """What the dispatcher would start with all the room there is (P16, P30b, C136)."""

        def whose(card: Card) -> str | None:
            return card.reviewer if card.phase == "review" else card.assignee

        found = [
            card
            for card in self.cards.values()
            if card.status in ("ready", "review")
            and self.may_start(card)
            and whose(card) in NAMES
            and not self._own_work(whose(card) or "", False, card)
        ]
        return [card.id for card in sorted(found, key=lambda c: (-c.priority, c.seq))]
