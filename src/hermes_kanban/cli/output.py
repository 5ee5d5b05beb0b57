"""What a command prints: the answer on stdout, everything else on stderr.

One answer has three forms: lines (for people and simple scripts), one JSON document (`--json`), ids alone (`-q`).
Whatever goes wrong, stdout never holds half an answer.
"""

from __future__ import annotations

import os
import sys

from hermes_kanban.base.errors import StoreIo
from hermes_kanban.present import documents
from hermes_kanban.present.text import safe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, TextIO

    from hermes_kanban.base.errors import Refusal

    Text = str | Callable[[], str]

_STDOUT = 1


class Output:
    """Where a command's words go.

    Args:
        json, quiet: the form of the answer.
    """

    def __init__(self, *, json: bool = False, quiet: bool = False) -> None:
        self.json = json
        self.quiet = quiet
        self.warnings: list[str] = []
        _prepare(sys.stdout, "surrogateescape")  # a path comes out as it is; cards hold no halves of characters
        _prepare(sys.stderr, "backslashreplace")

    # --- stdout ------------------------------------------------------------------------------------------------
    def answer(self, document: Any, text: Text, ids: Iterable[str] = ()) -> None:
        """Print the answer in the form that was asked for.

        Args:
            document: for `--json`; an object gets the warnings as a key.
            text: lines for people, or what makes them (then only when they are wanted).
            ids: for `-q`.
        """
        if self.json:
            if isinstance(document, dict):
                document["warnings"] = self.warnings
            self.line(documents.line(document))
        elif self.quiet:
            self.line("\n".join(ids))
        else:
            self.line(text if isinstance(text, str) else text())

    def line(self, text: str) -> None:
        """Print a line to stdout (nothing for an empty one)."""
        if text and sys.stdout is not None:
            try:
                sys.stdout.write(text if text.endswith("\n") else text + "\n")
            except BrokenPipeError:
                raise
            except OSError as error:
                abandon()
                raise StoreIo(f"the answer could not be printed: {error.strerror}", hint="look at stdout") from error

    def raw(self, text: str) -> None:
        """Send codes to a terminal: no line, no answer."""
        if sys.stdout is not None:
            sys.stdout.write(text)

    def flush(self) -> None:
        """Let the reader have what was printed."""
        if sys.stdout is not None:
            sys.stdout.flush()

    # --- stderr ------------------------------------------------------------------------------------------------
    def note(self, text: str) -> None:
        """Say something that belongs to the answer but that a script would not want on stdout."""
        _say(safe(text))

    def warn(self, texts: Iterable[str]) -> None:
        """Print warnings, each once; `--json` repeats them in the answer."""
        for text in texts:
            if text not in self.warnings:
                self.warnings.append(text)
                _say(f"warning: {safe(text)}")

    def refuse(self, error: Refusal, usage: str = "") -> None:
        """Print why not, and what to do next; with `--json` the error's body on stdout too."""
        if usage:
            _say(usage)
        _say(f"error: {safe(error.message, lines=True)}")
        _hint(error)
        if self.json:
            self.line(documents.line({"error": error.as_dict()}))

    def refuse_one(self, task: str, error: Refusal) -> None:
        """Print why one of several cards was refused; the answer as a whole comes later."""
        _say(f"error: {safe(task)}: {safe(error.message, lines=True)}")
        _hint(error)


def _prepare(stream: TextIO | None, errors: str) -> None:
    """Answers are UTF-8 whatever the locale says: JSON is, and half a line in another code helps nobody."""
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(encoding="utf-8", errors=errors)


def _hint(error: Refusal) -> None:
    if error.hint:
        _say(f"hint: {safe(error.hint, lines=True)}".replace("\n", "\n      "))


def _say(text: str) -> None:
    if sys.stderr is None:
        return
    try:
        sys.stderr.write(text + "\n")
    except OSError:
        return  # nobody listens; the exit code still tells


def on_terminal() -> bool:
    """Whether stdout is a terminal."""
    try:
        return os.isatty(_STDOUT)
    except OSError:
        return False


def abandon() -> None:
    """Let go of a stdout that nobody reads, so that the interpreter's own flush at its end does not fail."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, _STDOUT)
        os.close(nowhere)
    except OSError:
        return
