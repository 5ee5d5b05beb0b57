"""Records to lines for people: lists, a card, the board, the inbox, reasons, counts.

Everything that somebody wrote passes through `safe`. Times are shown as ages. A `Style` says how wide the
terminal is and whether it shows colours; for a pipe there is neither, and nothing is cut.
"""

from __future__ import annotations

from hermes_kanban.base.record import Record, record
from hermes_kanban.model import status as s
from hermes_kanban.present import documents
from hermes_kanban.present.ages import age, span
from hermes_kanban.present.text import cut, indented, safe, table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from hermes_kanban.kernel.query import Column, Listed, Shown
    from hermes_kanban.kernel.verify import Finding
    from hermes_kanban.model.event import Event
    from hermes_kanban.model.reasons import Reason, Startable
    from hermes_kanban.model.run import Run
    from hermes_kanban.model.task import Task

_COLOURS = {
    s.READY: "32",
    s.RUNNING: "36",
    s.REVIEW: "35",
    s.BLOCKED: "31",
    s.TRIAGE: "33",
    s.SCHEDULED: "34",
    s.DONE: "2",
    s.ARCHIVED: "2",
}
_PROVIDER = "Provider rejected this profile's credential or model — blocked after one attempt"  # P43
_TERMINAL_PROVIDER = "terminal_provider"
_ASK_OF = {s.BY_PERSON: "a person", s.BY_REVIEWER: "a reviewer", s.BY_PARENTS: "its parents", s.BY_TIME: "time"}


@record
class Style(Record):
    """How a terminal shows text: columns (0: no terminal, cut nothing), colours."""

    room: int = 0
    colour: bool = False

    def paint(self, text: str, code: str | None) -> str:
        """Return the text in a colour, where there are colours."""
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour and code else text

    def state(self, status: str) -> str:
        """Return a state in its colour."""
        return self.paint(status, _COLOURS.get(status))


PLAIN = Style()


# --- lists ----------------------------------------------------------------------------------------------------
def listing(cards: Sequence[Listed], now: int, style: Style = PLAIN) -> str:
    """Return a table of cards."""
    if not cards:
        return "no cards"
    heads = ("ID", "STATE", "PRI", "ASSIGNEE", "SINCE", "TITLE")
    rows = [
        (
            entry.task.id,
            _state(entry),
            str(entry.task.priority),
            safe(entry.task.assignee or "-"),
            span(now - entry.task.status_since),
            safe(entry.task.title),
        )
        for entry in cards
    ]
    head, *lines = table(heads, rows, room=style.room)
    painted = [_in_colour(line, entry, style) for line, entry in zip(lines, cards, strict=True)]
    return "\n".join([style.paint(head, "1"), *painted])


def _state(entry: Listed) -> str:
    return f"{entry.task.status} (lease over)" if entry.lease_over else entry.task.status


def _in_colour(line: str, entry: Listed, style: Style) -> str:
    """Colour the state within its line: after the layout, since colour codes have no width."""
    start = len(entry.task.id)
    return line[:start] + line[start:].replace(entry.task.status, style.state(entry.task.status), 1)


def board(columns: Sequence[Column], style: Style = PLAIN) -> str:
    """Return the board as lines: each state with its count and its first cards."""
    lines = []
    for found in columns:
        lines.append(f"{style.state(found.status)} {found.count}")
        lines += [
            cut(f"  {e.task.id}  {_people(e)}{safe(e.task.title)}", style.room or 10_000_000) for e in found.cards
        ]
        if found.count > len(found.cards):
            lines.append(f"  … and {found.count - len(found.cards)} more")
    return "\n".join(lines)


def _people(entry: Listed) -> str:
    mark = "(lease over) " if entry.lease_over else ""
    return f"{mark}[{safe(entry.task.assignee)}] " if entry.task.assignee else mark


def inbox(cards: Sequence[Task], now: int, style: Style = PLAIN) -> str:
    """Return what waits for a person, each with what was asked and the command that answers."""
    if not cards:
        return "nothing waits for you"
    return "\n\n".join("\n".join(_waiting(card, now, style)) for card in cards)


