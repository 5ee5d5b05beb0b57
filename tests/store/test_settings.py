"""Settings: ranges, unknown keys, files that cannot be used, and the JSON copy that hot commands read."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from hermes_kanban.base import settings
from hermes_kanban.base.errors import ConfigInvalid
from hermes_kanban.base.settings import KEYS, Settings

NUMBERS = sorted(name for name, key in KEYS.items() if key.kind == "int")
WORDS = sorted(name for name, key in KEYS.items() if key.kind == "word")
TEXTS = sorted(name for name, key in KEYS.items() if key.kind == "text")
FLAGS = sorted(name for name, key in KEYS.items() if key.kind == "bool")
LISTS = sorted(name for name, key in KEYS.items() if key.kind == "names")
MAPS = sorted(name for name, key in KEYS.items() if key.kind == "map")


def config(home: Path, text: str | bytes) -> Path:
    """Write config.yaml."""
    home.mkdir(exist_ok=True)
    path = home / "config.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def refused(name: str, value: Any) -> ConfigInvalid:
    with pytest.raises(ConfigInvalid) as refusal:
        Settings({name: value}, "the file")
    assert f"the file: kanban.{name}" in refusal.value.message
    assert refusal.value.exit_code == 7
    return refusal.value


# --- each key ------------------------------------------------------------------------------------------------
def test_every_key_is_of_a_known_sort() -> None:
    assert sorted(NUMBERS + WORDS + TEXTS + FLAGS + LISTS + MAPS) == sorted(KEYS)
    assert all(key.meaning for key in KEYS.values())


def test_every_default_is_a_legal_value() -> None:
    plain = {n: list(k.default) if k.kind == "names" else {} if k.kind == "map" else k.default for n, k in KEYS.items()}
    given, empty = Settings(plain), Settings()
    for name in NUMBERS:
        assert given.number(name) == empty.number(name) == KEYS[name].default
    for name in WORDS + TEXTS:
        assert given.text(name) == empty.text(name) == KEYS[name].default
    for name in FLAGS:
        assert given.flag(name) is empty.flag(name) is KEYS[name].default
    for name in LISTS + MAPS:
        assert given.names(name) == empty.names(name) == ()
    assert given.warnings == empty.warnings == ()


@pytest.mark.parametrize("name", NUMBERS)
def test_both_ends_of_a_range_are_in_it_and_nothing_beyond(name: str) -> None:
    key = KEYS[name]
    assert key.lowest < key.highest
    assert key.unit
    for value in (key.lowest, key.highest):
        assert Settings({name: value}).number(name) == value
    for value in (key.lowest - 1, key.highest + 1, 10**40):
        message = refused(name, value).message
        assert f"{key.lowest} to {key.highest} {key.unit}" in message


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", ["10", 1.5, float("nan"), float("inf"), True, [1], {"a": 1}, "", "ten"])
def test_a_number_is_a_whole_number(name: str, value: Any) -> None:
    refused(name, value)


@pytest.mark.parametrize("name", WORDS)
def test_a_word_is_one_of_its_words(name: str) -> None:
    for word in KEYS[name].words:
        assert Settings({name: word}).text(name) == word
    for value in (KEYS[name].words[0].upper(), "", 1, True, [KEYS[name].words[0]], {}):
        message = refused(name, value).message
        assert all(word in message for word in KEYS[name].words)


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_is_a_text(name: str) -> None:
    assert Settings({name: "some words"}).text(name) == "some words"
    for value in (1, True, ["a"], {}):
        refused(name, value)


@pytest.mark.parametrize("name", FLAGS)
def test_a_flag_is_yes_or_no(name: str) -> None:
    assert Settings({name: True}).flag(name) is True
    assert Settings({name: False}).flag(name) is False
    for value in ("true", 1, 0, [], {}):
        refused(name, value)


@pytest.mark.parametrize("name", LISTS)
def test_a_list_holds_names(name: str) -> None:
    assert Settings({name: ["ann", "bot"]}).names(name) == ("ann", "bot")
    for value in ("ann", ["ann", ""], [1], {"ann": 1}, True):
        refused(name, value)


@pytest.mark.parametrize("name", MAPS)
def test_a_map_is_a_map(name: str) -> None:
    assert Settings({name: {"fast": {"command": "x"}, "slow": None}}).names(name) == ("fast", "slow")
    for value in (["fast"], "fast", 1, {"": 1}, {1: 2}):
        refused(name, value)


@pytest.mark.parametrize("name", sorted(KEYS))
def test_a_key_without_a_value_is_not_given(name: str) -> None:
    assert Settings({name: None})._values[name] == KEYS[name].default


def test_an_unknown_key_warns_with_the_nearest_name() -> None:
    made = Settings({"claim_ttl_secnds": 5, "zzzz": 1}, "the file")
    assert made.warnings == (
        "the file: kanban.claim_ttl_secnds is not a setting; did you mean claim_ttl_seconds?",
        "the file: kanban.zzzz is not a setting",
    )
    assert made.number("claim_ttl_seconds") == KEYS["claim_ttl_seconds"].default


# --- the file ------------------------------------------------------------------------------------------------
def test_no_file_means_the_defaults_and_makes_nothing(home: Path) -> None:
    assert settings.load(str(home)).number("claim_ttl_seconds") == 900
    assert not home.exists()


@pytest.mark.parametrize("text", ["", "# nothing\n", "kanban:\n", "kanban: {}\n", "model: x\nother: {a: 1}\n"])
def test_a_file_without_our_section_is_fine(home: Path, text: str) -> None:
    config(home, text)
    for _ in range(2):
        assert settings.load(str(home)).warnings == ()


def test_other_programs_sections_are_not_kept(home: Path) -> None:
    config(home, "kanban: {claim_ttl_seconds: 7}\nkeys: {secret: hunter2}\n")
    assert settings.load(str(home)).number("claim_ttl_seconds") == 7
    copy = home / ".config.json"
    assert "hunter2" not in copy.read_text(encoding="utf-8")
    assert copy.stat().st_mode & 0o777 == 0o600


BAD = [
    "{", "- a", "word", "kanban: [1]", "kanban: words", "kanban: {claim_ttl_seconds: [}", "\x00", b"\xff\xfe\xff",
    "x: 2024-99-99", "kanban: {claim_ttl_seconds: 2024-01-01}", f"kanban: {{claim_ttl_seconds: {'9' * 5000}}}",
    f"kanban: {{claim_ttl_seconds: 0x{'f' * 5000}}}", "kanban: {2024-01-01: 1}", "kanban: &a {lanes: *a}", "[" * 3000,
    "kanban: !!python/object/apply:os.system [true]", "kanban: {claim_ttl_seconds: 0}",
    "kanban: {claim_ttl_seconds: -5}", "kanban: {claim_ttl_seconds: 1e23}", "kanban: {lock_wait_seconds: .nan}",
    "kanban: {durability: some}",
]  # fmt: skip


@pytest.mark.parametrize("text", BAD, ids=range(len(BAD)))
def test_a_file_that_cannot_be_used_is_refused_each_time(home: Path, text: str | bytes) -> None:
    path = config(home, text)
    before = path.read_bytes()
    for _ in range(2):  # with and without a copy of it
        with pytest.raises(ConfigInvalid) as refusal:
            settings.load(str(home))
        assert str(path) in refusal.value.message
        assert "\n" not in refusal.value.message
        assert refusal.value.hint
    assert path.read_bytes() == before


def test_a_folder_in_place_of_the_file_is_refused(home: Path) -> None:
    (home / "config.yaml").mkdir(parents=True)
    with pytest.raises(ConfigInvalid):
        settings.load(str(home))


# --- the copy ------------------------------------------------------------------------------------------------
@pytest.fixture
def no_yaml(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading YAML now fails the test."""

    def refuse(path: str) -> dict[str, Any]:
        raise AssertionError(f"{path} was parsed again")

    monkeypatch.setattr(settings, "_parsed", refuse)


