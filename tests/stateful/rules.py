"""What the model of the board knows: cards, runs, callers, and the questions that several rules ask of them."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

LOST = ("lease", "override", "end")  # how a run ends that its owner did not close
MAY = {  # P70: who may use a verb on any card; the verbs of a run are checked by its fence, all others are a person's
    "create": ("human", "bridge", "orchestrator"),
    "apply": ("human", "orchestrator"),
    "claim": ("human", "bridge"),
    "link": ("human", "orchestrator"),
    "unblock": ("human", "orchestrator"),
    "comment": ("human", "bridge", "worker", "orchestrator"),
}


class Refused(Exception):
    """The rules turn the call down; `codes` are the names that the answer may bear."""

    def __init__(self, *codes: str) -> None:
        super().__init__(", ".join(sorted(codes)))
        self.codes = frozenset(codes)


class Kept(Refused):
    """A refusal that leaves changes: a lease that was over ended, or what was due was released on the way."""


def refuse(**when: object) -> None:
    """Turn the call down for each reason that holds; the rules do not say which of several is named first."""
    if found := [code for code, holds in when.items() if holds]:
        raise Refused(*found)


@dataclass
class Card:
    """One card, with the columns that rules decide by."""

    id: str
    seq: int
    status: str
    parents: list[str] = field(default_factory=list)
    priority: int = 0
    tenant: str | None = None
    key: str | None = None
    assignee: str | None = None
    reviewer: str | None = None
    implementer: str | None = None
    retries: int | None = None
    hands: set[str] = field(default_factory=set)  # who did work of this round
    phase: str = "work"
    at: int | None = None
    was_done: bool = False
    recurrences: int = 0
    last_kind: str | None = None
    lost_leases: int = 0
    failures: int = 0  # of any kind in a row
    counted: int = 0  # those that were no violations
    violations: int = 0
    rate_limits: int = 0
    sticky: bool = False
    probe_at: int | None = None
    cool_until: int = 0
    rounds: int = 0
    run: int | None = None
    comments: int = 0
    files: list[int] = field(default_factory=list)
    guard: str | None = None  # why the dispatcher leaves it alone, as it was last recorded

    def forgive(self) -> None:
        """A success, a hand-over or a person's unblock begins the count anew (P40)."""
        self.failures = self.counted = self.violations = self.rate_limits = self.lost_leases = 0
        self.sticky = False


@dataclass
class Run:
    """One claim: who works, until when, and how it ended (`by`: the verb of its owner, `lease`, `override` or `end`).

    A dispatcher's run is no pull claim and has a shim; a pull claim gets one when a bridge starts its worker. `far` is
    a run of another host.
    """

    id: int
    card: str
    name: str
    role: str
    ttl: int
    until: int
    began: int = 0
    pull: bool = True
    shim: bool = False
    far: bool = False
    chief: bool = False  # an orchestrator's
    process: str = "unknown"
    known: bool = False  # its shim came alive once
    rests: bool = False  # the card was kept from others when it was closed
    kept: int = 0  # until when, since it was seen alive after that
    deferred: bool = False
    progressed: bool = False
    by: str | None = None
    left: str | None = None  # the state in which its closing verb left the card

    @property
    def open(self) -> bool:
        return self.by is None


@dataclass(frozen=True)
class Seat:
    """Who calls.

    `terminal`: a person's; `tickets`: runs claimed from here, oldest first; `env`: (run, card, whether the lock is
    right) from a worker's environment, or of the shim above (`inside`); `kind`: what such a worker is; `named`: the run
    that the call names.
    """

    name: str
    terminal: bool = False
    bridge: bool = False
    tickets: tuple[int, ...] = ()
    env: tuple[int, str, bool] | None = None
    kind: str = "worker"  # or orchestrator, or child
    inside: bool = False
    named: int | None = None


@dataclass(frozen=True)
class Who:
    """A seat as the rules see it on one card (P70): its kind, the run that it shows, whether the run was guessed."""

    kind: str
    name: str
    terminal: bool
    shown: int | None = None
    right: bool = True
    guessed: bool = False
    unclear: bool = False


@dataclass
class Limits:
    """The bounds that the settings give."""

    recurrences: int = 2
    lost_leases: int = 5
    rounds: int = 5
    failures: int = 2
    violations: int = 3
    quarantine: int = 120
    cool_down: int = 20
    retry: int = 300
    grace: int = 60
    interval: int = 60  # of the dispatcher's passes
    ticket: int = 30  # pause after a claim that could not be given to its claimer


