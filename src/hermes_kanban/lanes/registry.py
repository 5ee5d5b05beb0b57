"""From a name on a card to the lane that works on it: config.yaml, then installed packages, then profiles (D5).

What cannot be used is answered with its reason, one lane at a time: a mistake in one never hides the others.
"""

from __future__ import annotations

import difflib
import os
import shutil

from hermes_kanban.base import plugins, settings
from hermes_kanban.base.errors import ConfigInvalid, Refusal
from hermes_kanban.base.record import Record, record
from hermes_kanban.compose import LANES, Names, usable_name
from hermes_kanban.lanes import command, environment, profiles
from hermes_kanban.lanes.lane import AGENT, COMMAND, CONFIG, PACKAGE, PROFILE, Lane, NotSpawnable, read

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

    from hermes_kanban.compose import Environment

    Check = Callable[[Lane, str], None]

__all__ = ["TYPES", "Entry", "Health", "Lane", "NotSpawnable", "checked", "entries", "health", "resolve"]

# What each type checks of a lane; None: known by name, and not part of this release.
TYPES: dict[str, Check | None] = {
    COMMAND: command.check,
    AGENT: None,
    **dict.fromkeys(("claude_code", "codex", "opencode", "gemini", "qwen_code"), None),
}


@record
class Entry(Record):
    """A name that is registered, where, and what it comes to."""

    name: str
    source: str
    found: Lane | NotSpawnable


@record
class Health(Record):
    """What can be seen of a lane without running it.

    Args:
        program: where its program is, or None when it is not found (or only a workspace could tell).
        problem: why it cannot work, "" when nothing is wrong.
        hint: what to do about the problem.
        withheld: usual variables with secrets that are there and that it does not get; names only.
    """

    program: str | None
    problem: str = ""
    hint: str = ""
    withheld: tuple[str, ...] = ()


# --- from a name to a lane ------------------------------------------------------------------------------------
def resolve(env: Environment, assignee: str) -> Lane | NotSpawnable:
    """Return the lane that answers for a name, or why none can (D5, C142). The name is never used as a path."""
    for source in _SOURCES if usable_name(assignee) else ():
        found = source(env, assignee)
        if found is not None:
            return found
    names = Names(env.home, env.values)
    near = difflib.get_close_matches(assignee, (*names.lanes(), *names.profiles()), 1)
    if assignee in env.values.names("external_assignees"):
        return NotSpawnable(f"{assignee!r} pulls its cards from outside", "wait until it claims the card")
    return NotSpawnable(
        f"no lane or profile answers for {assignee!r}",
        f"did you mean {near[0]}? `hermes kanban assign` gives the card to it"
        if near
        else "`hermes kanban lanes` lists the lanes; `hermes kanban lanes add NAME -- PROGRAM …` makes one",
    )


def entries(env: Environment) -> tuple[Entry, ...]:
    """Return everything that is registered in its order, what cannot be used too; a name counts once."""
    names = Names(env.home, env.values)
    configured = env.values.names("lanes")
    found: dict[str, Entry] = {}
    for name in (*configured, *names.lanes(), *names.profiles()):
        if name not in found:
            made = resolve(env, name) if usable_name(name) else _misnamed(name)
            found[name] = Entry(name, _source_of(env, name), made)
    return tuple(found.values())


def _source_of(env: Environment, name: str) -> str:
    if name in env.values.names("lanes"):
        return CONFIG
    return PACKAGE if name in plugins.entry_points(LANES) else PROFILE


def _misnamed(name: str) -> NotSpawnable:
    return NotSpawnable(
        f"{name[:80]!r} cannot be a lane's name", "letters, digits, - _ and . make a name; rename it in config.yaml"
    )


def _configured(env: Environment, name: str) -> Lane | NotSpawnable | None:
    given = env.values.mapping("lanes")
    if name not in given:
        return None
    return _told(lambda: checked(env.home, name, given[name], CONFIG, f"kanban.lanes.{name}"))


