"""Ids and tokens. Randomness comes from the operating system, in one place."""

from __future__ import annotations

import os

TASK_PREFIX = "t_"
SHORTEST_ID = 8


def task_id(length: int = SHORTEST_ID) -> str:
    """Return `t_` and so many lowercase hex digits (longer on a collision)."""
    return TASK_PREFIX + os.urandom((length + 1) // 2).hex()[:length]


def token() -> str:
    """Return 32 lowercase hex digits that nobody can guess."""
    return os.urandom(16).hex()


def looks_like_task(text: str) -> bool:
    """Whether the text has the form of a task id or of a prefix of one."""
    return text.startswith(TASK_PREFIX) and all(c in "0123456789abcdef" for c in text[len(TASK_PREFIX) :])
