"""A home with an empty board for each test: made once by the command itself, then copied."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.surfaces.hermes import CONFIG, Hermes


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home as `init` leaves it, with names that are known."""
    home = tmp_path_factory.mktemp("template") / "home"
    home.mkdir()
    (home / "config.yaml").write_text(CONFIG, encoding="utf-8")
    made = Hermes(home)("init")
    assert made.code == 0, made
    assert Hermes(home)("list").code == 0  # leaves the JSON copy of config.yaml
    return home


@pytest.fixture
def hermes(template: Path, tmp_path: Path) -> Hermes:
    """The command in a fresh home with an empty default board."""
    home = tmp_path / "home"
    shutil.copytree(template, home)
    return Hermes(home)


@pytest.fixture
def bare(tmp_path: Path) -> Hermes:
    """The command in a home that does not exist yet."""
    return Hermes(tmp_path / "home")
