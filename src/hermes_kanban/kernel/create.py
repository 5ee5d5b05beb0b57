"""Create: one task with its parents, or a whole graph, in one transaction (P50 to P53)."""

from __future__ import annotations

from hermes_kanban.base import ids
from hermes_kanban.base.errors import Cycle, InvalidValue, KeyRequired, Unexpected
from hermes_kanban.base.limits import in_range
from hermes_kanban.base.record import Record, record
from hermes_kanban.kernel import block, find, gate, links, values
from hermes_kanban.kernel.apply import append_event, texts
from hermes_kanban.model import blocks
from hermes_kanban.model import status as s
from hermes_kanban.model.task import DEFAULTS, TEXTS, UNFOLDED, Task, TaskDraft
from hermes_kanban.store import rows

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from hermes_kanban.kernel.context import Context, Names

INITIAL = (s.TRIAGE, s.BLOCKED)
MOST_IN_A_GRAPH = 1000
MOST_LINKS = 5000  # of one call: they are made under the write lock, where others wait


@record
class Created(Record):
    """A task, whether this call made it, and whether it waits (P51)."""

    task: Task
    created: bool
    gated: bool
    gated_by: tuple[str, ...] = ()


def create(ctx: Context, draft: TaskDraft, names: Names) -> Created:
    """Make one task; its parents are part of the same step (C13).

    Raises:
        InvalidValue: a value out of range, a contradiction, an unknown state.
        TaskNotFound: an unknown parent.
        KeyRequired: a bridge gave no idempotency key (P51).
        UnknownAssignee: an agent named somebody who is not there (P50b).
    """
    _key_given(ctx, (draft,), _KEY_OF_A_CALL)
    return _create(ctx, draft, names)


def _create(ctx: Context, draft: TaskDraft, names: Names) -> Created:
    _links_bounded(len(draft.parents))
    clean = _checked(draft)
    known = _known(ctx, clean)
    if known:
        return known
    values.known_name(ctx, names, "assignee", clean.assignee)
    values.known_name(ctx, names, "reviewer", clean.reviewer)
    parents = links.parents_of(ctx.tx, clean.parents)
    return _insert(ctx, clean, parents)


def apply(ctx: Context, drafts: tuple[TaskDraft, ...], names: Names, *, dry_run: bool = False) -> tuple[Created, ...]:
    """Make a graph of tasks, all or nothing. A parent may be a local name of the graph or an id (P53).

    Args:
        dry_run: nothing will be kept, so nobody is warned that a repeated call would make it twice.

    Raises:
        Cycle: the local names form a circle.
        InvalidValue: two tasks have one name, or the graph is empty or too large.
    """
    if not 1 <= len(drafts) <= MOST_IN_A_GRAPH:
        raise InvalidValue(f"a graph has 1 to {MOST_IN_A_GRAPH} tasks, not {len(drafts)}", hint="split it")
    _key_given(ctx, drafts, _KEY_OF_A_FILE, warn=not dry_run)
    _links_bounded(sum(len(draft.parents) for draft in drafts))
    made: dict[str, Created] = {}
    answers: dict[int, Created] = {}
    for index in _parents_first(drafts):
        draft = drafts[index]
        parents = tuple(made[p].task.id if p in made else p for p in draft.parents)
        answers[index] = _create(ctx, draft.evolve(parents=parents), names)
        if draft.name:
            made[draft.name] = answers[index]
    return tuple(answers[index] for index in range(len(drafts)))


def _links_bounded(count: int) -> None:
    if count > MOST_LINKS:
        raise InvalidValue(f"{count} parents in one call; at most {MOST_LINKS} are taken", hint="make it in parts")


