"""The report: its sections, and what a reviewer finds missing in one.

Both are pure functions of the analysts' results, so the reviewer checks the figures against the source of them
and not against what the synthesiser says about itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from examples.kanban_cli import Json

TITLE = "# What the source of the standard library looks like"
ACTIONS = "What to do about it"
DEMAND = re.compile(r"\[section: ([^\]\n]+)\]")


def write(results: Sequence[Json], demanded: Iterable[str] = ()) -> str:
    """Return the report on the results, with the sections that a reviewer demanded at its end.

    Raises:
        LookupError: nobody here knows how to write a demanded section.
    """
    parts = [TITLE, *map(_section, results)]
    parts.extend(f"## {name}\n\n{EXTRA_SECTIONS[name](results)}" for name in demanded)
    return "\n\n".join(parts) + "\n"


def demands(context: str) -> tuple[str, ...]:
    """Return the sections that reviewers asked for, each once, out of a card's context."""
    return tuple(dict.fromkeys(DEMAND.findall(context)))


def findings(report: str, results: Sequence[Json]) -> tuple[str, ...]:
    """Return what is wrong with a report, in words; nothing means that it can be approved."""
    wrong = [
        f"the figures on {result['subject']} are missing or not those of the analyst: {result['headline']}"
        for result in results
        if f"## {result['subject'].capitalize()}" not in report or result["headline"] not in report
    ]
    names = sorted({name for result in results for name in result["packages"]})
    wrong.extend(f"the package {name} is not named" for name in names if f"`{name}`" not in report)
    if not _has_actions(report):
        wrong.append(
            f"a list of figures helps nobody who has to decide: add [section: {ACTIONS}] with one item a subject"
        )
    return tuple(wrong)


def _has_actions(report: str) -> bool:
    _, heading, rest = report.partition(f"## {ACTIONS}\n")
    return bool(heading) and "\n1. " in rest


def _section(result: Json) -> str:
    packages = ", ".join(f"`{name}`" for name in result["packages"])
    lines = [f"## {result['subject'].capitalize()}", "", f"{result['headline']}. Read: {packages}.", ""]
    return "\n".join([*lines, *(f"- {finding}" for finding in result["findings"])]).rstrip()


def _actions(results: Sequence[Json]) -> str:
    items = (f"{result['subject'].capitalize()}: {result['advice']}" for result in results if result["findings"])
    listed = "\n".join(f"{number}. {item}" for number, item in enumerate(items, 1))
    return listed or "1. Nothing: the analyses found no fault."


EXTRA_SECTIONS: dict[str, Callable[[Sequence[Json]], str]] = {ACTIONS: _actions}
