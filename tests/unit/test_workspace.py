"""Places to work in: real folders, real git."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from hermes_kanban.base.errors import InvalidValue, WorkspaceFailed
from hermes_kanban.model.status import DIR, SCRATCH, WORKTREE
from hermes_kanban.workspace import Workspaces, worktree
from hermes_kanban.workspace.base import is_inside, make_private
from hermes_kanban.workspace.scratch import MARKER

TASK = "t_ab12cd34"
OTHER = "t_00ff00ff"


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep git away from the settings of whoever runs the tests."""
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "board" / "workspaces"


@pytest.fixture
def places(root: Path) -> Workspaces:
    return Workspaces(str(root))


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=Somebody", "-c", "user.email=somebody@example.org", "-c", "commit.gpgsign=false")
    argv = ["git", *identity, "-C", str(folder), *arguments]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch=main")
    (folder / "README").write_text("hello\n")
    git(folder, "add", "README")
    git(folder, "commit", "--quiet", "--message=first")
    return folder


def refused(places: Workspaces, kind: str, path: object = None, branch: str | None = None) -> WorkspaceFailed:
    """Return the refusal of `prepare`; it must have a remedy, and its words must be harmless on a terminal."""
    with pytest.raises(WorkspaceFailed) as caught:
        places.prepare(TASK, kind, None if path is None else str(path), branch)
    return sound(caught.value)


def unchecked(places: Workspaces, kind: str, path: object = None, branch: str | None = None) -> WorkspaceFailed:
    """Return the refusal of `check`, likewise."""
    with pytest.raises(WorkspaceFailed) as caught:
        places.check(kind, None if path is None else str(path), branch)
    return sound(caught.value)


def sound(refusal: WorkspaceFailed) -> WorkspaceFailed:
    assert refusal.hint
    assert refusal.exit_code == InvalidValue.exit_code == 7
    assert refusal.message.isprintable()
    return refusal


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# --- kinds and paths ------------------------------------------------------------------------------------------
def test_paths_are_computed_without_the_disk(places: Workspaces, root: Path) -> None:  # D20
    assert places.path_for(TASK, SCRATCH, None, None) == str(root / TASK)
    assert places.path_for(TASK, WORKTREE, "/repo", "topic") == str(root / TASK)
    assert places.path_for(TASK, DIR, "//srv/./site//", None) == "/srv/site"
    assert not root.exists()


@pytest.mark.parametrize("kind", ["", "Scratch", "docker", "scratch\x1b[2J"])
def test_unknown_kinds_are_refused(places: Workspaces, kind: str) -> None:
    assert unchecked(places, kind).fields["argument"] == "workspace"
    refused(places, kind)


@pytest.mark.parametrize(
    "task_id", ["", "t_", "..", "../t_ab12cd34", "t_ab/../../x", "t_xyz", "/etc", "t_" + "0" * 300]
)
@pytest.mark.parametrize("kind", [SCRATCH, WORKTREE])
def test_only_task_ids_become_folders(places: Workspaces, root: Path, kind: str, task_id: str) -> None:  # T7
    with pytest.raises(WorkspaceFailed):
        places.prepare(task_id, kind, None, None)
    assert not root.exists()


def test_a_relative_root_is_taken_from_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    places = Workspaces("somewhere")
    monkeypatch.chdir("/")
    assert places.prepare(TASK, SCRATCH, None, None) == str(tmp_path / "somewhere" / TASK)


@pytest.mark.parametrize("path", ["", "site", "./site", "~/site", "../site", "-x"])
@pytest.mark.parametrize("kind", [DIR, WORKTREE])
def test_relative_paths_are_refused_at_create_with_the_remedy(places: Workspaces, kind: str, path: str) -> None:  # D20
    assert f"{kind}:/absolute/path" in unchecked(places, kind, path).hint
    refused(places, kind, path)


@pytest.mark.parametrize(
    "path", ["/a\0b", "/a\nb", "/a\x1b]0;x\x07", "/\udcff", "/a/../b", "/..", "/a\u202eb", "/a\u2028b"]
)
@pytest.mark.parametrize("kind", [DIR, WORKTREE])
def test_hostile_paths_are_refused(places: Workspaces, kind: str, path: str) -> None:  # T7
    unchecked(places, kind, path)
    refused(places, kind, path)


