"""How the processes of a race get at the board: as every command does, by the environment, with any proof at hand."""

from __future__ import annotations

import signal
import time
from types import SimpleNamespace
from typing import Any

from hermes_kanban import boards, compose
from hermes_kanban.base import clock
from hermes_kanban.kernel.board import Board
from hermes_kanban.model.claim import Claim

OWNER, WORKER, CHILD = "owner", "worker", "child"  # as whom a claim is used: its script, a worker, a worker's child


class Stop:
    """Set by SIGTERM; looked at between calls."""

    def __init__(self) -> None:
        self.asked = False
        signal.signal(signal.SIGTERM, self._ask)

    def _ask(self, *_: object) -> None:
        self.asked = True


def skew(seconds: float) -> None:
    """Let this process's clock be wrong by so much: `base/clock` is the product's one door to time."""
    nanoseconds = round(seconds * 1e9)
    wrong = SimpleNamespace(time_ns=lambda: time.time_ns() + nanoseconds, monotonic=time.monotonic)
    clock.time = wrong  # type: ignore[assignment]


class Door:
    """Opens the board of this process's environment, once per claim or once per call.

    Args:
        keep: connections are kept.
    """

    def __init__(self, *, keep: bool) -> None:
        self.env = compose.environment()
        self.place = boards.choose(self.env.home, None, self.env.variables).place
        self._keep = keep
        self._kept: dict[tuple[int, str], Board] = {}

    def board(self, claim: Claim | None = None, lock: str | None = None, *, seat: str = OWNER) -> Board:
        """Return the board as a free caller, or with the proof of a claim (whose lock may be given wrongly)."""
        key = (0 if claim is None else claim.run.id, seat)
        if key in self._kept and lock is None:
            return self._kept[key]
        env = self.env.evolve(variables={**self.env.variables, **self._proof(claim, lock, seat)})
        made = compose.open_board(env, self.place, write=True)
        if self._keep and lock is None:
            self._kept[key] = made
        return made

    @staticmethod
    def _proof(claim: Claim | None, lock: str | None, seat: str) -> dict[str, Any]:
        if claim is None:
            return {}
        given = {"HERMES_KANBAN_RUN_ID": str(claim.run.id), "HERMES_KANBAN_CLAIM_LOCK": lock or claim.run.claim_lock}
        if seat != OWNER:
            given["HERMES_KANBAN_TASK"] = claim.task.id
        if seat == CHILD:
            given["HERMES_DELEGATED_CHILD_CONTEXT"] = "1"
        return given

    def forget(self, claim: Claim) -> None:
        """Let go of the connections of a claim."""
        for key in [key for key in self._kept if key[0] == claim.run.id]:
            del self._kept[key]
