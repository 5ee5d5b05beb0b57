"""Boards: made by `init` and `boards create` alone, named explicitly, never mixed up (C127, C128, C131)."""

from __future__ import annotations

import os
import stat
import subprocess

import pytest

from hermes_kanban.model import status as s
from tests.surfaces.hermes import HERMES, Hermes


def test_init_says_where_the_board_is_and_is_harmless_to_repeat(bare: Hermes) -> None:
    first = bare("init", "--json")
    assert (first.json["created"], first.json["database"]) == (True, f"{bare.home}/kanban.db")
    assert first.json["next"]
    bare.create("kept")
    again = bare("init")
    assert again.out == f"default {bare.home}/kanban.db\n"
    assert "hermes kanban create" in again.err
    assert [row["title"] for row in bare.ask("list")] == ["kept"]
    assert stat.S_IMODE((bare.home / "kanban.db").stat().st_mode) == 0o600


def test_two_inits_in_the_same_instant_both_work(bare: Hermes) -> None:
    gate = bare.home.parent / "gate"
    os.mkfifo(gate)  # opening it for reading waits until somebody opens it for writing
    starter = ["sh", "-c", 'read go <"$1"; exec hermes kanban init -q', "sh", str(gate)]
    pair = [subprocess.Popen(starter, env=bare.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) for _ in "ab"]
    with gate.open("w") as opened:
        opened.write("go\ngo\n")
        opened.flush()
        assert [process.communicate(timeout=60)[0] for process in pair] == [b"default\n"] * 2
    assert [process.returncode for process in pair] == [0, 0]
    assert bare.ask("list") == []


@pytest.mark.parametrize(
    "words", [["list"], ["create", "x"], ["stats"], ["watch"], ["claim", "--next"], ["boards", "show"]]
)
def test_looking_for_a_board_makes_none(bare: Hermes, words: list[str]) -> None:  # C128
    answer = bare(*words, "--json")
    assert (answer.code, answer.json["error"]["code"]) == (3, "board_not_found")
    assert "hermes kanban init" in answer.err
    assert not bare.home.exists()


def test_the_board_is_named_before_or_behind_the_verb(hermes: Hermes) -> None:
    hermes.ok("boards", "create", "Team-1", "--name", "The team", "--description", "d", "--icon", "*")
    for words in (
        ["--board", "team-1", "create", "a"],
        ["create", "--board=TEAM-1", "b"],
        ["create", "c", "--board", "team-1"],
    ):
        hermes.ok(*words, "--idempotency-key", words[-1])
    assert [row["title"] for row in hermes.ask("--board=team-1", "list")] == ["a", "b", "c"]
    assert hermes.ask("list") == []
    assert hermes("--board", "a", "list", "--board", "b").code == 2
    shown = hermes.ask("boards", "show", "team-1")
    assert (shown["name"], shown["description"], shown["icon"], shown["counts"][s.READY]) == ("The team", "d", "*", 3)


def test_a_board_s_name_is_taken_once_and_has_a_form(hermes: Hermes) -> None:
    hermes.ok("boards", "create", "a")
    again = hermes("boards", "create", "A", "--json")
    assert (again.code, again.json["error"]["code"]) == (4, "board_exists")
    for name in ("", "-a", "a b", "a/b", "..", "ä", "x" * 65):
        assert hermes("boards", "create", "--", name).code == 7
    assert hermes("boards", "create", "b", "--workdir", "relative").code == 7
    assert [row["slug"] for row in hermes.ask("boards")] == ["default", "a"]


def test_an_inherited_file_never_beats_the_named_board(hermes: Hermes) -> None:  # C127
    hermes.ok("boards", "create", "b")
    inherited = hermes.set(HERMES_KANBAN_DB=f"{hermes.home}/kanban.db")
    answer = inherited("--board", "b", "create", "x", "--json")
    assert answer.code == 2
    assert "kanban.db" in answer.json["error"]["message"]
    assert "--board b" in answer.json["error"]["message"]
    assert inherited("--board", "default", "list").code == 0
    assert hermes.ask("list") == hermes.ask("--board", "b", "list") == []
    named = hermes.set(HERMES_KANBAN_BOARD="default")
    named.ok("--board", "b", "create", "x", "--idempotency-key", "k")
    assert len(hermes.ask("--board", "b", "list")) == 1
    assert hermes.ask("list") == []


