"""Checks of values before anything is written (P50, P50b)."""

from __future__ import annotations

import json

from hermes_kanban.base import lazy
from hermes_kanban.base.errors import InvalidValue, UnknownAssignee
from hermes_kanban.base.limits import LIMITS, checked_name, in_range
from hermes_kanban.model import status as s

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from hermes_kanban.kernel.context import Context, Names

_DEEPEST = 100  # levels of a JSON document
_strict = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


def title(text: str) -> str:
    """Return the title without white space around it.

    Raises:
        InvalidValue: empty, longer than 500 characters, or with control characters (a title is one line).
    """
    trimmed = text.strip()
    most = LIMITS["title_length"].highest
    if not 1 <= len(trimmed) <= most:
        shown = f"has {len(trimmed)}" if trimmed else "is empty"
        raise InvalidValue(
            f"a title has 1 to {most} characters; this one {shown}", hint="put the rest into --body", argument="title"
        )
    if any(ord(char) < 32 or ord(char) == 127 for char in trimmed):
        raise InvalidValue(
            "a title is one line without control characters", hint="put line breaks into --body", argument="title"
        )
    return text_value("title", trimmed) or ""


def text_value(argument: str, text: str | None) -> str | None:
    """Return a text that the store can hold.

    Raises:
        InvalidValue: too long, or with a NUL or half of a surrogate pair (bytes that were no text).
    """
    if text is None:
        return None
    try:
        size = len(text.encode("utf-8"))
    except UnicodeEncodeError as error:
        raise InvalidValue(
            f"{argument} holds bytes that are not UTF-8 text", hint="send text", argument=argument
        ) from error
    if "\x00" in text:
        raise InvalidValue(f"{argument} holds a NUL character", hint="send text", argument=argument)
    if size > LIMITS["text_bytes"].highest:
        raise InvalidValue(
            f"{argument} has {size} bytes; at most {LIMITS['text_bytes'].highest} are kept",
            hint="put it into a file of the workspace and name the file",
            argument=argument,
        )
    return text


def name(argument: str, text: str | None) -> str | None:
    """Return a name as written; None stays None.

    Raises:
        InvalidValue: see `checked_name`.
    """
    return None if text is None else text_value(argument, checked_name(argument, text))


def metadata(value: object) -> dict[str, Any] | None:
    """Return metadata that is a JSON object (P22).

    Raises:
        InvalidValue: something else, or an object with what JSON cannot hold (not a number, half a character).
    """
    hint = 'for example --metadata \'{"changed_files": ["a.py"]}\''
    if value is None:
        return None
    if not isinstance(value, dict):
        raise InvalidValue("metadata must be a JSON object", hint=hint, argument="metadata")
    if not _shallow(value):
        raise InvalidValue(f"metadata is nested more than {_DEEPEST} deep", hint=hint, argument="metadata")
    try:
        text_value("metadata", _strict(value))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidValue(f"metadata is no JSON: {error}", hint=hint, argument="metadata") from error
    return value


def _shallow(value: object) -> bool:
    """Whether a document is one that every reader can take in, however deep its own stack is."""
    level = [value]
    for _ in range(_DEEPEST):
        level = [
            child
            for one in level
            if isinstance(one, (dict, list, tuple))
            for child in (one.values() if isinstance(one, dict) else one)
        ]
        if not level:
            return True
    return False


def known_name(ctx: Context, names: Names, argument: str, who: str | None) -> None:
    """Warn of, or refuse, a name that nobody answers to (P50b).

    Raises:
        UnknownAssignee: an agent gave it, or `kanban.unknown_assignee` is `refuse`.
    """
    if name(argument, who) is None or who is None or who == ctx.actor.name:
        return
    known = known_names(ctx, names)
    if who in known or ctx.tx.one("runs.profile_known", profile=who):
        return
    near = lazy.module("difflib").get_close_matches(who, known, 3, 0.5)
    guess = f"did you mean {' or '.join(near)}? " if near else ""
    text = f"no lane, profile or declared name is called {who!r}"
    hint = f"{guess}names from outside are declared in config.yaml under kanban.external_assignees"
    if ctx.actor.is_person and ctx.settings.text("unknown_assignee") == "warn":
        ctx.warn(f"{text}; {hint}")
        return
    raise UnknownAssignee(text, hint=hint, argument=argument, near=near, known=list(known)[:50])


def known_names(ctx: Context, names: Names) -> tuple[str, ...]:
    """Return every name that can take work: lanes, profiles, declared names, and who has claimed before."""
    seen = [row[0] for row in ctx.tx.all("runs.profiles", limit=200)]
    return tuple(dict.fromkeys((*names.lanes(), *names.profiles(), *ctx.settings.names("external_assignees"), *seen)))


_EDITABLE: dict[str, Callable[[Any], Any]] = {
    "title": title,
    "body": lambda v: text_value("body", v),
    "acceptance": lambda v: text_value("acceptance", v),
    "tenant": lambda v: name("tenant", v),
    "reviewer": lambda v: name("reviewer", v),
    "branch_name": lambda v: name("branch", v),
    "priority": lambda v: in_range("priority", v),
    "max_retries": lambda v: None if v is None else in_range("max_retries", v),
    "max_runtime_seconds": lambda v: None if v is None else in_range("max_runtime", v),
    "skills": lambda v: skills(tuple(v)),
}


def edited(changes: dict[str, Any]) -> dict[str, Any]:
    """Return the checked values of an edit.

    Raises:
        InvalidValue: a field that cannot be edited, or a value out of range.
    """
    for field in changes:
        if field not in _EDITABLE:
            raise InvalidValue(f"{field} cannot be edited", hint=f"one of {', '.join(_EDITABLE)}", argument=field)
    return {field: _EDITABLE[field](value) for field, value in changes.items()}


def skills(given: tuple[str, ...]) -> tuple[str, ...]:
    """Return the skills, each once, in order.

    Raises:
        InvalidValue: an empty name.
    """
    return tuple(dict.fromkeys(name("skill", one) or "" for one in given))


def workspace_kind(kind: str) -> str:
    """Return a kind of workspace.

    Raises:
        InvalidValue: there is no such kind.
    """
    if kind not in s.WORKSPACE_KINDS:
        raise InvalidValue(
            f"unknown kind of workspace {kind[:60]!r}",
            hint="scratch, dir:/absolute/path, worktree or worktree:/path/of/a/repository",
            argument="workspace",
        )
    return kind
