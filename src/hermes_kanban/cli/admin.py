"""Boards as such: make them, list them, choose the current one. These are a person's verbs (P70)."""

from __future__ import annotations

import os

from hermes_kanban import boards, compose
from hermes_kanban.base.errors import BoardNotFound, InvalidValue, Refusal
from hermes_kanban.cli.call import Call
from hermes_kanban.cli.screen import style, views
from hermes_kanban.kernel.caller import without_card
from hermes_kanban.model.actors import require

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_NEXT = (
    'hermes kanban create "first card" --assignee NAME',
    "hermes kanban list",
    "hermes kanban claim --next",
    "hermes kanban --help",
)
_TEXT_BYTES = 2000


def init(call: Call) -> int:
    """Make the default board; say where it is and what to do next. Harmless to repeat, also by two at once."""
    if call.board_name is not None and boards.slug(call.board_name) != boards.DEFAULT:
        raise call.usage("init makes the default board", hint=f"`hermes kanban boards create {call.board_name}`")
    place = boards.place(call.env.home, boards.DEFAULT, call.env.variables)
    _only_people(call, place)
    fresh = not os.path.lexists(place.database)
    compose.create_board(call.env, place)
    if not call.out.json and not call.out.quiet:
        call.out.note("next: " + "\n".join(_NEXT).replace("\n", "; "))
    document = {"slug": place.slug, "database": place.database, "created": fresh, "next": list(_NEXT)}
    call.out.answer(document, f"{place.slug} {place.database}", [place.slug])
    return 0


def list_(call: Call) -> int:
    """Show the boards of this home, each with its own counts (C127)."""
    names = boards.names(call.env.home, call.env.variables)
    rows = [_described(call, name) for name in names]
    call.out.answer(rows, lambda: views().boards(rows, style(call)), names)
    return 0


def show(call: Call) -> int:
    """Show one board: the named one, else the one that is meant."""
    if call["slug"] is not None:
        name = boards.slug(call["slug"])
        boards.existing(call.env.home, name, _plain(call), "you name")
        row = _described(call, name)
    else:
        row = _described(call, call.place.slug, call.place)
    lines = [f"{key}: {value}" for key, value in row.items() if value is not None and key not in ("counts", "error")]

    def text() -> str:
        numbers = [f"  {state}: {count}" for state, count in (row["counts"] or {}).items()]
        return "\n".join([*map(views().safe, lines), *numbers])

    call.out.answer(row, text, [row["slug"]])
    return 0


def create(call: Call) -> int:
    """Make a board with its description; a name that is taken is refused."""
    place = boards.place(call.env.home, boards.slug(call["slug"]), _plain(call))
    _only_people(call, place)
    facts = _facts(call)
    boards.refuse_existing(place)
    compose.create_board(call.env, place)
    if any(value is not None for value in facts.values()):
        boards.describe(place, facts)
    if call["switch"]:
        boards.switch(call.env.home, place.slug, call.env.variables)
    call.out.answer(_described(call, place.slug), f"{place.slug} {place.database}", [place.slug])
    return 0


def switch(call: Call) -> int:
    """Choose the current board of this home."""
    place = boards.place(call.env.home, boards.slug(call["slug"]), _plain(call))
    _only_people(call, place)
    boards.switch(call.env.home, place.slug, call.env.variables)
    named = call.env.variables.get("HERMES_KANBAN_BOARD")
    if named and named != place.slug:
        call.out.warn([f"HERMES_KANBAN_BOARD names {named} and goes before the current board"])
    call.out.answer({"slug": place.slug, "current": True}, f"{place.slug} is the current board", [place.slug])
    return 0


def _plain(call: Call) -> dict[str, str]:
    """A board's name means the board's own file, whatever file is given for one process (C127)."""
    if call.board_name is not None:
        raise call.usage("the board is named behind the verb here", hint="leave --board out")
    return {name: value for name, value in call.env.variables.items() if name != "HERMES_KANBAN_DB"}


def _only_people(call: Call, place: boards.Place) -> None:
    require(without_card(compose.caller(call.env, place)), call.verb.name)


def _facts(call: Call) -> dict[str, Any]:
    facts = {"name": call["name"], "description": call["description"], "icon": call["icon"]}
    for label, value in facts.items():
        if value is not None and len(value.encode()) > _TEXT_BYTES:
            raise InvalidValue(f"--{label} has more than {_TEXT_BYTES} bytes", hint="say it shorter", argument=label)
    workdir = call["workdir"]
    if workdir is not None and not os.path.isabs(workdir):
        raise InvalidValue(
            f"--workdir needs an absolute path, not {workdir[:200]!r}",
            hint="for example /srv/project",
            argument="workdir",
        )
    return facts | {"default_workdir": workdir}


def _described(call: Call, name: str, place: boards.Place | None = None) -> dict[str, Any]:
    variables = {n: v for n, v in call.env.variables.items() if n != "HERMES_KANBAN_DB"}
    found = place or boards.place(call.env.home, name, variables)
    about = boards.description(found)
    row: dict[str, Any] = {
        "slug": name,
        "name": about.get("name"),
        "description": about.get("description"),
        "icon": about.get("icon"),
        "default_workdir": about.get("default_workdir"),
        "current": boards.current(call.env.home) == name,
        "database": found.database,
        "workspaces": found.workspaces,
        "counts": None,
    }
    try:
        row["counts"] = compose.open_reader(call.env, found).stats()["status"]
    except BoardNotFound:
        raise
    except Refusal as error:  # one damaged board does not hide the others
        row["error"] = error.as_dict()
    return row


HANDLERS = {
    "init": init,
    "boards list": list_,
    "boards show": show,
    "boards create": create,
    "boards switch": switch,
}
