"""What a pass did and saw: for the log, for `dispatch`, for health."""

from __future__ import annotations

from hermes_kanban.base.record import Record, record
from hermes_kanban.base.strictjson import fitting
from hermes_kanban.model.reasons import Reason

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


# What each row of a list has at least, and the lists of words: for who prints a report that came over a socket.
_ROWS: dict[str, dict[str, type]] = {
    "started": {"task": str, "name": str, "lane": str},
    "ended": {"task": str, "run": int},
    "skipped_nonspawnable": {"name": str, "cards": int},
    "waiting": {"name": str, "text": str},
    "left": {"task": str, "text": str},
}
_WORDS = ("released", "probed", "stranded_in_ready", "errors")


@record
class PassReport(Record):
    """One pass over one board.

    Args:
        board: its slug.
        started: task, run, name and lane of each worker that was (or, in a dry run, would be) started.
        ended: task, run, outcome of each run whose end was booked.
        released: cards whose time had come; `probed`: tripped cards that got a fresh attempt.
        skipped_nonspawnable: names that no lane answers for, with their ready cards (D5).
        stranded_in_ready: those of them that wait longer than `kanban.stranded_threshold_seconds`.
        waiting: why the cards of other names are not started, by name.
        left: cards that were looked at and left alone, with the reason.
        full: why nothing more can be started, or "".
        errors: what went wrong with single cards; it did not stop the others (D2).
    """

    board: str
    started: tuple[dict[str, Any], ...] = ()
    ended: tuple[dict[str, Any], ...] = ()
    released: tuple[str, ...] = ()
    probed: tuple[str, ...] = ()
    skipped_nonspawnable: tuple[dict[str, Any], ...] = ()
    stranded_in_ready: tuple[str, ...] = ()
    waiting: tuple[dict[str, Any], ...] = ()
    left: tuple[dict[str, Any], ...] = ()
    full: str = ""
    errors: tuple[str, ...] = ()

    @property
    def quiet(self) -> bool:
        """Whether nothing happened that anybody would want to read."""
        return not (self.started or self.ended or self.released or self.probed)


def is_report(answer: dict[str, Any]) -> bool:
    """Whether what somebody answered is the report of a pass, as `PassReport.as_dict` gives it."""
    lists = fitting(answer, dict.fromkeys((*_ROWS, *_WORDS), list))
    if len(lists) < len(_ROWS) + len(_WORDS) or not isinstance(answer.get("full"), str):
        return False
    words = all(isinstance(one, str) for name in _WORDS for one in lists[name])
    return words and all(_is_row(row, kinds) for name, kinds in _ROWS.items() for row in lists[name])


def _is_row(row: Any, kinds: dict[str, type]) -> bool:
    return isinstance(row, dict) and len(fitting(row, kinds)) == len(kinds)


def reason(found: Reason) -> dict[str, Any]:
    """Return a reason as the report shows it."""
    return {"reason": found.code, "text": found.text, "until": found.until, "actor": found.actor}