def _parents_first(drafts: tuple[TaskDraft, ...]) -> list[int]:
    """Return the order of creation: parents before children, else as given."""
    index_of: dict[str, int] = {}
    for index, draft in enumerate(drafts):
        values.text_value("name", draft.name)  # no column has it, but the answer names it
        if draft.name is not None and draft.name in index_of:
            raise InvalidValue(f"two tasks of the graph are called {draft.name!r}", hint="give each its own name")
        if draft.name is not None:
            index_of[draft.name] = index
    waits = {i: {index_of[p] for p in draft.parents if p in index_of} for i, draft in enumerate(drafts)}
    order: list[int] = []
    while waits:
        free = [i for i, on in waits.items() if not on]
        if not free:
            names = [drafts[i].name or f"#{i + 1}" for i in waits]
            raise Cycle(f"these tasks wait for each other: {', '.join(names)}", hint="remove a parent", cycle=names)
        order += free
        waits = {i: on - set(free) for i, on in waits.items() if i not in free}
    return order


_KEY_OF_A_CALL = 'for example --idempotency-key "nightly-audit:$(date +%F)"'
_KEY_OF_A_FILE = 'for example idempotency_key: "nightly-audit:collect" at each task of the file'


def _key_given(ctx: Context, drafts: tuple[TaskDraft, ...], hint: str, *, warn: bool = True) -> None:
    """Ask a script for idempotency keys: a bridge must give them, a person's script is warned once (P51)."""
    if all(draft.idempotency_key is not None for draft in drafts):
        return
    text = "a script that creates cards gives each an idempotency key, so that a repeated call makes no second card"
    if ctx.actor.kind == s.BRIDGE:
        raise KeyRequired(text, hint=hint, argument="idempotency_key")
    if warn and ctx.actor.is_person and not ctx.actor.interactive:
        ctx.warn(f"{text}; {hint}")


def _checked(draft: TaskDraft) -> TaskDraft:
    if draft.status is not None and draft.status not in INITIAL:
        raise InvalidValue(
            f"a card cannot be created as {draft.status[:40]!r}",
            hint=f"leave the state out (ready or todo follow from the parents), or give {' or '.join(INITIAL)}",
            argument="status",
        )
    if draft.status is not None and draft.scheduled_at is not None:
        raise InvalidValue(
            f"a card cannot both be {draft.status} and wait for a time", hint="choose one", argument="at"
        )
    limits = {
        "priority": draft.priority,
        "max_runtime": draft.max_runtime_seconds,
        "max_retries": draft.max_retries,
        "goal_max_turns": draft.goal_max_turns,
        "at": draft.scheduled_at,
    }
    for limit, value in limits.items():
        if value is not None:
            in_range(limit, value)
    values.workspace_kind(draft.workspace_kind)
    _workspace_place(draft)
    texts = {n: values.text_value(n, getattr(draft, n)) for n in ("body", "acceptance", "reason")}
    named = {n: values.name(n, getattr(draft, n)) for n in _NAMED}
    return draft.evolve(title=values.title(draft.title), skills=values.skills(draft.skills), **texts, **named)


_NAMED = (
    "assignee",
    "reviewer",
    "tenant",
    "idempotency_key",
    "branch_name",
    "model_override",
    "provider_override",
    "session_id",
    "created_by",
)


def _workspace_place(draft: TaskDraft) -> None:
    path = draft.workspace_path
    if draft.workspace_kind == s.DIR and not (path or "").startswith("/"):
        raise InvalidValue(
            f"dir: needs an absolute path, not {(path or '')[:200]!r}",
            hint="for example --workspace dir:/srv/project",
            argument="workspace",
        )
    if draft.workspace_kind == s.SCRATCH and path:
        raise InvalidValue("a scratch workspace has no path", hint="use dir:/absolute/path", argument="workspace")
    values.text_value("workspace", path)


def _known(ctx: Context, draft: TaskDraft) -> Created | None:
    """Return the first task with this key, if any (P51)."""
    if draft.idempotency_key is None:
        return None
    row = ctx.tx.one("tasks.by_key", key=draft.idempotency_key)
    if row is None:
        return None
    card = rows.task(row)
    for field in ("title", "body"):
        if getattr(card, field) != getattr(draft, field):
            ctx.warn(f"{card.id} was created with this key before, with another {field}")
    parents = gate.open_parents(ctx.tx, card.id)
    return Created(card, False, bool(parents), parents)