@pytest.mark.parametrize("path", ["/", "/a b", "/..a/b..", "/日本\u3000語", "/$(reboot)", "/-rf"])
def test_other_paths_are_taken_as_they_are(places: Workspaces, path: str) -> None:
    places.check(DIR, path, None)
    assert places.path_for(TASK, DIR, path, None) == path


@pytest.mark.parametrize("path", ["/srv/site", "", "relative"])
def test_a_scratch_workspace_takes_no_path(places: Workspaces, path: str) -> None:  # C97
    assert DIR in unchecked(places, SCRATCH, path).hint


@pytest.mark.parametrize(("kind", "path"), [(SCRATCH, None), (DIR, "/srv")])
def test_a_branch_belongs_to_a_worktree(places: Workspaces, kind: str, path: str | None) -> None:
    assert unchecked(places, kind, path, "topic").fields["argument"] == "branch"


def test_what_can_be_prepared_is_not_refused(places: Workspaces, repository: Path, root: Path) -> None:
    places.check(SCRATCH, None, None)
    places.check(DIR, "/somewhere/on/another/host", None)
    places.check(WORKTREE, str(repository), None)
    places.check(WORKTREE, str(repository), "feature/ő-1")
    assert not root.exists()


def test_inside_is_judged_on_resolved_paths(tmp_path: Path, root: Path) -> None:  # D21
    root.mkdir(parents=True)
    (tmp_path / "link").symlink_to(root)
    (root / "out").symlink_to(tmp_path)
    (tmp_path / "board" / "workspaces2").mkdir()
    assert is_inside(str(root), str(root / TASK))
    assert is_inside(str(tmp_path / "link"), str(root / TASK))
    assert is_inside("/", "/etc")
    for outside in (root, root / "..", root / "out", root / "out" / "x", tmp_path / "board" / "workspaces2" / "x"):
        assert not is_inside(str(root), str(outside)), outside


# --- scratch --------------------------------------------------------------------------------------------------
def test_scratch_makes_a_private_folder_with_a_marker(places: Workspaces, root: Path) -> None:  # D20, P11
    assert places.prepare(TASK, SCRATCH, None, None) == str(root / TASK)
    assert [mode(p) for p in (root.parent, root, root / TASK)] == [0o700] * 3
    assert (root / TASK / MARKER).read_text() == f"{TASK}\n"
    assert mode(root / TASK / MARKER) == 0o600
    assert os.listdir(root) == [TASK]


def test_scratch_keeps_earlier_work(places: Workspaces, root: Path) -> None:  # D20
    places.prepare(TASK, SCRATCH, None, None)
    (root / TASK / "draft").write_text("half done")
    places.prepare(OTHER, SCRATCH, None, None)
    assert places.prepare(TASK, SCRATCH, None, None) == str(root / TASK)
    assert (root / TASK / "draft").read_text() == "half done"
    assert (root / TASK / MARKER).read_text() == f"{TASK}\n"


@pytest.mark.parametrize("left", [None, "", "t_ab"])
def test_scratch_finishes_what_a_crash_left(places: Workspaces, root: Path, left: str | None) -> None:  # T3
    make_private(str(root / TASK))
    if left is not None:
        (root / TASK / MARKER).write_text(left)
    places.prepare(TASK, SCRATCH, None, None)
    assert (root / TASK / MARKER).read_text() == f"{TASK}\n"


def test_scratch_marks_no_folder_that_holds_something_already(places: Workspaces, root: Path) -> None:  # D21
    make_private(str(root / TASK))
    (root / TASK / "thesis").write_text("not ours")
    places.prepare(TASK, SCRATCH, None, None)
    assert os.listdir(root / TASK) == ["thesis"]


def test_scratch_writes_no_marker_through_a_link(places: Workspaces, root: Path, tmp_path: Path) -> None:  # C97
    precious = tmp_path / "precious"
    precious.write_text("mine")
    make_private(str(root / TASK))
    (root / TASK / MARKER).symlink_to(precious)
    places.prepare(TASK, SCRATCH, None, None)
    assert precious.read_text() == "mine"
    assert not (root / TASK / MARKER).is_symlink()


