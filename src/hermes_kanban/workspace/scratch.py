"""A scratch workspace: a folder of our own for one card, with a marker by which gc knows it as ours (D20).

Earlier work of the same card stays: a retry goes on in the same folder. The marker is written only into a folder
that we made (or that is still empty); gc removes nothing that does not carry it (D21).
"""

from __future__ import annotations

import os
import stat

from hermes_kanban.base.errors import WorkspaceFailed

MARKER = ".hermes-workspace"


def prepare(path: str, task_id: str) -> None:
    """Make the folder, 0700, with its marker; keep one that is there (P11).

    Args:
        path: the folder; its parent exists.
        task_id: what the marker holds.

    Raises:
        WorkspaceFailed: something else is in its place, or it cannot be made or used; nothing was changed.
    """
    try:
        made = _make(path)
    except OSError as error:
        raise _failed(path, error) from error
    try:
        if made or set(os.listdir(path)) <= {MARKER}:  # only a marker: a crash may have left half of one
            _mark(path, task_id)
    except OSError as error:
        if made:
            _take_back(path)
        raise _failed(path, error) from error
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        raise WorkspaceFailed(
            f"the workspace {path} cannot be used: permission denied",
            hint="let this user read, write and enter the folder",
        )


def _make(path: str) -> bool:
    """Make the folder; return whether it is new."""
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        if stat.S_ISDIR(os.lstat(path).st_mode):
            return False
        raise WorkspaceFailed(
            f"something that is not a folder is in the workspace's place: {path}",
            hint="look at it and move it away; nothing was changed",
        ) from None
    return True


def _mark(path: str, task_id: str) -> None:
    """Write the marker anew, never through a link that somebody put in its place."""
    marker = os.path.join(path, MARKER)
    if os.path.lexists(marker):
        os.unlink(marker)
    descriptor = os.open(marker, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, f"{task_id}\n".encode())
    finally:
        os.close(descriptor)


def _take_back(path: str) -> None:
    """Remove the folder that we just made, as long as nobody has put anything into it."""
    for remove, what in ((os.unlink, os.path.join(path, MARKER)), (os.rmdir, path)):
        try:
            remove(what)
        except OSError:
            continue  # the refusal that follows names the first fault


def _failed(path: str, error: OSError) -> WorkspaceFailed:
    return WorkspaceFailed(
        f"the workspace {path} cannot be made: {error.strerror or error}",
        hint="see that its disk has room and its folder is writable for this user; then claim again",
    )
