"""An existing folder as a workspace: used as it is, never made, never removed (D20, D21)."""

from __future__ import annotations

import os
import stat

from hermes_kanban.base.errors import WorkspaceFailed
from hermes_kanban.model.status import DIR

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


WIDE_BLANKS = "\u00a0\u3000"  # printable for people; Python counts them as separators


def normal(path: str, *, kind: str = DIR) -> str:
    """Return an absolute path in its plain form: no doubled or trailing slashes, no `.` (D20).

    `..` is refused, not resolved: behind a link it leads elsewhere than it looks. A path is one line of text,
    because a claim prints it as one (P11).

    Args:
        path: as the card or the settings give it.
        kind: the kind of workspace, for the remedy.

    Raises:
        WorkspaceFailed: it is no such path.
    """
    remedy = f"use {kind}:/absolute/path"
    if not path.startswith("/"):
        _refuse(f"not an absolute path: {ascii(path)[:200]}", f"{remedy} (a leading ~ is not expanded here)")
    if not all(c.isprintable() or c in WIDE_BLANKS for c in path):  # control characters, bytes that are not text
        _refuse(f"a path with unprintable characters: {ascii(path)[:200]}", f"{remedy} in printable characters")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        _refuse(f"a path with `..`: {path[:200]}", f"{remedy} without `..`")
    return "/" + "/".join(parts)


def prepare(path: str) -> None:
    """Refuse a path that is not an existing folder which we may enter (P11).

    Raises:
        WorkspaceFailed: it is missing, no folder, or closed to us.
    """
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        _refuse(f"{path} does not exist", "make the folder on the machine that runs the work, or edit the card")
    except OSError as error:
        _refuse(f"{path} cannot be looked at: {error.strerror or error}", "let this user enter the folder")
    if not stat.S_ISDIR(mode):
        _refuse(f"{path} is not a folder", "name the folder that the work is to happen in")
    if not os.access(path, os.X_OK):
        _refuse(f"{path} cannot be entered: permission denied", "let this user enter the folder")


def _refuse(message: str, hint: str) -> NoReturn:
    raise WorkspaceFailed(message, hint=hint, argument="workspace")
