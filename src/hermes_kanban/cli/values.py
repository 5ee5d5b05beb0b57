"""Words of a command line to values, by the type that the declaration gives (see `kernel/verbs.py`).

Ranges are the kernel's; here a text only becomes a number, an instant, a document. What cannot be one is refused
before anything is opened.
"""

from __future__ import annotations

import json
import sys

from hermes_kanban.base.clock import SystemClock
from hermes_kanban.base.errors import InvalidValue, Usage
from hermes_kanban.base.lazy import module
from hermes_kanban.base.limits import LIMITS, in_range

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, BinaryIO

    from hermes_kanban.kernel.verbs import Parameter

_SHOWN = 60
_LONGEST_NUMBER = 40
_SPANS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}
_STDIN = "-"
MOST_BYTES = 16 * 1024 * 1024  # of a file or standard input; what is kept of a text is bounded by the kernel


class Reader:
    """Turns the words of one call into values; standard input can be read once.

    Args:
        label: how errors name a parameter; a file of cards names it otherwise than the command line does.
    """

    def __init__(self, label: Callable[[Parameter], str] | None = None) -> None:
        self._stdin_for = ""
        self._label = label or label_of

    def value(self, parameter: Parameter, text: str) -> Any:
        """Return one value.

        Raises:
            InvalidValue: it has the right form and cannot be (out of range, no JSON object, no text).
            Usage: it has not the form at all.
        """
        label = self._label(parameter)
        if any("\udc80" <= char <= "\udcff" for char in text) and parameter.type != "path":
            raise InvalidValue(f"{label} holds bytes that are not UTF-8 text", hint="send text", argument=label)
        if parameter.type in ("text", "json"):
            text = self._indirect(label, text)
        read = _READERS.get(parameter.type)
        return read(parameter, text, label) if read else text

    def joined(self, parameter: Parameter, words: list[str]) -> Any:
        """Return the value of a positional that takes several words: they are one text."""
        if len(words) == 1 or parameter.type not in ("text", "line"):
            return self.value(parameter, " ".join(words))
        return self.value(_plain(parameter), " ".join(words))

    def _indirect(self, label: str, text: str) -> str:
        """`-` means standard input, `@file` a file, `@@…` a text that begins with `@`."""
        if text == _STDIN:
            if self._stdin_for:
                raise Usage(
                    f"{label} and {self._stdin_for} cannot both be read from standard input",
                    hint="give one of them as words, or as `@FILE`",
                )
            self._stdin_for = label
            return _decoded(label, read_input(label))
        if text.startswith("@@") or not text.startswith("@"):
            return text[1:] if text.startswith("@@") else text
        return _decoded(label, read_file(label, text[1:]))


def label_of(parameter: Parameter) -> str:
    """Return the parameter's name as the command line writes it."""
    return parameter.name.upper() if parameter.positional else f"--{parameter.name}"


def _plain(parameter: Parameter) -> Parameter:
    return parameter.evolve(type="line")


def read_file(label: str, path: str) -> bytes:
    """Return a file's bytes.

    Raises:
        InvalidValue: it cannot be read.
    """
    try:
        with open(path, "rb") as handle:
            return _bounded(label, handle)
    except (OSError, ValueError) as error:
        raise InvalidValue(
            f"{label}: the file {path[:200]!r} cannot be read: {getattr(error, 'strerror', None) or error}",
            hint="name a readable file; a text that begins with @ is written with @@",
            argument=label,
        ) from error


def read_input(label: str) -> bytes:
    """Return what standard input holds.

    Raises:
        InvalidValue: it has no end within reason.
    """
    return _bounded(label, sys.stdin.buffer) if sys.stdin else b""


def _bounded(label: str, handle: BinaryIO) -> bytes:
    found = handle.read(MOST_BYTES + 1)
    if len(found) > MOST_BYTES:
        raise InvalidValue(f"{label} has more than {MOST_BYTES} bytes", hint="give less", argument=label)
    return found


def _decoded(label: str, found: bytes) -> str:
    try:
        return found.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidValue(
            f"{label} is not UTF-8 text (byte {error.start})", hint="send text", argument=label
        ) from error


