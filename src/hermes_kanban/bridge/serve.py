"""Runs a bridge in a thread of its own: a signal is heard whatever its loop waits for (git, a lock, an alert)."""

from __future__ import annotations

import os
import select
import signal
import threading

from hermes_kanban.bridge.say import say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hermes_kanban.base.clock import Clock
    from hermes_kanban.bridge.loop import Bridge

STOP_SECONDS = 4.6  # after which the process leaves, whatever its loop does


def serve(bridge: Bridge, clock: Clock) -> tuple[int, bool]:
    """Run the bridge until it is over; SIGTERM and SIGINT stop it.

    Returns:
        The exit code, and whether its loop hangs: then the process must leave without waiting for it.
    """
    news, tell = os.pipe()
    os.set_blocking(tell, False)
    over = False

    def work() -> None:
        nonlocal over
        try:
            bridge.run()
        finally:
            over = True
            os.write(tell, b"!")

    signal.set_wakeup_fd(tell)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: bridge.stop())
    threading.Thread(target=work, name="bridge", daemon=True).start()
    deadline: float | None = None
    while not over:
        if bridge.stopping and deadline is None:
            deadline = clock.monotonic() + STOP_SECONDS
        left = None if deadline is None else deadline - clock.monotonic()
        if left is not None and left <= 0:
            bridge.say_who_runs_on()
            say("bridge_stopped", pid=os.getpid(), code=0)
            return 0, True
        if select.select((news,), (), (), left)[0]:
            os.read(news, 512)
    return bridge.code, False