@pytest.mark.parametrize("kind", [SCRATCH, WORKTREE])
@pytest.mark.parametrize("where", ["outside", "other task", "nowhere", "itself"])
def test_a_link_in_the_place_is_refused(  # C97
    places: Workspaces, root: Path, tmp_path: Path, repository: Path, kind: str, where: str
) -> None:
    make_private(str(root / OTHER))
    outside = tmp_path / "outside"
    outside.mkdir()
    targets = {"outside": outside, "other task": root / OTHER, "nowhere": root / "t_0", "itself": root / TASK}
    (root / TASK).symlink_to(targets[where])
    refusal = refused(places, kind, repository if kind == WORKTREE else None)
    assert ("leads out of the workspaces root" in refusal.message) is (where == "outside")  # D21
    assert (root / TASK).is_symlink()
    assert os.listdir(outside) == os.listdir(root / OTHER) == []
    assert not (root / "t_0").exists()


@pytest.mark.parametrize("kind", [SCRATCH, WORKTREE])
def test_a_file_in_the_place_is_refused(places: Workspaces, root: Path, repository: Path, kind: str) -> None:
    make_private(str(root))
    (root / TASK).write_text("a file")
    assert "not a" in refused(places, kind, repository if kind == WORKTREE else None).message.replace(
        "no worktree", "not a"
    )
    assert (root / TASK).read_text() == "a file"


def test_a_root_that_cannot_be_made_is_refused_in_words(tmp_path: Path) -> None:  # T4
    (tmp_path / "file").write_text("in the way")
    refusal = refused(Workspaces(str(tmp_path / "file" / "workspaces")), SCRATCH)
    assert f"{tmp_path}/file: " in refusal.message