# --- numbers --------------------------------------------------------------------------------------------------
def _whole(parameter: Parameter, text: str, label: str) -> int:
    number = _number(parameter, text, label)
    if number != int(number):
        raise _outside(parameter, text, label)
    return in_range(parameter.limit, int(number), argument=label)


def _pause(parameter: Parameter, text: str, label: str) -> float:
    number = _number(parameter, text, label, spans=True)
    in_range(parameter.limit, int(number) if number >= 0 else -1, argument=label)
    return number


def _seconds(parameter: Parameter, text: str, label: str) -> int:
    number = _number(parameter, text, label, spans=True)
    if number != int(number):
        raise _outside(parameter, text, label)
    return in_range(parameter.limit, int(number), argument=label)


def _number(parameter: Parameter, text: str, label: str, *, spans: bool = False) -> float | int:
    """Read a number; one so large that it can be in no range is refused by naming the range."""
    plain = text.strip()
    unit = 1
    for name in sorted(_SPANS, key=len, reverse=True) if spans else ():
        if plain.lower().endswith(name) and plain[: -len(name)].strip()[-1:].isdigit():
            plain, unit = plain[: -len(name)].strip(), _SPANS[name]
            break
    if plain.isascii() and plain.lstrip("+-").isdigit() and len(plain) < _LONGEST_NUMBER:
        return _int(parameter, plain, text, label) * unit
    try:
        number = float(plain) if plain.isascii() and "_" not in plain else None
    except ValueError:
        number = None
    if number is None:
        raise _no_number(parameter, text, label)
    if not abs(number) < 1e15:  # also not-a-number and infinity
        raise _outside(parameter, text, label)
    return number * unit


def _int(parameter: Parameter, plain: str, text: str, label: str) -> int:
    try:
        return int(plain)
    except ValueError:
        raise _no_number(parameter, text, label) from None


def _no_number(parameter: Parameter, text: str, label: str) -> Usage:
    return Usage(
        f"{label} needs a number, not {text[:_SHOWN]!r}",
        hint=f"a whole number {_range(parameter)}",
        argument=label,
    )


def _outside(parameter: Parameter, text: str, label: str) -> InvalidValue:
    limit = LIMITS[parameter.limit]
    return InvalidValue(
        f"{label} must be a whole number {_range(parameter)}, not {text[:_SHOWN]}",
        hint=f"give {label} within {limit.lowest} to {limit.highest}",
        argument=label,
        lowest=limit.lowest,
        highest=limit.highest,
    )


def _range(parameter: Parameter) -> str:
    limit = LIMITS[parameter.limit]
    return f"from {limit.lowest} to {limit.highest} {limit.unit}"


# --- the rest -------------------------------------------------------------------------------------------------
def _choice(parameter: Parameter, text: str, label: str) -> str:
    if text in parameter.choices:
        return text
    near = module("difflib").get_close_matches(text, parameter.choices, 1)
    guess = f"did you mean {near[0]}? " if near else ""
    raise InvalidValue(
        f"{label} cannot be {text[:_SHOWN]!r}",
        hint=f"{guess}one of {', '.join(parameter.choices)}",
        argument=label,
    )


def _json(_parameter: Parameter, text: str, label: str) -> dict[str, Any]:
    """Read a JSON object strictly: each key once, and no numbers that JSON does not know."""
    try:
        found = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=once)
    except (ValueError, RecursionError) as error:
        raise InvalidValue(
            f"{label} is not JSON: {error}",
            hint=f"""for example {label} '{{"changed_files": ["a.py"]}}'""",
            argument=label,
        ) from error
    if not isinstance(found, dict):
        raise InvalidValue(
            f"{label} must be a JSON object",
            hint=f"""for example {label} '{{"changed_files": ["a.py"]}}'""",
            argument=label,
        )
    return found


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON number")


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the members of a JSON object; a name that is there twice is a mistake (ValueError)."""
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice!r} is there twice")
    return found


def _when(parameter: Parameter, text: str, label: str) -> int:
    now = SystemClock().now_ms() // 1000
    return in_range(parameter.limit, int(module("hermes_kanban.cli.when").instant(text, now, label)), argument=label)


_READERS: dict[str, Callable[[Parameter, str, str], Any]] = {
    "int": _whole,
    "seconds": _seconds,
    "pause": _pause,
    "choice": _choice,
    "json": _json,
    "when": _when,
}
