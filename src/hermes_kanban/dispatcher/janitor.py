"""Clears away what settled runs leave in a board's `runs` folder: lock files and exit records that nobody needs.

The board has all facts of a settled run; the files stay for a day, for whoever wants to look.
"""

from __future__ import annotations

import os
from contextlib import suppress

KEEP_SECONDS = 86_400
EVERY_SECONDS = 3600.0
_KINDS = (".lock", ".exit", ".exit.part")


def sweep(folder: str, needed: frozenset[int], now: float) -> int:
    """Remove the files of runs that are not needed and have not been touched for a day.

    Args:
        folder: the board's run files; nothing else in it is ours to remove (D21).
        needed: runs that are not proven ended.
        now: epoch seconds.

    Returns:
        How many files were removed.
    """
    removed = 0
    with suppress(OSError):
        for name in os.listdir(folder):
            number, dot, kind = name.partition(".")
            path = os.path.join(folder, name)
            if not number.isdigit() or f"{dot}{kind}" not in _KINDS or int(number) in needed:
                continue
            with suppress(OSError):
                if now - os.lstat(path).st_mtime > KEEP_SECONDS:
                    os.unlink(path)
                    removed += 1
    return removed
