"""The bytes of attachments: where they go, under which name, and that nothing stays of what was refused (P61, D21)."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_kanban.base.errors import (
    AttachmentTooLarge,
    DiskFull,
    FetchFailed,
    FileRefused,
    InvalidValue,
    Refusal,
    StoreRefused,
)
from hermes_kanban.fetch import Download
from hermes_kanban.store.blobs import CHUNK, UNKNOWN_TYPE, Blobs, content_type, safe_name

TASK = "t_ab12cd34"
MOST = 3 * CHUNK


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "board" / "attachments"


@pytest.fixture
def blobs(root: Path) -> Blobs:
    return Blobs(str(root), MOST)


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    """A folder with files to attach."""
    folder = tmp_path / "desk"
    folder.mkdir()
    return folder


def written(folder: Path, name: str, body: bytes = b"text\n") -> str:
    (folder / name).write_bytes(body)
    return str(folder / name)


def files(root: Path) -> list[str]:
    """Return every file below the root."""
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir())


@contextmanager
def refuses(root: Path, error: type[BaseException], words: str | None = None) -> Iterator[None]:
    """Expect a refusal that leaves every file as it was, with a remedy."""
    before = {name: (root / name).read_bytes() for name in files(root)}
    with pytest.raises(error, match=words) as refusal:
        yield
    assert {name: (root / name).read_bytes() for name in files(root)} == before
    assert not isinstance(refusal.value, Refusal) or refusal.value.hint


# --- what is kept -----------------------------------------------------------------------------------------------
def test_a_file_is_kept_with_its_size_its_hash_and_its_type(blobs: Blobs, root: Path, desk: Path) -> None:  # P61, C104
    body = os.urandom(2 * CHUNK + 17)
    kept = blobs.keep_file(TASK, written(desk, "Über uns.pdf", body))
    assert kept.path == str(root / TASK / "Über uns.pdf")
    assert (kept.name, kept.size, kept.content_type) == ("Über uns.pdf", len(body), "application/pdf")
    assert kept.sha256 == hashlib.sha256(body).hexdigest()
    assert Path(kept.path).read_bytes() == body
    assert files(root) == [f"{TASK}/Über uns.pdf"]


def test_bytes_are_kept_under_the_name_they_are_given(blobs: Blobs, root: Path) -> None:
    kept = blobs.keep_chunks(TASK, iter([b"a", b"", b"bc"]), "../x.txt")
    assert (kept.name, kept.size, Path(kept.path).read_bytes()) == ("x.txt", 3, b"abc")
    assert blobs.keep_chunks(TASK, (), None).name == "file"
    assert files(root) == [f"{TASK}/file", f"{TASK}/x.txt"]


def test_files_are_private_whatever_the_umask_is(blobs: Blobs, root: Path, desk: Path) -> None:
    os.chmod(written(desk, "a.sh"), 0o777)
    old = os.umask(0)
    try:
        kept = blobs.keep_file(TASK, str(desk / "a.sh"))
    finally:
        os.umask(old)
    assert stat.S_IMODE(os.stat(kept.path).st_mode) == 0o600
    for folder in (root / TASK, root, root.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_two_of_the_same_name_both_stay(blobs: Blobs, root: Path, desk: Path) -> None:  # P61
    kept = [blobs.keep_file(TASK, written(desk, "a.txt", body)) for body in (b"one", b"two", b"three")]
    assert [one.name for one in kept] == ["a.txt"] * 3
    assert [Path(one.path).name for one in kept] == ["a.txt", "a-2.txt", "a-3.txt"]
    assert [Path(one.path).read_bytes() for one in kept] == [b"one", b"two", b"three"]


def test_many_of_the_same_name_at_once_all_stay(blobs: Blobs, root: Path) -> None:  # P61
    together = Barrier(8)
    paths: list[tuple[str, bytes]] = []

    def keep(body: bytes) -> None:
        together.wait()
        paths.append((blobs.keep_chunks(TASK, [body] * 100, "same").path, body * 100))

    threads = [Thread(target=keep, args=(f"{number}".encode(),)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({path for path, _ in paths}) == 8
    assert all(Path(path).read_bytes() == body for path, body in paths)
    assert len(files(root)) == 8


def test_the_name_appears_only_when_the_file_is_whole(blobs: Blobs, root: Path) -> None:
    seen: list[list[str]] = []

    def chunks() -> Iterator[bytes]:
        yield b"a"
        seen.append(files(root))
        yield b"b"

    blobs.keep_chunks(TASK, chunks(), "whole.txt")
    assert [Path(name).name.endswith(".part") for name in seen[0]] == [True]
    assert files(root) == [f"{TASK}/whole.txt"]


# --- limits and faults ------------------------------------------------------------------------------------------
def test_the_limit_is_the_last_size_that_is_kept(blobs: Blobs, root: Path, desk: Path) -> None:  # P61, C103
    assert blobs.keep_file(TASK, written(desk, "most", b"x" * MOST)).size == MOST
    with refuses(root, AttachmentTooLarge, str(MOST)):
        blobs.keep_file(TASK, written(desk, "more", b"x" * (MOST + 1)))
    with refuses(root, AttachmentTooLarge):
        blobs.keep_chunks(TASK, iter([b"x" * CHUNK] * 4), "stream")


def test_an_endless_stream_is_left_at_the_limit(blobs: Blobs, root: Path) -> None:
    given_out = 0

    def endless() -> Iterator[bytes]:
        nonlocal given_out
        while True:
            given_out += 1
            yield b"x" * CHUNK

    with refuses(root, AttachmentTooLarge):
        blobs.keep_chunks(TASK, endless(), "x")
    assert given_out == 4


@pytest.mark.parametrize("fault", [FetchFailed("gone", hint="again"), KeyboardInterrupt(), OSError(errno.EIO, "bad")])
def test_a_source_that_breaks_off_leaves_nothing(blobs: Blobs, root: Path, fault: BaseException) -> None:
    def breaking() -> Iterator[bytes]:
        yield b"half"
        raise fault

    with refuses(root, FileRefused if isinstance(fault, OSError) else type(fault)):
        blobs.keep_chunks(TASK, breaking(), "x")


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_full_disk_leaves_nothing(blobs: Blobs, root: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    def full(*_given: object, **_named: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched, refuses(root, DiskFull):
        patched.setattr(os, step, full)
        blobs.keep_chunks(TASK, [b"x"], "x")
    blobs.keep_chunks(TASK, [b"x"], "x")
    assert files(root) == [f"{TASK}/x"]


class Meddling(Blobs):
    """Somebody writes to the source when half of it is copied."""

    def _copied(self, folder: int, temporary: str, chunks: Iterable[bytes], plain: str) -> tuple[int, str]:
        def meddled() -> Iterator[bytes]:
            for number, chunk in enumerate(chunks):
                if number == 0:
                    self.meddle()
                yield chunk

        return super()._copied(folder, temporary, meddled(), plain)

    def meddle(self) -> None:
        raise NotImplementedError


@pytest.mark.parametrize(("mode", "size"), [("ab", 5), ("r+b", CHUNK), ("r+b", 0)])
def test_a_file_that_changes_meanwhile_is_refused(root: Path, desk: Path, mode: str, size: int) -> None:  # C104
    path = written(desk, "log", b"x" * (CHUNK + 100))
    meddling = Meddling(str(root), MOST)

    def meddle() -> None:
        with open(path, mode) as handle:
            if mode == "ab":
                handle.write(b"x" * size)
            else:
                handle.truncate(size)

    meddling.meddle = meddle  # type: ignore[method-assign]
    with refuses(root, FileRefused, "changed"):
        meddling.keep_file(TASK, path)


# --- what is no file --------------------------------------------------------------------------------------------
def test_only_plain_files_are_attached(blobs: Blobs, root: Path, desk: Path) -> None:
    os.mkfifo(desk / "pipe")  # must not wait for a writer
    (desk / "loop").symlink_to("loop")
    (desk / "gone").symlink_to("nothing")
    for path in (str(desk), str(desk / "pipe"), "/dev/zero", "/dev/null"):
        with refuses(root, FileRefused, "no plain file"):
            blobs.keep_file(TASK, path)
    for path in (str(desk / "missing"), str(desk / "gone"), str(desk / "loop"), "a\x00b", "", f"{desk}/a/b"):
        with refuses(root, FileRefused):
            blobs.keep_file(TASK, path)


def test_a_link_to_a_file_is_the_file(blobs: Blobs, desk: Path) -> None:
    (desk / "link.txt").symlink_to(written(desk, "real.dat", b"real"))
    kept = blobs.keep_file(TASK, str(desk / "link.txt"))
    assert (kept.name, os.path.islink(kept.path), Path(kept.path).read_bytes()) == ("link.txt", False, b"real")


def test_a_name_that_is_no_text_becomes_one(blobs: Blobs, root: Path, desk: Path) -> None:
    path = os.fsencode(desk) + b"/caf\xe9.txt"
    try:
        with open(path, "wb"):
            pass
    except OSError:
        pytest.skip("this file system takes names of UTF-8 alone")
    assert blobs.keep_file(TASK, os.fsdecode(path)).name == "caf_.txt"


# --- bounds -----------------------------------------------------------------------------------------------------
def test_paths_begin_at_the_base_and_stay_inside(blobs: Blobs, root: Path, desk: Path) -> None:  # D20, C97
    space, beside = desk / "ws", desk / "ws2"
    for folder in (space / "sub", beside):
        folder.mkdir(parents=True)
    written(space / "sub", "in.txt")
    secret = written(beside, "secret")
    (space / "out").symlink_to(secret)
    (space / "folder").symlink_to(beside)
    (space / "within").symlink_to("sub/in.txt")
    given: dict[str, Any] = {"base": str(space), "inside": str(space)}
    for path in ("sub/in.txt", "within", "sub/../sub/in.txt", str(space / "sub" / "in.txt"), "../ws/sub/in.txt"):
        blobs.keep_file(TASK, path, **given)
    for path in ("../ws2/secret", "out", "folder/secret", secret, "/etc/passwd", "folder/../ws2/secret"):
        with refuses(root, FileRefused, "outside"):
            blobs.keep_file(TASK, path, **given)
    with refuses(root, FileRefused):
        blobs.keep_file(TASK, ".", **given)


def test_a_relative_path_without_a_base_begins_in_the_current_folder(
    blobs: Blobs, desk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(desk, "here.txt", b"here")
    monkeypatch.chdir(desk)
    assert Path(blobs.keep_file(TASK, "here.txt").path).read_bytes() == b"here"


@pytest.mark.parametrize(
    "task", ["", ".", "..", "../x", "t_", "t_x", "t_ab/../..", "/etc", f"t_{'a' * 70}", "t_AB12CD34"]
)
def test_what_is_no_task_id_is_no_folder(blobs: Blobs, root: Path, task: str) -> None:
    with refuses(root, InvalidValue):
        blobs.keep_chunks(task, [b"x"], "x")
    assert not root.exists()


def test_a_link_in_the_place_of_a_cards_folder_leads_nowhere(blobs: Blobs, root: Path, desk: Path) -> None:  # D21, C97
    root.mkdir(parents=True)
    (root / TASK).symlink_to(desk)
    with refuses(root, StoreRefused, "no folder"):
        blobs.keep_chunks(TASK, [b"x"], "x")
    (root / "t_00ff00ff").write_bytes(b"a file")
    with refuses(root, StoreRefused, "no folder"):
        blobs.keep_chunks("t_00ff00ff", [b"x"], "x")
    assert list(desk.iterdir()) == []


def test_the_root_may_be_a_link(tmp_path: Path, desk: Path) -> None:
    (tmp_path / "root").symlink_to(desk)
    blobs = Blobs(str(tmp_path / "root"), MOST)
    kept = blobs.keep_chunks(TASK, [b"x"], "x")
    assert (desk / TASK / "x").read_bytes() == b"x"
    assert blobs.discard(kept.path)
    assert not os.path.lexists(kept.path)


def test_only_what_lies_in_a_cards_folder_is_removed(blobs: Blobs, root: Path, desk: Path) -> None:  # D21, C97
    kept = blobs.keep_chunks(TASK, [b"x"], "x")
    outside = written(desk, "mine")
    (root / TASK / "out").symlink_to(desk)
    (root / TASK / "link").symlink_to(outside)
    (root / TASK / "deep").mkdir()
    deep = written(root / TASK / "deep", "y")
    direct = written(root, "z")
    for path in (outside, f"{root}/{TASK}/out/mine", f"{root}/{TASK}/../../../desk/mine", deep, direct, "", f"{root}/"):
        assert not blobs.discard(path)
    assert not blobs.discard(str(root / TASK / "deep"))  # a folder
    assert blobs.discard(str(root / TASK / "link"))
    assert Path(outside).exists()
    assert blobs.discard(kept.path)
    assert blobs.discard(kept.path)  # gone already is gone
    assert files(root) == [f"{TASK}/deep/y", "z"]


# --- downloads --------------------------------------------------------------------------------------------------
def downloading(root: Path, download: Download) -> Blobs:
    @contextmanager
    def fetch(url: str) -> Iterator[Download]:
        assert url == "http://host/x?secret"
        yield download

    return Blobs(str(root), MOST, fetch)


def test_a_download_is_kept_with_where_it_came_from(root: Path) -> None:  # P61
    blobs = downloading(root, Download("../a.bin2", 2, "image/png", "http://host/x", iter([b"a", b"b"])))
    kept = blobs.keep_url(TASK, "http://host/x?secret")
    assert (kept.name, kept.size, kept.source_url) == ("a.bin2", 2, "http://host/x")
    assert kept.content_type == "image/png"  # the name's ending says nothing
    again = downloading(root, Download("a", None, "image/png", "http://host/x", [b"c"]))
    assert again.keep_url(TASK, "http://host/x?secret", "b.txt").content_type == "text/plain"


@pytest.mark.parametrize("size", [None, MOST + 1, 5])
def test_a_download_that_is_too_large_leaves_nothing(root: Path, size: int | None) -> None:  # P61, C158
    blobs = downloading(root, Download("a", size, "", "http://host/x", [b"x" * CHUNK] * 4))
    with refuses(root, AttachmentTooLarge):
        blobs.keep_url(TASK, "http://host/x?secret")


# --- names ------------------------------------------------------------------------------------------------------
NAMES = {
    "report.pdf": "report.pdf",
    "/etc/passwd": "passwd",
    "..\\..\\boot.ini": "boot.ini",
    "folder/": "folder",
    "": "file",
    ".": "file",
    "..": "file",
    "///": "file",
    "-": "file",
    "--": "file",
    "-rf": "rf",
    ".bashrc": "bashrc",
    "..hidden": "hidden",
    " blank .txt ": "blank .txt",
    "dots...": "dots",
    "a\nb\x1b[31m\x7f.txt": "a_b_[31m_.txt",
    "turn\u202egnp.exe": "turn_gnp.exe",
    "half\ud800.txt": "half_.txt",
    'a<b>:"|?*.txt': "a_b______.txt",
    "CON": "_CON",
    "nul.tar.gz": "_nul.tar.gz",
    "com1 .txt": "_com1 .txt",
    "COM¹": "_COM¹",
    "console.log": "console.log",
    "日本語のファイル 🎉.txt": "日本語のファイル 🎉.txt",
    "a" * 300 + ".tar.gz": "a" * 196 + ".gz",
    "ü" * 200 + ".txt": "ü" * 97 + ".txt",
    "x." + "y" * 300: "x." + "y" * 197,
}


@pytest.mark.parametrize("given_name", NAMES, ids=range(len(NAMES)))
def test_a_name_is_made_harmless(given_name: str) -> None:  # P61
    assert safe_name(given_name) == NAMES[given_name]


@given(st.text(st.characters() | st.sampled_from("/\\.- :\x00\n"), max_size=300))
def test_every_text_becomes_a_safe_name(text: str) -> None:  # P61
    name = safe_name(text)
    assert 1 <= len(name.encode("utf-8")) <= 200
    assert name.isprintable()
    assert not set(name) & set('/\\:<>"|?*')
    assert name[0] not in ".- "
    assert name[-1] not in ". "
    assert safe_name(name) == name


def test_types_follow_the_ending() -> None:
    wanted = {"a.txt": "text/plain", "a.PNG": "image/png", "a.tar.gz": "application/gzip", "a.json": "application/json"}
    assert {name: content_type(name) for name in wanted} == wanted
    assert content_type("file") == content_type("a.nothing-known") == UNKNOWN_TYPE
