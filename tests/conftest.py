"""Fixtures: a board on each engine, with a clock that stands still until a test moves it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.world import SqliteWorld, World

for _name in [n for n in os.environ if n.startswith("HERMES_") and not n.startswith("HERMES_TEST_")]:
    del os.environ[_name]  # nothing of the caller's may leak into a test

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # started in the background: what is tested must hear Ctrl-C
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(params=["sqlite"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """A fresh board on each engine that the kernel supports."""
    made = {"sqlite": SqliteWorld}[request.param](tmp_path)
    yield made
    made.close()
