"""Records to lines for people: lists, a card, the board, the inbox, reasons, counts.

Everything that somebody wrote passes through `safe`. Times are shown as ages. A `Style` says how wide the
terminal is and whether it shows colours; for a pipe there is neither, and nothing is cut.
"""

from __future__ import annotations

from hermes_kanban.base.clock import span
from hermes_kanban.base.record import Record, record
from hermes_kanban.kernel.apply import first_line
from hermes_kanban.model import blocks
from hermes_kanban.model import status as s
from hermes_kanban.present import documents
from hermes_kanban.present.ages import age, left
from hermes_kanban.present.events import event
from hermes_kanban.present.text import cut, indented, safe, table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from hermes_kanban.kernel.query import Column, Listed, Shown
    from hermes_kanban.kernel.verify import Finding
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
_NO_DISPATCHER = "but nobody dispatches this board on this host now"
_TERMINAL_PROVIDER = "terminal_provider"
_MOST_ERROR_LINES = 8
_NO_END = 10_000_000  # columns of a line that nothing cuts
_ASK_OF = {s.BY_PERSON: "a person", s.BY_REVIEWER: "a reviewer", s.BY_PARENTS: "its parents", s.BY_TIME: "time"}


@record
class Style(Record):
    """How a terminal shows text: columns and lines (0: cut nothing), colours."""

    room: int = 0
    height: int = 0
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
    """Return the board as lines: each state with its count and its first cards, as many as the window has room for."""
    most = max((len(found.cards) for found in columns), default=0)
    while style.height and most and sum(1 + _rows_of(found, most) for found in columns) > style.height:
        most -= 1
    lines = [line for found in columns for line in _column(found, most, style)]
    return "\n".join(lines[: style.height] if style.height else lines)


def _rows_of(found: Column, most: int) -> int:
    return min(most, len(found.cards)) + (found.count > min(most, len(found.cards)))


def _column(found: Column, most: int, style: Style) -> Iterator[str]:
    yield f"{style.state(found.status)} {found.count}"
    shown = found.cards[:most]
    for entry in shown:
        yield cut(f"  {entry.task.id}  {_people(entry)}{safe(entry.task.title)}", style.room or _NO_END)
    if found.count > len(shown):
        yield f"  … and {found.count - len(shown)} more"


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
    for part in _asked(card):
        yield indented(part, "    ")
    yield from (indented(line, "    ") for line in _failure(card, now))
    yield f"    {documents.answer_with(card)}"


def _failure(card: Task, now: int) -> Iterator[str]:
    """Yield what a tripped card's last attempt ended with, and when it gets a fresh one (P27)."""
    if not documents.tripped(card):
        return
    lines = (card.last_failure_error or "").splitlines()
    if len(lines) > _MOST_ERROR_LINES:  # the first says how it ended
        lines = [lines[0], "…", *lines[2 - _MOST_ERROR_LINES :]]
    yield from (safe(line) for line in lines if line != card.hold_reason)
    if card.probe_at is not None:
        yield f"tried once more by itself in {span(max(0, card.probe_at - now))}"


def _asked(card: Task) -> Iterator[str]:
    """Yield the parts of what a held card waits for; a text that lacks the parts is shown as it was written."""
    fields = card.block_fields or {}
    whole = bool(fields.get("what"))
    if card.hold_reason and not whole:
        yield safe(card.hold_reason, lines=True)
    for label, name in _BEFORE_OPTIONS if whole else ():
        if fields.get(name):
            yield f"{label}: {safe(str(fields[name]), lines=True)}"
    yield from _options(card)
    for label, name in _AFTER_OPTIONS if whole else ():
        if fields.get(name):
            yield f"{label}: {safe(str(fields[name]), lines=True)}"


_BEFORE_OPTIONS = (("cause", "cause"), ("what", "what"))
_AFTER_OPTIONS = (("recommended", "recommendation"), ("next", "next_action"))


def _options(card: Task) -> list[str]:
    """Return the options of a block, each with the letter by which it may be chosen (P26)."""
    fields = card.block_fields
    lettered = [blocks.expand_answer(letter, fields) or "" for letter in blocks.letters(fields)]
    rest = (fields or {}).get("options", ())[len(lettered) :]
    return [f"- {safe(str(option), lines=True)}" for option in (*lettered, *rest)]


# --- one card -------------------------------------------------------------------------------------------------
def card(found: Shown, now: int, style: Style = PLAIN) -> str:
    """Return all about a card."""
    task = found.task
    lines = [f"{task.id}  {style.state(task.status)}{'  (lease over)' if found.lease_over else ''}"]
    lines.append(style.paint(safe(task.title), "1"))
    lines += [f"  {label}: {value}" for label, value in _facts(task, now) if value]
    lines += _held(task)
    lines += _stopped(found)
    for heading, text in (("body", task.body), ("accepted when", task.acceptance), ("result", task.result)):
        if text:
            lines += ["", f"{heading}:", indented(safe(text, lines=True))]
    lines += _section("waits for", [_other(card, style) for card in found.parents])
    lines += _section("waited for by", [_other(card, style) for card in found.children])
    lines += _section(_comments_head(found), [_comment(one, now) for one in found.comments])
    lines += _section("attachments", [f"{safe(a.name)}  {a.size} bytes  {safe(a.path)}" for a in found.attachments])
    lines += _section("attempts", runs(found.runs, now, style).splitlines() if found.runs else [])
    lines += _metadata(found)
    lines += _section("newest events", [event(one, now) for one in found.events])
    return "\n".join(lines)