class Questions:
    """The board as the rules want it."""

    def __init__(self, now: int, limits: Limits) -> None:
        self.now = now
        self.limits = limits
        self.cards: dict[str, Card] = {}
        self.runs: dict[int, Run] = {}

    @contextmanager
    def whole(self) -> Iterator[None]:
        """A verb happens wholly or not at all (P1)."""
        kept = copy.deepcopy((self.cards, self.runs))
        try:
            yield
        except Kept:
            raise
        except Refused:
            self.cards, self.runs = kept
            raise

    def advance(self, seconds: int) -> None:
        self.now += seconds

    # --- questions -------------------------------------------------------------------------------------------
    def counts_as_done(self, card_id: str) -> bool:  # P4
        card = self.cards[card_id]
        return card.status == "done" or (card.status == "archived" and card.was_done)

    def dead(self, card_id: str) -> bool:  # P6
        return self.cards[card_id].status == "archived" and not self.cards[card_id].was_done

    def waits_for(self, card: Card) -> list[str]:
        return [p for p in card.parents if not self.counts_as_done(p)]

    def children(self, card_id: str) -> list[Card]:
        return [c for c in self.cards.values() if card_id in c.parents]

    def gate(self, card: Card) -> str:  # P3
        if card.at is not None and card.at > self.now:
            return "scheduled"
        if self.waits_for(card):
            return "todo"
        return "review" if card.phase == "review" else "ready"

    def rests_until(self, card: Card) -> int:  # P14c, P42
        return max([card.cool_until, *(self._stays_until(r) for r in self.runs.values() if r.card == card.id)])

    def resting(self, card: Card) -> bool:
        return self.rests_until(card) > self.now

    def _stays_until(self, run: Run) -> int:
        """Until when the card of a closed run is nobody's."""
        if run.open or run.process == "ended":
            return 0
        if run.by == "lease" or not run.shim:
            return max(run.until if run.by == "override" else 0, run.kept)
        return max(run.until + self.limits.quarantine, run.kept)

    def lapsed(self, card: Card) -> bool:  # P10
        return card.run is not None and self.runs[card.run].pull and self.runs[card.run].until <= self.now

    def silent(self, run: Run, far: bool) -> bool:  # P14c, D3
        """Whether the run's host is another than the asker's and renews nothing any more."""
        return run.shim and run.far != far and run.until + self.limits.quarantine <= self.now

    def may_take(self, card: Card, far: bool) -> bool:
        """Whether a claimer gets it, on this host or on the far one: also what another host left (P14c)."""
        return self.may_start(card) or (card.run is not None and self.silent(self.runs[card.run], far))

    def may_start(self, card: Card) -> bool:  # P3b
        if card.status == "running":
            return self.lapsed(card)
        due = card.status == "scheduled" and card.at is not None and card.at <= self.now
        return (due or card.status in ("ready", "review")) and not self.waits_for(card) and not self.resting(card)

    def newest(self, run: Run) -> bool:
        return run.id == max(r.id for r in self.runs.values() if r.card == run.card)

    # --- who calls -------------------------------------------------------------------------------------------
    def who(self, seat: Seat, card_id: str | None) -> Who:  # P70, P12b
        if seat.env is not None:
            run, home, right = seat.env
            if seat.inside and home != card_id and not self.runs[run].open:
                raise Refused("claim_lost")  # P14b: nothing follows the end of a run
            return Who(seat.kind, seat.name, False, run, right)
        kind = "bridge" if seat.bridge else "human"
        if seat.named is not None:
            return Who("human" if seat.terminal else "bridge", seat.name, seat.terminal, seat.named)
        mine = [n for n in seat.tickets if card_id is not None and self.runs[n].card == card_id]
        if not mine:
            return Who(kind, seat.name, seat.terminal)
        newest = self.runs[mine[-1]]
        lost = any(self.runs[n].by in LOST for n in mine[:-1])
        if newest.open and not seat.terminal:
            kind = "bridge"  # only while that run is open
        return Who(kind, seat.name, seat.terminal, newest.id, guessed=True, unclear=lost and newest.open)

    def may(self, seat: Seat, card_id: str | None, verb: str) -> Who:
        """Return who calls a verb that is no run's, if they may."""
        who = self.who(seat, card_id)
        refuse(forbidden=who.kind not in MAY.get(verb, ("human",)))
        own = card_id is not None and seat.env is not None and seat.env[1] == card_id
        refuse(claim_lost=own and not self.holds(who, self.cards[card_id or ""]))  # P14b
        return who

    def holds(self, who: Who, card: Card) -> bool:  # P12
        return who.shown is not None and who.shown == card.run and who.right

    def _acting(
        self, seat: Seat, card: Card, *, override: bool = False, persons: bool = False
    ) -> tuple[Who, Run | None, bool]:
        """Who acts, on which run of its own, and whether that is denied (P12, P12c); `persons`: a person's verb."""
        who = self.who(seat, card.id)
        refuse(forbidden=who.kind == "child" or (seat.env is not None and seat.env[1] != card.id))
        refuse(claim_lost=who.unclear and not persons)
        if self.holds(who, card):
            assert card.run is not None
            return who, self.runs[card.run], False
        free = who.kind == "human" and (who.shown is None or (who.guessed and (who.terminal or persons)))
        return who, None, not (free and (card.run is None or override))

    def _repeats(self, who: Who, card: Card, verb: str) -> bool:  # P12
        run = self.runs.get(who.shown) if who.shown is not None else None
        if run is None or run.card != card.id or run.by != verb or not who.right:
            return False
        return not who.guessed or (card.status == run.left and self.newest(run))
