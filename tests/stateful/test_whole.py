"""The histories leave nothing out: every verb and every act of a dispatcher is in them, and the model stands alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_kanban.kernel.reader import Reader
from hermes_kanban.kernel.supervision import Supervision
from hermes_kanban.kernel.verbs import VERBS

HERE = Path(__file__).parent
MODEL = ("rules", "attempts", "model", "supervised")
MACHINES = ("side", "dispatcher", "cards", "looks", "test_stateful", "test_workers")
MODULE_LINES = 400
BOARDS = ("board", "person")  # what the machines call a board

READERS = {
    "find_id": "the beginning of an id; it knows no state",
    "context": "words for a worker, made from what `show` gives",
    "runs": "the same rows as in `show`",
    "attachments": "the same rows as in `show`",
    "events": "the log, which `verify` folds after each step",
    "follow": "the same log, and cards as `show` gives them",
    "stats": "counts of what `list` gives",
    "inbox": "what waits for a person, by the names of a home's lanes",
    "feed": "it wakes; `claim` with a wait takes one",
    "run": "one of the rows in `show`",
    "task": "the row in `show`",
    "prepare_place": "it makes a folder, outside of any transaction",
}


OF_SUPERVISION = {
    "run",
    "task",
    "next_due",
    "anything_due",
    "pulled",
    "prepare_place",
}  # what it reads, or makes beside


def readers() -> set[str]:
    return public(Reader) | OF_SUPERVISION


def tree(name: str) -> ast.Module:
    return ast.parse((HERE / f"{name}.py").read_text(encoding="utf-8"))


def public(cls: type) -> set[str]:
    return {name for name in dir(cls) if not name.startswith("_") and callable(getattr(cls, name))}


def asked_of_boards(module: ast.Module) -> Iterator[str]:
    """Yield the methods that are named of a board: `board.claim`, `self.person.list`, `self._host(claim).settle`."""
    for node in ast.walk(module):
        if not isinstance(node, ast.Attribute):
            continue
        owner = node.value.func if isinstance(node.value, ast.Call) else node.value
        name = owner.id if isinstance(owner, ast.Name) else owner.attr if isinstance(owner, ast.Attribute) else ""
        if name in (*BOARDS, "_host"):
            yield node.attr


def compared() -> set[str]:
    """Return what is done on kernel and model alike: the board's methods named within a call of `both`."""
    found: set[str] = set()
    for name in MACHINES:
        for function in ast.walk(tree(name)):
            if isinstance(function, ast.FunctionDef) and _compares(function):
                found |= set(asked_of_boards(ast.Module(function.body, [])))
    return found


def _compares(function: ast.FunctionDef) -> bool:
    return any(isinstance(node, ast.Attribute) and node.attr == "both" for node in ast.walk(function))


def test_every_method_that_writes_is_in_a_rule() -> None:  # T2
    assert public(Supervision) - readers() - compared() == set()


def test_every_declared_verb_that_writes_is_in_a_rule() -> None:  # T2
    assert {verb.method for verb in VERBS if verb.writes and verb.method} - compared() == set()


def test_every_reader_is_compared_or_says_why_not() -> None:
    asked = {name for machine in MACHINES for name in asked_of_boards(tree(machine))}
    assert readers() - asked - set(READERS) == set()
    assert set(READERS) - readers() == set(), "a reason for what is not there"


def test_the_search_finds_what_is_compared_and_nothing_else() -> None:
    found = {name for name in public(Supervision) if name in compared()}
    assert {"claim", "give_back", "detach", "claim_for_dispatch", "settle", "probe", "hand_back", "guard"} <= found
    assert not found & {"context", "inbox", "verify", "prepare_place"}


@pytest.mark.parametrize("name", MODEL)
def test_the_model_shares_no_code_with_the_kernel(name: str) -> None:  # T2
    used = set()
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.Import):
            used |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            used.add(node.module or "")
    own = {f"tests.stateful.{module}" for module in MODEL}
    assert {module for module in used if module.split(".")[0] in ("hermes_kanban", "tests", "")} <= own
    assert not any(
        isinstance(node, ast.Call) and ast.unparse(node.func) == "__import__" for node in ast.walk(tree(name))
    )


@pytest.mark.parametrize("path", sorted(HERE.glob("*.py")), ids=lambda path: path.stem)
def test_a_module_is_small(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) < MODULE_LINES
