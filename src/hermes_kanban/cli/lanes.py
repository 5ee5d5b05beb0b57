"""Lanes: who does the work of this home. `lanes add` and `lanes rm` change config.yaml: a person's verbs (P70)."""

from __future__ import annotations

import os

from hermes_kanban import boards, compose
from hermes_kanban.base import configfile, settings, yamlfile
from hermes_kanban.base.errors import BoardNotFound, Busy, ConfigInvalid, InvalidValue, NotFound, Refusal, StateRefusal
from hermes_kanban.base.limits import checked_name
from hermes_kanban.cli.call import Call
from hermes_kanban.cli.screen import style
from hermes_kanban.kernel.caller import without_card
from hermes_kanban.lanes import registry
from hermes_kanban.lanes.lane import COMMAND, CONFIG
from hermes_kanban.lanes.registry import Lane
from hermes_kanban.model.actors import require
from hermes_kanban.present.text import safe, table
from hermes_kanban.store.turnstile import Turnstile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

_ABOVE = ("kanban", "lanes")


# --- looking --------------------------------------------------------------------------------------------------
def list_(call: Call) -> int:
    """Show every lane and profile: whether it works, what runs, which secrets it does not get."""
    running = _running(call)
    rows = [_row(entry, running) for entry in registry.entries(call.env)]
    call.out.answer(rows, lambda: _text(rows, style(call).room), (row["name"] for row in rows))
    return 0


def _running(call: Call) -> Mapping[str, int] | None:
    """Return how many workers of each lane run on the board that is meant; None where there is no board to ask."""
    try:
        watched = call.reader().watched()
    except BoardNotFound:
        if call.board_name is not None:
            raise
        return None  # lanes may come before the first board
    except Refusal as error:
        call.out.warn([f"what runs is not known: {error.message}"])
        return None
    lanes = [run.lane or "" for run in watched]
    return {lane: lanes.count(lane) for lane in lanes}


def _row(entry: registry.Entry, running: Mapping[str, int] | None) -> dict[str, Any]:
    found = entry.found
    count = None if running is None else running.get(entry.name, 0)
    row: dict[str, Any] = dict(name=entry.name, source=entry.source, running=count)
    if not isinstance(found, Lane):
        return row | {"ok": False, "problem": found.reason, "hint": found.hint}
    health = registry.health(found)
    return row | {
        "ok": not health.problem,
        "problem": health.problem or None,
        "hint": health.hint or None,
        "type": found.type,
        "max_concurrency": found.max_concurrency,
        "model": found.model or None,
        "argv": [*found.argv, *found.args],
        "program": health.program,
        "env": list(found.env),
        "withheld": list(health.withheld),
        "success_policy": found.success_policy,
        "timeout": found.timeout,
        "wait_for": found.wait_for,
        "memory_limit": found.memory_limit,
        "orchestrates": found.orchestrates,
        "profile": found.profile,
        "description": found.description or None,
    }


def _text(rows: list[dict[str, Any]], room: int) -> str:
    if not rows:
        return "no lanes: make one with `hermes kanban lanes add NAME -- PROGRAM ARGUMENT …`"
    cells = [
        (safe(row["name"]), row.get("type") or row["source"], "ok" if row["ok"] else "-", _room(row), _about(row))
        for row in rows
    ]
    lines = table(("LANE", "TYPE", "OK", "RUNNING", "PROGRAM"), cells, room=room)
    return "\n".join([*lines, *_notes(rows)])


def _room(row: Mapping[str, Any]) -> str:
    """Return `running/max`; `-` for no bound, `?` where it is not known."""
    running = "?" if row["running"] is None else str(row["running"])
    return f"{running}/{row.get('max_concurrency') or '-'}"


def _about(row: Mapping[str, Any]) -> str:
    return safe(str(row["problem"] or row["program"] or row["argv"][0]))


