"""The table of processes where there is no /proc (macOS): from psutil, loaded with this module and never before.

Start tokens have the form that `base.process` gives them there (seconds since the epoch), so that both mean the same.
"""

from __future__ import annotations

import os

import psutil

from hermes_kanban.base.clock import SystemClock
from hermes_kanban.lanes.proctable import Entry

STATES = {psutil.STATUS_ZOMBIE: "Z", psutil.STATUS_DEAD: "Z", psutil.STATUS_STOPPED: "T"}  # as Linux calls them


def table() -> dict[int, Entry]:
    """Return all processes that can be seen, the newest first."""
    found = map(entry_of, sorted(psutil.pids(), reverse=True))
    return {entry.pid: entry for entry in found if entry is not None}


def entry_of(pid: int) -> Entry | None:
    """Return the process with this pid, None if there is none; what it used is 0 where it may not be asked."""
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            state = STATES.get(process.status(), "R")
            started, parent = f"{process.create_time():.6f}", process.ppid()
            memory, cpu = _used(process)
        return Entry(pid, parent, os.getpgid(pid), os.getsid(pid), started, state, memory, cpu)
    except (psutil.Error, OSError, ValueError, OverflowError):
        return None


def environment(pid: int) -> bytes:
    """Return a process's environment as the system keeps it: items that end with a NUL; none if it may not be read."""
    try:
        found = psutil.Process(pid).environ()
    except (psutil.Error, OSError, ValueError, OverflowError):
        return b""
    return b"\0".join(os.fsencode(f"{name}={value}") for name, value in found.items())


def start_token_now() -> float:
    """Return the start token that a process started now would have."""
    return SystemClock().now_ms() / 1000


def _used(process: psutil.Process) -> tuple[int, float]:
    try:
        times = process.cpu_times()
        return process.memory_info().rss, times.user + times.system
    except psutil.Error:
        return 0, 0.0
