"""Slots: how many workers may run on this host, over all of its boards (P15, D8).

A slot is a file with a lock on it. Its lock is taken before the claim and handed on to the shim, which keeps it until
its processes are gone; whoever dies gives it back, since the system frees the lock (C23).
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress

from hermes_kanban.workspace.base import make_private

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

HOST = "host"
_SUFFIX = ".slot"


class Slots:
    """The slots of one home.

    Args:
        folder: where they are; made on demand.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def free(self, key: str, most: int) -> int:
        """Return how many slots are left; those beyond a lowered bound count as taken as long as they are held."""
        return max(0, most - sum(1 for path in self._files(key) if _held(path)))

    def take(self, wanted: tuple[tuple[str, int], ...]) -> list[int] | str:
        """Take one slot of each kind, or none at all.

        Args:
            wanted: kinds with their bounds.

        Returns:
            The locked descriptors, or the kind that has no slot left.
        """
        taken: list[int] = []
        for key, most in wanted:
            found = self._take(key, most)
            if found is None:
                Held(taken).close()
                return key
            taken.append(found)
        return taken

    def _take(self, key: str, most: int) -> int | None:
        if not self.free(key, most):
            return None
        folder = os.path.join(self._folder, key)
        make_private(folder)
        for number in range(most):
            path = os.path.join(folder, f"{number}{_SUFFIX}")
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            if _locked(descriptor, fcntl.LOCK_EX):
                return descriptor
            os.close(descriptor)
        return None

    def _files(self, key: str) -> Iterator[str]:
        folder = os.path.join(self._folder, key)
        with suppress(OSError):
            yield from (os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(_SUFFIX))


class Held:
    """Locked descriptors on their way to a shim: owned here until they are handed over, and closed only once.

    Args:
        descriptors: the slots; the run's lock comes first when it is there.
    """

    def __init__(self, descriptors: list[int]) -> None:
        self._descriptors = descriptors

    def put_first(self, descriptor: int) -> None:
        """Own the run's lock too."""
        self._descriptors.insert(0, descriptor)

    def hand_over(self) -> list[int]:
        """Return all of them; they are the caller's from now on."""
        given, self._descriptors = self._descriptors, []
        return given

    def close(self) -> None:
        """Give back what was not handed over."""
        for descriptor in self.hand_over():
            os.close(descriptor)


def _held(path: str) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        return not _locked(descriptor, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)


def _locked(descriptor: int, how: int) -> bool:
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
