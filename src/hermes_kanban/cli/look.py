"""The verbs that look: list, inbox, show, context, runs, why, stats, verify. None of them writes."""

from __future__ import annotations

from hermes_kanban import compose
from hermes_kanban.base.lazy import module
from hermes_kanban.cli.call import Call
from hermes_kanban.cli.screen import style, views
from hermes_kanban.kernel.query import NEWEST_EVENTS, Filter
from hermes_kanban.present import documents
from hermes_kanban.present.text import safe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_INBOX = 50
_MOST = 100_000  # rows of a page


def list_(call: Call) -> int:
    """Show a page of cards."""
    if call["mine"] and call["assignee"] is not None:
        raise call.usage("--mine and --assignee exclude each other", hint="leave one of them out")
    given: dict[str, Any] = {
        "assignee": compose.name_of(call.env) if call["mine"] else call["assignee"],
        "statuses": call["status"],
        "tenant": call["tenant"],
        "parent": call["parent"],
        "search": call["search"],
        "archived": call["archived"],
        "workflow_template_id": call["workflow-template-id"],
        "current_step_key": call["current-step-key"],
        "sort": call["sort"],
        "limit": call["limit"],
        "after": call["offset"],
    }
    wanted = Filter(**{name: value for name, value in given.items() if value is not None})
    page = call.reader().list(wanted)
    if page.more:
        call.out.note(
            f"note: cut after {len(page.cards)}; the next page: --offset {wanted.after + wanted.limit}"
            f" (or more at once: --limit {min(wanted.limit * 10, _MOST)})"
        )
    rows = [documents.listed(entry) for entry in page.cards] if call.out.json else None
    call.out.answer(rows, lambda: views().listing(page.cards, call.now, style(call)), (e.task.id for e in page.cards))
    return 0


def inbox(call: Call) -> int:
    """Show what waits for a person, oldest first."""
    limit = call["limit"] if call["limit"] is not None else _INBOX
    found = call.reader().inbox(min(limit + 1, _MOST))
    if len(found) > limit:
        found = found[:limit]
        call.out.note(f"note: cut after {limit}; more at once: --limit {min(limit * 10, _MOST)}")
    call.out.answer(
        [documents.waiting(card) for card in found],
        lambda: views().inbox(found, call.now, style(call)),
        (card.id for card in found),
    )
    return 0


def show(call: Call) -> int:
    """Show all about a card (P61b)."""
    events = call["events"] if call["events"] is not None else NEWEST_EVENTS
    found = call.reader().show(call["id"], events)
    document = documents.shown(found) if call.out.json else None
    call.out.answer(document, lambda: views().card(found, call.now, style(call)), [found.task.id])
    return 0


def context(call: Call) -> int:
    """Print what a worker of the card reads first (P62)."""
    board = call.reader()
    task = board.find_id(call["id"])
    text = board.context(task)
    call.out.answer({"id": task, "context": text}, lambda: safe(text, lines=True), [task])
    return 0


def runs(call: Call) -> int:
    """Show the attempts at a card."""
    found = call.reader().runs(call["id"])
    call.out.answer(
        [documents.plain(run) for run in found],
        lambda: views().runs(found, call.now, style(call)),
        (str(run.id) for run in found),
    )
    return 0


def why(call: Call) -> int:
    """Say why a card does not start, or that it may (P3b)."""
    host = module("hermes_kanban.dispatcher.host").LocalHost(call.env)
    card, answer = call.reader().why(call["id"], host)
    dispatched = module("hermes_kanban.dispatcher.lease").holder(call.place.folder) is not None
    call.out.answer(
        documents.why(card, answer, dispatched=dispatched),
        lambda: views().why(card, answer, call.now, style(call), dispatched=dispatched),
        [card.id],
    )
    return 0


def stats(call: Call) -> int:
    """Show counts; every state is named."""
    found = call.reader().stats()
    call.out.answer(dict(found), lambda: views().stats(found))
    return 0


def verify(call: Call) -> int:
    """Compare log, rows and rules; exit 1 when they disagree (P81)."""
    found = call.reader().verify()
    document = {"ok": not found, "findings": [documents.plain(one) for one in found]}
    call.out.answer(document, lambda: views().findings(found), (one.task_id for one in found))
    return 1 if found else 0


HANDLERS = {
    "list": list_,
    "inbox": inbox,
    "show": show,
    "context": context,
    "runs": runs,
    "why": why,
    "stats": stats,
    "verify": verify,
}
