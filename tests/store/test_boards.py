"""Boards as folders: names, places, and which board a command means."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from hermes_kanban import boards
from hermes_kanban.base.errors import BoardExists, BoardNotFound, InvalidValue, StoreRefused, Usage
from tests.store import homes

LEGAL = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}\Z")


@pytest.fixture
def three(home: Path) -> str:
    """A home with the boards default, a and b."""
    for name in (boards.DEFAULT, "a", "b"):
        homes.make(home, name)
    return str(home)


def chosen(home: str, explicit: str | None = None, **environment: str) -> str:
    """Return the slug of the board that is meant; there must be no warning."""
    found = boards.choose(home, explicit, environment)
    assert found.warning == ""
    return found.place.slug


def point(home: str, text: str | bytes) -> None:
    """Write the current file."""
    data = text.encode() if isinstance(text, str) else text
    Path(home, "kanban", "current").write_bytes(data)


# --- names ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("text", ["a", "0", "a-b_c", "x" * 64, "default", "9lives"])
def test_a_name_of_the_stated_form_is_kept(text: str) -> None:
    assert boards.slug(text) == text


def test_capitals_are_lowered() -> None:
    assert boards.slug("Team-A") == "team-a"


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "-a", "_a", "_archived", ".", "..", "a/b", "../a", "a b", "a\n", "a.b", "x" * 65, "ä",
        "\u212a", "\u0130", "a\x00", "a\x1b[0m", "٣", "a\udcff", "~", "$HOME", "a;b",
    ],
)  # fmt: skip
def test_everything_else_is_refused(text: str) -> None:
    with pytest.raises(InvalidValue) as refusal:
        boards.slug(text)
    assert refusal.value.fields["argument"] == "board"
    assert "\x1b" not in refusal.value.message
    assert "1 to 64" in refusal.value.hint


def test_no_character_slips_through() -> None:
    for number in range(0x3000):
        text = f"a{chr(number)}"
        try:
            assert LEGAL.match(boards.slug(text)), hex(number)
        except InvalidValue:
            assert not LEGAL.match(text.lower()) or not text.isascii()


# --- places --------------------------------------------------------------------------------------------------
def test_places_are_where_the_documents_say() -> None:
    default, named = boards.place("/h", "default", {}), boards.place("/h", "team", {})
    assert (default.database, default.folder) == ("/h/kanban.db", "/h/kanban")
    assert (default.workspaces, default.logs) == ("/h/kanban/workspaces", "/h/kanban/logs")
    assert default.attachments == "/h/kanban/attachments"
    assert (named.database, named.folder) == ("/h/kanban/boards/team/kanban.db", "/h/kanban/boards/team")
    assert named.description == "/h/kanban/boards/team/board.yaml"
    assert (named.workspaces, named.logs) == ("/h/kanban/boards/team/workspaces", "/h/kanban/boards/team/logs")


def test_variables_override_places_and_become_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    given = {
        "HERMES_KANBAN_DB": "x.db",
        "HERMES_KANBAN_WORKSPACES_ROOT": "w",
        "HERMES_KANBAN_ATTACHMENTS_ROOT": "../at",
    }
    found = boards.place("/h", "team", given)
    assert found.database == str(tmp_path / "x.db")
    assert found.workspaces == str(tmp_path / "w")
    assert found.attachments == str(tmp_path.parent / "at")
    assert boards.place("/h", "team", dict.fromkeys(given, "")) == boards.place("/h", "team", {})


def test_who_opens_the_same_file_has_the_same_place(tmp_path: Path) -> None:  # D3, D13
    (tmp_path / "homelink").symlink_to(tmp_path / "h")
    for name, folder in ((boards.DEFAULT, "h/kanban"), ("team", "h/kanban/boards/team")):
        own = boards.place(str(tmp_path / "h"), name, {})
        Path(own.folder).mkdir(parents=True)
        Path(own.database).touch()
        (tmp_path / f"{name}.link").symlink_to(own.database)
        assert own.folder == str(tmp_path / folder)
        through = str(tmp_path / "homelink" / Path(own.database).relative_to(tmp_path / "h"))
        for given in (own.database, through, str(tmp_path / f"{name}.link")):
            for home, meant in (("h", name), ("h", "other"), ("elsewhere", boards.DEFAULT)):
                found = boards.place(str(tmp_path / home), meant, {"HERMES_KANBAN_DB": given})
                assert found.evolve(slug=name, database=own.database) == own
        linked = boards.place(str(tmp_path / "homelink"), name, {})
        assert linked.evolve(database=own.database) == own


def test_no_two_files_share_a_place() -> None:  # D3, D13
    files = [
        "/h/kanban.db", "/h/kanban", "/h/other.db", "/h/kanban/kanban.db", "/h/kanban/boards/kanban.db",
        "/h/kanban/boards/kanban/kanban.db", "/h/kanban/boards/a/kanban.db", "/h/kanban/boards/a/x.db",
        "/h/kanban/boards/a/kanban/kanban.db", "/h/kanban/boards/a.d/kanban.db", "/h/kanban/boards/a",
        "/h/boards/a/kanban.db", "/h/kanban.d/kanban.db",
    ]  # fmt: skip
    places = [boards.place("/h", "default", {"HERMES_KANBAN_DB": file}) for file in files]
    for kind in ("folder", "runs", "tickets", "logs", "workspaces", "attachments", "description"):
        assert len({getattr(found, kind) for found in places}) == len(files)
    assert boards.place("/h", "default", {"HERMES_KANBAN_DB": "/h/other.db"}).runs == "/h/other.db.d/runs"


# --- which one -----------------------------------------------------------------------------------------------
def test_the_default_board_is_meant_when_nothing_is_said(three: str) -> None:
    assert chosen(three) == "default"


def test_the_current_file_beats_the_default(three: str) -> None:
    point(three, "a\n")
    assert chosen(three) == "a"
    point(three, "default\n")
    assert chosen(three) == "default"


def test_the_variable_beats_the_current_file(three: str) -> None:
    point(three, "a\n")
    assert chosen(three, HERMES_KANBAN_BOARD="B") == "b"
    assert chosen(three, HERMES_KANBAN_BOARD="default") == "default"
    assert chosen(three, HERMES_KANBAN_BOARD="") == "a"


def test_the_argument_beats_them_all(three: str) -> None:  # C127
    point(three, "a\n")
    assert chosen(three, "b", HERMES_KANBAN_BOARD="a") == "b"
    assert chosen(three, "default", HERMES_KANBAN_BOARD="a") == "default"


def test_work_lands_on_the_board_that_was_named_whatever_others_switch_to(three: str) -> None:  # C127, C131
    for turn in range(4):
        mine, theirs = ("a", "b") if turn % 2 else ("b", "a")
        boards.switch(three, theirs, {})
        board = homes.opened(three, chosen(three, mine, HERMES_KANBAN_BOARD=theirs))
        homes.card(board, f"{mine}{turn}")
        homes.store_of(board).close()
    for name in ("a", "b"):
        board = homes.opened(three, name, write=False)
        assert {event.payload["title"][5] for event in board.events() if "title" in event.payload} <= {name}
        assert board.last_event_id() == 2


@pytest.mark.parametrize("explicit", [None, "gone"])
def test_a_board_that_is_not_there_is_an_error_never_another_one(three: str, explicit: str | None) -> None:  # C128
    before = sorted(os.listdir(Path(three, "kanban", "boards")))
    with pytest.raises(BoardNotFound) as refusal:
        boards.choose(three, explicit, {"HERMES_KANBAN_BOARD": "gone"} if explicit is None else {})
    assert "'gone'" in refusal.value.message
    assert ("--board" if explicit else "HERMES_KANBAN_BOARD") in refusal.value.message
    assert "boards create gone" in refusal.value.hint
    assert sorted(os.listdir(Path(three, "kanban", "boards"))) == before


def test_a_variable_that_is_no_name_is_refused_too(three: str) -> None:
    with pytest.raises(InvalidValue):
        boards.choose(three, None, {"HERMES_KANBAN_BOARD": "../a"})


@pytest.mark.parametrize("text", ["gone\n", "", "no name at all\n", b"\xff\xfe", "../../etc"])
def test_a_stale_pointer_warns_and_makes_nothing(three: str, text: str | bytes) -> None:  # C128
    point(three, text)
    before = sorted(os.listdir(Path(three, "kanban", "boards")))
    found = boards.choose(three, None, {})
    assert found.place.slug == "default"
    assert "default board is meant" in found.warning
    assert "boards switch" in found.warning
    assert sorted(os.listdir(Path(three, "kanban", "boards"))) == before


def test_a_home_without_boards_says_how_to_make_one(home: Path) -> None:  # C128
    for given in ({}, {"HERMES_KANBAN_BOARD": "default"}):
        with pytest.raises(BoardNotFound) as refusal:
            boards.choose(str(home), None, given)
        assert "hermes kanban init" in refusal.value.hint
    assert not home.exists()


def test_a_file_for_one_process_is_used(three: str, tmp_path: Path) -> None:
    given = str(tmp_path / "mine.db")
    point(three, "a")
    assert boards.choose(three, None, {"HERMES_KANBAN_DB": given}).place.database == given


def test_a_file_that_disagrees_with_the_argument_is_an_error_that_names_both(
    three: str, tmp_path: Path
) -> None:  # C127
    other = boards.place(three, "a", {}).database
    with pytest.raises(Usage) as refusal:
        boards.choose(three, "b", {"HERMES_KANBAN_DB": other})
    assert other in refusal.value.message
    assert boards.place(three, "b", {}).database in refusal.value.message
    link = tmp_path / "b.db"
    link.symlink_to(boards.place(three, "b", {}).database)
    assert boards.choose(three, "b", {"HERMES_KANBAN_DB": str(link)}).place.slug == "b"
    with pytest.raises(BoardNotFound):
        boards.choose(three, "gone", {"HERMES_KANBAN_DB": other})


# --- switching, listing, making ------------------------------------------------------------------------------
def test_switching_is_kept_for_the_next_command(three: str) -> None:
    assert boards.current(three) == "default"
    assert boards.switch(three, "A", {}).slug == "a"
    assert boards.current(three) == "a"
    assert chosen(three) == "a"
    pointer = Path(three, "kanban", "current")
    assert pointer.stat().st_mode & 0o777 == 0o600
    assert not [name for name in os.listdir(pointer.parent) if name.endswith(".new")]


def test_switching_to_nothing_changes_nothing(three: str) -> None:
    boards.switch(three, "a", {})
    for given in ({}, {"HERMES_KANBAN_DB": boards.place(three, "b", {}).database}):
        with pytest.raises(BoardNotFound):
            boards.switch(three, "gone", given)
    assert boards.current(three) == "a"


def test_names_are_the_boards_that_are_there(three: str) -> None:
    folder = Path(three, "kanban", "boards")
    for name in ("_archived", "empty", ".hidden", "No Name", "default"):
        (folder / name).mkdir()
    for name in ("_archived", ".hidden", "No Name", "default"):
        (folder / name / "kanban.db").touch()
    (folder / "file").touch()
    assert boards.names(three, {}) == ("default", "a", "b")
    assert boards.names(three, {"HERMES_KANBAN_DB": boards.place(three, "a", {}).database}) == ("default", "a", "b")
    assert boards.names(f"{three}/none", {}) == ()


def test_a_board_is_not_made_twice(three: str) -> None:
    with pytest.raises(BoardExists) as refusal:
        boards.refuse_existing(boards.place(three, "a", {}))
    assert refusal.value.fields["board"] == "a"
    new = boards.place(three, "new", {})
    boards.refuse_existing(new)
    boards.make_folders(new)
    Path(new.database).touch()  # all that a making on a full disk leaves
    boards.refuse_existing(new)


def test_a_place_that_cannot_hold_folders_is_refused(tmp_path: Path) -> None:
    (tmp_path / "home").touch()
    with pytest.raises(StoreRefused) as refusal:
        boards.make_folders(boards.place(str(tmp_path / "home"), "default", {}))
    assert str(tmp_path / "home") in refusal.value.message
    with pytest.raises(StoreRefused):
        boards.write_file(str(tmp_path / "home" / "current"), "x")


# --- board.yaml and small files ------------------------------------------------------------------------------
def test_a_description_is_read_as_it_was_written(three: str) -> None:
    found = boards.place(three, "a", {})
    facts = {"name": "Überschrift: #1", "description": "two\nlines", "icon": None, "default_workdir": "/x"}
    boards.describe(found, facts)
    assert boards.description(found) == {n: v for n, v in facts.items() if v is not None}
    assert os.stat(found.description).st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "data", [b"", b"{", b"- a", b"text", b"\xff", b"a: 2024-99-99", b"\x00", b"a: !!python/name:os.system"]
)
def test_a_description_that_cannot_be_read_is_empty(three: str, data: bytes) -> None:
    found = boards.place(three, "a", {})
    assert boards.description(found) == {}
    Path(found.description).write_bytes(data)
    assert boards.description(found) == {}


def test_a_file_that_cannot_be_replaced_stays_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "current"
    boards.write_file(str(path), "old\n")

    def fails(source: str, target: str) -> None:
        raise OSError(5, "Input/output error", source)

    monkeypatch.setattr(boards.os, "replace", fails)
    with pytest.raises(StoreRefused):
        boards.write_file(str(path), "new\n")
    assert path.read_text(encoding="utf-8") == "old\n"
    assert os.listdir(tmp_path) == ["current"]
