"""Histories in which a dispatcher and its workers are most of the traffic: the same callers, verbs and checks (T2).

`HERMES_TEST_EXAMPLES` and `HERMES_TEST_STEPS` as in `test_stateful`; here are half as many histories.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, multiple, precondition, rule

from tests.stateful.dispatcher import CARDS, WHICH
from tests.stateful.supervised import WAYS, Way
from tests.stateful.test_stateful import PATIENCE, Boards

VERBS = ("complete", "request_review", "block", "request_changes", "heartbeat")
AFTER = st.sampled_from([None, None, "reclaim", "complete", "archive", "release", "silence"])


class Workers(Boards):
    """What people do to the graph and to the calendar is left out, so that more happens under shims."""

    create = apply = link = unlink = shifts = two_hands = parent_opens_again = None  # no rules here
    ring = link_to_who_runs = blocks_again = rounds = None
    claim_next = cannot_be_told = schedule = release_due = reopen = None

    @initialize(target=CARDS)
    def begin(self) -> Any:
        """Cards that have a lane, one behind another."""
        first = self._create("ann", {"assignee": "bot", "reviewer": "rev"})
        second = self._create("ann", {"assignee": "other", "parents": (first,), "priority": 1})
        return multiple(first, second, self._create("ann", {"assignee": "bot", "reviewer": "other"}))

    @precondition(lambda self: self.shims)
    @rule(which=WHICH, verb=st.sampled_from(VERBS))
    def act_inside(self, which: int, verb: str) -> None:
        """A worker uses a verb of its run, in time or too late."""
        self._act("inside", self._shim(which).task.id, verb)

    def _act(self, seat: str, card: str, verb: str) -> None:
        calls: dict[str, Any] = {
            "complete": lambda: self.complete(seat=seat, card=card, summary=True, override=seat == "ann"),
            "request_review": lambda: self.request_review(seat=seat, card=card, reviewer="rev", override=False),
            "block": lambda: self.block(seat=seat, card=card, kind="needs_input", full=True, override=False),
            "request_changes": lambda: self.request_changes(seat=seat, card=card, override=False),
            "heartbeat": lambda: self.heartbeat(seat=seat, card=card, note=None),
            "reclaim": lambda: self.reclaim(seat="ann", card=card),
            "archive": lambda: self.archive(seat="ann", card=card, children="release", override=True),
            "release": lambda: self.release(seat="ann", card=card, promote=False, answer=False),
        }
        calls[verb]()

    @rule(
        card=CARDS, name=st.sampled_from(["bot", "other"]), far=st.booleans(), verb=st.sampled_from(VERBS), after=AFTER
    )
    def a_run(self, card: str, name: str, far: bool, verb: str, after: str | None) -> None:
        """A run comes alive, its worker does something, and then somebody else does before its end is known."""
        card = self.startable(card)
        if self.model.cards[card].status in ("blocked", "scheduled"):
            self.release(seat="ann", card=card, promote=False, answer=False)
        claim = self._dispatch(card, "rev" if self.model.cards[card].status == "review" else name, far)
        if claim is None:
            return
        self._started(claim)
        self._act("inside", card, verb)
        if after == "silence":
            self._pass(60 + self.model.limits.quarantine)
            self.look_after(which=0, what="fell_silent")
        elif after:
            self._act("ann", card, after)

    @rule(card=CARDS, name=st.sampled_from(["bot", "other"]), way=st.sampled_from(WAYS))
    def an_end_comes_late(self, card: str, name: str, way: Way) -> None:
        """The end of a run is known only when the next one has been taken from its worker too (P14c)."""
        card, claims = self.startable(card), []
        for wait in (60 + self.model.limits.quarantine, 0):
            claim = self._dispatch(card, "rev" if self.model.cards[card].status == "review" else name, far=False)
            if claim is None:
                return
            self._started(claim)
            self._act("ann", card, "reclaim")
            self._pass(wait)
            claims.append(claim)
        self._settle(claims[0], way)

    @rule(card=CARDS, ways=st.lists(st.sampled_from(WAYS), min_size=1, max_size=3))
    def trip_and_try_again(self, card: str, ways: list[Way]) -> None:
        """Fail until the breaker trips, wait, and get the one fresh attempt (P27)."""
        self.workers(card=card, name="bot", ways=[*ways, Way("crashed", signal=11), Way("failed", code=1)])
        self._pass(self.model.limits.retry)
        self.probe()


TestWorkers = Workers.TestCase
_HALF = max(Boards.TestCase.settings.max_examples // 2, 1)
TestWorkers.settings = settings(Boards.TestCase.settings, max_examples=_HALF)
TestWorkers.pytestmark = [PATIENCE]  # type: ignore[attr-defined]