def _waiting(card: Task, now: int, style: Style) -> Iterator[str]:
    kind = f" ({card.block_kind})" if card.block_kind else ""
    yield f"{card.id}  {style.state(card.status)}{kind}  {span(now - card.status_since)}  {safe(card.title)}"
    fields = card.block_fields or {}
    for label, name in (("cause", "cause"), ("what", "what")):
        if fields.get(name):
            yield indented(f"{label}: {safe(str(fields[name]), lines=True)}", "    ")
    if not fields and card.hold_reason:
        yield indented(safe(card.hold_reason, lines=True), "    ")
    if card.last_failure_error and card.sticky:
        yield indented(safe(card.last_failure_error, lines=True), "    ")
    for option in fields.get("options", ()):
        yield indented(f"- {safe(str(option), lines=True)}", "    ")
    for label, name in (("recommended", "recommendation"), ("next", "next_action")):
        if fields.get(name):
            yield indented(f"{label}: {safe(str(fields[name]), lines=True)}", "    ")
    yield f"    {documents.answer_with(card)}"


# --- one card -------------------------------------------------------------------------------------------------
def card(found: Shown, now: int, style: Style = PLAIN) -> str:
    """Return all about a card."""
    task = found.task
    lines = [f"{task.id}  {style.state(task.status)}{'  (lease over)' if found.lease_over else ''}"]
    lines.append(style.paint(safe(task.title), "1"))
    lines += [f"  {label}: {value}" for label, value in _facts(task, now) if value]
    lines += _stopped(found)
    for heading, text in (("body", task.body), ("accepted when", task.acceptance), ("result", task.result)):
        if text:
            lines += ["", f"{heading}:", indented(safe(text, lines=True))]
    lines += _section("waits for", [_other(card, style) for card in found.parents])
    lines += _section("waited for by", [_other(card, style) for card in found.children])
    lines += _section(_comments_head(found), [_comment(one, now) for one in found.comments])
    lines += _section("attachments", [f"{safe(a.name)}  {a.size} bytes  {safe(a.path)}" for a in found.attachments])
    lines += _section("attempts", runs(found.runs, now, style).splitlines() if found.runs else [])
    lines += _section("newest events", [event(one, now) for one in found.events])
    return "\n".join(lines)


def _facts(task: Task, now: int) -> tuple[tuple[str, str], ...]:
    held = f"{safe(task.hold_reason)}" if task.hold_reason else ""
    place = f"{task.workspace_kind}{':' + safe(task.workspace_path) if task.workspace_path else ''}"
    return (
        ("priority", str(task.priority) if task.priority else ""),
        ("assignee", safe(task.assignee or "")),
        ("reviewer", safe(task.reviewer or "")),
        ("tenant", safe(task.tenant or "")),
        ("skills", ", ".join(safe(skill) for skill in task.skills)),
        ("workspace", place),
        ("branch", safe(task.branch_name or "")),
        ("made", f"{age(task.created_at, now)} by {safe(task.created_by)}"),
        ("started", age(task.started_at, now)),
        ("completed", age(task.completed_at, now)),
        ("claimed until", f"{age(task.claim_expires, now)} (run {task.current_run_id})" if task.current_run_id else ""),
        ("starts", age(task.scheduled_at, now)),
        ("not before", f"{age(task.eligible_at, now)} ({task.eligible_reason})" if _cooling(task, now) else ""),
        ("held", f"{held} (released by {_ASK_OF.get(task.hold_release or '', task.hold_release)})" if held else ""),
        ("failures in a row", str(task.consecutive_failures) if task.consecutive_failures else ""),
        ("last error", safe(task.last_failure_error or "")),
    )


def _cooling(task: Task, now: int) -> bool:
    return task.eligible_at is not None and task.eligible_at > now


def _stopped(found: Shown) -> list[str]:
    """Say what a provider's refusal means, and what releases the card (P43)."""
    last = found.runs[-1] if found.runs else None
    if found.task.status != s.BLOCKED or last is None or last.exit_kind != _TERMINAL_PROVIDER:
        return []
    return [f"  {_PROVIDER}", f"  when that is mended: hermes kanban unblock {found.task.id}"]


def _section(heading: str, lines: list[str]) -> list[str]:
    return ["", f"{heading}:", *(indented(line) for line in lines)] if lines else []


def _other(task: Task, style: Style) -> str:
    return f"{task.id}  {style.state(task.status)}  {safe(task.title)}"


def _comments_head(found: Shown) -> str:
    left = found.comment_count - len(found.comments)
    return f"comments (the newest {len(found.comments)} of {found.comment_count})" if left else "comments"


