"""The place where a card is worked on: checked at create, computed for display, made at the claim (D20, P11).

Three kinds: `scratch` (a fresh folder of our own), `dir` (an existing folder, used as is) and `worktree` (a git
worktree on a branch). What is ours lies directly below the board's workspaces root, checked on resolved paths
(D21). Every refusal is a `WorkspaceFailed` that says what to do; a refused `prepare` leaves nothing behind.
"""

from __future__ import annotations

import os

from hermes_kanban.base import ids
from hermes_kanban.base.errors import WorkspaceFailed
from hermes_kanban.base.lazy import module
from hermes_kanban.model.status import DIR, SCRATCH, WORKSPACE_KINDS, WORKTREE
from hermes_kanban.workspace import directory, scratch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

LONGEST_TASK_ID = 64


class Workspaces:
    """The workspaces of one board.

    Args:
        root: the folder that holds what we make; made on demand.
        default_workdir: finds the repository of worktrees that name none ("": there is none); asked only for them.
    """

    def __init__(self, root: str, default_workdir: Callable[[], str] = str) -> None:
        self.root = os.path.abspath(root)
        self._default_workdir = default_workdir

    def check(self, kind: str, path: str | None, branch: str | None) -> None:
        """Refuse at create what could never be prepared (D20, C97).

        Raises:
            WorkspaceFailed: an unknown kind, a path where none belongs or that is not absolute, a worktree
                without a repository, a branch of a name that git does not take.
        """
        _check_kind(kind)
        if kind == SCRATCH and path is not None:
            raise WorkspaceFailed(
                "a scratch workspace takes no path: its folder is made under the board",
                hint=f"leave the path out, or use {DIR}:/absolute/path to work in a folder of your own",
                argument="workspace",
            )
        if kind != WORKTREE and branch is not None:
            raise WorkspaceFailed(
                f"a {kind} workspace has no branch",
                hint=f"leave --branch out, or use --workspace {WORKTREE}",
                argument="branch",
            )
        if kind == DIR:
            directory.normal(path or "")
        if kind == WORKTREE:
            _worktree().check(self._repository(path), branch)

    def path_for(self, task_id: str, kind: str, path: str | None, branch: str | None) -> str:  # noqa: ARG002
        """Return the absolute path where the card is worked on, without looking at the disk (D20).

        Raises:
            WorkspaceFailed: the kind, the task id or the path is none.
        """
        _check_kind(kind)
        if kind == DIR:
            return directory.normal(path or "")
        _check_task_id(task_id)
        return os.path.join(self.root, task_id)

    def prepare(self, task_id: str, kind: str, path: str | None, branch: str | None) -> str:
        """Make the place and return its absolute path; one that is there already is kept as it is (P11, D20).

        Raises:
            WorkspaceFailed: it cannot be made or used; nothing was changed.
        """
        target = self.path_for(task_id, kind, path, branch)
        if kind == DIR:
            directory.prepare(target)
            return target
        self._make_root()
        require_inside(self.root, target)
        if kind == SCRATCH:
            scratch.prepare(target, task_id)
        else:
            _worktree().prepare(self._repository(path), target, f"kanban/{task_id}" if branch is None else branch)
        return target

    def _repository(self, path: str | None) -> str:
        """Return the repository of a worktree: the card's, else the board's."""
        found = (self._default_workdir() or None) if path is None else path
        if found is not None:
            return directory.normal(found, kind=WORKTREE)
        raise WorkspaceFailed(
            "a worktree needs a git repository, and neither the card nor the board names one",
            hint=f"use {WORKTREE}:/path/to/repository, or set kanban.default_workdir for this board",
            argument="workspace",
        )

    def _make_root(self) -> None:
        try:
            make_private(self.root)
        except OSError as error:
            raise WorkspaceFailed(
                f"the workspaces root {self.root} cannot be made: {error.filename}: {error.strerror}",
                hint="make its parent folder writable for this user, or set HERMES_KANBAN_WORKSPACES_ROOT",
            ) from error


def is_inside(root: str, path: str) -> bool:
    """Whether a path lies below the root once every link of both is followed (D21)."""
    resolved = os.path.realpath(root)
    return os.path.realpath(path).startswith(resolved.rstrip(os.sep) + os.sep)


def require_inside(root: str, path: str) -> None:
    """Refuse a path that leads out of the root.

    Raises:
        WorkspaceFailed: it does, through a link (D21, C97).
    """
    if not is_inside(root, path):
        raise WorkspaceFailed(
            f"{path} leads out of the workspaces root {root}: something in its place is a link",
            hint="look at what the link points to and move it away; nothing was changed",
        )


def make_private(folder: str) -> None:
    """Make a folder and those above it that are missing, each 0700.

    Raises:
        OSError: one cannot be made, or something else is in its place.
    """
    if os.path.isdir(folder):
        return
    make_private(os.path.dirname(folder))
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        if not os.path.isdir(folder):  # else somebody made it in the same instant
            raise


def _check_kind(kind: str) -> None:
    if kind not in WORKSPACE_KINDS:
        raise WorkspaceFailed(
            f"no such kind of workspace: {ascii(kind)[:80]}",
            hint=f"use {SCRATCH}, {DIR}:/absolute/path, {WORKTREE} or {WORKTREE}:/path/to/repository",
            argument="workspace",
        )


def _check_task_id(task_id: str) -> None:
    """A task id becomes part of a path: nothing else may."""
    if not len(ids.TASK_PREFIX) < len(task_id) <= LONGEST_TASK_ID or not ids.looks_like_task(task_id):
        raise WorkspaceFailed(
            f"not a task id: {ascii(task_id)[:80]}",
            hint=f"a task id is {ids.TASK_PREFIX} and hex digits, as `create` and `list` print it",
            argument="task_id",
        )


def _worktree() -> Any:
    """Load the module that runs git only for cards that need it: a scratch claim stays light."""
    return module("hermes_kanban.workspace.worktree")
