"""The worker programs of the demonstration by themselves, beside a command that notes what it is asked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from examples.publisher import page

ROOT = Path(__file__).parents[2]
PATIENCE = 60.0  # seconds; only a test that hangs ever waits so long

# Stands for `hermes`: notes its arguments in the file `asked`, and answers from files.
HERMES = """\
#!{python}
import json, os, sys
from pathlib import Path
with open("asked", "a") as file:
    file.write(json.dumps(sys.argv[1:]) + "\\n")
verb = next(word for word in sys.argv[2:] if word in ("show", "runs", "attach", "heartbeat", "block", "context"))
code = int(os.environ.get("ANSWER_" + verb.upper(), "0"))
answer = Path("answer-" + verb)
print(answer.read_text() if answer.exists() and not code else "null")
sys.exit(code)
"""


class Desk:
    """A workspace, and programs of the demonstration at work in it.

    Args:
        folder: an empty folder.
    """

    def __init__(self, folder: Path) -> None:
        self.workspace = folder / "workspace"
        self.workspace.mkdir()
        self.bin = folder / "bin"
        self.bin.mkdir()
        (self.bin / "python").symlink_to(sys.executable)
        hermes = self.bin / "hermes"
        hermes.write_text(HERMES.format(python=sys.executable))
        hermes.chmod(0o700)

    def run(self, *argv: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run the interpreter with these arguments as the worker of card t_1, run 7."""
        given = {"PATH": f"{self.bin}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
        given |= {"HERMES_KANBAN_TASK": "t_1", "HERMES_KANBAN_RUN_ID": "7", "HERMES_KANBAN_BOARD": "demo"}
        return subprocess.run(
            [str(self.bin / "python"), *argv],
            cwd=self.workspace,
            env=given | variables,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    def answer(self, verb: str, document: Any) -> None:
        """Say what the command answers."""
        (self.workspace / f"answer-{verb}").write_text(json.dumps(document))

    @property
    def asked(self) -> list[list[str]]:
        """What the command was asked."""
        return [json.loads(line) for line in (self.workspace / "asked").read_text().splitlines()]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


# --- who stumbles ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("code", [0, 75])
def test_the_first_attempt_ends_with_the_code_and_the_second_is_the_analyst(desk: Desk, code: int) -> None:
    words = ("-m", "examples.stumble", f"--code={code}", "--retry-after=2", "analyst", "--pace=0")
    first = desk.run(*words)
    assert (first.returncode, first.stdout.splitlines()[-1]) == (code, "[kanban-retry-after] 2")
    assert [words[3] for words in desk.asked] == ["heartbeat"]
    body = "subject: public names\npackages: json"
    desk.answer("show", {"task": {"body": body}})
    desk.run(*words)
    assert json.loads((desk.workspace / "result.json").read_text())["subject"] == "public names"


# --- the frame of a worker ------------------------------------------------------------------------------------
def test_a_worker_notes_its_beginning(desk: Desk) -> None:
    desk.run("-m", "examples.reviewer")
    run, began_ms = (desk.workspace / "began").read_text().split()
    assert run == "7"
    assert int(began_ms) > 1_600_000_000_000


def test_a_worker_that_cannot_go_on_asks_a_person(desk: Desk) -> None:
    done = desk.run("-m", "examples.reviewer")  # there is no report to review
    assert done.returncode == 0
    words = desk.asked[-1]
    assert words[:6] == ["kanban", "--board", "demo", "block", "--json", "t_1"]
    given = {word.partition("=")[0] for word in words[6:]}
    assert given == {"--kind", "--cause", "--what", "--option", "--recommend", "--next"}
    assert any("report.md" in word for word in words)


def test_a_worker_that_cannot_even_block_ends_with_an_error(desk: Desk) -> None:
    done = desk.run("-m", "examples.reviewer", ANSWER_BLOCK="9")
    assert done.returncode == 1
    assert "could not even be blocked" in done.stdout


def test_a_worker_that_lost_its_claim_leaves_the_card_alone(desk: Desk) -> None:
    (desk.workspace / "report.md").write_text("# A report\n")
    done = desk.run("-m", "examples.reviewer", ANSWER_SHOW="5")
    assert (done.returncode, [words[3] for words in desk.asked]) == (0, ["show"])


def test_a_program_that_was_started_for_no_card_says_so(desk: Desk) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "examples.analyst"], cwd=ROOT, capture_output=True, text=True, env={}, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith("error: HERMES_KANBAN_BOARD is not set\nhint: ")


# --- the publisher --------------------------------------------------------------------------------------------
def test_the_publisher_attaches_a_page_of_its_parents_report(desk: Desk) -> None:
    report = desk.workspace / "report.md"
    report.write_text("# Title\n\nText & `code`\n\n- one\n")
    desk.answer("show", {"parents": [{"id": "t_0"}]})
    desk.answer("runs", [{"metadata": {"report": str(report)}}, {"metadata": None}])
    done = desk.run(str(ROOT / "examples" / "publisher.py"), "t_1")
    assert done.returncode == 0, done.stderr
    text = (desk.workspace / "report.html").read_text()
    assert done.stdout == f"published report.md as report.html, {len(text.encode())} bytes\n"
    assert desk.asked == [
        ["kanban", "show", "t_1", "--json"],
        ["kanban", "runs", "t_0", "--json"],
        ["kanban", "attach", "t_1", "--json", "report.html"],
    ]
    assert (desk.workspace / "began").read_text().startswith("7 ")


def test_the_publisher_fails_without_a_report(desk: Desk) -> None:
    desk.answer("show", {"parents": [{"id": "t_0"}]})
    desk.answer("runs", [{"metadata": None}])
    done = desk.run(str(ROOT / "examples" / "publisher.py"), "t_1")
    assert (done.returncode, done.stderr) == (1, "no report: none of the parents t_0 names one\n")


def test_a_page_holds_no_markup_of_the_report() -> None:
    text = page("# A <b>title</b>\n\n## Part\n- x `<i>`\n3. third\nplain & simple\n")
    assert text.splitlines()[3:] == [
        "<h1>A &lt;b&gt;title&lt;/b&gt;</h1>",
        "<h2>Part</h2>",
        "<li>x <code>&lt;i&gt;</code></li>",
        "<li>third</li>",
        "<p>plain &amp; simple</p>",
    ]
