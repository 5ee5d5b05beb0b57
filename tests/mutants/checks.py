"""The checks that must find every mutant: model, race, storm. Each is the tool itself, with a short budget."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.mutants.workshop import Ran, Workshop

SLACK = 120.0  # seconds beyond a check's own budget, after which it is ended


@dataclass(frozen=True)
class Check:
    """One check.

    Args:
        argv: arguments of the interpreter; `{seed}` is replaced.
        variables: of its environment.
        seconds: how long one run of it may take; a mutant that makes it hang is found by that, too.
        shown: the line of its output by which it says what is wrong.
        seeds: how many seeds are tried before a mutant counts as not found.
    """

    argv: tuple[str, ...]
    variables: dict[str, str]
    seconds: float
    shown: re.Pattern[str]
    seeds: int = 3


@dataclass(frozen=True)
class Found:
    """The verdict of a check: what it said is wrong ("" for nothing), with which seed, in how many seconds."""

    text: str
    seed: int
    seconds: float
    output: str


CHECKS = {
    "stateful": Check(
        (*("-m", "pytest", "-n", "0", "-x", "-p", "tests.mutants.hasty", "--hypothesis-seed={seed}"), "tests/stateful"),
        {"HERMES_TEST_EXAMPLES": "60"},
        900.0,
        re.compile(r"^E   +(\S.*)$", re.MULTILINE),
    ),
    "race": Check(
        (*("-m", "tests.histories.soak", "--minutes", "0.5", "--processes", "8", "--seed", "{seed}"),),
        {},
        300.0,
        re.compile(r"^kept: .*\n(.+)$", re.MULTILINE),
    ),
    "storm": Check(
        (
            *("-m", "tests.processes.soak", "--rounds", "1", "--cards", "8", "--hits", "6", "--longest", "90"),
            *("--seed", "{seed}"),
        ),
        {},
        300.0,
        re.compile(r"^kept: .*\n(.+)$", re.MULTILINE),
    ),
}


def judge(place: Workshop, name: str, seed: int, tries: int | None = None) -> Found:
    """Run a check on the copy as it is, with one seed after another until it finds something.

    Args:
        tries: at most so many seeds; None: the check's own number.
    """
    check = CHECKS[name]
    spent, ran = 0.0, Ran(0, "", 0.0)
    for number in range(seed, seed + (tries or check.seeds)):
        argv = tuple(word.replace("{seed}", str(number)) for word in check.argv)
        ran = place.run(argv, check.seconds + SLACK, **check.variables)
        spent += ran.seconds
        if ran.code != 0:
            return Found(_said(check, ran), number, spent, ran.out)
    return Found("", seed, spent, ran.out)


def _said(check: Check, ran: Ran) -> str:
    """Return the first line that says what is wrong."""
    shown = check.shown.search(ran.out)
    if shown:
        return shown[1].strip()
    last = next((line for line in reversed(ran.out.splitlines()) if line.strip()), "nothing was said")
    return f"it took longer than {check.seconds:g} s" if ran.code is None else f"exit {ran.code}: {last.strip()}"
