"""What must be so after a scene's call, each a check of a board."""

from __future__ import annotations

from collections.abc import Callable

from hermes_kanban.kernel.query import Filter
from hermes_kanban.model import status as s
from tests.crashes.situations import BYTES, HANDOFF, Facts
from tests.world import World

Check = Callable[[World, Facts], None]


def is_(state: str, *kinds: str, of: str = "card") -> Check:
    """The card is in this state, and these are the newest of its log."""

    def done(world: World, facts: Facts) -> None:
        card = getattr(facts, of)
        assert world.status(card) == state
        assert world.kinds(card)[-len(kinds) :] == list(kinds) or not kinds

    return done


def both(*checks: Check) -> Check:
    def done(world: World, facts: Facts) -> None:
        for check in checks:
            check(world, facts)

    return done


def said(*kinds: str) -> Check:
    """The card's log ends so."""

    def done(world: World, facts: Facts) -> None:
        assert world.kinds(facts.card)[-len(kinds) :] == list(kinds)

    return done


def counted(kind: str, most: int = 1) -> Check:
    """The log of the card holds this kind, at least once, at most so often."""

    def done(world: World, facts: Facts) -> None:
        assert 1 <= world.kinds(facts.card).count(kind) <= most

    return done


def keyed(*keys: str) -> Check:
    """There is exactly one card of each key (P51)."""

    def done(world: World, _facts: Facts) -> None:
        found = [listed.task.idempotency_key for listed in world.person.list(Filter()).cards]
        assert sorted(key for key in found if key in keys) == sorted(keys)

    return done


def titled(title: str) -> Check:
    def done(world: World, _facts: Facts) -> None:
        assert title in [listed.task.title for listed in world.person.list(Filter()).cards]

    return done


def has_files(*names: str) -> Check:
    """The card has files of these names, with their bytes."""

    def done(world: World, facts: Facts) -> None:
        found = world.person.attachments(facts.card.id)
        assert {file.name for file in found} == set(names)
        for file in found:
            with open(file.path, "rb") as handle:
                assert handle.read() == BYTES

    return done


def family_went_on(world: World, facts: Facts) -> None:
    assert [world.status(card) for card in (facts.card, facts.free, facts.held)] == [s.DONE, s.READY, s.TODO]
    assert world.person.runs(facts.card.id)[-1].summary == HANDOFF.summary


def lease_was_renewed(world: World, facts: Facts) -> None:
    assert world.run(facts.claim).claim_expires >= world.clock.now_ms() // 1000 + 60


def was_deferred(world: World, facts: Facts) -> None:
    assert world.run(facts.claim).deferred


def has_lane(world: World, facts: Facts) -> None:
    assert (world.run(facts.claim).lane, world.run(facts.claim).log_path) == ("lane", "/log")


def run_ended(world: World, facts: Facts) -> None:
    assert world.run(facts.claim).process_state == s.ENDED


def claimed_by(name: str) -> Check:
    def done(world: World, facts: Facts) -> None:
        run = world.person.runs(facts.card.id)[-1]
        assert (run.open, run.profile) == (True, name)

    return done


def one_open_run(world: World, facts: Facts) -> None:  # P2
    found = world.person.runs(facts.card.id)
    assert [run.open for run in found].count(True) == (world.status(facts.card) == s.RUNNING)


RUNNING = both(is_(s.RUNNING), one_open_run)
