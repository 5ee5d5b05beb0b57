"""The one door to YAML: what people wrote, as plain values of JSON. Loaded only where a file must be read."""

from __future__ import annotations

import json

import yaml

from hermes_kanban.base.errors import InvalidValue

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# What PyYAML and its constructors are known to raise for text that is no YAML, or of a type that it is not.
_FAULTS = (yaml.YAMLError, ValueError, TypeError, LookupError, AttributeError, RecursionError, OverflowError)


class _Loader(yaml.SafeLoader):
    """Plain values, and no aliases: a few lines of nested ones would grow to gigabytes."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases (*name) are not taken: write the value out")
        return super().compose_node(parent, index)


def parse(text: str, what: str) -> Any:
    """Return the values of a YAML text; dates become texts.

    Raises:
        InvalidValue: it is no YAML, or holds what JSON cannot; `what` says of which file.
    """
    try:
        loaded = yaml.load(text, _Loader)  # noqa: S506 - a SafeLoader
        return json.loads(json.dumps(loaded, default=str, allow_nan=False))
    except _FAULTS as error:
        raise InvalidValue(f"{what} is no YAML: {_told(error)}", hint="mend the file; nothing was done") from error


def _told(error: Exception) -> str:
    """Return where in the text something is wrong, and what."""
    mark = getattr(error, "problem_mark", None)
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    problem = getattr(error, "problem", None) or str(error) or type(error).__name__
    return where + " ".join(str(problem).split())[:200]


def dump(values: dict[str, Any]) -> str:
    """Return values as YAML, in their order."""
    return str(yaml.safe_dump(values, allow_unicode=True, sort_keys=False))
