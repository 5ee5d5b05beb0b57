"""What moves: the log (events, tail, watch) and the board.

Who follows waits for the board's own notice of change and holds no transaction meanwhile.
"""

from __future__ import annotations

import select
import signal

from hermes_kanban.base.lazy import module
from hermes_kanban.cli import screen
from hermes_kanban.cli.call import Call
from hermes_kanban.cli.screen import style, views
from hermes_kanban.present import documents

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType
    from typing import Any, NoReturn

    from hermes_kanban.kernel.query import Column, Stretch
    from hermes_kanban.present.views import Style

INTERVAL = 5  # seconds between looks where no notice of change arrives
_TAIL = 20
_EVENTS = 200
_STDOUT = 1


def _lines() -> Any:
    """Load what writes events for people."""
    return module("hermes_kanban.present.events")


def events(call: Call) -> int:
    """Show a piece of the log, oldest first."""
    limit = call["limit"] if call["limit"] is not None else _EVENTS
    since = call["since"] or 0
    filters = {"task": call["task"], "kinds": call["kinds"]}
    found = call.reader().events(since, limit, **filters)
    if len(found) == limit and call.reader().events(found[-1].id, limit if call["kinds"] else 1, **filters):
        call.out.note(f"note: cut after {limit}; more: --since {found[-1].id}")
    call.out.answer(
        [documents.plain(one) for one in found],
        lambda: _lines().events(found, call.now),
        (str(one.id) for one in found),
    )
    return 0


def tail(call: Call) -> int:
    """Show the newest events of a card; with `--follow` go on with new ones."""
    limit = call["limit"] if call["limit"] is not None else _TAIL
    follow: bool = call["follow"]
    if follow and call.out.json:
        raise call.usage("--follow prints lines without end", hint="`watch --task ID` prints JSON objects")
    last = call.reader().last_event_id()
    shown = call.reader().show(call["id"], limit)
    found = tuple(one for one in shown.events if one.id <= last) if follow else shown.events
    call.out.answer(
        [documents.plain(one) for one in found],
        lambda: "\n".join(_lines().event(one, call.now) for one in found),
        (str(one.id) for one in found),
    )
    if not follow:
        return 0

    def read(since: int) -> Stretch:
        return call.reader().follow(since, task=shown.task.id)

    return _follow(call, last, INTERVAL, read, lambda one, _card: str(_lines().event(one, call.now)))


def board(call: Call) -> int:
    """Show the board: side by side on a terminal, else as lines; with `--watch` again after each change."""
    limit = {"per_column": call["limit"]} if call["limit"] is not None else {}
    if not call["watch"]:
        columns = call.reader().columns(**limit)
        document = {"columns": [documents.column(found) for found in columns]} if call.out.json else None
        call.out.answer(
            document, lambda: _drawn(columns, call.now, style(call)), (e.task.id for c in columns for e in c.cards)
        )
        return 0
    if call.out.json:
        raise call.usage("--watch draws the board again and again", hint="`watch` prints JSON objects")
    in_place = screen.moves(call)

    def step() -> bool:
        text = _drawn(call.reader().columns(**limit), call.now, screen.window(call) if in_place else style(call))
        call.out.line(screen.frame(text) if in_place else text + "\n")
        return False

    if not in_place:
        return _again_and_again(call, INTERVAL, step)
    call.out.raw(screen.ENTER)
    try:
        return _again_and_again(call, INTERVAL, step)
    finally:
        call.out.raw(screen.LEAVE)


def _drawn(columns: Sequence[Column], now: int, how: Style) -> str:
    """Return the board as it looks there: a window has room for so many cards, a pipe for all."""
    if not how.room:
        return str(views().board(columns))
    return str(module("hermes_kanban.present.wide_board").show(columns, now, how))


def watch(call: Call) -> int:
    """Print events from now on (or since one), a JSON object on each line, until SIGINT or SIGTERM."""
    board = call.reader()
    task = board.find_id(call["task"]) if call["task"] is not None else None
    filters: dict[str, Any] = {
        "task": task,
        "kinds": call["kinds"],
        "assignee": call["assignee"],
        "tenant": call["tenant"],
    }
    since = call["since"] if call["since"] is not None else board.last_event_id()
    interval = call["interval"] if call["interval"] is not None else INTERVAL
    return _follow(
        call,
        since,
        interval,
        lambda last: board.follow(last, **filters),
        lambda one, card: documents.line(documents.event(one, card)),
    )


def _follow(
    call: Call, since: int, interval: int, read: Callable[[int], Stretch], line: Callable[[Any, Any], str]
) -> int:
    """Print what is new, again and again; the end of it is a signal, or a reader that went away."""
    last = since

    def step() -> bool:
        nonlocal last
        piece = read(last)
        for one, card in piece.events:
            call.out.line(line(one, card))
        more, last = piece.upto > last, max(piece.upto, last)
        return more

    return _again_and_again(call, interval, step)


def _again_and_again(call: Call, interval: int, step: Callable[[], bool]) -> int:
    """Do the step whenever the board changed, until a signal comes or the reader of stdout goes away.

    Args:
        interval: seconds after which to look even so.
        step: prints what is new; says whether there may be more at once.
    """
    signal.signal(signal.SIGINT, _stop)
    signal.signal(signal.SIGTERM, _stop)
    feed = call.reader().feed()
    try:
        while True:
            more = step()
            call.out.flush()
            if _nobody_reads():
                return 0
            if not more:
                feed.wait(interval)
    except KeyboardInterrupt:
        return 0
    finally:
        feed.close()


def _nobody_reads() -> bool:
    """Whether stdout is a pipe whose reader went: without news no write would ever tell."""
    poller = select.poll()
    poller.register(_STDOUT, 0)
    return any(happened & select.POLLERR for _, happened in poller.poll(0))


def _stop(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


HANDLERS = {"board": board, "events": events, "tail": tail, "watch": watch}