def _facts(task: Task, now: int) -> tuple[tuple[str, str], ...]:
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
        ("tried once more", age(task.probe_at, now)),
        ("failures in a row", str(task.consecutive_failures) if task.consecutive_failures else ""),
        ("last error", safe(task.last_failure_error or "")),
    )


def _held(task: Task) -> list[str]:
    """Say why a card is held and by whom it may be released (P26b); a reason of several lines keeps them."""
    if not task.hold_reason:
        return []
    by = f"released by {_ASK_OF.get(task.hold_release or '', task.hold_release)}"
    parts = list(_asked(task))
    if len(parts) == 1 and "\n" not in parts[0]:
        return [f"  held: {parts[0]} ({by})"]
    return [f"  held ({by}):", *(indented(part, "    ") for part in parts)]


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


def _metadata(found: Shown) -> list[str]:
    """Return what the last attempt left for programs, as JSON on one line."""
    last = found.runs[-1] if found.runs else None
    if last is None or not last.metadata:
        return []
    return _section(f"metadata of run {last.id}", [safe(documents.line(last.metadata))])


def _other(task: Task, style: Style) -> str:
    return f"{task.id}  {style.state(task.status)}  {safe(task.title)}"


def _comments_head(found: Shown) -> str:
    left = found.comment_count - len(found.comments)
    return f"comments (the newest {len(found.comments)} of {found.comment_count})" if left else "comments"


def _comment(one: Any, now: int) -> str:
    return f"{safe(one.author)}, {age(one.created_at, now)}:\n{indented(safe(one.body, lines=True))}"


def runs(found: Sequence[Run], now: int, style: Style = PLAIN) -> str:
    """Return a table of attempts, and where their output is."""
    if not found:
        return "no attempts"
    heads = ("RUN", "ROLE", "BY", "OUTCOME", "EXIT", "BEGAN", "TOOK", "SUMMARY")
    rows = [
        (
            str(run.id),
            run.role,
            safe(run.profile or run.claimed_by),
            run.outcome or ("open, stands still" if run.standing_still else "open"),
            "-" if run.exit_code is None else str(run.exit_code),
            age(run.started_at, now),
            span((run.ended_at or now) - run.started_at),
            safe(first_line(run.summary or run.error or run.end_reason or run.heartbeat_note) or ""),
        )
        for run in found
    ]
    logs = dict.fromkeys(run.log_path for run in found if run.log_path)
    return "\n".join([*table(heads, rows, room=style.room), *(f"log: {safe(path)}" for path in logs)])


# --- answers --------------------------------------------------------------------------------------------------
def why(task: Task, answer: Startable, now: int, style: Style = PLAIN, *, dispatched: bool = True) -> str:
    """Return both answers to *may it start?* (P3b).

    Args:
        dispatched: whether anybody dispatches this board on this host (D3).
    """
    lines = [f"{task.id}  {style.state(task.status)}  {safe(task.title)}"]
    lines.append(f"anybody may claim it: {'no' if answer.claimable else 'yes'}")
    lines += [f"  - {_reason(one, now)}" for one in answer.claimable]
    lines += _way_out(task, answer, now)
    also = [one for one in answer.dispatchable if one not in answer.claimable]
    if not answer.dispatchable:
        lines.append("the dispatcher may start it: yes")
        lines += [] if dispatched else [f"  - {_NO_DISPATCHER}", "    hermes gateway start"]
    elif not also:
        lines.append("the dispatcher may start it: no, for the same reason")
    else:
        lines.append(f"the dispatcher may start it: no{', also since' if answer.claimable else ''}")
    return "\n".join([*lines, *(f"  - {_reason(one, now)}" for one in also)])


def _way_out(task: Task, answer: Startable, now: int) -> list[str]:
    """Return the options of a held card or how it failed, and the command that moves it on."""
    if not any(one.actor == s.BY_PERSON for one in answer.claimable):
        return []
    said = [*_options(task), *_failure(task, now)]
    return [*(indented(one, "    ") for one in said), f"    {documents.answer_with(task)}"]


def _reason(one: Reason, now: int) -> str:
    who = "" if one.actor == "nobody" else f" (waits for {_ASK_OF.get(one.actor, one.actor)})"
    comma = "," if one.code == "held" else ""  # behind words of a person
    more = left(one.until, now)
    return f"{safe(one.text)}{comma + more if more else ''}{who}"


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
