"""The dispatcher's half of the histories: what it, its shims and those of a far host do, on kernel and model alike."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, precondition, rule

from hermes_kanban.kernel.planning import Left
from hermes_kanban.kernel.supervise import Beat
from hermes_kanban.kernel.supervision import Facts
from hermes_kanban.model.claim import Caps, Claim
from hermes_kanban.model.exits import ExitRecord
from hermes_kanban.model.reasons import Reason
from tests.stateful.side import SCRIPTS, Side
from tests.stateful.supervised import CLOSING_POLICIES, WAYS, Way
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

    claim: Any  # a rule of `Boards`

    def _host(self, claim: Claim) -> Any:
        return self.world.board(host=claim.run.host or "host")

    def _dispatch(self, card: str, name: str, far: bool, chief: bool = False, cap: int | None = None) -> Claim | None:
        board = self.world.board(host="far" if far else "host")
        caps, facts = Caps(board=cap), Facts(orchestrates=chief)
        answer, told = self.both(
            lambda: board.claim_for_dispatch(card, ttl=60, lane="lane", name=name, caps=caps, facts=facts),
            lambda got: self.model.dispatch(card, name, 60, got[1].id if got else -1, far=far, chief=chief, cap=cap),
        )
        if answer is None:
            return None
        task, run = answer
        assert (run.role, run.profile, run.claim_expires) == (told.role, told.name, told.until)
        self.shims.append(Claim(task, run, run.workspace or ""))
        return self.shims[-1]

    @rule(
        card=CARDS,
        name=st.sampled_from(SCRIPTS),
        far=st.sampled_from([False, False, True]),
        chief=YES,
        cap=st.sampled_from([None, None, 1, 2]),
    )
    def dispatch(self, card: str, name: str, far: bool, chief: bool, cap: int | None) -> None:
        self._dispatch(self.startable(card) if cap else card, name, far, chief, cap)

    @rule(seat=st.sampled_from(SCRIPTS), card=CARDS, comes_alive=MOSTLY)
    def bridge_works(self, seat: str, card: str, comes_alive: bool) -> None:
        """A bridge starts a worker under a shim for a claim of its own, perhaps too late."""
        held = [claim for claim in self.claims[seat] if claim.task.id == card]
        if not held:
            self.claim(seat=seat, card=self.startable(card), ttl=60)
            held = self.claims[seat]
        if not held:
            return
        claim = held[-1]
        board = self.world.board()
        self.both(lambda: board.keep(claim.run.id, "lane", "output"), lambda _: None)
        if all(claim.run.id != known.run.id for known in self.shims):
            self.shims = sorted([*self.shims, claim], key=lambda one: one.run.id)
        if comes_alive:
            self._started(claim)

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
        run, board = self._shim(which).run.id, self.world.board()
        ways = {"extend": board.extend, "never_came_alive": board.never_came_alive, "fell_silent": board.fell_silent}
        answer, told = self.both(lambda: ways[what](run), lambda _: getattr(self.model, what)(run))
        assert answer == told

    @precondition(lambda self: self.shims)
    @rule(which=WHICH, what=st.sampled_from(["spawn_failed", "hand_back", "prove_ended"]))
    def give_up(self, which: int, what: str) -> None:
        """The dispatcher cannot start the worker, or stops before it does, or finds that nothing is left of it."""
        claim, board = self._shim(which), self.world.board()
        ways: dict[str, Any] = {
            "spawn_failed": lambda: board.spawn_failed(claim.run, "no such program", "install it"),
            "hand_back": lambda: board.hand_back(claim.run),
            "prove_ended": lambda: board.prove_ended(claim.run.id),
        }
        answer, _ = self.both(ways[what], lambda _: getattr(self.model, what)(claim.run.id))
        assert answer.status == self.model.cards[claim.task.id].status

    @rule(card=CARDS, code=st.sampled_from(["self_review", "lane_cool_down"]))
    def guard(self, card: str, code: str) -> None:
        """The dispatcher says why it leaves a card alone, once for each reason; a start forgets it."""
        board, left = self.world.board(), (Left(self.person.show(card).task, Reason(code, "it is left alone")),)
        answer, told = self.both(lambda: board.guard(left), lambda _: self.model.guard(card, code))
        assert answer == ((card,) if told else ())

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
        card = self.startable(card)
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
                assert self.world.task(card).eligible_at == found.cool_until  # P42, P44
                self._pass(found.cool_until - self.model.now)

    @rule()
    def probe(self) -> None:
        answer, told = self.both(self.world.board().probe, lambda _: self.model.probe())
        assert answer == told  # P27

    @rule(seconds=st.sampled_from([1, 31, 61, 181, 601]))
    def time_passes(self, seconds: int) -> None:
        self._pass(seconds)

    def _pass(self, seconds: int) -> None:
        self.world.clock.advance(seconds)
        self.model.advance(seconds)
        self.changed = True
