"""One process's only connection to a board, the callers that use it, and how long each of them waits for its turn."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hermes_kanban.kernel.caller import Caller, Ticket
from hermes_kanban.kernel.supervision import Supervision
from hermes_kanban.model.claim import Claim
from tests.store import homes


class Hand:
    """A process at work on a board.

    Args:
        home: where the board is.
        name: by which the process claims.
    """

    def __init__(self, home: str, name: str) -> None:
        self._opened = homes.opened(home)
        self.name = name
        self.store = homes.store_of(self._opened)
        self.waits: list[float] = []  # of each transaction that wrote: from the call until the board is its own
        self._write = self.store.write
        self.store.write = self._timed  # type: ignore[method-assign]

    @contextmanager
    def _timed(self, *, durable: bool = True) -> Iterator[Any]:
        began = time.perf_counter()
        with self._write(durable=durable) as tx:
            waited = time.perf_counter() - began
            yield tx
        self.waits.append(waited)

    def board(self, *held: Claim, **facts: Any) -> Supervision:
        """Return the board as a script sees it that holds tickets of these claims."""
        tickets = tuple(Ticket(claim.task.id, claim.run.id, claim.run.claim_lock or "") for claim in held)
        caller = Caller(self.name, **({"declared": True, "tickets": tickets} | facts))
        return Supervision(self.store, self._opened._settings, caller, self._opened._ports)