def test_a_full_disk_leaves_no_folder(places: Workspaces, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # T4
    def full(descriptor: int, text: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    assert os.strerror(errno.ENOSPC) in refused(places, SCRATCH).message
    assert os.listdir(root) == []


def test_scratch_needs_neither_git_nor_subprocess(tmp_path: Path) -> None:
    code = f"""
import sys
sys.path[:0] = {sys.path!r}
from hermes_kanban.workspace import Workspaces
places = Workspaces({str(tmp_path / "w")!r})
places.check("scratch", None, None)
places.prepare("{TASK}", "scratch", None, None)
places.check("dir", "/srv", None)
print(*sys.modules)
"""
    argv = [sys.executable, "-S", "-c", code]
    loaded = set(subprocess.run(argv, check=True, capture_output=True, text=True).stdout.split())
    assert "hermes_kanban.workspace.scratch" in loaded
    assert not loaded & {"subprocess", "typing", "re", "pathlib", "shutil", "hermes_kanban.workspace.worktree"}


# --- dir ------------------------------------------------------------------------------------------------------
def test_dir_uses_a_folder_as_it_is(places: Workspaces, root: Path, tmp_path: Path) -> None:  # D20
    site = tmp_path / "site"
    site.mkdir(mode=0o755)
    (tmp_path / "link").symlink_to(site)
    assert places.prepare(TASK, DIR, f"{site}/", None) == str(site)
    assert places.prepare(TASK, DIR, str(tmp_path / "link"), None) == str(tmp_path / "link")
    assert mode(site) == 0o755
    assert os.listdir(site) == []
    assert not root.exists()


def test_dir_makes_no_folder(places: Workspaces, tmp_path: Path) -> None:  # P11
    assert "does not exist" in refused(places, DIR, tmp_path / "absent").message
    assert not (tmp_path / "absent").exists()


def test_dir_takes_only_folders(places: Workspaces, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "circle").symlink_to("circle")
    assert "is not a folder" in refused(places, DIR, tmp_path / "file").message
    assert "is not a folder" in refused(places, DIR, tmp_path / "pipe").message
    refused(places, DIR, tmp_path / "file" / "below")
    refused(places, DIR, tmp_path / "circle")
    refused(places, DIR, "/" + "x" * 300)


@pytest.mark.skipif(os.geteuid() == 0, reason="mode bits do not hold root back")
@pytest.mark.parametrize("below", ["", "deeper"])
def test_dir_must_be_open_to_us(places: Workspaces, tmp_path: Path, below: str) -> None:  # T4
    closed = tmp_path / "closed"
    (closed / "deeper").mkdir(parents=True)
    closed.chmod(0o600)
    refusal = refused(places, DIR, closed / below)
    closed.chmod(0o700)
    assert "ermission denied" in refusal.message


# --- worktree -------------------------------------------------------------------------------------------------
def branch_of(folder: Path) -> str:
    return git(folder, "symbolic-ref", "--short", "HEAD")


def test_a_worktree_is_made_on_a_new_branch(places: Workspaces, root: Path, repository: Path) -> None:  # D20
    assert places.prepare(TASK, WORKTREE, str(repository), None) == str(root / TASK)
    assert (root / TASK / "README").read_text() == "hello\n"
    assert branch_of(root / TASK) == f"kanban/{TASK}"
    assert git(root / TASK, "status", "--porcelain") == ""
    assert branch_of(repository) == "main"
    assert mode(root) == mode(root / TASK) == 0o700


def test_a_worktree_of_the_board_s_repository(root: Path, repository: Path) -> None:  # D20: default_workdir
    places = Workspaces(str(root), lambda: str(repository))
    places.check(WORKTREE, None, "topic")
    places.prepare(TASK, WORKTREE, None, "topic")
    assert branch_of(root / TASK) == "topic"


def test_the_card_s_repository_comes_before_the_board_s(root: Path, repository: Path) -> None:  # D20
    places = Workspaces(str(root), lambda: "/nowhere")
    places.check(WORKTREE, str(repository), None)
    unchecked(places, WORKTREE, None)


def test_an_existing_branch_is_taken_up(places: Workspaces, root: Path, repository: Path) -> None:  # D20
    git(repository, "branch", "topic")
    (repository / "README").write_text("newer\n")
    git(repository, "commit", "--quiet", "--all", "--message=second")
    git(repository, "tag", "topic")  # a tag of the same name is not meant
    places.prepare(TASK, WORKTREE, str(repository), "topic")
    assert git(root / TASK, "symbolic-ref", "HEAD") == "refs/heads/topic"
    assert (root / TASK / "README").read_text() == "hello\n"


def test_a_worktree_that_is_there_is_kept(places: Workspaces, root: Path, repository: Path) -> None:  # D20
    places.prepare(TASK, WORKTREE, str(repository), "topic")
    (root / TASK / "README").write_text("half done\n")
    git(root / TASK, "switch", "--quiet", "--create", "elsewhere")
    assert places.prepare(TASK, WORKTREE, str(repository), "topic") == str(root / TASK)
    assert (root / TASK / "README").read_text() == "half done\n"
    assert branch_of(root / TASK) == "elsewhere"


def test_a_subfolder_or_another_worktree_stands_for_its_repository(
    places: Workspaces, root: Path, repository: Path
) -> None:
    (repository / "sub").mkdir()
    places.prepare(TASK, WORKTREE, str(repository / "sub"), None)
    places.prepare(OTHER, WORKTREE, str(root / TASK), None)
    assert branch_of(root / OTHER) == f"kanban/{OTHER}"
    assert places.prepare(OTHER, WORKTREE, str(repository), None) == str(root / OTHER)


def test_a_bare_repository_will_do(places: Workspaces, root: Path, repository: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "--quiet", "--bare", str(repository), "bare.git")
    places.prepare(TASK, WORKTREE, str(tmp_path / "bare.git"), None)
    assert (root / TASK / "README").read_text() == "hello\n"


def test_a_worktree_below_a_linked_root(tmp_path: Path, root: Path, repository: Path) -> None:  # D21
    root.mkdir(parents=True)
    (tmp_path / "link").symlink_to(root)
    places = Workspaces(str(tmp_path / "link"))
    for _ in range(2):
        assert places.prepare(TASK, WORKTREE, str(repository), None) == str(tmp_path / "link" / TASK)
    assert (root / TASK / "README").exists()


def test_a_worktree_without_a_repository_is_refused_at_create(places: Workspaces) -> None:  # D20
    refusal = unchecked(places, WORKTREE)
    assert "kanban.default_workdir" in refusal.hint
    refused(places, WORKTREE)


def test_what_is_no_repository_is_refused(places: Workspaces, root: Path, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "plain", tmp_path / "file", tmp_path / "absent"):
        assert str(path) in unchecked(places, WORKTREE, path).message
        refused(places, WORKTREE, path)
    assert os.listdir(root) == []


def test_git_s_own_words_are_passed_on(places: Workspaces, root: Path, repository: Path) -> None:  # P11
    refusal = refused(places, WORKTREE, repository, "main")
    assert "'main' is already" in refusal.message
    assert str(repository) in refusal.message
    assert os.listdir(root) == []
    assert len(git(repository, "worktree", "list").splitlines()) == 1


def test_a_repository_without_a_commit_is_refused(places: Workspaces, root: Path, tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet", "empty")
    assert "HEAD" in refused(places, WORKTREE, tmp_path / "empty").message
    assert os.listdir(root) == []


def test_a_branch_in_the_way_of_the_default_one(places: Workspaces, root: Path, repository: Path) -> None:
    git(repository, "branch", "kanban")
    assert "refs/heads/kanban" in refused(places, WORKTREE, repository).message
    assert os.listdir(root) == []


BAD_BRANCHES = [
    "",
    "-b",
    "--detach",
    "a b",
    "a..b",
    "a.lock",
    "/a",
    "a/",
    "a~1",
    "a:b",
    "@{-1}",
    "@",
    "HEAD",
    "a\nb",
    "a\0",
    "\udcff",
]


@pytest.mark.parametrize("branch", BAD_BRANCHES)
def test_names_that_git_does_not_take_are_refused(
    places: Workspaces, root: Path, repository: Path, branch: str
) -> None:  # T7
    assert unchecked(places, WORKTREE, repository, branch).fields["argument"] == "branch"
    refused(places, WORKTREE, repository, branch)
    assert git(repository, "branch", "--format=%(refname)") == "refs/heads/main"
    assert os.listdir(root) == []


@pytest.mark.parametrize("branch", ["$(touch x)", "a;b", "'a'", "a&b", "ő", "!a"])
def test_other_names_are_names_and_nothing_more(
    places: Workspaces, root: Path, repository: Path, branch: str
) -> None:  # T7
    if " " in branch:
        branch = branch.replace(" ", "${IFS}")
    places.prepare(TASK, WORKTREE, str(repository), branch)
    assert branch_of(root / TASK) == branch
    assert sorted(os.listdir(root / TASK)) == [".git", "README"]


def test_something_else_in_the_place_is_refused(
    places: Workspaces, root: Path, repository: Path, tmp_path: Path
) -> None:
    git(tmp_path, "clone", "--quiet", str(repository), str(root / TASK))
    refused(places, WORKTREE, repository)
    assert branch_of(root / TASK) == "main"
    (root / OTHER).mkdir()
    (root / OTHER / "work").write_text("not yours")
    with pytest.raises(WorkspaceFailed):
        places.prepare(OTHER, WORKTREE, str(repository), None)
    assert os.listdir(root / OTHER) == ["work"]


def test_an_empty_folder_of_a_crash_is_filled(places: Workspaces, root: Path, repository: Path) -> None:  # T3
    make_private(str(root / TASK))
    places.prepare(TASK, WORKTREE, str(repository), None)
    assert branch_of(root / TASK) == f"kanban/{TASK}"


def test_a_worktree_that_git_was_killed_over_is_made_again(
    places: Workspaces, root: Path, repository: Path
) -> None:  # T3
    places.prepare(TASK, WORKTREE, str(repository), None)
    (repository / ".git" / "worktrees" / TASK / "locked").write_text("initializing")
    (repository / ".git" / "worktrees" / TASK / "index").unlink()
    (root / TASK / "README").unlink()
    places.prepare(TASK, WORKTREE, str(repository), None)
    assert git(root / TASK, "status", "--porcelain") == ""
    assert not (repository / ".git" / "worktrees" / TASK / "locked").exists()


def test_a_git_killed_in_the_middle_is_made_up_for(places: Workspaces, root: Path, repository: Path) -> None:  # T3
    (repository / ".git" / "info" / "attributes").write_text("README filter=fatal\n")
    spare_us = f'[ "$(ps -o pgid= -p $$ | tr -d " ")" = {os.getpgrp()} ] || kill -9 0'  # git, its children, nobody else
    git(repository, "config", "filter.fatal.smudge", spare_us)
    assert "ended by signal 9" in refused(places, WORKTREE, repository).message
    assert (root / TASK / ".git").exists()
    git(repository, "config", "--unset", "filter.fatal.smudge")
    places.prepare(TASK, WORKTREE, str(repository), None)
    assert (root / TASK / "README").read_text() == "hello\n"
    assert git(root / TASK, "status", "--porcelain") == ""


def test_a_worktree_that_somebody_locked_is_kept(places: Workspaces, root: Path, repository: Path) -> None:
    places.prepare(TASK, WORKTREE, str(repository), None)
    (root / TASK / "work").write_text("kept")
    git(repository, "worktree", "lock", "--reason=mine", str(root / TASK))
    places.prepare(TASK, WORKTREE, str(repository), None)
    assert (root / TASK / "work").read_text() == "kept"


def test_a_worktree_whose_folder_was_removed_is_made_again(places: Workspaces, root: Path, repository: Path) -> None:
    for task_id in (TASK, OTHER):
        places.prepare(task_id, WORKTREE, str(repository), None)
        (root / task_id).rename(root / f"moved-{task_id}")
    places.prepare(TASK, WORKTREE, str(repository), None)
    assert branch_of(root / TASK) == f"kanban/{TASK}"
    assert str(root / OTHER) in git(repository, "worktree", "list", "--porcelain")  # others are left alone


def test_the_repository_s_hooks_are_not_run(
    places: Workspaces, root: Path, repository: Path, tmp_path: Path
) -> None:  # T7
    hook = repository / ".git" / "hooks" / "post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    hook.chmod(0o755)
    places.prepare(TASK, WORKTREE, str(repository), None)
    assert not (tmp_path / "ran").exists()
    git(root / TASK, "switch", "--quiet", "--create", "by-hand")
    assert (tmp_path / "ran").exists()


def test_an_inherited_git_environment_changes_nothing(
    places: Workspaces, root: Path, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR"):  # as in a hook of another repository
        monkeypatch.setenv(name, str(tmp_path / "another"))
    places.prepare(TASK, WORKTREE, str(repository), None)
    assert (root / TASK / "README").read_text() == "hello\n"


# --- a git that misbehaves ------------------------------------------------------------------------------------
def fake_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, interpreter: str = "/bin/sh") -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "git").write_text(f"#!{interpreter}\n{script}\n")
    (programs / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.defpath}")


def test_a_missing_git_is_named(places: Workspaces, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "install git" in unchecked(places, WORKTREE, tmp_path).hint


def test_git_gets_no_terminal_no_input_and_no_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "secret")
    script = """
import os, sys
told = os.environ["GIT_TERMINAL_PROMPT"], "SOME_API_KEY" in os.environ
print(os.getsid(0) == os.getpid(), repr(sys.stdin.read()), *told)
"""
    fake_git(tmp_path, monkeypatch, script, sys.executable)
    assert worktree._run((), "trouble") == (0, "True '' 0 False\n", "")


def test_escape_codes_in_git_s_words_are_shown_harmlessly(
    places: Workspaces, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # T7
    fake_git(tmp_path, monkeypatch, r"printf 'hint: do not\nfatal: \033[31mred\007 words\n' >&2; exit 128")
    refusal = unchecked(places, WORKTREE, tmp_path)
    assert refusal.message.endswith("git says: fatal: ?[31mred? words")


def test_a_silent_failure_names_its_code(places: Workspaces, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_git(tmp_path, monkeypatch, "exit 3")
    assert "exit code 3" in unchecked(places, WORKTREE, tmp_path).message


def test_a_git_that_hangs_is_stopped_with_its_helpers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = tmp_path / "held"
    os.mkfifo(held)
    fake_git(tmp_path, monkeypatch, f"(trap '' TERM; echo on; exec sleep 600) >{held} & exec sleep 600")
    monkeypatch.setattr(worktree, "STOP_SECONDS", 0.05)
    reader = os.open(held, os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(WorkspaceFailed) as caught:
        worktree._run((), "the worktree cannot be made", seconds=0.5)
    assert "did not finish within 0.5 s" in sound(caught.value).message
    os.set_blocking(reader, True)
    while os.read(reader, 100):  # the end comes when nobody holds the pipe any more
        pass
    os.close(reader)


def test_an_interrupt_stops_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = tmp_path / "held"
    os.mkfifo(held)
    fake_git(tmp_path, monkeypatch, f"exec >{held}; exec sleep 600")
    reader = os.open(held, os.O_RDONLY | os.O_NONBLOCK)
    communicate = subprocess.Popen.communicate
    interrupts = iter([KeyboardInterrupt()])

    def interrupted(started: subprocess.Popen[bytes], timeout: float | None = None) -> tuple[bytes, bytes]:
        for interrupt in interrupts:  # the first time, as by Ctrl-C
            raise interrupt
        return communicate(started, timeout=timeout)

    monkeypatch.setattr(subprocess.Popen, "communicate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        worktree._run((), "trouble")
    os.set_blocking(reader, True)
    assert os.read(reader, 100) == b""  # nobody holds the pipe
    os.close(reader)
