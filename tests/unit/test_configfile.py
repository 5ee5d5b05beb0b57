"""config.yaml is changed by one entry, and every other byte stays as people wrote it."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from hermes_kanban.base import configfile, yamlfile
from hermes_kanban.base.errors import ConfigInvalid

KEYS_OF = ("kanban", "lanes", "new")
ODD = {
    "type": "command",
    "argv": ["tool", "{task_id}", "yes", "it's: #x", "ünï 🎉", "a\nb", "", "1", "- x", "~", "0x1", "a: b", "\x7f\t"],
    "max_concurrency": 2,
}
FILES = {
    "none": "",
    "comment": "# only a comment\n",
    "other": "model: x",
    "null": ("kanban:\n# below\n"),
    "empty": "kanban: {}  # nothing yet\n",
    "flow": "kanban: {claim_ttl_seconds: 7}\n",
    "flow in flow": "kanban: {lanes: {}}\n",
    "lanes in flow": ("kanban:\n  lanes: {a: {argv: [x]}}  # mine\n  reviewer: b\n"),
    "comma": ("kanban:\n  lanes: {a: {argv: [x]},}\n"),
    "wide flow": ("kanban:\n  lanes: {\n    a: {argv: [x]},\n    # more\n  }\n"),
    "tilde": ("kanban:\n  lanes: ~\n  reviewer: x\n"),
    "without": ("kanban:\n  claim_ttl_seconds: 7   # why\n\n# end\n"),
    "block": (
        "# head\n"
        "kanban:\n"
        "  lanes:\n"
        "    # first\n"
        "    a: {type: command, argv: [x]}\n"
        "    # after a\n"
        "\n"
        "# models\n"
        "model: x\n"
    ),
    "wide": (
        "kanban:\n    lanes:\n        a:\n            argv:\n              - x\n              - y\n    reviewer: z\n"
    ),
    "text": (
        "kanban:\n"
        "  lanes:\n"
        "    a:\n"
        "      argv: [x]\n"
        "      description: |\n"
        "        long\n"
        "        text\n"
        "\n"
        "\n"
        "  reviewer: x\n"
    ),
    "kept text": ("kanban:\n  lanes:\n    a:\n      argv: [x]\n      description: |+\n        long\n\n\nother: 1\n"),
    "last text": ("kanban:\n  lanes:\n    a:\n      argv: [x]\n      description: >-\n        long\n        text"),
    "windows": ("kanban:\r\n  lanes:\r\n    a:\r\n      argv: [x]\r\nz: 1\r\n"),
    "document": ("---\nkanban:\n  lanes: null # none\n"),
    "ended": ("kanban:\n  lanes:\n    'on':\n      argv: [x]\n...\n"),
    "question": ("? kanban\n: lanes: {}\n"),
    "mark": ("\ufeffkanban:\n  reviewer: x\n"),
    "quotes": ("\"kanban\":\n  'lanes':\n    a:   {argv:   [ 'x' ,  \"y\" ]}   # odd   spaces\n"),
    "words": ("kanban:\n  lanes:\n    a:\n      argv: [x]\n      description: two\n        lines\n  reviewer: x\n"),
}
WITH_LANES = [name for name, text in FILES.items() if "a:" in text]


@pytest.mark.parametrize("name", FILES)
def test_an_entry_comes_and_goes_and_all_else_stays(name: str) -> None:
    before = FILES[name]
    put = configfile.put(before, KEYS_OF, ODD, "f")
    old, new = yamlfile.parse(before, "f") or {}, yamlfile.parse(put, "f")
    assert new["kanban"]["lanes"].pop("new") == ODD
    assert without_nothing(new) == without_nothing(old)
    kept = [line.strip() for line in before.splitlines() if "#" in line]
    assert all(any(line.partition("#")[2] in now for now in put.splitlines()) for line in kept)
    back = configfile.drop(put, KEYS_OF, "f")
    assert without_nothing(yamlfile.parse(back, "f")) == without_nothing(old)
    if name in WITH_LANES:
        assert tight(back) in (tight(before), tight(f"{before}\n"))


def tight(text: str) -> str:
    """Leave out what a flow map may have before its end."""
    return re.sub(r",? *}", "}", text)


def without_nothing(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_nothing(one) for key, one in value.items() if without_nothing(one) not in ({}, None)}
    return value


def test_lines_that_are_not_about_it_are_the_same_bytes() -> None:
    before = FILES["block"]
    after = configfile.put(before, KEYS_OF, {"argv": ["tool"]}, "f")
    added = [line for line in after.splitlines() if line not in before.splitlines()]
    assert added == ["    new:", "      argv: [tool]"]
    assert [line for line in after.splitlines() if line not in added] == before.splitlines()


NEXT = "kanban:\n  lanes:\n    a:\n      argv:\n      - x\n      # of a\n\n  # who reviews\n  reviewer: x\n"


def test_a_comment_in_front_of_what_comes_next_stays_there() -> None:
    put = configfile.put(NEXT, KEYS_OF, {"argv": ["tool"]}, "f")
    assert put == NEXT.replace("# of a\n", "# of a\n    new:\n      argv: [tool]\n")
    gone = configfile.drop(put, ("kanban", "lanes", "a"), "f")
    assert gone == put.replace("    a:\n      argv:\n      - x\n      # of a\n", "")


@pytest.mark.parametrize(
    "text", ["kanban: [1]\n", "kanban:\n  lanes: [a]\n", "- a\n", "kanban: word\n", "kanban: {lanes: }\n", "["]
)
def test_a_file_in_a_form_that_is_not_understood_is_refused(text: str) -> None:
    with pytest.raises(ConfigInvalid) as refusal:
        configfile.put(text, KEYS_OF, ODD, "the file")
    assert "the file" in refusal.value.message
    assert refusal.value.hint


def test_what_cannot_be_changed_safely_is_handed_over_as_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(configfile, "_after", lambda *_: 3)
    with pytest.raises(ConfigInvalid) as refusal:
        configfile.put("kanban:\n  reviewer: x\n", KEYS_OF, {"argv": ["tool"]}, "f")
    assert "kanban:\n  lanes:\n    new:\n      argv: [tool]\n" in refusal.value.hint


def test_a_link_stays_a_link_and_the_mode_stays(tmp_path: Path) -> None:
    real = tmp_path / "dotfiles" / "config.yaml"
    real.parent.mkdir()
    real.write_text("model: x\n")
    real.chmod(0o640)
    link = tmp_path / "config.yaml"
    link.symlink_to(real)
    configfile.write(str(link), "model: y\n")
    assert link.is_symlink()
    assert real.read_text() == configfile.read(str(link)) == "model: y\n"
    assert real.stat().st_mode & 0o777 == 0o640
    fresh = tmp_path / "new" / "config.yaml"
    configfile.write(str(fresh), "a: 1\n")
    assert (fresh.stat().st_mode & 0o777, fresh.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert sorted(os.listdir(real.parent)) == ["config.yaml"]
    assert configfile.read(str(tmp_path / "none.yaml")) == ""
