"""Output cut into lines, and what is read off it, without a process (D10, D13)."""

from __future__ import annotations

import datetime
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_kanban.lanes.output import LONGEST_LINE, NEWS_KEPT, Log, Output, iso_utc, plain


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "t_ab.log"


def output(path: Path, limit: int = 0) -> Output:
    return Output(Log(str(path), limit), 0.0)


def fed(path: Path, *pieces: bytes) -> bytes:
    made = output(path)
    for piece in pieces:
        made.feed(piece, 1.0)
    made.end(2.0)
    made.log.close()
    return path.read_bytes() if path.exists() else b""


# --- lines ----------------------------------------------------------------------------------------------------
PIECES = st.lists(st.one_of(st.binary(max_size=40), st.sampled_from([b"\n", b"\r", b"\r\n", b"a b", b""])), max_size=12)


@given(pieces=PIECES)
def test_nothing_is_lost_added_or_moved(tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes]) -> None:
    path = tmp_path_factory.mktemp("output") / "log"
    assert fed(path, *pieces) == b"".join(pieces)


def test_a_line_is_written_when_it_is_whole(path: Path) -> None:
    made = output(path)
    made.feed(b"one\ntw", 1.0)
    assert path.read_bytes() == b"one\n"
    made.feed(b"o\r", 1.0)
    assert path.read_bytes() == b"one\n"  # a line feed may follow
    made.feed(b"three\r", 1.0)
    assert path.read_bytes() == b"one\ntwo\r"
    made.end(1.0)
    assert path.read_bytes() == b"one\ntwo\rthree\r"


TOKEN = b"ghp_" + b"a1B2c3D4e5" * 4


@pytest.mark.parametrize("shift", range(0, 44, 4))
def test_a_secret_at_the_cut_of_a_long_line_is_still_found(path: Path, shift: int) -> None:  # P63
    line = b"x" * (LONGEST_LINE - len(TOKEN) + shift) + b" " + TOKEN + b" more\n"
    text = fed(path, line[:70_000], line[70_000:])
    assert TOKEN not in text
    assert text.endswith(b" [redacted: GitHub token] more\n")


def test_a_secret_in_pieces_is_found(path: Path) -> None:  # P63
    assert fed(path, *(bytes((byte,)) for byte in b"a " + TOKEN + b"\n")) == b"a [redacted: GitHub token]\n"


def test_a_long_line_without_blanks_is_cut_all_the_same(path: Path) -> None:
    made = output(path)
    made.feed(b"x" * (3 * LONGEST_LINE + 5), 1.0)
    assert path.stat().st_size == 3 * LONGEST_LINE


# --- what is read off it --------------------------------------------------------------------------------------
def test_only_what_is_new_is_news(path: Path) -> None:  # C32
    made = output(path)
    made.feed(b"try 1\n", 1.0)
    made.feed(b"try 2\n\n   \n", 2.0)
    assert made.news_at == 1.0
    made.feed(b"done\n", 3.0)
    assert made.news_at == 3.0
    made.feed(b"12:30\n", 4.0)
    made.feed(b"13:45\n", 5.0)
    assert made.news_at == 4.0


def test_what_was_said_long_ago_is_news_again(path: Path) -> None:  # C32
    made = output(path)
    words = [f"{chr(97 + i // 26)}{chr(97 + i % 26)}\n".encode() for i in range(NEWS_KEPT + 1)]
    for word in words:
        made.feed(word, 1.0)
    made.feed(words[-1] + words[1], 2.0)
    assert made.news_at == 1.0
    made.feed(words[0], 3.0)
    assert made.news_at == 3.0


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (b"[kanban-retry-after] 30\n", 30),
        (b"[kanban-retry-after] 30\r\n[kanban-retry-after] 0\n", 0),
        (b"[kanban-retry-after] 86400", 86_400),
        (b"[kanban-retry-after] 86401\n", None),
        (b"[kanban-retry-after] -1\n", None),
        (b"[kanban-retry-after] soon\n", None),
        (b"it said [kanban-retry-after] 5\n", None),
        ("[kanban-retry-after] \u0663\n".encode(), None),
        (b"[kanban-retry-after] 7\n[kanban-retry-after] 99999999\n", 7),
    ],
)
def test_when_to_try_again_is_read(path: Path, text: bytes, seconds: int | None) -> None:  # C40
    made = output(path)
    made.feed(text, 1.0)
    made.end(1.0)
    assert made.retry_after == seconds


