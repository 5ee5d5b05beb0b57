"""A racer whose every call is a command of its own: short processes that open and close the board (T1b).

Now and then it kills its command at a random moment; what came of that call is then unknown, as for any killed process.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
from typing import Any

from hermes_kanban.base.errors import Refusal
from tests.histories.doors import Door
from tests.histories.recorder import Recorder, Unheard
from tests.surfaces.hermes import HERMES

KILLED = 0.08  # share of the commands that are killed
LONGEST = 0.15  # seconds that a command lives at most before it is killed
PATIENCE = 60.0
NICE = 5  # a command costs as much as thirty calls of a racer: it must not take their time

Fence = dict[str, str]


class Refused(Refusal):
    """What a command answered with an error document; `code` is the document's."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message, hint="-")
        self.code = code  # type: ignore[misc]


class Commands:
    """Random commands, one at a time.

    Args:
        door: whose environment the commands get.
    """

    def __init__(self, door: Door, recorder: Recorder, label: str, seed: int) -> None:
        os.nice(NICE)
        self._env = {**door.env.variables, "PATH": "/usr/bin:/bin"}
        self._recorder, self._label = recorder, label
        self._dice = random.Random(seed)
        self._held: list[dict[str, Any]] = []
        self._cards: list[str] = []
        self._count = 0

    def step(self) -> None:
        """Run one command."""
        self._count += 1
        token = f"w{self._label}.{self._count}"
        if len(self._cards) < 5 or self._dice.random() < 0.1:
            listed = self._run({}, "list", "--sort", "newest", "--limit", "20", kill=False)
            self._cards = [card["id"] for card in listed]
        if self._held and self._dice.random() < 0.6:
            self._work(self._held[-1], token)
        elif self._dice.random() < 0.4 or not self._cards:
            self._call("create", {"token": token, "parents": [], "key": None}, {}, "create", token)
        elif self._dice.random() < 0.7:
            self._claim()
        else:
            card = self._dice.choice(self._cards)
            self._call("comment", {"token": token, "task": card}, {}, "comment", card, token)

    def _claim(self) -> None:
        taken = self._call("claim", {"task": None}, {}, "claim", "--next", "--ttl", str(self._dice.randint(2, 4)))
        if taken is not None:
            self._held.append(taken)

    def _work(self, taken: dict[str, Any], token: str) -> None:
        fence = {"HERMES_KANBAN_RUN_ID": str(taken["run_id"]), "HERMES_KANBAN_CLAIM_LOCK": taken["claim_lock"]}
        card = taken["id"]
        words = {
            "heartbeat": ("heartbeat", card, "--note", token),
            "comment": ("comment", card, token),
            "complete": ("complete", card, "--summary", token),
            "request-review": ("request-review", card, "--summary", token),
        }
        verb = self._dice.choice(("heartbeat", "comment", "complete", "complete", "request-review"))
        args = {"token": token, "task": card, "run": taken["run_id"], "lock": taken["claim_lock"]}
        heard = self._call(verb, args, fence, *words[verb])
        if heard is None or verb not in ("heartbeat", "comment"):
            self._held.remove(taken)

    def _call(self, verb: str, args: dict[str, Any], fence: Fence, *words: str) -> Any:
        return self._recorder.call(verb, args, lambda: self._run(fence, *words), lambda got: _told(verb, got))

    def _run(self, fence: Fence, *words: str, kill: bool = True) -> Any:
        command = subprocess.Popen(
            [HERMES, "kanban", *words, "--json"],
            env=self._env | fence,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        doomed = kill and self._dice.random() < KILLED
        try:
            out, err = command.communicate(timeout=self._dice.uniform(0, LONGEST) if doomed else PATIENCE)
        except subprocess.TimeoutExpired:
            command.kill()
            command.communicate()
            if doomed:
                raise Unheard from None
            raise
        document = json.loads(out)  # a traceback is no document: the checker reports it, and an end by a signal
        refused = isinstance(document, dict) and "error" in document
        if b"Traceback" in err or (command.returncode != 0) != refused or command.returncode < 0:
            raise AssertionError(f"exit {command.returncode}: {out.decode()} {err.decode()}")
        if refused:
            raise Refused(document["error"]["code"], document["error"]["message"])
        return document


def _told(verb: str, got: dict[str, Any]) -> dict[str, Any]:
    """Return what the checker wants to know of an answer."""
    if verb == "claim":
        return {"task": got["id"], "run": got["run_id"], "lock": got["claim_lock"], "role": got["role"]}
    return {"task": got.get("id"), "already": got.get("already", False), "created": got.get("created", True)}
