"""Records to documents: the only serialisers. Every surface answers with these, so that the same card looks the same.

Names are those of the columns; times are epoch seconds, `…_ms` milliseconds, durations seconds.
"""

from __future__ import annotations

import json

from hermes_kanban.model import blocks
from hermes_kanban.model import status as s

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from hermes_kanban.base.record import Record
    from hermes_kanban.kernel.attach import Attached
    from hermes_kanban.kernel.create import Created
    from hermes_kanban.kernel.finish import Closed
    from hermes_kanban.kernel.links import Linked
    from hermes_kanban.kernel.query import Column, Listed, Shown
    from hermes_kanban.model.claim import Claim
    from hermes_kanban.model.event import Event
    from hermes_kanban.model.reasons import Startable
    from hermes_kanban.model.run import Run
    from hermes_kanban.model.task import Task
    from hermes_kanban.model.thread import Comment

_SUMMARY = ("id", "title", "status", "assignee", "priority", "tenant")
_OBEYED = {
    code: f"\\u{code:04x}"
    for code in (*range(0x7F, 0xA0), 0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))
}
_compact = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


def line(document: Any) -> str:
    """Return a document as JSON on one line; what a terminal might obey (C1 controls, bidi marks) is escaped."""
    return _compact(document).translate(_OBEYED)


def plain(record: Record) -> dict[str, Any]:
    """Return all fields of a run, an event, a comment, an attachment."""
    return record.as_dict()


def task(card: Task) -> dict[str, Any]:
    """Return every stored field of a card."""
    return card.as_dict()


def summary(card: Task) -> dict[str, Any]:
    """Return what a link says of the card at its other end."""
    return {name: getattr(card, name) for name in _SUMMARY}


def listed(entry: Listed) -> dict[str, Any]:
    """Return a card of a list."""
    return task(entry.task) | {"lease_over": entry.lease_over}


def shown(found: Shown) -> dict[str, Any]:
    """Return a card with all that hangs on it (P61b)."""
    return task(found.task) | {
        "lease_over": found.lease_over,
        "parents": [summary(card) for card in found.parents],
        "children": [summary(card) for card in found.children],
        "comments": [plain(one) for one in found.comments],
        "comment_count": found.comment_count,
        "runs": [plain(one) for one in found.runs],
        "events": [plain(one) for one in found.events],
        "attachments": [plain(one) for one in found.attachments],
    }


def created(made: Created) -> dict[str, Any]:
    """Return a new card, whether this call made it, and what it waits for (P51)."""
    return task(made.task) | {"created": made.created, "gated": made.gated, "gated_by": list(made.gated_by)}


def closed(answer: Closed) -> dict[str, Any]:
    """Return a card after a closing verb, with the run that ended (P12)."""
    return task(answer.task) | {
        "run": plain(answer.run) if answer.run else None,
        "already": answer.already,
        "promoted": list(answer.promoted),
        "attachments": [plain(one) for one in answer.attachments],
    }


def attached(answer: Attached) -> dict[str, Any]:
    """Return which files a card got, or lost (P61)."""
    card = answer.task
    return {"id": card.id, "status": card.status, "attachments": [plain(one) for one in answer.attachments]}


def linked(answer: Linked) -> dict[str, Any]:
    """Return the child of a link, and whether it waits now (P5)."""
    return task(answer.task) | {"gated": answer.gated, "gated_by": list(answer.gated_by), "created": answer.created}


def claimed(made: Claim) -> dict[str, Any]:
    """Return a claim: the card, and of its run what the claimer needs (P11)."""
    run = made.run
    return task(made.task) | {
        "task_id": made.task.id,
        "run_id": run.id,
        "role": run.role,
        "profile": run.profile,
        "claim_lock": run.claim_lock,
        "claim_ttl": run.claim_ttl,
        "claim_expires": run.claim_expires,
        "workspace": made.workspace,
    }


def beaten(run: Run, notices: tuple[Comment, ...]) -> dict[str, Any]:
    """Return a run after a heartbeat, with the comments that it had not seen (P13, P62b)."""
    return {
        "id": run.task_id,
        "status": s.RUNNING,
        "run_id": run.id,
        "claim_expires": run.claim_expires,
        "last_heartbeat_at": run.last_heartbeat_at,
        "heartbeat_note": run.heartbeat_note,
        "notices": [plain(one) for one in notices],
    }


def event(happened: Event, card: Task | None) -> dict[str, Any]:
    """Return an event of the live stream, with what the card is now (None: it is gone)."""
    about = {name: getattr(card, name) if card else None for name in ("title", "assignee", "tenant", "status")}
    return plain(happened) | about


def why(card: Task, answer: Startable, *, dispatched: bool) -> dict[str, Any]:
    """Return both answers to *may it start?* (P3b).

    Args:
        dispatched: whether anybody dispatches this board on this host (D3).
    """
    return {
        "id": card.id,
        "status": card.status,
        "claimable": not answer.claimable,
        "dispatchable": not answer.dispatchable,
        "dispatched": dispatched,
        "claim_reasons": [plain(one) for one in answer.claimable],
        "dispatch_reasons": [plain(one) for one in answer.dispatchable],
    }


def column(found: Column) -> dict[str, Any]:
    """Return one state of the board."""
    return {"status": found.status, "count": found.count, "cards": [listed(entry) for entry in found.cards]}


def waiting(card: Task) -> dict[str, Any]:
    """Return an entry of the inbox: the card, what was asked, and what answers it."""
    fields = card.block_fields or {}
    return task(card) | {"options": list(fields.get("options", ())), "answer_with": answer_with(card)}


def tripped(card: Task) -> bool:
    """Whether the breaker blocked the card: nobody asked anything, so no answer is due (P40)."""
    asked = card.block_kind is not None or card.block_fields is not None
    return card.status == s.BLOCKED and not asked and (card.sticky or card.probe_at is not None)


def answer_with(card: Task) -> str:
    """Return the command that moves a waiting card on."""
    if card.status == s.REVIEW:
        return f"hermes kanban complete {card.id} --summary TEXT   (or request-changes {card.id} TEXT)"
    if card.status == s.TRIAGE and not card.escalated:
        return f"hermes kanban promote {card.id}"
    if card.status == s.TRIAGE:
        return f"hermes kanban comment {card.id} TEXT, then hermes kanban promote {card.id}"
    if tripped(card):
        return f"hermes kanban unblock {card.id}"
    letters = blocks.letters(card.block_fields)
    choice = f"   (TEXT: {', '.join(letters)}, or an answer in words)" if letters else ""
    return f"hermes kanban unblock {card.id} --answer TEXT{choice}"
