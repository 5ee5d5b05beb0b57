"""Reads JSON that another process wrote; what comes through here fits into a column and into JSON again.

Python's own reader takes numbers that no column and no JSON holds (NaN, infinity, a thousand digits) and halves of
characters that cannot be written anywhere; whoever uses them later would fail far from where they came in.
"""

from __future__ import annotations

import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, NoReturn

LOWEST, HIGHEST = -(2**63), 2**63 - 1


def parse(data: bytes, *, halves: str = "strict") -> dict[str, Any]:
    """Return the JSON object that these bytes are.

    Args:
        halves: which halves of characters texts may hold, as a way of Python's to handle errors: none (`strict`), those
            that stand for single bytes in names of files (`surrogateescape`), all (`surrogatepass`).

    Raises:
        ValueError: they are none, or it holds what cannot be kept.
    """
    text = data.decode("utf-8")
    try:
        found = json.loads(text, parse_int=_int, parse_float=_float, parse_constant=_no_number)
        if "\\u" in text:
            json.dumps(found, ensure_ascii=False).encode("utf-8", halves)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(found, dict):
        raise ValueError("no JSON object")
    return found


def fitting(found: Mapping[str, Any], kinds: Mapping[str, type]) -> dict[str, Any]:
    """Return those members that are of the kind that is declared for them (yes and no are no numbers)."""
    return {name: found[name] for name, kind in kinds.items() if name in found and type(found[name]) is kind}


def _int(text: str) -> int:
    number = int(text)
    return number if LOWEST <= number <= HIGHEST else _no_number(text)


def _float(text: str) -> float:
    number = float(text)
    return number if abs(number) < float("inf") else _no_number(text)


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text[:40]} is no number that can be kept")
