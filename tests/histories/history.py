"""What a race leaves: the calls with their answers, what workers and readers noted, and the board in the end."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

Event = dict[str, Any]


@dataclass
class Call:
    """One call; `end` is None when its process was killed before it heard."""

    process: str
    n: int
    verb: str
    args: dict[str, Any]
    start: int
    end: int | None = None
    answer: dict[str, Any] | None = None
    error: str | None = None
    text: str = ""

    @property
    def tokens(self) -> list[str]:
        """The words by which what the call wrote is known in the log."""
        one = self.args.get("token")
        return [one] if one else list(self.args.get("tokens", ()))

    @property
    def new(self) -> bool:
        """Whether it was answered, and the answer says that it changed something."""
        return self.answer is not None and not self.answer.get("already") and self.answer.get("created", True)


@dataclass
class Note:
    """What a process saw besides its calls (`begun`, `exit`, `overlap`, `stuck`, `tail` …), or whom the killer hit."""

    process: str
    kind: str
    facts: dict[str, Any]


@dataclass
class History:
    """What was recorded, and what the board holds in the end."""

    calls: list[Call] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    tasks: dict[str, dict[str, Any]] = field(default_factory=dict)
    runs: dict[int, dict[str, Any]] = field(default_factory=dict)
    comments: dict[str, int] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)
    torn: int = 0  # lines that cannot be read: each of a process that was killed while it wrote

    def noted(self, kind: str) -> list[Note]:
        return [note for note in self.notes if note.kind == kind]

    def save(self, path: Path) -> None:
        """Write it as one document that `load` reads again."""
        path.write_text(json.dumps(asdict(self), indent=1), encoding="utf-8")


@dataclass
class Violation:
    """A broken rule and its proof: the calls and events that show it, and no others."""

    rule: str
    text: str
    calls: list[Call] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    def report(self) -> str:
        """Return the rule, what is wrong, and the smallest history that shows it."""
        lines = [f"{self.rule}: {self.text}"]
        lines += [f"  call  {json.dumps(call.__dict__)}" for call in sorted(self.calls, key=lambda c: c.start)]
        lines += [f"  event {json.dumps(event)}" for event in sorted(self.events, key=lambda e: e["id"])]
        return "\n".join(lines)


def read(lines: Iterable[str]) -> History:
    """Read a recorded file; the last line of a killed process may be torn."""
    history, calls = History(), {}
    for text in lines:
        try:
            line = json.loads(text) if text.strip() else None
        except ValueError:
            history.torn += 1
            continue
        if line is None:
            continue
        key = (line["process"], line.get("n"))
        if key in calls and line["line"] == "call":
            history.notes.append(Note(line["process"], "twice", {"text": f"two processes recorded as {key}"}))
        if line["line"] == "call":
            calls[key] = Call(line["process"], line["n"], line["verb"], line["args"], line["at"])
        elif line["line"] == "heard":
            call = calls[key]
            call.end, call.answer = line["at"], line.get("answer")
            call.error, call.text = line.get("error"), line.get("text", "")
        else:
            history.notes.append(Note(line["process"], line["line"], line["facts"]))
    history.calls = sorted(calls.values(), key=lambda c: c.start)
    return history


def load(path: Path) -> History:
    """Read a saved history."""
    found = json.loads(path.read_text(encoding="utf-8"))
    found["calls"] = [Call(**call) for call in found["calls"]]
    found["notes"] = [Note(**note) for note in found["notes"]]
    found["runs"] = {int(run): row for run, row in found["runs"].items()}
    return History(**found)
