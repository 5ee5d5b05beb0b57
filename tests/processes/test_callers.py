"""Who is calling, under a real dispatcher and a real shim: nobody gets out from below one (P70, P70b, P71, P14b, T8)."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from hermes_kanban.base.record import Record, record
from hermes_kanban.kernel.verbs import VERBS, Verb
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
)
from tests.processes.home import Home
from tests.surfaces.hermes import Script

FORBIDDEN, LOST = 6, 5


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """A home with a gateway that runs; what a run's processes try must leave it as it is."""
    with callers_home(tmp_path_factory.mktemp("callers")) as made:
        yield made
        assert made.gateways[0].process.poll() is None
        assert set(made.hermes.ask("lanes", "list")[index]["name"] for index in (0, 1)) == {WORKER, ORCHESTRATOR}
        assert made.hermes.ok("verify") == "ok"


@pytest.fixture
def free(here: Home) -> Iterator[str]:
    """A card of nobody that no run holds; only comments may come to it."""
    task = here.hermes.create("of nobody")
    yield task
    assert {kind for kind, _, _ in log(here, task)} <= {"created", "commented"}
    assert here.card(task).status == s.READY


# --- every road out of a worker -------------------------------------------------------------------------------------
@record
class Road(Record):
    """A way on which something that a worker starts gets away from it.

    Args:
        line: the worker's line; `{probe}` is what goes that way.
        orphan: its parents have ended, so that the shim adopted it.
        tty: its standard input is a terminal.
        bare: it has lost every variable that named its run.
        called: the name that it gives itself.
    """

    line: str
    orphan: bool = False
    tty: bool = False
    bare: bool = False
    called: str = ""


_BARE = "$(env | sed -n 's/^\\(HERMES[A-Z_]*\\)=.*/\\1/p')"
_REAPER = "import ctypes, os, sys; ctypes.CDLL(None).prctl(36, 1, 0, 0, 0); os.system(sys.argv[1])"

ROADS = {
    "a child": Road("{probe}"),
    "a shell": Road("sh -c '{probe} && :'"),
    "a session of its own": Road("setsid -w {probe}"),
    "a double fork": Road("(setsid {probe} >/dev/null 2>&1 &)", orphan=True),
    "a double fork without an environment": Road("(env -i setsid {probe} >/dev/null 2>&1 &)", orphan=True, bare=True),
    "below a reaper that ends": Road(f'{{python}} -c "{_REAPER}" "(setsid {{probe}} >/dev/null 2>&1 &)"', orphan=True),
    "nohup": Road("nohup {probe} >/dev/null 2>&1 &"),
    "an empty environment": Road("env -i {probe}", bare=True),
    "variables unset": Road(f"(unset {_BARE}; {{probe}})", bare=True),
    "the role of a person": Road(f"(unset {_BARE}; HERMES_KANBAN_ROLE=human {{probe}})"),
    "script": Road("script -qec '{probe}' /dev/null >/dev/null", tty=True),
    "a tmux of its own": Road(
        "tmux -f /dev/null -S {folder}/tmux new-session -d 'env -i {probe}'", tty=True, bare=True
    ),
    "a process that renames itself": Road("{probe}", called="systemd"),
    "a process that calls itself a login": Road("(setsid {probe} >/dev/null 2>&1 &)", orphan=True, called="sshd"),
    "a second shim of its run": Road("echo '{probe}' | sh -s -- {own}"),
    "a second shim of another run": Road("echo 'env -i {probe}' | sh -s -- {another}", bare=True),
    "a second shim, detached": Road("(echo 'env -i {probe}' | setsid sh -s -- {another} &)", bare=True),
}


def attempts(task: str) -> list[Line]:
    """Return a few lines that only a person may do, or at least not a worker of another card."""
    return [
        kanban("complete", task, "--summary", "stolen"),
        kanban("assign", task, "ann"),
        kanban("archive", task),
        kanban("create", "a card of a worker's"),
        kanban("dispatch"),
        kanban("gateway", "stop", "--workers"),
        kanban("lanes", "add", "sneaky", "--", "true"),
        kanban("boards", "create", "sneaky"),
    ]


@pytest.fixture(scope="module")
def another(here: Home) -> Iterator[Worker]:
    """A run that goes on beside all others; nothing that those do may touch its card."""
    with Worker(here) as worker:
        yield worker


@pytest.mark.parametrize("name", ROADS)
def test_no_road_leads_out_of_a_run(here: Home, free: str, another: Worker, name: str) -> None:  # P70, P70b, T8
    road, before = ROADS[name], log(here, another.task)
    with Worker(here) as worker:
        own = [kanban("comment", worker.task, name), *attempts(free), *attempts(another.task)[:1]]
        own += [kanban("complete", worker.task, "--summary", "x")]
        probe = Probe(here, own, worker.shim if road.orphan else 0, road.called)
        worker(
            road.line.format(
                probe=probe.command,
                python=sys.executable,
                folder=here.path,
                own=shlex.join(looks_like_the_shim(here, worker.run.id)),
                another=shlex.join(looks_like_the_shim(here, another.run.id)),
            )
        )
        answer = probe.answer()
    assert (answer["tty"], not answer["marks"]) == (road.tty, road.bare)
    assert not road.orphan or answer["parent"] == worker.shim
    assert [line["code"] for line in answer["lines"]] == [0, *[FORBIDDEN] * (len(own) - 2), 0], answer
    done = [event for event in log(here, worker.task) if event[0] in ("commented", "completed")]
    assert done == [("commented", worker.actor, worker.run.id), ("completed", worker.actor, worker.run.id)]
    assert log(here, another.task) == before
