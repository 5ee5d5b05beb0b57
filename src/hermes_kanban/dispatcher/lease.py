"""One dispatcher per board and host: a lock file that the system frees when its holder dies (D3, C115, C118).

What the holder writes into it is for readers: who it is, since when, and how its last pass went (D9).
"""

from __future__ import annotations

import fcntl
import json
import os

from hermes_kanban.base import strictjson
from hermes_kanban.workspace.base import make_private

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_NAME = "dispatcher.lock"
_MOST = 65_536
# What a holder may say of itself, and lists of what: what is of another kind was not written by one of ours.
_KINDS = {
    **{"pid": int, "host": str, "last_pass_ms": int, "full": str},
    **dict.fromkeys(("waiting", "skipped_nonspawnable", "stranded_in_ready", "errors"), list),
}
_LISTS = {"waiting": dict, "skipped_nonspawnable": dict, "stranded_in_ready": str, "errors": str}


class Lease:
    """The right to dispatch a board on this host.

    Args:
        folder: the board's.
    """

    def __init__(self, folder: str) -> None:
        self._path = os.path.join(folder, _NAME)
        self._descriptor = -1

    @property
    def held(self) -> bool:
        """Whether we hold it."""
        return self._descriptor >= 0

    def take(self) -> bool:
        """Take it if nobody has it.

        Raises:
            OSError: the file cannot be made: then nobody dispatches (it fails closed).
        """
        if self.held:
            return True
        make_private(os.path.dirname(self._path))
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if isinstance(error, BlockingIOError):
                return False
            raise
        self._descriptor = descriptor
        return True

    def write(self, facts: dict[str, Any]) -> None:
        """Let readers know how it stands; a full disk does not matter."""
        data = json.dumps(facts, separators=(",", ":")).encode() + b"\n"
        try:
            os.pwrite(self._descriptor, data, 0)
            os.ftruncate(self._descriptor, len(data))
        except OSError:
            return

    def drop(self) -> None:
        """Give it up."""
        if self.held:
            os.close(self._descriptor)
            self._descriptor = -1


def holder(folder: str) -> dict[str, Any] | None:
    """Return what the present dispatcher of a board wrote, {} if it wrote nothing yet, None if there is none."""
    try:
        descriptor = os.open(os.path.join(folder, _NAME), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _facts(os.pread(descriptor, _MOST, 0))
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return None


def _facts(data: bytes) -> dict[str, Any]:
    try:
        found = strictjson.fitting(strictjson.parse(data.partition(b"\n")[0]), _KINDS)
    except ValueError:
        return {}
    return found | {n: [one for one in found[n] if type(one) is kind] for n, kind in _LISTS.items() if n in found}
