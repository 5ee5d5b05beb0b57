"""What a pass did and saw: for the log, for `dispatch`, for health."""

from __future__ import annotations

from hermes_kanban.base.record import Record, record
from hermes_kanban.model.reasons import Reason

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


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


def reason(found: Reason) -> dict[str, Any]:
    """Return a reason as the report shows it."""
    return {"reason": found.code, "text": found.text, "until": found.until, "actor": found.actor}