@given(lines=st.lists(st.binary(max_size=700), max_size=60))
def test_the_tail_has_bounds(tmp_path_factory: pytest.TempPathFactory, lines: list[bytes]) -> None:  # C47
    made = output(tmp_path_factory.mktemp("output") / "log")
    made.feed(b"\n".join(lines), 1.0)
    made.end(1.0)
    tail = made.tail()
    made.log.close()
    assert len(tail) <= 20
    assert sum(len(line.encode()) for line in tail) <= 2000
    assert all(line and len(line.encode()) <= 500 for line in tail)
    assert not any(ord(c) < 32 or 127 <= ord(c) < 160 for line in tail for c in line)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (b"\x1b[1;31mError\x1b[0m: no\n", "Error: no"),
        (b"\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\\n", "link"),
        (b"\x1b]0;title", ""),
        (b"\x1bPq#0\x1b\\after\x1b(B", "after"),
        (b"a\x00b\x08c\x9b31m", "a b c\ufffd31m"),
        ("a\u202eb\u2066c".encode(), "a b c"),
        (b"   \t  ", ""),
        (b"\xf0\x9f\x98\x80" * 200, "\U0001f600" * 124 + "\u2026"),
    ],
)
def test_a_line_for_people_obeys_no_escape_code(line: bytes, text: str) -> None:
    assert plain(line) == text


# --- the log --------------------------------------------------------------------------------------------------
def test_a_mark_stands_on_a_line_of_its_own(path: Path) -> None:
    log = Log(str(path), 0)
    for text in (b"no end", b"progress\r"):
        log.write(text)
        log.mark("[mark]")
    log.close()
    assert path.read_bytes() == b"no end\n[mark]\nprogress\r\n[mark]\n"


def test_a_log_is_put_aside_before_it_grows_too_long(path: Path) -> None:  # D10
    log = Log(str(path), 10)
    for text in (b"12345\n", b"678\n", b"x\n"):
        log.write(text)
    log.close()
    assert path.with_name("t_ab.log.1").read_bytes() == b"12345\n678\n"
    assert path.read_bytes() == b"x\n"


def test_a_line_longer_than_a_whole_log_is_written_all_the_same(path: Path) -> None:
    log = Log(str(path), 10)
    log.write(b"x" * 50 + b"\n")
    log.write(b"y\n")
    log.close()
    assert path.read_bytes() == b"y\n"
    assert path.with_name("t_ab.log.1").stat().st_size == 51


def test_a_full_log_of_a_former_run_is_put_aside(path: Path) -> None:  # D10
    path.write_bytes(b"0123456789")
    log = Log(str(path), 10)
    log.mark("new")
    log.close()
    assert path.read_bytes() == b"new\n"


def test_what_cannot_be_written_is_counted(path: Path) -> None:
    folder = path.parent / "later"
    log = Log(str(folder / "log"), 0)
    log.write(b"12345\n")
    log.write(b"67\n")
    folder.mkdir()
    log.write(b"now\n")
    log.close()
    assert (folder / "log").read_bytes() == b"[kanban-log-gap] 9 bytes could not be written\nnow\n"


def test_a_folder_in_place_of_the_log_is_survived(path: Path) -> None:
    path.mkdir()
    log = Log(str(path), 0)
    log.write(b"x\n")
    log.mark("y")
    log.close()
    assert os.listdir(path) == []


# --- instants -------------------------------------------------------------------------------------------------
@given(st.datetimes(datetime.datetime(1970, 1, 1), datetime.datetime(9999, 12, 31, 23, 59, 59)))
def test_an_instant_is_written_as_iso_8601(at: datetime.datetime) -> None:
    at = at.replace(tzinfo=datetime.UTC, microsecond=0)
    assert iso_utc(int(at.timestamp()) * 1000 + 999) == at.isoformat().replace("+00:00", "Z")
