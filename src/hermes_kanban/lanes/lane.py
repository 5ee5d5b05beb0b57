"""What a lane is: a name that answers for cards, and what is run for them. `KEYS` is the one table of its settings.

A lane is read from plain values, whoever wrote them (config.yaml, a profile, another package); what is wrong with one
lane is said of that lane, and touches no other.
"""

from __future__ import annotations

import difflib
import re

from hermes_kanban.base.errors import ConfigInvalid
from hermes_kanban.base.limits import LIMITS
from hermes_kanban.base.record import Record, record
from hermes_kanban.compose import usable_name
from hermes_kanban.lanes.environment import RESERVED
from hermes_kanban.lanes.order import ALL, LEADER, POLICIES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

COMMAND, AGENT = "command", "agent"
CONFIG, PROFILE, PACKAGE = "config", "profile", "entry point"  # where a lane was read from
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LONGEST_WORD = 131_071  # bytes that Linux takes in one argument


@record
class Lane(Record):
    """How cards of one name are worked on.

    Args:
        name: the name that a card is given to.
        type: what kind of program it is: a key of the registry's `TYPES`.
        argv: the program and its arguments; never a shell's line.
        args: more arguments behind them.
        model: for `{model}`, unless the card names another.
        env: the variables of ours that are passed on besides the usual ones (D10).
        success_policy: who closes the card after exit code 0: a word of `order.POLICIES`.
        timeout: seconds, or None for the board's own longest run.
        max_concurrency: how many at once on this host; 0: no bound.
        wait_for: `leader`: the program that is started; `all`: everything that it starts.
        memory_limit: bytes of all its processes; 0: the board's own limit.
        orchestrates: its runs may split work and hand it out (P70).
        profile: the profile that it runs as, or None.
        source: where it was read: config, profile, or entry point.
        description: for people.
    """

    name: str
    type: str = COMMAND
    argv: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    model: str = ""
    env: tuple[str, ...] = ()
    success_policy: str = POLICIES[0]
    timeout: int | None = None
    max_concurrency: int = 0
    wait_for: str = LEADER
    memory_limit: int = 0
    orchestrates: bool = False
    profile: str | None = None
    source: str = CONFIG
    description: str = ""


@record
class NotSpawnable(Record):
    """Why no worker can be started for a name (D5).

    Args:
        reason: in one sentence.
        hint: what to do.
        known: there is a lane or profile of this name, only it cannot be used (C142).
    """

    reason: str
    hint: str
    known: bool = False


@record
class Key(Record):
    """One setting of a lane: what it must be, in words, and what tells."""

    wanted: str
    fits: Callable[[Any], bool]


def _whole(lowest: int, highest: int, unit: str) -> Key:
    return Key(f"a whole number from {lowest} to {highest} {unit}", lambda v: type(v) is int and lowest <= v <= highest)


def _one_of(*words: str) -> Key:
    return Key(f"one of {', '.join(words)}", lambda v: isinstance(v, str) and v in words)


def _text(most: int) -> Key:
    return Key(f"a text of at most {most} characters", lambda v: _is_word(v) and len(v) <= most)


def _is_word(value: Any) -> bool:
    """Whether this can be an argument of a program."""
    return isinstance(value, str) and "\0" not in value and not any("\ud800" <= char <= "\udfff" for char in value)


def _is_list(value: Any, fits: Callable[[Any], bool]) -> bool:
    return isinstance(value, list) and all(map(fits, value))


_WORDS = Key(
    "a list of texts, one for each argument",
    lambda v: _is_list(v, lambda word: _is_word(word) and len(word.encode()) <= _LONGEST_WORD),
)
_runtime = LIMITS["max_runtime"]

KEYS: dict[str, Key] = {
    "type": Key("a word", lambda v: isinstance(v, str)),
    "argv": _WORDS,
    "args": _WORDS,
    "model": _text(200),
    "env": Key(
        "a list of names of variables that are passed on, without values",
        lambda v: _is_list(v, lambda name: isinstance(name, str) and _VARIABLE.fullmatch(name) is not None),
    ),
    "success_policy": _one_of(*POLICIES),
    "timeout": _whole(_runtime.lowest, _runtime.highest, "seconds"),
    "max_concurrency": _whole(0, LIMITS["max_concurrency"].highest, "workers (0: no bound)"),
    "wait_for": _one_of(LEADER, ALL),
    "memory_limit": _whole(0, 2**50, "bytes (0: the board's own)"),
    "orchestrates": Key("true or false", lambda v: isinstance(v, bool)),
    "profile": Key("the name of a profile", lambda v: isinstance(v, str) and usable_name(v)),
    "description": _text(2000),
}


def read(name: str, given: Any, source: str, where: str, usual_type: str = COMMAND) -> Lane:
    """Return the lane in plain values; what is right for its type is the registry's to check.

    Args:
        where: how errors call the place, for example `kanban.lanes.coder`.
        usual_type: the type where none is given.

    Raises:
        ConfigInvalid: a key is unknown, or a value is not of its kind.
    """
    if not isinstance(given, dict):
        raise ConfigInvalid(f"{where} must be a map of settings", hint=f"write {where} with `argv:` below it")
    values: dict[str, Any] = {}
    for key, value in given.items():
        if key not in KEYS:
            raise ConfigInvalid(f"{where}.{key} is not a setting of a lane", hint=_meant(key))
        if value is None:
            continue
        if not KEYS[key].fits(value):
            raise ConfigInvalid(f"{where}.{key} must be {KEYS[key].wanted}, not {str(value)[:60]!r}", hint=_MEND)
        values[key] = tuple(value) if isinstance(value, list) else value
    _refuse_reserved(values, where)
    return Lane(name=name, source=source, **({"type": usual_type} | values))


_MEND = "mend config.yaml, or take the lane out and `hermes kanban lanes add` it again"


def _refuse_reserved(values: Mapping[str, Any], where: str) -> None:
    taken = [name for name in values.get("env", ()) if name in RESERVED]
    if taken:
        raise ConfigInvalid(
            f"{where}.env: {taken[0]} is set for each worker anew and cannot be passed on", hint=f"leave {taken[0]} out"
        )


def _meant(key: object) -> str:
    near = difflib.get_close_matches(str(key), KEYS, 1)
    return f"did you mean {near[0]}?" if near else f"a lane has {', '.join(KEYS)}"
