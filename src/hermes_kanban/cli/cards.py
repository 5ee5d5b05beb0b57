"""The verbs that make and change cards."""

from __future__ import annotations

from hermes_kanban.cli.call import Call, nobody
from hermes_kanban.model import status as s
from hermes_kanban.model.task import TaskDraft
from hermes_kanban.present import documents
from hermes_kanban.present.ages import age

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from hermes_kanban.kernel.links import Linked
    from hermes_kanban.model.task import Task

# Where the options of `edit` and `create` go, for those that are not called as the column.
_COLUMNS = {
    "branch": "branch_name",
    "skill": "skills",
    "max-retries": "max_retries",
    "max-runtime": "max_runtime_seconds",
}
_EDITED = ("title", "body", "acceptance", "priority", "tenant", "reviewer", *_COLUMNS)
_CLEARABLE = ("tenant", "reviewer", "branch")  # `none` takes the value away


def create(call: Call) -> int:
    """Make a card (P50 to P52)."""
    draft = draft_of(call)
    made = call.board().create(draft)
    notes = []
    if not made.created:
        notes.append(f"note: created: false: {made.task.id} was made with this key before")
    if made.gated:
        notes.append(f"note: {made.task.id} waits for {', '.join(made.gated_by)}")
    if draft.scheduled_at is not None and made.created and made.task.scheduled_at is None:
        start = "may start at once" if made.task.status == s.READY else "does not wait for it"
        notes.append(f"note: the time is past ({age(draft.scheduled_at, call.now)}): {made.task.id} {start}")
    return call.changed(made.task, documents.created(made), *(notes if not call.out.json else ()))


def draft_of(call: Call) -> TaskDraft:
    """Return the draft that the options describe."""
    kind, path = workspace(call["workspace"])
    given: dict[str, Any] = {
        "title": call["title"],
        "body": call["body"],
        "acceptance": call["acceptance"],
        "assignee": nobody(call["assignee"]),
        "reviewer": nobody(call["reviewer"]),
        "parents": call["parent"],
        "status": _first_state(call),
        "reason": call["reason"],
        "scheduled_at": call.start_time(),
        "priority": call["priority"],
        "tenant": call["tenant"] if call["tenant"] is not None else default_tenant(call),
        "workspace_kind": kind,
        "workspace_path": path,
        "idempotency_key": call["idempotency-key"],
        "model_override": call["model"],
        "provider_override": call["provider"],
        "goal": call["goal"],
        "goal_max_turns": call["goal-max-turns"],
        "session_id": call["session"],
        "created_by": call["by"],
    }
    given |= {column: call[name] for name, column in _COLUMNS.items()}
    return TaskDraft(**{name: value for name, value in given.items() if value is not None})


def default_tenant(call: Call) -> str | None:
    """Return the tenant of cards that name none."""
    return call.env.variables.get("HERMES_TENANT") or None


def workspace(text: str | None) -> tuple[str | None, str | None]:
    """Split `kind:path`; the kernel says whether there is such a kind."""
    if text is None:
        return None, None
    kind, colon, path = text.partition(":")
    return kind, path if colon else None


def _first_state(call: Call) -> str | None:
    status: str | None = call["status"]
    if call["triage"] and status not in (None, s.TRIAGE):
        raise call.usage("--triage and --status contradict each other", hint="leave one of them out")
    if call["reason"] is not None and status != s.BLOCKED:
        raise call.usage("--reason goes with --status blocked", hint="put what is to be done into --body")
    return s.TRIAGE if call["triage"] else status


def edit(call: Call) -> int:
    """Change what is written on a card."""
    changes = {}
    for name in _EDITED:
        value = call[name]
        if value is None or value == ():
            continue
        changes[_COLUMNS.get(name, name)] = nobody(value) if name in _CLEARABLE else value
    card = call.board(call["id"]).edit(call["id"], changes)
    return call.changed(card, documents.task(card))


def assign(call: Call) -> int:
    """Give a card to somebody, or to nobody."""
    card = call.board(call["id"]).assign(call["id"], nobody(call["who"]))
    return call.changed(card, documents.task(card))


def link(call: Call) -> int:
    """Let the child wait for the parent (P5)."""
    return _linked(call, call.board(call["parent"], call["child"]).link(call["parent"], call["child"]))


def unlink(call: Call) -> int:
    """Let the child wait no longer (P5)."""
    return _linked(call, call.board(call["parent"], call["child"]).unlink(call["parent"], call["child"]))


def _linked(call: Call, answer: Linked) -> int:
    notes = [f"note: {answer.task.id} waits for {', '.join(answer.gated_by)}"] if answer.gated else []
    return call.changed(answer.task, documents.linked(answer), *(notes if not call.out.json else ()))


def archive(call: Call) -> int:
    """Hide cards; says what becomes of open children (P6)."""
    if call["release-children"] and call["archive-children"]:
        raise call.usage("--release-children and --archive-children exclude each other", hint="choose one")
    children = "release" if call["release-children"] else "archive" if call["archive-children"] else None
    board = call.board(*call["id"])

    def act(task: str) -> tuple[Task, dict[str, Any]]:
        card = board.archive(task, children, override=call["override"])
        return card, documents.task(card)

    return call.each(call["id"], act)


def unarchive(call: Call) -> int:
    """Bring archived cards back."""
    board = call.board(*call["id"])

    def act(task: str) -> tuple[Task, dict[str, Any]]:
        card = board.unarchive(task)
        return card, documents.task(card)

    return call.each(call["id"], act)


HANDLERS = {
    "create": create,
    "edit": edit,
    "assign": assign,
    "link": link,
    "unlink": unlink,
    "archive": archive,
    "unarchive": unarchive,
}