def _notes(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield what to do about each lane that does not work, and which secrets are not passed on."""
    for row in rows:
        if row["hint"]:
            yield f"{safe(row['name'])}: {safe(row['hint'])}"
        if row.get("withheld"):
            yield f"{safe(row['name'])}: does not get {', '.join(map(safe, row['withheld']))} (see `env`)"


# --- changing -------------------------------------------------------------------------------------------------
def add(call: Call) -> int:
    """Make a lane in config.yaml: everything else in the file stays as it is."""
    _only_people(call)
    name = _checked_name(call["name"])
    lane = registry.checked(call.env.home, name, _given(call), CONFIG, f"the lane {name}")
    path = os.path.join(call.env.home, "config.yaml")
    with _Turn(call):
        text = configfile.read(path)
        _refuse_taken(call, text, path, name)
        made = configfile.put(text, (*_ABOVE, name), _given(call), path)
        _check_whole(made, path)
        configfile.write(path, made)
    health = registry.health(lane)
    if health.problem:
        call.out.warn([f"{health.problem}: {health.hint}"])
    if health.withheld:
        call.out.note(f"not passed on: {', '.join(health.withheld)} (`--env NAME` passes a variable on)")
    document = {"name": name, "file": path, "type": lane.type, "argv": list(lane.argv), "program": health.program}
    call.out.answer(document, f"{name} {safe(path)}", [name])
    return 0


def remove(call: Call) -> int:
    """Take a lane out of config.yaml; its cards wait for another one of this name."""
    _only_people(call)
    name = call["name"]
    path = os.path.join(call.env.home, "config.yaml")
    with _Turn(call):
        text = configfile.read(path)
        if name not in _lanes(text, path):
            raise NotFound(f"{path} has no lane {name!r}", hint="`hermes kanban lanes` lists them", lane=name)
        configfile.write(path, configfile.drop(text, (*_ABOVE, name), path))
    call.out.answer({"name": name, "file": path}, f"{safe(name)} is no lane any more", [name])
    return 0


def _only_people(call: Call) -> None:
    if call.board_name is not None:
        raise call.usage("lanes belong to a home, not to a board", hint="leave --board out")
    place = boards.place(call.env.home, boards.DEFAULT, call.env.variables)
    require(without_card(compose.caller(call.env, place)), call.verb.name)


def _checked_name(name: str) -> str:
    if compose.usable_name(checked_name("name", name)):
        return name
    raise InvalidValue(
        f"{name!r} cannot be a lane's name",
        hint="letters, digits, - _ and . make a name; the first is a letter or a digit, and `none` means nobody",
        argument="name",
    )


def _given(call: Call) -> dict[str, Any]:
    """Return the lane as it is written into config.yaml."""
    given: dict[str, Any] = {
        "type": call["type"] or COMMAND,
        "argv": list(call["argv"] or ()),
        "model": call["model"],
        "env": list(dict.fromkeys(call["env"])),
        "success_policy": call["success-policy"],
        "timeout": call["timeout"],
        "max_concurrency": call["max-concurrency"],
    }
    return {key: value for key, value in given.items() if value not in (None, [])}


def _refuse_taken(call: Call, text: str, path: str, name: str) -> None:
    """A name has one lane; a profile of the same name would be hidden without a word."""
    if name in _lanes(text, path):
        raise StateRefusal(f"there is a lane {name!r} already", hint=f"choose another name, or edit {path}", lane=name)
    if name in compose.Names(call.env.home, call.env.values).profiles():
        call.out.warn([f"there is a profile {name!r} too: the lane goes before it"])


def _lanes(text: str, path: str) -> Mapping[str, Any]:
    try:
        document = yamlfile.parse(text, path) or {}
    except InvalidValue as error:
        raise ConfigInvalid(error.message, hint=error.hint) from error
    section = document.get("kanban") or {} if isinstance(document, dict) else {}
    lanes = section.get("lanes") or {} if isinstance(section, dict) else {}
    return lanes if isinstance(lanes, dict) else {}


def _check_whole(text: str, path: str) -> None:
    """Look at the file as the next command will read it."""
    settings.Settings(yamlfile.parse(text, path)["kanban"], path)


class _Turn:
    """The right to change config.yaml: one at a time, in a fair queue."""

    def __init__(self, call: Call) -> None:
        self._home = call.env.home
        self._seconds = call.env.values.number("lock_wait_seconds")
        self._queue = Turnstile(os.path.join(call.env.home, ".config.lock"))

    def __enter__(self) -> None:
        try:
            os.makedirs(self._home, mode=0o700, exist_ok=True)
            self._queue.enter(self._seconds)
        except Busy as error:
            raise Busy("config.yaml is being changed by another process", hint="try again") from error
        except OSError as error:
            raise configfile.refusal(error, self._home) from error

    def __exit__(self, *_error: object) -> None:
        self._queue.leave()


HANDLERS = {"lanes list": list_, "lanes add": add, "lanes rm": remove}
