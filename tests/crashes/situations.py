"""The boards of the scenes: each function brings a fresh board into a state, and says what is there."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from hermes_kanban.kernel.finish import Handoff
from hermes_kanban.model import status as s
from tests.conformance.ends import DAY, attempts
from tests.conformance.machines import Machine
from tests.world import FULL_REASON, PROCESS, World

Facts = SimpleNamespace
SOON = 3600
HANDOFF = Handoff("first line\nand the rest", {"files": ["a"]}, "the result")
BYTES = b"some bytes " * 900  # more than one page, less than one piece


def plain(**fields: Any) -> Callable[[World], Facts]:
    """A card."""
    return lambda world: Facts(card=world.card(**fields))


def empty(_world: World) -> Facts:
    return Facts()


def pair(*, linked: bool) -> Callable[[World], Facts]:
    """Two cards, of which the second may wait for the first."""

    def prepare(world: World) -> Facts:
        first = world.card("first")
        return Facts(card=first, child=world.card("second", parents=(first.id,) if linked else ()))

    return prepare


def family(world: World) -> Facts:
    """A claimed parent of two that wait for it, one of which waits for another too, and a file to hand over."""
    _, claim = world.claimed(world.card("parent"))
    other = world.card("other parent")
    children = (
        world.card("free", parents=(claim.task.id,)),
        world.card("held", parents=(claim.task.id, other.id)),
    )
    with open(os.path.join(claim.workspace, "report.txt"), "wb") as handle:
        handle.write(BYTES)
    return Facts(card=claim.task, claim=claim, free=children[0], held=children[1])


def parent_of_open(world: World) -> Facts:
    """A card that two others wait for, one below the other."""
    card = world.card("parent")
    child = world.card("child", parents=(card.id,))
    return Facts(card=card, child=child, grandchild=world.card("grandchild", parents=(child.id,)))


def claimed(world: World) -> Facts:
    _, claim = world.claimed()
    return Facts(card=claim.task, claim=claim)


def lapsed(world: World) -> Facts:
    """A card whose pull lease is over."""
    facts = claimed(world)
    world.clock.advance(SOON)
    return facts


def lost(world: World) -> Facts:
    """A claim that was taken from its owner, who does not know."""
    facts = claimed(world)
    world.person.reclaim(facts.card.id)
    return facts


def closed(world: World) -> Facts:
    """A done card with a child that is ready."""
    card = world.card("parent")
    child = world.card("child", parents=(card.id,))
    world.person.complete(card.id, HANDOFF)
    return Facts(card=card, child=child)


def blocked(world: World) -> Facts:
    card = world.card()
    world.person.block(card.id, FULL_REASON, s.NEEDS_INPUT)
    return Facts(card=card)


def blocked_before(world: World) -> Facts:
    """A claimed card that was blocked for the same kind as often as it may (P24)."""
    card = world.card()
    for _ in range(world.settings.number("block_recurrence_limit")):
        board, claim = world.claimed(card)
        board.block(card.id, FULL_REASON, s.NEEDS_INPUT)
        world.person.unblock(card.id)
    _, claim = world.claimed(card)
    return Facts(card=card, claim=claim)


def archived(world: World) -> Facts:
    facts = plain()(world)
    world.person.archive(facts.card.id)
    return facts


def taken_place(world: World) -> Facts:
    """A card in whose workspace's place is a file."""
    card = world.card()
    place = world.folder / "workspaces"
    place.mkdir(exist_ok=True)
    (place / card.id).write_text("in the way")
    return Facts(card=card)


def under_review(world: World) -> Facts:
    """A card that its reviewer has claimed."""
    card = world.in_review()
    return Facts(card=card, claim=world.script("rev").claim(card.id))


def with_file(world: World) -> Facts:
    card = world.card()
    made = world.person.attach(card.id, ((BYTES,),), name="notes.txt")
    return Facts(card=card, attachment=made.attachments[0])


def file_beside(world: World) -> Facts:
    facts = claimed(world)
    facts.path, facts.other = (str(world.folder / name) for name in ("source.txt", "file"))
    for path in (facts.path, facts.other):
        with open(path, "wb") as handle:
            handle.write(BYTES)
    return facts


def dispatched(world: World) -> Facts:
    claim = world.dispatched()
    return Facts(card=claim.task, claim=claim)


def alive(world: World) -> Facts:
    claim = world.alive()
    return Facts(card=claim.task, claim=claim)


def never_alive(world: World) -> Facts:
    facts = dispatched(world)
    world.clock.advance(world.settings.number("spawn_grace_seconds"))
    return facts


def idle_claim(world: World) -> Facts:
    """A pull claim half of whose time is over."""
    facts = claimed(world)
    world.clock.advance(30)
    return facts


def idle(world: World) -> Facts:
    """A run under a shim that said nothing for a while, and whose time ran out."""
    facts = alive(world)
    world.clock.advance(SOON)
    return facts


def failed_once(world: World) -> Facts:
    card = world.card()
    attempts(world, card, [{"code": 1}])
    world.clock.advance(SOON)
    claim = world.alive(world.task(card))
    return Facts(card=card, claim=claim)


def tripped(world: World) -> Facts:
    card = world.card()
    attempts(world, card, [{"code": 1}, {"code": 1}])
    world.clock.advance(2 * DAY)
    return Facts(card=card)


def ended_by_owner(world: World) -> Facts:
    """A card that its worker closed, whose processes are not proven gone yet (P14c)."""
    facts = alive(world)
    world.inside(facts.claim).complete(facts.card.id, HANDOFF)
    return facts


def silent(world: World) -> Facts:
    """A run of another host, of which nothing was heard since its lease and the quarantine."""
    claim = world.dispatched(host="elsewhere")
    world.board(host="elsewhere").started(claim.run.id, claim.fence.lock, PROCESS)
    world.clock.advance(DAY)
    return Facts(card=claim.task, claim=claim)


def due(world: World) -> Facts:
    now = world.clock.now_ms() // 1000
    card = world.card(scheduled_at=now + SOON)
    later = world.card(scheduled_at=now + SOON)
    world.clock.advance(2 * SOON)
    return Facts(card=card, later=later)


def guarded(world: World) -> Facts:
    """A review that only its own implementer could do."""
    card = world.in_review("bot", None)
    world.person.edit(card.id, {"reviewer": "bot"})
    return Facts(card=card, left=world.person.plan(Machine("bot", "rev")).left)
