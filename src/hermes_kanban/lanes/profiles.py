"""Profiles: a folder for each, with the settings of the worker that goes by its name (W1).

`$HERMES_HOME/profiles/<name>/config.yaml` has a `worker:` section with the keys of a lane, `toolsets:` and `model:`;
`profile.yaml` holds a description. A folder that cannot be used is refused by its reason, never half used (C142).
"""

from __future__ import annotations

import os
import stat

from hermes_kanban.base import yamlfile
from hermes_kanban.base.errors import ConfigInvalid, InvalidValue
from hermes_kanban.base.record import Record, record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ORCHESTRATORS = "kanban"  # the toolset that lets a run split work and hand it out (P70)
_MOST_BYTES = 1_048_576


@record
class Profile(Record):
    """A profile that can be used.

    Args:
        name: the folder's.
        folder: its absolute path.
        worker: how it is run, in the keys of a lane.
        toolsets: what its worker may use.
        model: the usual model, or "".
        description: for people.
    """

    name: str
    folder: str
    worker: dict[str, Any]
    toolsets: tuple[str, ...] = ()
    model: str = ""
    description: str = ""

    @property
    def orchestrates(self) -> bool:
        """Whether its runs may split work and hand it out (P70)."""
        return ORCHESTRATORS in self.toolsets


def folder_of(home: str, name: str) -> str:
    """Return where a profile is; the name was checked, it is no path."""
    return os.path.join(home, "profiles", name)


def read(home: str, name: str) -> Profile:
    """Return a profile.

    Raises:
        ConfigInvalid: it is incomplete or cannot be read; the message says what is missing (C142).
    """
    folder = folder_of(home, name)
    path = os.path.join(folder, "config.yaml")
    document = _map(path, f"the profile {name!r} has no config.yaml")
    worker = document.get("worker")
    toolsets = document.get("toolsets") or []
    model = document.get("model") or ""
    _require(isinstance(worker or {}, dict), path, "worker", "a map with the keys of a lane")
    _require(_is_list_of_texts(toolsets), path, "toolsets", "a list of names")
    return Profile(
        name=name,
        folder=folder,
        worker=worker or {},
        toolsets=tuple(toolsets),
        model=model if isinstance(model, str) else "",
        description=_description(folder),
    )


def _is_list_of_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _require(fine: bool, path: str, key: str, wanted: str) -> None:
    if not fine:
        raise ConfigInvalid(f"{path}: {key} must be {wanted}", hint="mend the file; nothing was done")


def _description(folder: str) -> str:
    """Return what profile.yaml says; people may do without it."""
    try:
        found = _map(os.path.join(folder, "profile.yaml"), "").get("description")
    except ConfigInvalid:
        return ""
    return found if isinstance(found, str) else ""


def _map(path: str, missing: str) -> dict[str, Any]:
    """Return the map in a YAML file."""
    try:
        text = _text(path)
    except FileNotFoundError as error:
        hint = f"write {path} with a `worker:` section, or remove the folder"
        raise ConfigInvalid(missing, hint=hint) from error
    except (OSError, ValueError) as error:
        words = getattr(error, "strerror", None) or str(error)
        raise ConfigInvalid(f"{path} cannot be read: {words}", hint="mend the file; nothing was done") from error
    try:
        document = yamlfile.parse(text, path)
    except InvalidValue as error:
        raise ConfigInvalid(error.message, hint=error.hint) from error
    if document is not None and not isinstance(document, dict):
        raise ConfigInvalid(f"{path} must hold a map", hint="mend the file; nothing was done")
    return document or {}


def _text(path: str) -> str:
    """Return a plain file's text; a pipe or a device in its place would hold the reader up."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as handle:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError("it is no file")
        data = handle.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise ValueError(f"it has more than {_MOST_BYTES} bytes")
    return data.decode("utf-8")
