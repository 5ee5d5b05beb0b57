"""A git worktree as a workspace: a branch of an existing repository, checked out below our root (D20).

The only module here that starts a program; it is loaded for worktrees alone. Git gets argument lists, never a
shell, a small environment of our own making (no inherited GIT_DIR, no secrets), no terminal to ask on, no hooks
of the repository (a card that names a repository must not thereby run its programs), and a time limit.
"""

from __future__ import annotations

import os
import signal
import subprocess

from hermes_kanban.base.errors import WorkspaceFailed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

ASK_SECONDS = 20.0
ADD_SECONDS = 120.0
STOP_SECONDS = 5.0  # from SIGTERM, on which git removes what it has half made, to SIGKILL
LONGEST_WORDS = 300
SAFE = ("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false")
COMMON = ("rev-parse", "--path-format=absolute", "--git-common-dir")
UNFINISHED = "initializing"  # the lock that git puts on a worktree until it is complete


def check(repository: str, branch: str | None) -> None:
    """Refuse a path that is no git repository and a branch name that git does not take (D20).

    Raises:
        WorkspaceFailed: with git's own words and the remedy.
    """
    _common_folder(repository)
    if branch is not None:
        _check_branch(branch)


def prepare(repository: str, target: str, branch: str) -> None:
    """Make the worktree at `target` on the branch, which is created when missing; keep one that is there (P11).

    Args:
        repository: any folder of the repository, absolute.
        target: where the worktree goes; its parent exists and is ours.
        branch: a branch's short name.

    Raises:
        WorkspaceFailed: with git's last words; no folder is left. A branch that git had created by then stays, and
            the next attempt takes it.
    """
    _check_branch(branch)
    common = _common_folder(repository)
    if _is_worktree_of(common, target):
        if not _is_unfinished(target):
            return
        _forget(repository, target, "--force", "--force")  # once more: it is locked by the git that was killed
    elif _is_registered(repository, target):
        _forget(repository, target, "--force")  # its folder is gone, and git would not make it while it remembers it
    _claim_place(target)
    try:
        _git(_adding(repository, target, branch), "the worktree cannot be made", seconds=ADD_SECONDS)
    except WorkspaceFailed:
        _give_back(target)
        raise


# --- questions ------------------------------------------------------------------------------------------------
def _common_folder(repository: str) -> str:
    """Return the folder that all worktrees of the repository share, which is what makes it that repository."""
    if not os.path.isdir(repository):
        raise WorkspaceFailed(
            f"no git repository: {repository} is not a folder here",
            hint="name an existing repository: worktree:/path/to/repository",
            argument="workspace",
        )
    said = _git(("-C", repository, *COMMON), f"no git repository: {repository}")
    return os.path.realpath(said.rstrip("\n"))


def _check_branch(branch: str) -> None:
    """Let git judge the name. What it takes for another one (`@{-1}`, `@`) is refused: a name must mean itself."""
    wrong = f"git takes no branch of the name {ascii(branch)[:120]}"
    if branch.startswith("-") or branch == "@" or not branch.isprintable():
        raise _no_branch(wrong)
    if _run(("check-ref-format", "--branch", branch), wrong)[:2] != (0, f"{branch}\n"):
        raise _no_branch(wrong)


def _is_worktree_of(common: str, target: str) -> bool:
    """Whether the target is the top of a worktree that belongs to this repository."""
    if os.path.islink(target) or not os.path.exists(os.path.join(target, ".git")):
        return False
    code, said, _ = _run(("-C", target, *COMMON, "--show-toplevel"), "the worktree cannot be read")
    return code == 0 and [os.path.realpath(line) for line in said.splitlines()] == [common, os.path.realpath(target)]


def _is_unfinished(target: str) -> bool:
    """Whether git was killed while it made this worktree: nobody can have worked in it."""
    folder = _git(("-C", target, "rev-parse", "--absolute-git-dir"), "the worktree cannot be read").rstrip("\n")
    try:
        with open(os.path.join(folder, "locked"), encoding="utf-8", errors="replace") as reason:
            return reason.read(len(UNFINISHED)) == UNFINISHED
    except OSError:
        return False


def _is_registered(repository: str, target: str) -> bool:
    """Whether git remembers a worktree at a place where nothing is any more."""
    if os.path.lexists(target):
        return False
    listed = _git(("-C", repository, "worktree", "list", "--porcelain"), "the worktrees cannot be listed")
    return f"worktree {os.path.realpath(target)}" in listed.splitlines()


def _branch_exists(repository: str, branch: str) -> bool:
    asked = ("-C", repository, "show-ref", "--verify", "--quiet", "--", f"refs/heads/{branch}")
    return _run(asked, "the branch cannot be looked up")[0] == 0


