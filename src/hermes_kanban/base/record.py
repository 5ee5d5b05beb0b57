"""Immutable records without the import cost of `dataclasses`.

Each call of the command line would pay for the import of `dataclasses`, and of `inspect` below it. The decorator here
makes the same kind of class (typed for checkers by `dataclass_transform`) from annotations, in a few lines, and without
compiling anything: a command makes few of the kinds that it loads.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Self, TypeVar, dataclass_transform

    T = TypeVar("T", bound="Record")
else:

    def dataclass_transform(**_options):
        return lambda decorated: decorated


class Record:
    """Base of all records: compared by value, changed only by `evolve`."""

    FIELDS: tuple[str, ...] = ()

    def evolve(self, **changes: Any) -> Self:
        """Return a copy with some fields replaced.

        Raises:
            TypeError: a name is not a field.
        """
        values = self.__dict__ | changes
        if len(values) != len(self.FIELDS):
            raise TypeError(f"no such field: {', '.join(name for name in changes if name not in self.FIELDS)}")
        made = object.__new__(type(self))
        made.__dict__.update(values)
        return made

    def as_dict(self) -> dict[str, Any]:
        """Return the fields in their declared order."""
        return dict(self.__dict__)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash(tuple(self.__dict__.values()))

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in self.__dict__.items())
        return f"{type(self).__name__}({fields})"

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable: use evolve({name}=…)")


@dataclass_transform(frozen_default=True, eq_default=True)
def record(decorated: type[T]) -> type[T]:
    """Turn an annotated subclass of `Record` into an immutable class with an `__init__`.

    Fields are the class's own annotations in order; a class attribute of the same name is its default
    (an immutable value: it is shared).
    """
    names = tuple(n for n in decorated.__annotations__ if n != "FIELDS")
    defaults = {n: decorated.__dict__[n] for n in names if n in decorated.__dict__}

    def init(self: Any, *given: Any, **named: Any) -> None:
        plain = len(given) == len(names) and not named
        self.__dict__.update(zip(names, given if plain else _all(names, defaults, given, named), strict=True))

    decorated.FIELDS = names
    decorated.__init__ = init  # type: ignore[method-assign]
    return decorated


def _all(names: tuple[str, ...], defaults: dict[str, Any], given: tuple[Any, ...], named: dict[str, Any]) -> list[Any]:
    """Return a value for each field from what was given by position, by name, or not at all.

    Raises:
        TypeError: a field is missing, unknown, or given twice.
    """
    left = names[len(given) :]
    strange = [name for name in named if name not in left]
    if strange or len(given) > len(names):
        raise TypeError(f"unknown or given twice: {', '.join(strange) or given[len(names) :]}")
    values = defaults | named
    missing = [name for name in left if name not in values]
    if missing:
        raise TypeError(f"missing: {', '.join(missing)}")
    return [*given, *(values[name] for name in left)]
