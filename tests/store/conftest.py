"""Fixtures: a home with a board, in a folder whose name is short enough for sockets."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.store import homes


@pytest.fixture
def home() -> Iterator[Path]:
    """An empty home."""
    folder = Path(tempfile.mkdtemp(prefix="hk-"))
    (folder / "h-run").mkdir(mode=0o700)  # where environment() of a home looks for sockets
    yield folder / "h"
    shutil.rmtree(folder)


@pytest.fixture
def database(home: Path) -> str:
    """The file of a home's default board."""
    return homes.make(home).database
