"""Why a card does not start: the list that claim, display and planner all read (P3b)."""

from __future__ import annotations

from hermes_kanban.base.record import Record, record


@record
class Reason(Record):
    """One thing in the way.

    Args:
        code: a stable word: `state`, `parents`, `held`, `time`, `cool_down`, `quarantine`, `running` …
        text: a sentence for a person.
        until: epoch seconds at which it ends by itself, or None.
        actor: who must act: `nobody`, `person`, `reviewer`, `parents`, `worker`, `dispatcher`.
        task_ids: the cards meant.
    """

    code: str
    text: str
    until: int | None = None
    actor: str = "nobody"
    task_ids: tuple[str, ...] = ()


@record
class Startable(Record):
    """Both answers of P3b. Empty lists mean yes."""

    claimable: tuple[Reason, ...]
    dispatchable: tuple[Reason, ...]