def _comment(one: Any, now: int) -> str:
    return f"{safe(one.author)}, {age(one.created_at, now)}:\n{indented(safe(one.body, lines=True))}"


def runs(found: Sequence[Run], now: int, style: Style = PLAIN) -> str:
    """Return a table of attempts."""
    if not found:
        return "no attempts"
    heads = ("RUN", "ROLE", "BY", "OUTCOME", "BEGAN", "TOOK", "SUMMARY")
    rows = [
        (
            str(run.id),
            run.role,
            safe(run.profile or run.claimed_by),
            run.outcome or "open",
            age(run.started_at, now),
            span((run.ended_at or now) - run.started_at),
            safe(_first_line(run.summary or run.error or run.end_reason or run.heartbeat_note or "")),
        )
        for run in found
    ]
    return "\n".join(table(heads, rows, room=style.room))


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0] if text.strip() else ""


def event(one: Event, now: int) -> str:
    """Return an event on one line."""
    run = f" run {one.run_id}" if one.run_id else ""
    return f"{one.id}  {age(one.created_at, now)}  {one.kind}  {safe(one.actor)}{run}{_payload(one.payload)}"


def _payload(payload: Mapping[str, Any]) -> str:
    """Return what an event says besides the columns that it changed."""
    said = {name: value for name, value in payload.items() if name not in ("set", "changed") and value is not None}
    return f"  {cut(safe(documents.line(said)), 200)}" if said else ""


def events(found: Iterable[Event], now: int) -> str:
    """Return a piece of the log, an event on each line."""
    return "\n".join(f"{one.task_id or '-'}  {event(one, now)}" for one in found) or "no events"


# --- answers --------------------------------------------------------------------------------------------------
def why(task: Task, answer: Startable, now: int, style: Style = PLAIN) -> str:
    """Return both answers to *may it start?* (P3b)."""
    lines = [f"{task.id}  {style.state(task.status)}  {safe(task.title)}"]
    for question, reasons in (
        ("anybody may claim it", answer.claimable),
        ("the dispatcher may start it", answer.dispatchable),
    ):
        lines.append(f"{question}: {'no' if reasons else 'yes'}")
        lines += [f"  - {_reason(one, now)}" for one in reasons]
    return "\n".join(lines)


def _reason(one: Reason, now: int) -> str:
    until = f", {age(one.until, now)}" if one.until else ""
    who = "" if one.actor == "nobody" else f" (waits for {_ASK_OF.get(one.actor, one.actor)})"
    return f"{safe(one.text)}{until}{who}"


def stats(found: Mapping[str, Any]) -> str:
    """Return the counts."""
    lines = [*(f"{name}: {count}" for name, count in found["status"].items()), ""]
    for heading, numbers in (("open cards by assignee", found["assignee"]), ("attempts by outcome", found["runs"])):
        if numbers:
            lines += [f"{heading}:", *(f"  {safe(str(name))}: {count}" for name, count in numbers.items())]
    waiting = found["oldest_ready_seconds"]
    lines.append(f"events: {found['events']}")
    return "\n".join(lines + ([f"the oldest ready card waits for {span(waiting)}"] if waiting is not None else []))


def findings(found: Sequence[Finding]) -> str:
    """Return what `verify` found."""
    return "\n".join(f"{safe(f.task_id) or 'board'}: {safe(f.problem)}" for f in found) if found else "ok"


def boards(rows: Sequence[Mapping[str, Any]], style: Style = PLAIN) -> str:
    """Return a table of boards with their own counts (C127)."""
    heads = ("", "BOARD", "OPEN", "RUNNING", "BLOCKED", "DONE", "NAME")
    lines = []
    for row in rows:
        counts = row["counts"]
        numbers = ["?"] * 4 if counts is None else [str(n) for n in _numbers(counts)]
        name = row["error"]["message"] if row.get("error") else row["name"] or ""
        lines.append(("*" if row["current"] else "", row["slug"], *numbers, safe(str(name))))
    return "\n".join(table(heads, lines, room=style.room)) if lines else "no boards: make one with `hermes kanban init`"


def _numbers(counts: Mapping[str, int]) -> tuple[int, int, int, int]:
    return sum(counts[state] for state in s.OPEN_STATES), counts[s.RUNNING], counts[s.BLOCKED], counts[s.DONE]
