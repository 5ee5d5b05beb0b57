"""The command line as a worker program sees it: run a verb, read its JSON, tell the refusals apart.

This is all that a program needs to work for a board. It knows nothing of the board's insides: whatever it does, a
shell script or a program in another language can do too.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERMES = str(Path(sys.executable).with_name("hermes"))
CLAIM_LOST, BUSY = 5, 8  # exit codes
ATTEMPTS = 4
ANSWER_SECONDS = 30.0

Json = dict[str, Any]


class Refused(Exception):
    """A verb that ended with a code other than 0.

    Args:
        verb: the verb.
        exit_code: what it ended with.
        words: what it said about it.
    """

    def __init__(self, verb: str, exit_code: int, words: str) -> None:
        super().__init__(f"hermes kanban {verb}: exit {exit_code}: {words}")
        self.exit_code = exit_code


class ClaimLost(Refused):
    """The card belongs to somebody else by now: leave it alone."""


@dataclass(frozen=True)
class Kanban:
    """One board, spoken to through `hermes kanban`.

    Args:
        board: its name; always said, so that no "current board" can come between ("" for verbs about boards).
        env: the whole environment of the commands; None means the caller's.
    """

    board: str
    env: Mapping[str, str] | None = None

    def ask(self, verb: str, *words: str) -> Any:
        """Run a verb with `--json` and return the document it printed.

        A busy board (exit 8) is asked again after a short pause, since the command line promises that this is safe.

        Args:
            verb: the verb, as the help names it ("show", "lanes add").
            words: its arguments; give options that carry text as `--option=text`.

        Raises:
            ClaimLost: the card is no longer the caller's.
            Refused: any other refusal.
        """
        named = ["--board", self.board] if self.board else []
        argv = [HERMES, "kanban", *named, *verb.split(), "--json", *words]
        for attempt in range(1, ATTEMPTS + 1):
            done = self._run(argv, verb)
            if done.returncode != BUSY or attempt == ATTEMPTS:
                break
            time.sleep(0.2 * attempt)
        if done.returncode:
            kind = ClaimLost if done.returncode == CLAIM_LOST else Refused
            raise kind(verb, done.returncode, " ".join(done.stderr.split()) or "without a word")
        return _parsed(verb, done.stdout)

    def _run(self, argv: list[str], verb: str) -> subprocess.CompletedProcess[str]:
        try:
            return subprocess.run(
                argv,
                env=self.env,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                encoding="utf-8",
                errors="replace",
                timeout=ANSWER_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise Refused(verb, BUSY, f"no answer in {ANSWER_SECONDS:.0f} s") from None

    def show(self, task_id: str) -> Json:
        """Return the card with its links, comments, runs and newest events."""
        found: Json = self.ask("show", task_id)
        return found


def _parsed(verb: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise Refused(verb, 0, f"an answer that is no JSON: {text[:80]!r}") from None


# --- reading a card -----------------------------------------------------------------------------------------
def task_of(card: Json) -> Json:
    """Return the stored fields of a card that `show` printed."""
    task: Json = card.get("task", card)
    return task


def parent_ids(card: Json) -> tuple[str, ...]:
    """Return the ids of the cards that this one waited for."""
    parents = card.get("parents") or card.get("links", {}).get("parents", ())
    return tuple(parent if isinstance(parent, str) else parent["id"] for parent in parents)


def finished_run(card: Json) -> Json | None:
    """Return the newest completed run of a card: what it hands over to its children."""
    completed = [run for run in card["runs"] if run["outcome"] == "completed"]
    return max(completed, key=lambda run: int(run["id"]), default=None)


def results_of_parents(board: Kanban, card: Json) -> list[Json]:
    """Return the metadata of each parent's newest completed run.

    Raises:
        LookupError: a parent handed nothing over.
    """
    results = []
    for task_id in parent_ids(card):
        run = finished_run(board.show(task_id))
        if run is None or not run.get("metadata"):
            raise LookupError(f"{task_id} is a parent and handed nothing over")
        results.append(run["metadata"])
    return results
