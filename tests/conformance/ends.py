"""How runs under a shim end in these tests: the record that a shim leaves, booked as the dispatcher does."""

from __future__ import annotations

from typing import Any

from hermes_kanban.model import status as s
from hermes_kanban.model.claim import Claim
from hermes_kanban.model.exits import ExitRecord
from hermes_kanban.model.task import Task
from tests.world import World

TAIL = ("reading the card", "unknown skill: sew")
LONG = 2 * 3600  # longer than every pause
DAY = 86_400


def now(world: World) -> int:
    return world.clock.now_ms() // 1000


def left(claim: Claim, **facts: Any) -> ExitRecord:
    """Return what the shim of this run left."""
    return ExitRecord(claim.run.id, claim.task.id, claim.fence.lock, **({"tail": TAIL} | facts))


def ended(world: World, claim: Claim, **facts: Any) -> Task:
    """Book the end of a run, and check that the answer is the card as it is stored."""
    card = world.board().settle(claim.run.id, left(claim, **facts))
    assert card == world.task(card)
    return card


def attempt(world: World, card: Task, **facts: Any) -> Task:
    """Wait until the card may start, start it as the dispatcher does, and let it end."""
    world.clock.advance(LONG)
    known = world.task(card)
    return ended(world, world.alive(known, "rev" if known.phase == s.REVIEWING else "bot"), **facts)


def attempts(world: World, card: Task, ways: list[dict[str, Any]]) -> list[str]:
    """Let attempts end one after the other; return the card's state after each."""
    return [attempt(world, card, **way).status for way in ways]


def counters(card: Task) -> tuple[int, int, int, int]:
    """Return failures, violations, lost leases and rate limits in a row."""
    return card.consecutive_failures, card.violation_streak, card.reclaim_streak, card.rate_limit_streak
