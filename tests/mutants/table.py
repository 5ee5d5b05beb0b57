"""The table of mutants: a line on the screen, and the rows of the decision between their markers."""

from __future__ import annotations

from tests.mutants.checks import Found
from tests.mutants.mutant import Mutant
from tests.mutants.workshop import ROOT

PAGE = ROOT / "docs" / "decisions" / "0009-mutants.md"
BEGIN, END = "<!-- mutants -->", "<!-- end of mutants -->"
HEAD = ("| where | mistake | rules | found by | as |", "|---|---|---|---|---|")
MOST = 110


def line(mutant: Mutant, found: Found) -> str:
    """Return a mutant and how it was found, on one line."""
    how = f"seed {found.seed}, {found.seconds:.0f} s: {found.text[:MOST]}" if found.text else f"{found.seconds:.0f} s"
    return f"{'found' if found.text else 'NOT FOUND':9} {mutant.name:28} {mutant.check:9} {how}"


def write(results: list[tuple[Mutant, Found]]) -> None:
    """Put these rows into the page; rows of other mutants stay."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    old, _, after = rest.partition(END)
    rows = {_key(text): text for text in old.splitlines() if text.startswith("| ") and text not in HEAD}
    rows |= {_key(text): text for text in (_row(mutant, found) for mutant, found in results)}
    order = sorted(rows, key=lambda key: (key.partition(":")[0], key))
    body = "\n".join((BEGIN, "", *HEAD, *(rows[key] for key in order), "", END))
    PAGE.write_text(f"{before}{body}{after}", encoding="utf-8")


def _key(row: str) -> str:
    return "|".join(row.split("|")[1:3])


def _row(mutant: Mutant, found: Found) -> str:
    how = _cell(found.text[:MOST]) if found.text else "**not found**"
    cells = (f"`{mutant.file}`", _cell(mutant.what), mutant.rules, mutant.check, how)
    return f"| {' | '.join(cells)} |"


def _cell(text: str) -> str:
    return text.replace("|", "¦").replace("<", "‹").replace("`", "'")
