"""The one place that loads a module late: what most commands never need must not cost them its import."""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Late:
    """Stands for a module that is imported when something of it is asked for first."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        value = getattr(import_module(self._name), attribute)
        setattr(self, attribute, value)
        return value


def late(*names: str) -> tuple[Late, ...]:
    """Return stand-ins for modules, for a facade whose callers use one or two of them."""
    return tuple(Late(name) for name in names)


def module(name: str) -> Any:
    """Return the module of this (constant) name, importing it now."""
    return import_module(name)
