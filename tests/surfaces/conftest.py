"""A home with an empty board for each test: made once by the command itself, then copied."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
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
def runtime() -> Iterator[str]:
    """A folder for sockets with a short path: a socket's own may have about a hundred bytes."""
    with tempfile.TemporaryDirectory(prefix="hk") as folder:
        yield folder


@pytest.fixture
def hermes(template: Path, tmp_path: Path, runtime: str) -> Hermes:
    """The command in a fresh home with an empty default board."""
    home = tmp_path / "home"
    shutil.copytree(template, home)
    return Hermes(home, XDG_RUNTIME_DIR=runtime)


@pytest.fixture
def bare(tmp_path: Path, runtime: str) -> Hermes:
    """The command in a home that does not exist yet."""
    return Hermes(tmp_path / "home", XDG_RUNTIME_DIR=runtime)