def _insert(ctx: Context, draft: TaskDraft, parents: tuple[Task, ...]) -> Created:
    open_ones = tuple(p.id for p in parents if p.status != s.DONE and not p.archived_done)
    columns = _columns(ctx, draft, parents)
    columns |= _start(ctx, draft, waits=bool(open_ones))
    columns["id"] = _fresh_id(ctx)
    if draft.workspace_kind == s.WORKTREE and not draft.branch_name:
        columns["branch_name"] = f"kanban/{columns['id']}"  # D20
    seq = ctx.tx.insert("tasks.add", **rows.to_columns(columns))
    for parent in parents:
        ctx.tx.run("links.add", parent_id=parent.id, child_id=columns["id"], created_at=ctx.now)
    folded = {n: v for n, v in columns.items() if n not in (*UNFOLDED, "id") and v != DEFAULTS[n]}
    payload = {"to": columns["status"], "parents": [p.id for p in parents]}
    payload |= texts({n: columns[n] for n in TEXTS if columns.get(n) is not None})
    append_event(ctx, "created", columns["id"], payload | {"set": folded | {"seq": seq}}, run_id=None)
    if ctx.actor.task_id is not None:
        ctx.tx.run("notify.inherit", task_id=columns["id"], parent_id=ctx.actor.task_id, created_at=ctx.now)  # P52
    card = find.task(ctx.tx, columns["id"])
    if draft.status == s.BLOCKED:
        card = block.hold(ctx, card, blocks.from_text(draft.reason or ""))
    return Created(card, True, bool(open_ones), open_ones)


def _columns(ctx: Context, draft: TaskDraft, parents: tuple[Task, ...]) -> dict[str, Any]:
    inside = ctx.fence.run_id if ctx.fence and ctx.actor.task_id else None
    same = {n: getattr(draft, n) for n in TaskDraft.FIELDS if n in _COPIED}
    return same | {
        "tenant": draft.tenant or next((p.tenant for p in parents), None),  # P52
        "created_by": draft.created_by if draft.created_by and ctx.actor.is_person else ctx.actor.label,
        "created_at": ctx.now,
        "updated_at": ctx.now,
        "status_since": ctx.now,
        "created_run_id": inside,
        "session_id": draft.session_id or _session(ctx),
    }


_COPIED = (
    "title",
    "body",
    "acceptance",
    "assignee",
    "reviewer",
    "priority",
    "workspace_kind",
    "workspace_path",
    "branch_name",
    "idempotency_key",
    "max_runtime_seconds",
    "max_retries",
    "skills",
    "model_override",
    "provider_override",
    "goal",
    "goal_max_turns",
)


def _session(ctx: Context) -> str | None:
    """A card made by a running worker belongs to that worker's session (P52)."""
    if ctx.actor.task_id is None:
        return None
    row = ctx.tx.one("tasks.by_id", id=ctx.actor.task_id)
    return rows.task(row).session_id if row else None


def _start(ctx: Context, draft: TaskDraft, *, waits: bool) -> dict[str, Any]:
    """Return the first state and why the card is held, if it is."""
    held: dict[str, Any] = {"hold_reason": None, "hold_release": None, "block_kind": None, "block_fields": None}
    if draft.status == s.TRIAGE:
        idea = {"hold_reason": "an idea that is still to be specified", "hold_release": s.BY_PERSON}
        return held | {"status": s.TRIAGE, "scheduled_at": None} | idea
    if draft.scheduled_at is not None and draft.scheduled_at > ctx.now:
        waiting = {"scheduled_at": draft.scheduled_at, "hold_release": s.BY_TIME}
        return held | {"status": s.SCHEDULED, "hold_reason": "waits for its start time"} | waiting
    return held | {"status": s.TODO if waits else s.READY, "scheduled_at": None}


def _fresh_id(ctx: Context) -> str:
    for length in (ids.SHORTEST_ID, ids.SHORTEST_ID, 12, 16):
        candidate = ids.task_id(length)
        if ctx.tx.one("tasks.by_id", id=candidate) is None:
            return candidate
    raise Unexpected("no free task id was found", hint="try again")
