"""A folder for the stages of a test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crashes import stage


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder in memory, where the system has one: the speed of a disk proves nothing here."""
    with stage.folder() as made:
        yield made
