"""What other installed packages offer under a name: entry points, read without `importlib.metadata`.

That module costs each command that asks more than the rest of its work. The files are simple: beside each installed
package lies `entry_points.txt`, with a section per group and a line `name = module:attribute` per offer.
"""

from __future__ import annotations

import os
import sys

from hermes_kanban.base.errors import ConfigInvalid
from hermes_kanban.base.lazy import module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

_SUFFIXES = (".dist-info", ".egg-info")
_MOST_BYTES = 1_048_576


def entry_points(group: str, folders: Sequence[str] | None = None) -> dict[str, str]:
    """Return the offers of a group: name to `module:attribute`.

    Args:
        folders: where packages are installed (`sys.path` by default); the first folder that offers a name wins.
    """
    found: dict[str, str] = {}
    for folder in dict.fromkeys(filter(os.path.isabs, sys.path if folders is None else folders)):
        for text in _files(folder):
            for name, target in _section(text, group):
                found.setdefault(name, target)
    return found


def load(target: str) -> Any:
    """Return what `module:attribute` names.

    Raises:
        ConfigInvalid: it names nothing, or its module fails when it is imported.
    """
    name, _, path = target.partition("[")[0].strip().partition(":")
    try:
        found = module(name.strip())
        for attribute in filter(None, path.strip().split(".")):
            found = getattr(found, attribute)
    except Exception as error:  # whatever a stranger's module does when it is imported must not end ours
        words = " ".join(str(error).split())[:200]
        raise ConfigInvalid(
            f"the entry point {target[:200]!r} cannot be loaded: {type(error).__name__}: {words}",
            hint="mend or remove the package that offers it",
        ) from error
    return found


def _files(folder: str) -> Iterator[str]:
    """Yield the texts of the files in a folder that name entry points."""
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(_SUFFIXES))
    except OSError:
        return  # a zip, or a folder that is not there
    for name in names:
        try:
            with open(os.path.join(folder, name, "entry_points.txt"), encoding="utf-8") as handle:
                yield handle.read(_MOST_BYTES)
        except (OSError, UnicodeDecodeError):
            continue


def _section(text: str, group: str) -> Iterator[tuple[str, str]]:
    if f"[{group}]" not in text:
        return
    inside = False
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            inside = line == f"[{group}]"
        elif inside and "=" in line and not line.startswith(("#", ";")):
            name, _, target = line.partition("=")
            yield name.strip(), target.strip()
