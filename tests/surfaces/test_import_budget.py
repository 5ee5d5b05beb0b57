"""Start-up is a feature: agents call the command all day. What the hot verbs import is counted, never timed (S1)."""

from __future__ import annotations

import pytest

from hermes_kanban.cli.app import MODULE_OF
from tests.surfaces.hermes import Hermes

# Heavy, and of no use to a verb that agents call all day.
NEVER = {
    *("typing", "dataclasses", "inspect", "pathlib", "subprocess", "logging", "datetime", "_datetime", "yaml", "rich"),
    *("asyncio", "socket", "uuid", "secrets", "tempfile", "shutil", "urllib", "email", "http", "ssl", "hashlib"),
    *("random", "decimal", "difflib", "importlib.metadata", "pkg_resources", "psutil", "zipfile", "threading"),
}
# Modules of the standard library and others beyond those of an interpreter that does nothing, and our own.
OTHERS, OURS_READING, OURS_WRITING = 38, 52, 71

VERBS = {
    "list": (["list", "--json"], OURS_READING),
    "show": (["show", "ID", "--json"], OURS_READING),
    "context": (["context", "ID"], OURS_READING),
    "claim": (["claim", "ID"], OURS_WRITING),
    "heartbeat": (["heartbeat", "ID", "--note", "x"], OURS_WRITING),
    "comment": (["comment", "ID", "x"], OURS_WRITING),
    "complete": (["complete", "ID", "--summary", "x", "--metadata", "{}"], OURS_WRITING),
}


TELL = """import sys
sys.argv = ["hermes", "kanban", *sys.argv[1:]]
try:
    sys.exit(__import__("hermes_kanban.__main__", fromlist=["main"]).main())
finally:
    print("modules:", *sys.modules, file=sys.stderr)"""


def imported(hermes: Hermes, *words: str) -> set[str]:
    """Return the modules that a command had in the end, late ones too (the import-time report does not name those)."""
    answer = hermes.run(["python", "-c", TELL, *words])
    assert answer.code == 0, answer
    (line,) = [line for line in answer.err.splitlines() if line.startswith("modules:")]
    return set(line.split()[1:])


def bare(hermes: Hermes) -> set[str]:
    """Return the modules of an interpreter that does nothing."""
    return set(hermes.run(["python", "-c", "import sys; print(*sys.modules)"]).out.split())


def test_the_hot_verbs_import_little(hermes: Hermes) -> None:  # S1
    task = hermes.create()
    nothing = bare(hermes)
    for verb, (words, ours) in VERBS.items():
        modules = imported(hermes, *(task if word == "ID" else word for word in words)) - nothing
        roots = modules | {name.partition(".")[0] for name in modules}
        assert roots & NEVER == set(), f"{verb} imports {sorted(roots & NEVER)}"
        own = {name for name in modules if name.partition(".")[0] == "hermes_kanban"}
        assert len(own) <= ours, f"{verb} loads {len(own)} modules of ours: {sorted(own)}"
        assert len(modules - own) <= OTHERS, f"{verb} loads {len(modules - own)} others: {sorted(modules - own)}"
        module = f"hermes_kanban.cli.{MODULE_OF[verb]}"
        assert {name for name in own if name.startswith("hermes_kanban.cli.")} <= CLI | {module}


CLI = {f"hermes_kanban.cli.{name}" for name in ("app", "call", "output", "parse", "scan", "screen", "values")}


@pytest.mark.parametrize("words", [["stats", "--json"], ["inbox", "--json"], ["why", "ID", "--json"]])
def test_documents_are_written_without_what_writes_for_people(hermes: Hermes, words: list[str]) -> None:
    task = hermes.create()
    modules = imported(hermes, *(task if word == "ID" else word for word in words))
    assert not {"hermes_kanban.present.views", "hermes_kanban.present.wide_board", "rich"} & modules


def test_nothing_is_printed_in_colour_or_by_rich_into_a_pipe(hermes: Hermes) -> None:
    hermes.create()
    plain = hermes.set(TERM="xterm")
    assert "rich" not in imported(plain, "board")
    assert "\x1b" not in plain.ok("board")
