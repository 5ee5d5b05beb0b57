"""`apply`: a graph of cards from a YAML or JSON file, made in one step or not at all (P53)."""

from __future__ import annotations

import json

from hermes_kanban.base.errors import InvalidValue, Usage
from hermes_kanban.base.lazy import module
from hermes_kanban.cli import values
from hermes_kanban.cli.call import Call, nobody
from hermes_kanban.cli.cards import default_tenant, workspace
from hermes_kanban.kernel.verbs import BY_NAME
from hermes_kanban.model import status as s
from hermes_kanban.model.task import TaskDraft
from hermes_kanban.present import documents
from hermes_kanban.present.text import safe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from hermes_kanban.kernel.create import Created

_WORDS = {p.name.replace("-", "_"): p for p in BY_NAME["create"].parameters}
LISTS = {"parents": "parent", "skills": "skill"}  # what a file calls a list, and the option's name
_ALSO = ("name", *LISTS)
KNOWN = tuple(sorted({*_WORDS, *_ALSO} - {"parent", "skill"}))
_SHOWN = 200  # characters of a file's name in errors
_TEXTS = ("text", "line", "name", "choice")


def apply(call: Call) -> int:
    """Make the cards of a file; `--dry-run` answers the same and keeps nothing."""
    entries = _entries(call["file"])
    drafts = tuple(draft(call, number, entry) for number, entry in enumerate(entries, 1))
    made = call.board().apply(drafts, dry_run=call["dry-run"])
    call.warn_of_board()
    rows = [documents.created(one) | {"name": d.name} for one, d in zip(made, drafts, strict=True)]
    document = {"dry_run": call["dry-run"], "tasks": rows}
    if call["dry-run"] and not call.out.json:
        call.out.note("note: a dry run: nothing was made, and these ids will not be used")
    lines = (_line(one, d) for one, d in zip(made, drafts, strict=True))
    call.out.answer(document, lambda: "\n".join(lines), (one.task.id for one in made))
    return 0


def _line(one: Created, asked: TaskDraft) -> str:
    """`ID state`, then what the file calls the card."""
    before = "" if one.created else " (was there before)"
    return f"{one.task.id} {one.task.status}  {safe(asked.name or one.task.title)}{before}"


def _entries(path: str) -> list[Any]:
    name = "standard input" if path == "-" else path[-_SHOWN:]
    document = _parsed(name, _text(name, path), json_alone=path.endswith(".json"))
    tasks = document.get("tasks") if isinstance(document, dict) else document
    if isinstance(document, dict):
        strange = [str(name) for name in document if name != "tasks"]
        if strange:
            raise InvalidValue(
                f"{name}: unknown key {strange[0][:60]!r}", hint="the file holds `tasks:` and nothing else"
            )
    if not isinstance(tasks, list) or not tasks:
        raise InvalidValue(
            f"{name} must hold a list of tasks",
            hint="for example {tasks: [{name: a, title: A}, {title: B, parents: [a]}]}",
        )
    return tasks


def _text(name: str, path: str) -> str:
    found = values.read_input("FILE") if path == "-" else values.read_file("FILE", path)
    try:
        return found.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidValue(
            f"{name} is not UTF-8 text (byte {error.start})", hint="send text", argument="FILE"
        ) from error


def _parsed(name: str, text: str, *, json_alone: bool) -> Any:
    """JSON is tried first, since YAML reads most of it, but not all, and slowly."""
    try:
        return json.loads(text, object_pairs_hook=values.once)
    except json.JSONDecodeError as error:
        if json_alone:
            where = f"line {error.lineno}, column {error.colno}: {error.msg}"
            raise InvalidValue(f"{name} is not JSON: {where}", hint="mend the file", argument="FILE") from error
        return module("hermes_kanban.base.yamlfile").parse(text, name)
    except ValueError as error:
        raise InvalidValue(f"{name} is not JSON: {error}", hint="mend the file", argument="FILE") from error
    except RecursionError as error:
        raise InvalidValue(f"{name} is nested too deeply", hint="mend the file", argument="FILE") from error


def draft(call: Call, number: int, entry: Any) -> TaskDraft:
    """Return the draft of one entry; an unknown key is refused (P50b).

    Raises:
        InvalidValue: it is none.
    """
    if not isinstance(entry, dict):
        raise InvalidValue(f"task {number} must be a map", hint="for example {title: …, parents: […]}")
    where = f"task {number} ({entry.get('name') or entry.get('title') or 'without a title'})"
    given: dict[str, Any] = {}
    for key, value in entry.items():
        name = str(key).replace("-", "_")
        if name not in KNOWN:
            near = module("difflib").get_close_matches(name, KNOWN, 1)
            guess = f"did you mean {near[0]}? " if near else ""
            raise InvalidValue(f"{where}: unknown key {str(key)[:60]!r}", hint=f"{guess}known: {', '.join(KNOWN)}")
        if value is not None:
            given[name] = _value(where, name, value)
    return _as_draft(call, where, given)


def _value(where: str, name: str, value: Any) -> Any:
    """Check one value of a file by the declaration of the option with the same name."""
    if name in LISTS:
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise InvalidValue(f"{where}: {name} must be a list of texts", hint=f"for example {name}: [a, b]")
        return tuple(value)
    parameter = _WORDS.get(name)
    if parameter is None or parameter.type in _TEXTS:
        if not isinstance(value, str):
            raise InvalidValue(f"{where}: {name} must be a text", hint="put it into quotation marks")
        return value
    if parameter.type == "flag":
        if not isinstance(value, bool):
            raise InvalidValue(f"{where}: {name} must be true or false", hint="without quotation marks")
        return value
    if isinstance(value, bool):
        raise InvalidValue(f"{where}: {name} cannot be {value}", hint="give a number")
    try:
        return values.Reader(lambda _: name).value(parameter, str(value))
    except (InvalidValue, Usage) as error:
        raise InvalidValue(f"{where}: {error.message}", hint=error.hint, **error.fields) from error


def _as_draft(call: Call, where: str, given: dict[str, Any]) -> TaskDraft:
    if "title" not in given:
        raise InvalidValue(f"{where}: a title is required", hint="give each task a title", argument="title")
    if "at" in given and "in" in given:
        raise InvalidValue(f"{where}: at and in say the same thing", hint="give one of them")
    kind, path = workspace(given.pop("workspace", None))
    if given.pop("triage", False):
        if given.get("status", s.TRIAGE) != s.TRIAGE:
            raise InvalidValue(f"{where}: triage and status contradict each other", hint="leave one of them out")
        given["status"] = s.TRIAGE
    columns = {_target(name): value for name, value in given.items()}
    columns |= {"workspace_kind": kind, "workspace_path": path}
    for name in ("assignee", "reviewer"):
        columns[name] = nobody(columns.get(name))
    columns.setdefault("tenant", default_tenant(call))
    return TaskDraft(**{name: value for name, value in columns.items() if value is not None})


def _target(name: str) -> str:
    parameter = _WORDS.get(LISTS.get(name, name))
    return parameter.target.partition(".")[2] if parameter else name


HANDLERS = {"apply": apply}