def test_each_board_shows_its_own_counts(hermes: Hermes) -> None:  # C127
    hermes.ok("boards", "create", "b")
    hermes.create("one")
    hermes.ok("--board", "b", "create", "two", "--triage", "--idempotency-key", "k")
    for view in (hermes, hermes.set(HERMES_KANBAN_DB=f"{hermes.home}/kanban.db"), hermes.set(HERMES_KANBAN_BOARD="b")):
        counts = {row["slug"]: row["counts"] for row in view.ask("boards", "list")}
        assert (counts["default"][s.READY], counts["default"][s.TRIAGE]) == (1, 0)
        assert (counts["b"][s.READY], counts["b"][s.TRIAGE]) == (0, 1)


def test_a_damaged_board_does_not_hide_the_others(hermes: Hermes) -> None:
    hermes.ok("boards", "create", "b")
    (hermes.home / "kanban" / "boards" / "b" / "kanban.db").write_bytes(b"garbage" * 1000)
    rows = {row["slug"]: row for row in hermes.ask("boards", "list")}
    assert rows["default"]["counts"][s.READY] == 0
    assert (rows["b"]["counts"], rows["b"]["error"]["code"]) == (None, "store_refused")
    assert "?" in hermes.ok("boards", "list")


def test_switching_changes_what_is_meant_until_it_is_gone(hermes: Hermes) -> None:  # C128
    hermes.ok("boards", "create", "b", "--switch")
    hermes.ok("create", "x", "--idempotency-key", "k")
    assert len(hermes.ask("--board", "b", "list")) == 1
    assert [row["slug"] for row in hermes.ask("boards") if row["current"]] == ["b"]
    folder = hermes.home / "kanban" / "boards" / "b"
    folder.rename(hermes.home / "elsewhere")
    stale = hermes("stats", "--json")
    assert stale.code == 0
    assert "'b' is gone" in stale.json["warnings"][0]
    assert stale.json["warnings"][0] in stale.err
    assert not folder.exists()
    hermes.ok("boards", "switch", "default")
    assert hermes("stats").err == ""
    assert hermes("boards", "switch", "b").code == 3


def test_a_board_of_the_environment_that_is_not_there_is_an_error(hermes: Hermes) -> None:
    answer = hermes.set(HERMES_KANBAN_BOARD="gone")("list", "--json")
    assert (answer.code, answer.json["error"]["code"]) == (3, "board_not_found")
    assert "HERMES_KANBAN_BOARD" in answer.err


def test_two_callers_with_different_boards_do_not_meet(hermes: Hermes) -> None:  # C131
    for name in ("a", "b"):
        hermes.ok("boards", "create", name)
    with hermes.script() as first, hermes.script() as second:
        for number in range(2):
            for script, name in ((first, "a"), (second, "b")):
                code, said = script(
                    f"hermes kanban boards switch {name} && hermes kanban --board {name} create {name}{number} "
                    f"--idempotency-key {name}{number}"
                )
                assert code == 0, said
    for name in ("a", "b"):
        assert [row["title"] for row in hermes.ask("--board", name, "list")] == [f"{name}0", f"{name}1"]


def test_a_board_s_workdir_is_the_repository_of_its_worktrees(hermes: Hermes) -> None:  # D20
    repository = hermes.home / "repository"
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@example.org", "-C", str(repository)]
    repository.mkdir()
    assert hermes.run([*git, "init", "-q"]).code == 0
    assert hermes.run([*git, "commit", "-q", "--allow-empty", "-m", "first"]).code == 0
    hermes.ok("boards", "create", "b", "--workdir", str(repository))
    board = ("--board", "b")
    task = hermes.ok(*board, "create", "x", "--workspace", "worktree", "--idempotency-key", "k", "-q")
    place = hermes.ok(*board, "claim", task)
    assert os.path.isfile(os.path.join(place, ".git"))
    assert hermes("create", "x", "--workspace", "worktree").code == 7  # the default board names no repository


def test_verbs_about_boards_take_no_other_board(hermes: Hermes) -> None:
    assert hermes("--board", "default", "boards", "create", "x").code == 2
    assert hermes("--board", "x", "init").code == 2
    assert hermes("--board", "default", "init").code == 0
    assert hermes.run([HERMES, "kanban", "boards", "--help"]).code == 0
