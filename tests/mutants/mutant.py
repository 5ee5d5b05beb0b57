"""One way to break the product: a small, realistic mistake in one place."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path("src/hermes_kanban")


class Unfit(Exception):
    """The catalogue no longer fits the source: the mutant must be written anew."""


@dataclass(frozen=True)
class Mutant:
    """One mistake.

    Args:
        name: unique, for `--only`.
        file: below `src/hermes_kanban`.
        old, new: the text that is replaced, which occurs exactly once.
        rules: what it breaks.
        check: which check is to find it (see `checks.CHECKS`).
        what: the mistake in words.
    """

    name: str
    file: str
    old: str
    new: str
    rules: str
    check: str
    what: str

    @property
    def layer(self) -> str:
        """The folder of the package that it is in."""
        return self.file.partition("/")[0]

    def of(self, source: str) -> str:
        """Return the source with the mistake.

        Raises:
            Unfit: the text to replace is not there exactly once, or nothing would change.
        """
        found = source.count(self.old)
        if found != 1:
            raise Unfit(f"{self.name}: its text is {found} times in {self.file}")
        broken = source.replace(self.old, self.new)
        if broken == source:
            raise Unfit(f"{self.name} changes nothing")
        return broken
