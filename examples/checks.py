"""What must be true after the demonstration: each check yields what is not as it must be, in words.

They read the board through the command line and the result again from the source, so a worker that
only said it had done its work would be found out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from examples.history import AFTER_PARENTS, RELEASES, hand_overs
from examples.kanban_cli import Json, Kanban
from examples.report import findings
from examples.subjects import SUBJECTS, modules_of, read_module, stdlib


@dataclass(frozen=True)
class Ending:
    """The demonstration's end, as far as the checks read it.

    Args:
        ids: the cards' ids by title.
        parents: the parents of the cards that have any.
        events: the log, oldest first.
        runs: the attempts at each card, by id of the card, oldest first.
        threshold: what the person answered.
        killed: the title of the card whose worker was killed.
        asked: the title of the card that asked.
        reviewed: the title of the card that was reviewed.
        exit_codes: of the workers but the killed one, None for those that still waited for work.
    """

    ids: Mapping[str, str]
    parents: Mapping[str, Sequence[str]]
    events: Sequence[Json]
    runs: Mapping[str, Sequence[Json]]
    threshold: int
    killed: str
    asked: str
    reviewed: str
    exit_codes: Mapping[str, int | None]

    def runs_of(self, title: str) -> Sequence[Json]:
        """Return the attempts at the card of that title."""
        return self.runs.get(self.ids[title], ())

    def path(self, title: str) -> list[str | None]:
        """Return how the attempts at a card ended, oldest first."""
        return [run["outcome"] for run in self.runs_of(title)]


def problems(board: Kanban, ending: Ending) -> Iterator[str]:
    """Yield everything that is not as it must be; nothing when all is well."""
    yield from _board_is_done(board, ending)
    yield from _log_is_in_order(board, ending)
    yield from _killed_card_was_taken_over(ending)
    yield from _answer_was_used(ending)
    yield from _review_went_round(ending)
    yield from _hand_overs_are_complete(ending)
    yield from _workers_ended_well(ending)


def _board_is_done(board: Kanban, ending: Ending) -> Iterator[str]:
    status = {card["id"]: card["status"] for card in board.ask("list")}
    for title, task_id in ending.ids.items():
        if status.get(task_id) != "done":
            yield f"the card {title!r} ({task_id}) is {status.get(task_id, 'not on the board')}, not done"


def _log_is_in_order(board: Kanban, ending: Ending) -> Iterator[str]:
    ids = [event["id"] for event in ending.events]
    if ids != sorted(set(ids)):
        yield "the ids of the events that `watch` printed do not grow"
    refused = [event["payload"] for event in ending.events if event["kind"] == "refused"]
    if refused:
        yield f"the board refused a worker's writes: {refused}"
    disagreements = board.ask("verify")["findings"]
    if disagreements:
        yield f"`verify` found tasks that do not agree with their events: {disagreements}"


def _killed_card_was_taken_over(ending: Ending) -> Iterator[str]:
    yield from _expect_path(ending, ending.killed, ["reclaimed", "completed"])
    runs = ending.runs_of(ending.killed)
    if len({run["profile"] for run in runs}) != len(runs):
        yield f"the card {ending.killed!r} was not taken over by another worker"
    if runs and not (runs[-1]["metadata"] or {}).get("modules_found_measured"):
        yield f"whoever took over {ending.killed!r} did not find the work of the killed worker"


def _answer_was_used(ending: Ending) -> Iterator[str]:
    yield from _expect_path(ending, ending.asked, ["blocked", "completed"])
    runs = ending.runs_of(ending.asked)
    result = (runs[-1]["metadata"] or {}) if runs else {}
    counted = _functions_over(ending.threshold, result.get("packages", ()))
    if (result.get("threshold"), result.get("over")) != (ending.threshold, counted):
        yield (
            f"{ending.asked!r} says {result.get('over')} functions over {result.get('threshold')}, "
            f"the source has {counted} over the answer's {ending.threshold}"
        )


def _functions_over(threshold: int, packages: Sequence[str]) -> int:
    subject = SUBJECTS["complexity"]
    files = [path for package in packages for path in modules_of(package, stdlib())]
    sources = [read_module(path, stdlib()) for path in files]
    over: int = subject.sum_up({source.name: subject.measure(source) for source in sources}, threshold)["over"]
    return over


def _review_went_round(ending: Ending) -> Iterator[str]:
    yield from _expect_path(
        ending, ending.reviewed, ["review_requested", "changes_requested", "review_requested", "completed"]
    )
    report = report_path(ending)
    if report is None:
        yield "there is no report"
        return
    results = [ending.runs[parent][-1]["metadata"] for parent in ending.parents[ending.ids[ending.reviewed]]]
    text = report.read_text(encoding="utf-8")
    yield from (f"the report: {wrong}" for wrong in findings(text, results))


def report_path(ending: Ending) -> Path | None:
    """Return where the approved report is; None when there is none."""
    metadata: list[Any] = [run["metadata"] or {} for run in ending.runs_of(ending.reviewed)]
    named = [Path(facts["report"]) for facts in metadata if facts.get("report")]
    return next((path for path in reversed(named) if path.is_file()), None)


def _hand_overs_are_complete(ending: Ending) -> Iterator[str]:
    found = hand_overs(ending.events, ending.parents)
    for why in (AFTER_PARENTS, *RELEASES.values()):
        if not any(one.why == why for one in found):
            yield f"no card was claimed after: {why}"
    yield from (f"{one} was claimed before its time" for one in found if one.milliseconds < 0)


def _workers_ended_well(ending: Ending) -> Iterator[str]:
    yield from (f"the worker {name} ended with {code}" for name, code in ending.exit_codes.items() if code)


def _expect_path(ending: Ending, title: str, expected: list[str]) -> Iterator[str]:
    if ending.path(title) != expected:
        yield f"the attempts at {title!r} ended as {ending.path(title)}, not as {expected}"
