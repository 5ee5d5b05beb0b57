"""Several scripts in threads, each with a connection of its own, which act at one signal."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from hermes_kanban.base.errors import Refusal
from hermes_kanban.kernel.board import Board
from tests.world import World

RACERS = 6


def race(world: World, act: Callable[[Board, str], Any]) -> list[Any]:
    """Let six scripts, each with a connection of its own, act at once; return answers and refusals."""
    line = threading.Barrier(RACERS)

    def run(number: int) -> Any:
        own = world.beside()
        name = f"racer{number}"
        try:
            line.wait()
            return act(own.script(name), name)
        except Refusal as refusal:
            return refusal
        finally:
            own.close()

    with ThreadPoolExecutor(RACERS) as pool:
        return list(pool.map(run, range(RACERS)))
