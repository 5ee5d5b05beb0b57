"""Files, variables and standard input of every sort: a right answer or a refusal, and never a change by one (T6)."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_kanban.base.settings import ENVIRONMENT, KEYS
from hermes_kanban.cli.graph import KNOWN
from hermes_kanban.lanes.lane import COMMAND
from hermes_kanban.store.feed import board_mark
from tests.fuzz import garbage, ground
from tests.fuzz.judge import judge
from tests.fuzz.test_command_line import EXAMPLES, HOW
from tests.fuzz.words import TEXTS

few = settings(HOW, max_examples=max(10, EXAMPLES // 8))
SOME_CALLS = (
    *(["list"], ["list", "--json"], ["boards", "list", "--json"], ["boards", "show"], ["lanes", "list"], ["inbox"]),
    *(["why", "<ready>"], ["claim", "--next"], ["heartbeat", "<mine>"], ["comment", "<mine>", "a fact"], ["dispatch"]),
    *(["dispatch", "--dry-run", "--json"], ["create", "x", "--idempotency-key", "k"], ["init"], ["verify"]),
    *(["complete", "<mine>", "--summary", "made"], ["gateway", "status"], ["boards", "switch", "side"]),
    *(["lanes", "add", "one", "--", "true"], ["lanes", "rm", "bot"], ["block", "<mine>", *ground.FULL]),
)
calls = st.sampled_from(SOME_CALLS)
callers = st.sampled_from(sorted(ground.CALLERS)).map(ground.CALLERS.__getitem__)


def called(here: ground.Ground, words: list[str], caller: dict[str, str], stdin: bytes = b"") -> None:
    judge(here, here.call(words, caller, stdin))


# --- config.yaml ----------------------------------------------------------------------------------------------
LANE = {"type": COMMAND, "argv": ["true"], "env": ["A"], "timeout": 5, "max_concurrency": 1, "model": "m"} | {
    **{"success_policy": "complete", "wait_for": "all", "memory_limit": 0, "description": "d", "profile": "bot"},
}
scalars = st.sampled_from([value for value in garbage.EXTREMES if value != "\ud800" and "\ud800" not in str(value)])


@st.composite
def sections(draw: st.DrawFn) -> bytes:
    """A `kanban:` section with values of any kind in the place of some settings, and of parts of a lane."""
    names = st.sampled_from((*sorted(KEYS), "claim_tll_seconds", "", "\x1b[2J"))
    values = draw(st.dictionaries(names, scalars, max_size=2))
    lane: dict[Any, Any] = LANE | draw(st.dictionaries(st.sampled_from(sorted(LANE)), scalars, max_size=2))
    named = draw(st.sampled_from(("bot", "", "../../x", "a b", "none", "x" * 200, "\u202eb")))
    return yaml.safe_dump({"kanban": {"lanes": {named: lane}} | values}).encode()


@few
@given(sections() | garbage.yaml, calls, callers)
def test_any_config_is_used_or_refused(text: bytes, words: list[str], caller: dict[str, str]) -> None:  # T6, C142
    with ground.fresh() as here:
        (here.home / "config.yaml").write_bytes(text)
        called(here, words, caller)
        assert (here.home / "config.yaml").read_bytes() == text or words[0] == "lanes"


@few
@given(st.sampled_from(("config.yaml", "profile.yaml")), garbage.yaml | sections(), calls)
def test_any_profile_is_used_or_passed_over(name: str, text: bytes, words: list[str]) -> None:  # T6, C142
    with ground.fresh() as here:
        folder = here.home / "profiles" / "bot"
        folder.mkdir(parents=True)
        (folder / "config.yaml").write_text("worker: {type: command, argv: [true]}\n", encoding="utf-8")
        (folder / name).write_bytes(text.replace(b"kanban:", b"worker:"))
        called(here, words, ground.PERSON)


# --- graphs of cards ------------------------------------------------------------------------------------------
RIGHT = {"name": "a", "title": "A", "parents": ["<ready>"], "skills": ["x"], "priority": 3, "in": "2h"} | {
    **{"idempotency-key": "k", "body": "text", "triage": False, "goal": True, "max-runtime": 60},
}


@few
@given(
    garbage.encoded({"tasks": [RIGHT]}) | garbage.yaml | garbage.mutated(RIGHT).map(lambda d: json.dumps([d]).encode())
)
def test_any_graph_is_made_whole_or_not_at_all(text: bytes) -> None:  # T6, P53
    with ground.fresh() as here:
        called(here, ["apply", "-"], ground.PERSON, here.filled(text.decode("latin-1")).encode("latin-1"))


@pytest.mark.parametrize("key", KNOWN)
def test_each_key_of_a_graph_may_be_anything(key: str) -> None:  # T6, P53
    with ground.fresh() as here:
        for value in garbage.EXTREMES:
            graph = here.cwd / "graph.json"
            graph.write_text(json.dumps([{"title": "A", "idempotency-key": "k"} | {key: value}]), encoding="utf-8")
            called(here, ["apply", "graph.json", "--json"], ground.PERSON)


# --- the environment ------------------------------------------------------------------------------------------
ALSO = ("COLUMNS", "LINES", "LANG", "LC_ALL", "PYTHONIOENCODING", "PATH", "COLORTERM", "USER", "LOGNAME", "PWD")
SAFE = [text.replace("\0", "") for text in TEXTS if len(text) < 4096]


@few
@given(st.dictionaries(st.sampled_from((*ENVIRONMENT, *ALSO)), st.sampled_from(SAFE), min_size=1, max_size=3), calls)
def test_any_variable_is_used_or_refused(variables: dict[str, str], words: list[str]) -> None:  # T6
    with ground.fresh() as here:
        called(here, words, ground.WORKER | variables)


# --- other files of a home ------------------------------------------------------------------------------------
FILES = (
    *(".config.json", "kanban/current", "kanban/board.yaml", "kanban/boards/side/board.yaml", "kanban/gateways/1"),
    *("kanban/dispatcher.lock", "kanban/runs/<run>.lock", "kanban/runs/<run>.exit", "kanban/pauses/lane-00000000"),
    *("kanban/tickets/<mine>.<run>.json", "kanban/slots/host.0", "kanban/boards/side/kanban.db", "kanban/boards/x/y"),
    *("kanban.db.lock", ".config.lock", "kanban/workspaces/<mine>/.hermes-workspace", "kanban/boards/odd/kanban.db"),
)


def _damages() -> Iterator[tuple[str, str]]:
    for name in FILES:
        for how in ("garbage", "folder", "loop", "socket"):
            yield name, how


@pytest.mark.parametrize(("name", "how"), list(_damages()))
def test_a_home_with_a_broken_file_works_or_says_so(name: str, how: str) -> None:  # T6
    share = 1 if EXAMPLES > 1000 else 5  # of the calls each file gets some; all of them where there is time
    first = (FILES.index(name) + len(how)) % share
    for at, words in enumerate(SOME_CALLS[first::share]):
        with ground.fresh() as here:
            path = here.home / here.filled(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            _damage(path, how, garbage.RAW[at % len(garbage.RAW)])
            called(here, words, ground.PERSON if at % 2 else ground.WORKER)


def _damage(path: Path, how: str, data: bytes) -> None:
    if how == "garbage":
        path.write_bytes(data)
    elif how == "folder":
        path.mkdir()
    elif how == "loop":
        path.symlink_to(path.name)
    else:
        here = os.getcwd()
        os.chdir(path.parent)  # a socket's path is short
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bound:
                bound.bind(path.name)
        finally:
            os.chdir(here)


@few
@given(st.binary(max_size=30), calls)
def test_who_waits_may_be_nobody(name: bytes, words: list[str]) -> None:  # T6: pokes
    with ground.fresh() as here:
        folder = here.root / "run" / "hermes-kanban"
        folder.mkdir(mode=0o700)
        mark = board_mark(here.place.database)
        for odd in (f"{mark}.1.1.sock", f"{mark}.{name.hex()}.sock"):
            (folder / odd).write_bytes(name)
        (folder / f"{mark}.2.sock").mkdir()
        (folder / f"{mark}.3.sock").symlink_to("/dev/full")
        (folder / f"{mark}.dispatch").write_bytes(name)
        called(here, words, ground.PERSON)
