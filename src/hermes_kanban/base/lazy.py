"""The one place that loads a module late: what most commands never need must not cost them its import."""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def module(name: str) -> Any:
    """Return the module of this (constant) name, importing it now."""
    return import_module(name)
