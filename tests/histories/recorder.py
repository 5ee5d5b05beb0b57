"""Records what each process asked of the board and what it heard: a line before each call and a line after.

Lines are JSON, appended by one `write` each to a file that all processes share (O_APPEND), so a process that is
killed leaves a call without an end, and at worst half a line of its own. Times are of the machine's monotonic
clock, the same for every process.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from typing import Any

from hermes_kanban.base.errors import Refusal


class Unheard(Exception):
    """The call's process was killed: what came of it is not known."""


class Recorder:
    """One process's pen.

    Args:
        path: the shared file.
        process: this process's label, used once only.
    """

    def __init__(self, path: str, process: str) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._process = process
        self._number = 0

    def call(self, verb: str, args: dict[str, Any], act: Callable[[], Any], told: Callable[[Any], Any]) -> Any:
        """Make one call between two lines; return the answer, or None when it was refused.

        Args:
            args: what was asked, as JSON.
            act: makes the call.
            told: reduces its answer to JSON.
        """
        self._number += 1
        self._line({"line": "call", "n": self._number, "verb": verb, "args": args})
        answer, heard = None, {}
        try:
            answer = act()
            heard = {"answer": told(answer)}
        except Unheard:
            return None
        except Refusal as refusal:
            heard = {"error": refusal.code, "text": refusal.message}
        except Exception as fault:  # whatever it is, the checker reports it
            heard = {"error": "fault", "text": f"{type(fault).__name__}: {fault}"}
        self._line({"line": "heard", "n": self._number, **heard})
        return answer

    def note(self, kind: str, **facts: Any) -> None:
        """Note something that was seen."""
        self._line({"line": kind, "facts": facts})

    def _line(self, facts: dict[str, Any]) -> None:
        stamped = {"process": self._process, "at": time.monotonic_ns(), **facts}
        # the first line break ends what a process that was killed in the midst of its line may have left
        os.write(self._descriptor, b"\n" + json.dumps(stamped).encode() + b"\n")
