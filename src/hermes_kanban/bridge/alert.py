"""The alert channel: the one way to tell somebody when the board itself cannot be told.

The command is a list of words that no shell reads; it gets one JSON object on standard input. What it prints is not
shown: it may hold its own secrets.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SECONDS = 30.0


def send(argv: tuple[str, ...], facts: dict[str, Any], seconds: float = SECONDS) -> str:
    """Run the alert command; return what went wrong, "" when it ended well (or there is none).

    Args:
        facts: board, task, run, outcome, error, record.
        seconds: how long it may take; then it is killed with all that it started in its session.
    """
    if not argv:
        return ""
    try:
        started = subprocess.Popen(  # noqa: S603 - a list of arguments, no shell
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        return f"the alert command cannot be run: {error.strerror}"
    try:
        started.communicate(json.dumps(facts).encode() + b"\n", timeout=seconds)
    except subprocess.TimeoutExpired:
        with suppress(OSError):
            os.killpg(started.pid, signal.SIGKILL)
        started.wait()
        return f"the alert command took longer than {seconds:.0f} s"
    return f"the alert command ended with {started.returncode}" if started.returncode else ""
