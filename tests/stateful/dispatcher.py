"""The dispatcher's half of the histories: what it, its shims and those of a far host do, on kernel and model alike."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, precondition, rule

from hermes_kanban.kernel.supervise import Beat
from hermes_kanban.model.claim import Caps, Claim
from hermes_kanban.model.exits import ExitRecord
from tests.conformance.machines import Machine
from tests.stateful.side import SCRIPTS, Side
from tests.stateful.supervised import CLOSING_POLICIES, NAMES, WAYS, Way
from tests.world import PROCESS, WORKER

CARDS: Bundle[str] = Bundle("cards")
WHICH = st.sampled_from([0, 0, 0, 1, 2])  # which of the dispatcher's claims, from the newest
YES = st.booleans()
MOSTLY = st.sampled_from([True, True, True, False])


def record_of(claim: Claim, way: Way) -> ExitRecord | None:
    """Return what a shim leaves of such an end."""
    if way.means == "vanished":
        return None
    facts: dict[str, Any] = {"code": way.code, "signal": way.signal, "stop": way.stop, "tail": ("last words",)}
    facts |= {"retry_after": way.retry_after, "spawn_error": way.spawn_error}
    policy = way.means if way.means in CLOSING_POLICIES else "require_call"
    return ExitRecord(claim.run.id, claim.task.id, claim.fence.lock, policy=policy, **facts)


class Dispatcher(Side):
    """Claims, shims, ends, time."""

    def _host(self, claim: Claim) -> Any:
        return self.world.board(host=claim.run.host or "host")

    def _dispatch(self, card: str, name: str, far: bool) -> Claim | None:
        board = self.world.board(host="far" if far else "host")
        answer, told = self.both(
            lambda: board.claim_for_dispatch(card, ttl=60, lane="lane", name=name, caps=Caps()),
            lambda got: self.model.dispatch(card, name, 60, got[1].id if got else -1, far=far),
        )
        if answer is None:
            return None
        task, run = answer
        assert (run.role, run.profile, run.claim_expires) == (told.role, told.name, told.until)
        self.shims.append(Claim(task, run, run.workspace or ""))
        return self.shims[-1]

    @rule(card=CARDS, name=st.sampled_from(SCRIPTS), far=st.sampled_from([False, False, True]))
    def dispatch(self, card: str, name: str, far: bool) -> None:
        self._dispatch(card, name, far)

    @precondition(lambda self: self.shims)
    @rule(which=WHICH, right=MOSTLY, same=MOSTLY)
    def started(self, which: int, right: bool, same: bool) -> None:
        claim = self._shim(which)
        if same or self.model.runs[claim.run.id].known:  # the first shim of a run is always the same one here
            self._started(claim, right, same)

    def _shim(self, which: int) -> Claim:
        return self.shims[-1 - which % len(self.shims)]

    def _started(self, claim: Claim, right: bool = True, same: bool = True) -> None:
        lock = claim.fence.lock if right else "host:1:0"
        shim = PROCESS if same else PROCESS.evolve(shim=WORKER)
        self.both(
            lambda: self._host(claim).started(claim.run.id, lock, shim),
            lambda _: self.model.started(claim.run.id, right=right, same=same),
        )

    @precondition(lambda self: self.shims)
    @rule(which=WHICH, right=MOSTLY, active=YES)
    def beat(self, which: int, right: bool, active: bool) -> None:
        claim = self._shim(which)
        lock = claim.fence.lock if right else "host:1:0"
        answer, told = self.both(
            lambda: self._host(claim).renew(claim.run.id, lock, active=active),
            lambda _: self.model.renew(claim.run.id, right=right),
        )
        assert answer is None or answer == Beat(*told)

    @precondition(lambda self: self.shims)
    @rule(which=WHICH, what=st.sampled_from(["extend", "never_came_alive", "fell_silent"]))
    def look_after(self, which: int, what: str) -> None:
        run = self._shim(which).run.id
        board = self.world.board()
        answer, told = self.both(lambda: getattr(board, what)(run), lambda _: getattr(self.model, what)(run))
        assert answer == told

    @precondition(lambda self: self.shims)
    @rule(which=WHICH)
    def defer(self, which: int) -> None:
        run = self._shim(which).run.id
        board = self.world.board()
        answer, told = self.both(lambda: board.defer(run, "it survives SIGKILL"), lambda _: self.model.defer(run))
        assert answer == told

    @precondition(lambda self: self.shims)
    @rule(which=WHICH, way=st.sampled_from(WAYS))
    def settle(self, which: int, way: Way) -> None:
        self._settle(self._shim(which), way)

    def _settle(self, claim: Claim, way: Way) -> None:
        found = record_of(claim, way)
        answer, _ = self.both(
            lambda: self._host(claim).settle(claim.run.id, found),
            lambda _: self.model.settle(claim.run.id, way),
        )
        assert answer.status == self.model.cards[claim.task.id].status

    @rule(card=CARDS, name=st.sampled_from(SCRIPTS), ways=st.lists(st.sampled_from(WAYS), min_size=1, max_size=5))
    def workers(self, card: str, name: str, ways: list[Way]) -> None:
        """Worker after worker is started and ends, so that the breaker's counts are reached."""
        for way in ways:
            found = self.model.cards[card]
            who = "rev" if found.status == "review" else name
            claim = self._dispatch(card, who, far=False)
            if claim is None:
                return
            if way.spawn_error is None:
                self._started(claim)
            self._settle(claim, way)
            if found.cool_until > self.model.now:
                self._pass(found.cool_until - self.model.now)

    @rule()
    def probe(self) -> None:
        answer, told = self.both(self.world.board().probe, lambda _: self.model.probe())
        assert answer == told  # P27

    @rule()
    def plan(self) -> None:
        found = self.person.plan(Machine(*NAMES))
        assert [planned.card.id for planned in found.starts] == self.model.planned()  # P16, C136, C140

    @rule(seconds=st.sampled_from([1, 31, 61, 181, 601]))
    def time_passes(self, seconds: int) -> None:
        self._pass(seconds)

    def _pass(self, seconds: int) -> None:
        self.world.clock.advance(seconds)
        self.model.advance(seconds)
        self.changed = True