# --- changes --------------------------------------------------------------------------------------------------
def _adding(repository: str, target: str, branch: str) -> tuple[str, ...]:
    add = (*SAFE, "-C", repository, "worktree", "add")
    if _branch_exists(repository, branch):
        return (*add, "--", target, branch)
    return (*add, "-b", branch, "--", target, "HEAD")


def _claim_place(target: str) -> None:
    """Make the empty folder, 0700, that git then fills; an empty one may be left from a crash."""
    try:
        if os.path.isdir(target) and not os.path.islink(target) and not os.listdir(target):
            return
        os.mkdir(target, 0o700)
    except FileExistsError:
        raise WorkspaceFailed(
            f"something that is no worktree of this repository is in the workspace's place: {target}",
            hint="look at it and move it away; nothing was changed",
        ) from None
    except OSError as error:
        raise WorkspaceFailed(
            f"the workspace {target} cannot be made: {error.strerror or error}",
            hint="see that its disk has room and its folder is writable for this user",
        ) from error


def _give_back(target: str) -> None:
    """Remove the folder of a failed attempt if it is empty; git has removed what it had put there."""
    try:
        os.rmdir(target)
    except OSError:
        return  # not empty, or gone: what is there is looked at by the next attempt


def _forget(repository: str, target: str, *force: str) -> None:
    """Let git drop a worktree that holds nobody's work: unfinished, or without a folder."""
    removal = (*SAFE, "-C", repository, "worktree", "remove", *force, "--", target)
    _git(removal, "an earlier, unusable worktree cannot be taken back")


# --- git ------------------------------------------------------------------------------------------------------
def _git(arguments: Sequence[str], fault: str, *, seconds: float = ASK_SECONDS) -> str:
    """Run git and return what it printed; anything but success is a refusal that ends with git's words."""
    code, said, complaint = _run(arguments, fault, seconds=seconds)
    if code == 0:
        return said
    raise WorkspaceFailed(
        f"{fault}: {_ending(code, complaint)}",
        hint="see that the repository is one, has a commit, belongs to this user, and that its branch is not checked "
        "out elsewhere; else choose another --branch or repository",
        argument="workspace",
    )


def _run(arguments: Sequence[str], fault: str, *, seconds: float = ASK_SECONDS) -> tuple[int, str, str]:
    """Run git in a session of its own, so that neither it nor its helpers can ask anybody anything."""
    try:
        started = subprocess.Popen(  # noqa: S603 - a list of arguments, no shell
            ["git", *arguments],  # noqa: S607 - the git of this user's PATH
            cwd="/",
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise WorkspaceFailed(
            f"{fault}: git cannot be started: {error.strerror or error}",
            hint="install git and have it on PATH, or use another kind of workspace",
        ) from error
    try:
        said, complaint = started.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        _stop(started)
        raise WorkspaceFailed(
            f"{fault}: git did not finish within {seconds:g} s and was stopped",
            hint="see whether the repository's disk answers; then claim again",
        ) from None
    except BaseException:  # an interrupt reaches us alone: git has a session of its own
        _stop(started)
        raise
    return started.returncode, os.fsdecode(said), os.fsdecode(complaint)


def _stop(started: subprocess.Popen[bytes]) -> None:
    """End git and its helpers: asked first, so that it takes back what it has half made.

    One that hangs in the kernel even then is left alone: a bounded wait matters more than its exit code.
    """
    for order in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(started.pid, order)
            started.communicate(timeout=STOP_SECONDS)
        except ProcessLookupError:
            break  # all of the group are gone
        except subprocess.TimeoutExpired:
            continue
    for pipe in (started.stdout, started.stderr):
        if pipe is not None:
            pipe.close()


def _environment() -> dict[str, str]:
    """Return all that git may know of ours: where programs and the user's own settings are."""
    return {
        "PATH": os.pathsep.join(os.get_exec_path()),
        "HOME": os.path.expanduser("~"),
        "LC_ALL": "C",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
    }


def _ending(code: int, complaint: str) -> str:
    """Say how git failed: by a signal, with words, or in silence."""
    if code < 0:
        return f"git was ended by signal {-code}"
    words = _last_words(complaint)
    return f"git says: {words}" if words else f"git ended with exit code {code}"


def _last_words(complaint: str) -> str:
    """Return git's verdict in one printable line: its error lines, else the last one."""
    lines = [line for line in complaint.splitlines() if line.strip()]
    verdict = [line for line in lines if line.startswith(("fatal: ", "error: "))] or lines[-1:]
    text = " ".join(verdict)[:LONGEST_WORDS]
    return "".join(c if c.isprintable() else "?" for c in text)


def _no_branch(message: str) -> WorkspaceFailed:
    return WorkspaceFailed(message, hint="choose a name such as kanban/fix-login, without blanks", argument="branch")