def _offered(env: Environment, name: str) -> Lane | NotSpawnable | None:
    target = plugins.entry_points(LANES).get(name)
    if target is None:
        return None
    return _told(lambda: checked(env.home, name, _called(plugins.load(target)), PACKAGE, f"the lane {name} ({target})"))


def _called(offer: Any) -> Any:
    """An entry point is a map of settings, or a function that returns one."""
    if not callable(offer):
        return offer
    try:
        return offer()
    except Exception as error:  # a stranger's function must not end ours
        raise ConfigInvalid(
            f"its function failed: {type(error).__name__}: {' '.join(str(error).split())[:200]}",
            hint="mend or remove the package that offers it",
        ) from error


def _profiled(env: Environment, name: str) -> Lane | NotSpawnable | None:
    if name not in Names(env.home, env.values).profiles():
        return None

    def made() -> Lane:
        profile = profiles.read(env.home, name)
        where = f"{profile.folder}/config.yaml: worker"
        usual = {"model": profile.model, "description": profile.description, "orchestrates": profile.orchestrates}
        given = {key: value for key, value in usual.items() if value} | profile.worker | {"profile": name}
        lane = read(name, given, PROFILE, where, AGENT)
        return _fitting(lane.evolve(orchestrates=profile.orchestrates), where)

    return _told(made)


_SOURCES: tuple[Callable[[Environment, str], Lane | NotSpawnable | None], ...] = (_configured, _offered, _profiled)


def _told(made: Callable[[], Lane]) -> Lane | NotSpawnable:
    try:
        return made()
    except Refusal as error:
        return NotSpawnable(error.message, error.hint, known=True)


def checked(home: str, name: str, given: Any, source: str, where: str) -> Lane:
    """Return a lane from its settings; one that names a profile may do what the profile may (P70).

    Raises:
        ConfigInvalid: something is wrong with it, or its type is not part of this release.
    """
    lane = _fitting(read(name, given, source, where), where)
    if lane.profile is None:
        return lane
    return lane.evolve(orchestrates=profiles.read(home, lane.profile).orchestrates)


def _fitting(lane: Lane, where: str) -> Lane:
    """Check what the lane's type asks for."""
    if lane.type not in TYPES:
        near = difflib.get_close_matches(lane.type, TYPES, 1)
        guess = f"did you mean {near[0]}? " if near else ""
        raise ConfigInvalid(
            f"{where}.type: there is no type {lane.type[:60]!r}", hint=f"{guess}one of {', '.join(TYPES)}"
        )
    check = TYPES[lane.type]
    if check is None:
        raise ConfigInvalid(
            f"{where}: lanes of type {lane.type} are not part of this release yet",
            hint=f"`type: {COMMAND}` runs any program",
        )
    check(lane, where)
    return lane


# --- health ---------------------------------------------------------------------------------------------------
def health(lane: Lane, given: Mapping[str, str] | None = None) -> Health:
    """Return what can be seen of a lane without running anything.

    Args:
        given: the variables of this process (the real ones by default).
    """
    known = settings.inherited(lambda _: True) if given is None else given
    path = environment.search_path(known)
    hidden = environment.withheld(lane, known)
    program = lane.argv[0] if lane.argv else ""
    if os.sep in program and not os.path.isabs(program):
        if program.startswith("~"):
            return Health(None, f"no shell reads {program!r}: ~ is not replaced", "write the whole path", hidden)
        return Health(None, withheld=hidden)  # of the workspace: each card's own
    found = shutil.which(program, path=path)
    if found is not None:
        return Health(found, withheld=hidden)
    there = next((place for place in _places(program, path) if os.path.lexists(place)), None)
    if there is not None:
        return Health(None, f"{there} cannot be run", "make it an executable file that this user may run", hidden)
    return Health(None, f"{program!r} is not found", f"install it, or write its whole path (PATH is {path})", hidden)


def _places(program: str, path: str) -> Iterator[str]:
    if os.path.isabs(program):
        yield program
    else:
        yield from (os.path.join(folder, program) for folder in path.split(os.pathsep))