def test_the_second_command_reads_the_copy(home: Path, request: pytest.FixtureRequest) -> None:
    config(home, "kanban: {claim_ttl_seconds: 7, lanes: {fast: {}}, external_assignees: [ann]}\n")
    first = settings.load(str(home))
    request.getfixturevalue("no_yaml")
    second = settings.load(str(home))
    assert second._values == first._values
    assert second.number("claim_ttl_seconds") == 7


def test_a_changed_file_is_read_again(home: Path) -> None:
    for value in (7, 8, 9):  # of the same length, perhaps within one tick of the file system's clock
        path = config(home, f"kanban: {{claim_ttl_seconds: {value}}}\n")
        os.utime(path, ns=(value, value))
        assert settings.load(str(home)).number("claim_ttl_seconds") == value


def test_a_file_that_was_replaced_in_the_same_instant_is_read_again(home: Path) -> None:
    path = config(home, "kanban: {claim_ttl_seconds: 7}\n")
    assert settings.load(str(home)).number("claim_ttl_seconds") == 7
    instant = path.stat().st_mtime_ns
    other = home / "new.yaml"
    other.write_text("kanban: {claim_ttl_seconds: 8}\n", encoding="utf-8")
    os.replace(other, path)
    os.utime(path, ns=(instant, instant))
    assert settings.load(str(home)).number("claim_ttl_seconds") == 8


def test_a_removed_file_means_the_defaults_again(home: Path) -> None:
    path = config(home, "kanban: {claim_ttl_seconds: 7}\n")
    assert settings.load(str(home)).number("claim_ttl_seconds") == 7
    path.unlink()
    assert settings.load(str(home)).number("claim_ttl_seconds") == 900


