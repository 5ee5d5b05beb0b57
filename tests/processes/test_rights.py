"""Inside of a run each verb answers as the table of rights says: made from the tables, under a real shim (T8, P70)."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from hermes_kanban.base.record import Record, record
from hermes_kanban.kernel.verbs import VERBS, Parameter, Verb
from hermes_kanban.model import status as s
from hermes_kanban.model.actors import ANY, OWN, RIGHTS
from tests.processes.callers import (
    ORCHESTRATOR,
    WORKER,
    Line,
    Probe,
    Worker,
    callers_home,
    kanban,
    log,
    looks_like_the_shim,
    settled,
)
from tests.processes.home import Home
from tests.surfaces.hermes import Script

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="without a subreaper an orphan's run cannot be known")

FORBIDDEN, LOST = 6, 5
CLOSING = ("complete", "block", "request-review")  # the first of them ends the run
GRAPH = '{"tasks": [{"name": "a", "title": "made from a file"}]}'
VALUES = {"text": "x", "line": "x", "name": "sneaky", "int": "1", "seconds": "60"}
REASON = ["--cause", "human decision needed", "--what", "x", "--option", "A: x", "--option", "B: y"]
REASON += ["--recommend", "A", "--next", "choose", "--kind", "needs_input"]

# What a verb asks for besides what it declares as required.
MORE: Mapping[str, list[str]] = {
    "attach": ["/etc/hostname"],
    "block": REASON,
    "complete": ["--summary", "x"],
    "edit": ["--priority", "3"],
    "lanes add": ["--", "true"],
    "request-review": ["--summary", "x"],
    "schedule": ["--in", "1h"],
}


@record
class Cards(Record):
    """The cards that the verbs are about, and a file with a graph."""

    free: str
    held: str
    child: str
    file: str


@record
class Kind(Record):
    """A kind of caller: the lane that it is inside of, how it asks, and what it may."""

    lane: str
    rights: Mapping[str, str]
    prefix: str = ""
    outside: bool = False


KINDS = {
    "a worker": Kind(WORKER, RIGHTS[s.WORKER]),
    "an orchestrator": Kind(ORCHESTRATOR, RIGHTS[s.ORCHESTRATOR]),
    "a delegated child": Kind(WORKER, {}, "HERMES_DELEGATED_CHILD_CONTEXT=1"),  # P71
    "a poser": Kind(WORKER, {"comment": ANY} | {verb: OWN for verb in CLOSING}, outside=True),  # own: no card at all
}


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """A home with a gateway that runs; whatever processes of its runs try, it stays as it is."""
    with callers_home(tmp_path_factory.mktemp("rights")) as made:
        yield made
        settled(made)


@pytest.fixture
def cards(here: Home, tmp_path: Path) -> Cards:
    """Cards of nobody, one of them held."""
    file = tmp_path / "graph.json"
    file.write_text(GRAPH, encoding="utf-8")
    held = here.hermes.create("held", "--status", s.BLOCKED, "--reason", "wait")
    return Cards(here.hermes.create("free"), held, here.hermes.create("child"), str(file))


# --- from a declaration to command lines -----------------------------------------------------------------------------
def words(verb: Verb, cards: Cards, card: str) -> Line:
    """Return a command line of a verb about a card that its parser takes."""
    if verb.name == "watch":  # it ends with its reader
        return ["sh", "-c", f"{shlex.join(kanban('watch', '--since', '0'))} | head -1"]
    given = [word for p in verb.parameters if p.required for word in _given(p, cards, card)]
    given += [card] if verb.name == "claim" else []
    return kanban(*verb.name.split(), *given, *MORE.get(verb.name, ()))


def _given(parameter: Parameter, cards: Cards, card: str) -> list[str]:
    ids = {"parent": cards.free, "child": cards.child, "task": card}
    value = {"id": ids.get(parameter.name, card), "path": cards.file}.get(parameter.type) or VALUES[parameter.type]
    return [value] if parameter.positional else [f"--{parameter.name}", value]


@record
class Case(Record):
    """A command line, and the exit codes that the table allows."""

    line: Line
    codes: tuple[int, ...]


def cases(kind: Kind, cards: Cards, own: str) -> list[Case]:
    """Return every verb as this kind of caller tries it: on cards of nobody, then on its own, closing verbs last."""
    made = [Case(words(verb, cards, cards.free), (0,)) for verb in VERBS if not verb.writes]
    writes = sorted((verb for verb in VERBS if verb.writes), key=lambda verb: verb.name in CLOSING)
    for verb in writes:
        card = cards.held if verb.name == "unblock" else cards.free
        made.append(Case(words(verb, cards, card), (0,) if kind.rights.get(verb.name) == ANY else (FORBIDDEN,)))
    closed = kind.outside
    for verb in writes:
        if kind.rights.get(verb.name) == OWN:
            made.append(Case(words(verb, cards, own), _own_codes(kind, verb.name, closed)))
            closed = closed or verb.name in CLOSING
    return made


def _own_codes(kind: Kind, verb: str, closed: bool) -> tuple[int, ...]:
    if kind.outside:
        return (FORBIDDEN,)
    if verb == "request-changes":  # a reviewer's: the transition asks for the role
        return (FORBIDDEN,)
    return (LOST,) if closed else (0,)


# --- who asks --------------------------------------------------------------------------------------------------------
@contextmanager
def asking(here: Home, kind: Kind, worker: Worker) -> Iterator[Worker | Script]:
    """A shell that asks as this kind of caller."""
    with ExitStack() as stack:
        if not kind.outside:
            yield worker
        else:
            yield stack.enter_context(Script(here.hermes.env, *looks_like_the_shim(here, worker.run.id)))


@pytest.mark.parametrize("name", KINDS)
def test_each_verb_answers_as_the_table_says(here: Home, cards: Cards, name: str) -> None:  # T8, P70, P71, C143
    kind = KINDS[name]
    with Worker(here, kind.lane) as worker:
        tried = cases(kind, cards, worker.task)
        with asking(here, kind, worker) as shell:
            probe = Probe(here, [case.line for case in tried])
            shell(f"{kind.prefix} {probe.command}")
        answers = probe.answer()["lines"]
        for case, answer in zip(tried, answers, strict=True):
            assert answer["code"] in case.codes, (case.line, answer)
            assert answer["code"] == 0 or "hint: " in answer["said"], (case.line, answer)
        assert (here.card(worker.task).status == s.DONE) == (kind.rights.get("heartbeat") == OWN)
        worker.kanban("complete", worker.task, "--summary", "x")
    by_others = {what for what, actor, _ in log(here, cards.free) if not actor.startswith(s.HUMAN)}
    assert by_others == ({"commented"} if "comment" in kind.rights else set())
    assert (here.card(cards.held).status != s.BLOCKED) == ("unblock" in kind.rights)
    assert (here.card(cards.child).status == s.TODO) == ("link" in kind.rights)
