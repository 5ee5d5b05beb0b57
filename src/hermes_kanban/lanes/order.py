"""The order: what a starter tells a shim about its run, once, on the first line of the channel (D10, D13).

The shim reads nothing else: no setting, no environment, no board.
"""

from __future__ import annotations

import math

from hermes_kanban.base.errors import InvalidValue
from hermes_kanban.base.record import Record, record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

LEADER, ALL = "leader", "all"
POLICIES = ("require_call", "complete", "request_review", "block_for_review")


@record
class Order(Record):
    """What to run, where, how long, and how it ends.

    Args:
        run, task, lock: whose run it is; `lock` is also the mark in the environment of everything below.
        argv: the worker's command line.
        workspace, log, folder, socket: absolute paths: where it works, what is printed goes to, the board's `runs`
            folder, where a new gateway may connect.
        log_bytes: the log is put aside when it grows over this.
        ttl, beat, max_runtime, kill_grace, closing_grace: seconds.
        patience: seconds to wait for an answer that matters: to the start, and (5 at most) to the end.
        memory_limit: bytes of all processes together, 0 for none.
        wait_for: `leader`, or `all` where the program that is started is a launcher that ends before its work does.
        policy: who closes the card; only passed on.
        report: the beginning of the command line that is asked when nobody is connected.
    """

    run: int
    task: str
    lock: str
    argv: tuple[str, ...]
    workspace: str
    log: str
    folder: str
    socket: str
    log_bytes: int = 10_485_760
    ttl: float = 900
    beat: float = 30
    max_runtime: float | None = None
    kill_grace: float = 5
    closing_grace: float = 60
    patience: float = 15
    memory_limit: int = 0
    wait_for: str = LEADER
    policy: str = POLICIES[0]
    report: tuple[str, ...] = ()


def parse(message: Mapping[str, Any]) -> Order:
    """Return the order in a message; what it does not know is passed over.

    Raises:
        InvalidValue: a part is missing or not of its kind.
    """
    values = {name: _checked(name, message[name]) for name in Order.FIELDS if name in message}
    missing = [name for name in CHECKS if name in REQUIRED and name not in values]
    if missing:
        raise InvalidValue(f"the order lacks {', '.join(missing)}", hint="give every part of an order")
    return Order(**values)


def _checked(name: str, value: Any) -> Any:
    """Return a part in the order's own form."""
    if name in ("argv", "report") and isinstance(value, list):
        value = tuple(value)
    if not CHECKS[name](value):
        raise InvalidValue(f"the order's {name} cannot be {str(value)[:80]!r}", hint=f"give {name} its kind of value")
    return value


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value) and "\0" not in value


def _is_path(value: Any) -> bool:
    return _is_text(value) and value.startswith("/")


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_time(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and value >= 0


def _is_length(value: Any) -> bool:
    return _is_time(value) and value > 0


def _is_list(value: Any) -> bool:
    return isinstance(value, tuple) and all(isinstance(item, str) for item in value)


def _is_command(value: Any) -> bool:
    return _is_list(value) and bool(value) and bool(value[0])


CHECKS: dict[str, Callable[[Any], bool]] = {
    "run": _is_count,
    **dict.fromkeys(("task", "lock"), _is_text),
    **dict.fromkeys(("workspace", "log", "folder", "socket"), _is_path),
    "argv": _is_command,
    "report": _is_list,
    **dict.fromkeys(("log_bytes", "memory_limit"), _is_count),
    **dict.fromkeys(("ttl", "beat", "patience"), _is_length),
    **dict.fromkeys(("kill_grace", "closing_grace"), _is_time),
    "max_runtime": lambda value: value is None or _is_length(value),
    "wait_for": lambda value: value in (LEADER, ALL),
    "policy": lambda value: value in POLICIES,
}
REQUIRED = ("run", "task", "lock", "argv", "workspace", "log", "folder", "socket")
