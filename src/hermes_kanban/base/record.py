"""Immutable records without the import cost of `dataclasses`.

A command of the command line lives for some thirty milliseconds; `dataclasses` alone would be a third of
that. The decorator below makes the same kind of class (typed for checkers by `dataclass_transform`) from
annotations, in a few lines, and without compiling anything: a command makes few of the kinds that it loads.
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

    __slots__ = ()
    FIELDS: tuple[str, ...] = ()

    def evolve(self, **changes: Any) -> Self:
        """Return a copy with some fields replaced.

        Raises:
            TypeError: a name is not a field.
        """
        values = {name: getattr(self, name) for name in self.FIELDS}
        values.update(changes)
        return type(self)(**values)

    def as_dict(self) -> dict[str, Any]:
        """Return the fields in their declared order."""
        return {name: getattr(self, name) for name in self.FIELDS}

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and all(getattr(self, n) == getattr(other, n) for n in self.FIELDS)

    def __hash__(self) -> int:
        return hash(tuple(getattr(self, n) for n in self.FIELDS))

    def __repr__(self) -> str:
        fields = ", ".join(f"{n}={getattr(self, n)!r}" for n in self.FIELDS)
        return f"{type(self).__name__}({fields})"

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable: use evolve({name}=…)")


@dataclass_transform(frozen_default=True, eq_default=True)
def record(decorated: type[T]) -> type[T]:
    """Turn an annotated subclass of `Record` into a slotted, immutable class with an `__init__`.

    Fields are the class's own annotations in order; a class attribute of the same name is its default
    (an immutable value: it is shared).
    """
    names = tuple(n for n in decorated.__annotations__ if n != "FIELDS")
    members = dict(decorated.__dict__)
    defaults = {n: members.pop(n) for n in names if n in members}
    for gone in ("__dict__", "__weakref__"):
        members.pop(gone, None)

    def init(self: Any, *given: Any, **named: Any) -> None:
        values = given if len(given) == len(names) and not named else _all(names, defaults, given, named)
        for name, value in zip(names, values, strict=True):
            _set(self, name, value)

    members |= {"__slots__": names, "FIELDS": names, "__init__": init}
    metaclass: Any = type(decorated)
    made: type[T] = metaclass(decorated.__name__, decorated.__bases__, members)
    return made


_set = object.__setattr__


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
