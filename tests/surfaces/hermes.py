"""The real command in real processes: a home of its own, an environment that is written out, closed input."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

BIN = Path(sys.executable).parent
HERMES = str(BIN / "hermes")
PATIENCE = 60.0  # seconds; only a test that hangs ever waits so long
CONFIG = "kanban:\n  external_assignees: [ann, bot, rev, claude-code-bridge, linguist, reviewer]\n"


class Answer:
    """How a command ended."""

    def __init__(self, done: subprocess.CompletedProcess[bytes]) -> None:
        self.code = done.returncode
        self.raw = done.stdout
        self.out = done.stdout.decode("utf-8", "surrogateescape")
        self.err = done.stderr.decode("utf-8", "surrogateescape")

    def __repr__(self) -> str:
        return f"exit {self.code}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"

    @property
    def json(self) -> Any:
        """The one document on stdout."""
        return json.loads(self.out)


class Hermes:
    """One home, and the command in it.

    Args:
        home: HERMES_HOME.
        variables: more of the environment.
    """

    def __init__(self, home: Path, **variables: str) -> None:
        self.home = home
        self.variables = variables

    @property
    def env(self) -> dict[str, str]:
        """The whole environment of a command."""
        plain = {"PATH": f"{BIN}:/usr/local/bin:/usr/bin:/bin", "HOME": str(self.home), "LANG": "C.UTF-8"}
        return plain | {"HERMES_HOME": str(self.home), "TMPDIR": str(self.home)} | self.variables

    def set(self, **variables: str) -> Hermes:
        """Return the same home under more variables."""
        return Hermes(self.home, **(self.variables | variables))

    def __call__(self, *words: str | bytes, stdin: bytes | None = None) -> Answer:
        """Run `hermes kanban WORDS`."""
        return self.run([HERMES, "kanban", *words], stdin=stdin)

    def run(self, argv: list[str | bytes], *, stdin: bytes | None = None, cwd: Path | None = None) -> Answer:
        """Run a program in this environment."""
        given: Mapping[str, Any] = {"stdin": subprocess.DEVNULL} if stdin is None else {"input": stdin}
        return Answer(
            subprocess.run(argv, env=self.env, capture_output=True, timeout=PATIENCE, check=False, cwd=cwd, **given)
        )

    def sh(self, script: str, *words: str) -> Answer:
        """Run a shell script with these positional parameters, as a process of its own: another caller (P12b)."""
        return self.run(["sh", "-c", script, "sh", *words])

    def script(self) -> Script:
        """Start a shell that lives on: a caller of its own that keeps what it claimed (P12b)."""
        return Script(self.env)

    def start(self, *words: str, **options: Any) -> subprocess.Popen[bytes]:
        """Start `hermes kanban WORDS` and do not wait."""
        given: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen([HERMES, "kanban", *words], env=self.env, **(given | options))

    def waiters(self) -> int:
        """Return how many processes wait for a change of a board."""
        return len(list(Path(self.variables["XDG_RUNTIME_DIR"], "hermes-kanban").glob("*.sock")))

    def ok(self, *words: str, stdin: bytes | None = None) -> str:
        """Run a verb that must succeed; return what it printed, without the end of the line."""
        answer = self(*words, stdin=stdin)
        assert answer.code == 0, answer
        return answer.out.rstrip("\n")

    def ask(self, *words: str) -> Any:
        """Run a verb that must succeed; return its document."""
        return json.loads(self.ok(*words, "--json"))

    def create(self, title: str = "card", *words: str) -> str:
        """Make a card; return its id."""
        key = (
            () if any(w.startswith("--idempotency-key") for w in words) else ("--idempotency-key", os.urandom(8).hex())
        )
        return self.ok("create", title, *key, *words, "-q")

    def status(self, task: str) -> str:
        """Return the state of a card."""
        return str(self.ask("show", task)["status"])

    def kinds(self, task: str) -> list[str]:
        """Return the kinds of a card's events, in order."""
        return [event["kind"] for event in self.ask("events", "--task", task)]


class Script:
    """A shell that does one line after the other, as long as it is not closed or killed."""

    def __init__(self, env: Mapping[str, str], *words: str) -> None:
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        self.process = subprocess.Popen(["sh", "-s", "--", *words], env=dict(env), **pipes)

    def __enter__(self) -> Script:
        return self

    def __exit__(self, *_error: object) -> None:
        self.process.kill()
        self.process.communicate()

    def __call__(self, line: str) -> tuple[int, str]:
        """Do a line; return its exit code, and what it printed on both streams."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{{ {line}\n}} </dev/null 2>&1; _code=$?; echo; echo end $_code\n".encode())
        self.process.stdin.flush()
        lines: list[str] = []
        while not (lines and lines[-1].startswith("end ")):
            read = self.process.stdout.readline().decode()
            assert read, f"the script ended: {lines}"
            lines.append(read)
        return int(lines.pop().split()[1]), "".join(lines).strip()


def line_of(process: subprocess.Popen[bytes]) -> str:
    """Return the next line that a process prints (its test hangs no longer than the test's own time-out)."""
    assert process.stdout is not None
    return process.stdout.readline().decode()