@pytest.mark.parametrize("damage", ["", "{", "[]", "null", '{"stamp": 1}', "STAMP", "STAMP-LIST", "\x00"])
def test_a_damaged_copy_is_made_anew(home: Path, damage: str) -> None:
    config(home, "kanban: {claim_ttl_seconds: 7}\n")
    settings.load(str(home))
    copy = home / ".config.json"
    stamp = json.loads(copy.read_text(encoding="utf-8"))["stamp"]
    written = {"STAMP": json.dumps({"stamp": stamp}), "STAMP-LIST": json.dumps({"stamp": stamp, "document": []})}
    copy.write_text(written.get(damage, damage), encoding="utf-8")
    assert settings.load(str(home)).number("claim_ttl_seconds") == 7
    assert json.loads(copy.read_text(encoding="utf-8"))["document"] == {"kanban": {"claim_ttl_seconds": 7}}


def test_the_first_reading_and_the_later_ones_agree(home: Path) -> None:
    config(home, "kanban: {reviewer: 2024-01-01, lanes: {1: x, true: y}, true: z}\n")
    first, second = settings.load(str(home)), settings.load(str(home))
    assert first._values == second._values
    assert first.warnings == second.warnings


def test_a_copy_that_cannot_be_left_is_no_error(home: Path) -> None:
    config(home, "kanban: {claim_ttl_seconds: 7}\n")
    (home / ".config.json").mkdir()
    for _ in range(2):
        assert settings.load(str(home)).number("claim_ttl_seconds") == 7
    assert sorted(os.listdir(home)) == [".config.json", "config.yaml"]


# --- in the midst of work ------------------------------------------------------------------------------------
@pytest.mark.parametrize("text", BAD, ids=range(len(BAD)))
def test_who_is_at_work_goes_on_with_the_last_good_values(home: Path, text: str | bytes) -> None:
    path = config(home, text)
    for wanted in (900, 7):  # the default as long as there never was a file that could be used
        for _ in range(2):
            with pytest.raises(ConfigInvalid) as refusal:
                settings.load(str(home))
            found = settings.load_forgiving(str(home))
            assert found.number("claim_ttl_seconds") == wanted
            assert str(path) in refusal.value.message
            assert str(path) in found.warnings[0]
            assert ("default" if wanted == 900 else "last good") in found.warnings[0]
        config(home, "kanban: {claim_ttl_seconds: 7}\n")
        assert settings.load_forgiving(str(home)).number("claim_ttl_seconds") == 7
        path.write_bytes(text.encode() if isinstance(text, str) else text)


def test_who_is_at_work_reads_a_good_file_without_a_warning(home: Path) -> None:
    assert settings.load_forgiving(str(home)).warnings == ()
    config(home, "kanban: {claim_ttl_seconds: 7}\n")
    for _ in range(2):
        found = settings.load_forgiving(str(home))
        assert (found.number("claim_ttl_seconds"), found.warnings) == (7, ())


@pytest.mark.parametrize("document", [{"kanban": [1]}, {"kanban": {"claim_ttl_seconds": 0}}, [], {}])
def test_a_copy_of_another_version_is_not_trusted(home: Path, document: Any) -> None:
    config(home, "{")
    (home / ".config.json").write_text(json.dumps({"stamp": [1, 1, 1], "document": document}), encoding="utf-8")
    assert settings.load_forgiving(str(home)).number("claim_ttl_seconds") == 900


def test_only_what_was_checked_is_kept(home: Path) -> None:
    config(home, "kanban: {claim_ttl_seconds: 0}\n")
    with pytest.raises(ConfigInvalid):
        settings.load(str(home))
    assert os.listdir(home) == ["config.yaml"]


# --- the environment -----------------------------------------------------------------------------------------
def test_only_known_variables_are_read() -> None:
    given = {"HERMES_KANBAN_BOARD": "", "PATH": "/bin", "SOME_KEY": "secret", "HOME": "/h"}
    assert settings.read_environment(given) == {"HERMES_KANBAN_BOARD": "", "HOME": "/h"}


def test_a_home_is_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/somewhere")
    assert settings.home_folder({"HERMES_HOME": "x"}) == str(tmp_path / "x")
    assert settings.home_folder({}) == settings.home_folder({"HERMES_HOME": ""}) == "/somewhere/.hermes"


def test_sockets_live_in_the_run_time_folder_else_in_a_private_temporary_one(tmp_path: Path) -> None:
    assert settings.runtime_folder({"XDG_RUNTIME_DIR": str(tmp_path)}) == str(tmp_path / "hermes-kanban")
    elsewhere = {"XDG_RUNTIME_DIR": str(tmp_path / "none"), "TMPDIR": str(tmp_path)}
    assert settings.runtime_folder(elsewhere) == str(tmp_path / f"hermes-kanban-{os.getuid()}")
