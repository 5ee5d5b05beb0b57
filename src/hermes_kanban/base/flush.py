"""Makes sure of names: a file that was flushed is lost all the same when the folder forgets it (T3)."""

from __future__ import annotations

import os


def flush_names(folder: str) -> None:
    """Make sure of what was made, renamed or removed in a folder: a flushed file without its name is lost too.

    Raises:
        OSError: the disk failed.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
