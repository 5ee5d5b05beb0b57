"""What must be true after the demonstration: each check yields what is not as it must be, in words.

They read the board through the command line and the result again from the source, so a worker that
only said it had done its work would be found out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from examples import plan
from examples.history import AFTER_PARENTS, RELEASES, HandOver, hand_overs
from examples.kanban_cli import Json, Kanban
from examples.publisher import PAGE, page
from examples.report import findings
from examples.subjects import SUBJECTS, modules_of, read_module, stdlib

KILL_CODE = -9  # how the exit of a worker is written that SIGKILL ended


@dataclass(frozen=True)
class Ending:
    """The demonstration's end, as far as the checks read it.

    Args:
        ids: the cards' ids by title.
        events: the log, oldest first.
        runs: the attempts at each card, by id of the card, oldest first.
        began: by run, when its worker program began (milliseconds since the epoch, its own clock).
        killed_pid: the process that was killed; 0: none was.
        exit_codes: of gateway and bridge.
        left: processes that outlived them, in words.
    """

    ids: Mapping[str, str]
    events: Sequence[Json]
    runs: Mapping[str, Sequence[Json]]
    began: Mapping[int, int]
    killed_pid: int
    exit_codes: Mapping[str, int]
    left: Sequence[str]

    def runs_of(self, card: plan.Card) -> Sequence[Json]:
        """Return the attempts at a card."""
        return self.runs.get(self.ids.get(card.title, ""), ())

    def attempt(self, card: plan.Card, number: int) -> Json:
        """Return one attempt at a card, the first is 0; an empty one where it was never made."""
        runs = self.runs_of(card)
        return runs[number] if -len(runs) <= number < len(runs) else {}

    def handed_over(self, card: plan.Card) -> Json:
        """Return the metadata of the last attempt at a card."""
        return self.attempt(card, -1).get("metadata") or {}

    def events_of(self, card: plan.Card, *kinds: str) -> list[Json]:
        """Return the events of a card of these kinds, oldest first."""
        wanted = self.ids.get(card.title)
        return [event for event in self.events if event["task_id"] == wanted and event["kind"] in kinds]

    def hand_overs(self) -> tuple[HandOver, ...]:
        """Return how long cards waited for their next worker."""
        parents = {
            self.ids[card.title]: [self.ids[title] for title in card.parents] for card in plan.CARDS if card.parents
        }
        return hand_overs(self.events, parents, self.began)


def problems(board: Kanban, ending: Ending) -> Iterator[str]:
    """Yield everything that is not as it must be; nothing when all is well."""
    missing = [card.title for card in plan.CARDS if card.title not in ending.ids]
    if missing:
        yield f"these cards were not even made: {', '.join(missing)}"
        return
    yield from _board_is_done(board, ending)
    yield from _log_is_in_order(board, ending)
    yield from _attempts_ended_as_planned(ending)
    yield from _attempts_followed_each_other(ending)
    yield from _everybody_was_started_by(ending)
    yield from _killed_worker_was_replaced(ending)
    yield from _overloaded_came_back_in_time(ending)
    yield from _answer_was_used(ending)
    yield from _report_is_right(ending)
    yield from _page_is_published(board, ending)
    yield from _hand_overs_are_complete(ending)
    yield from _nothing_is_left(ending)


# --- the board ------------------------------------------------------------------------------------------------
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


# --- the attempts ---------------------------------------------------------------------------------------------
def _attempts_ended_as_planned(ending: Ending) -> Iterator[str]:
    for card in plan.CARDS:
        path = tuple(run["outcome"] for run in ending.runs_of(card))
        if path != card.path:
            yield f"the attempts at {card.title!r} ended as {path}, not as {card.path}"
    codes = {plan.KILLED: KILL_CODE, plan.OVERLOADED: 75, plan.FORGOTTEN: 0}
    for card, code in codes.items():
        found = ending.attempt(card, 0).get("exit_code")
        if found != code:
            yield f"the first worker of {card.title!r} ended with {found}, not with {code}"


def _attempts_followed_each_other(ending: Ending) -> Iterator[str]:
    """No card may have two workers, so each starts only after the end of the one before."""
    for card in plan.CARDS:
        runs = ending.runs_of(card)
        spawned = {event["run_id"]: event["at_ms"] for event in ending.events_of(card, "spawned")}
        for before, after in pairwise(runs):
            if spawned.get(after["id"], 0) < before["ended_ms"]:
                yield f"run {after['id']} of {card.title!r} had a worker before run {before['id']} had ended"
        if len({run["worker_pid"] for run in runs}) != len(runs):
            yield f"the attempts at {card.title!r} were not each a process of its own"


def _everybody_was_started_by(ending: Ending) -> Iterator[str]:
    """Everything is started by the gateway, save the cards that the bridge pulls."""
    for card in plan.CARDS:
        starter = "bridge" if card.assignee == plan.BRIDGED else "dispatcher"
        claims = ending.events_of(card, "claimed")
        others = {event["actor"] for event in claims if event["actor"].partition(":")[0] != starter}
        if others or not claims:
            yield f"{card.title!r} was claimed by {others or 'nobody'}, not by the {starter}"


def _killed_worker_was_replaced(ending: Ending) -> Iterator[str]:
    first = ending.attempt(plan.KILLED, 0)
    if not ending.killed_pid or first.get("worker_pid") != ending.killed_pid:
        yield f"the killed process {ending.killed_pid} was not the first worker of {plan.KILLED.title!r}"
    if not ending.handed_over(plan.KILLED).get("modules_found_measured"):
        yield f"whoever took over {plan.KILLED.title!r} did not find the work of the killed worker"


def _overloaded_came_back_in_time(ending: Ending) -> Iterator[str]:
    ended = ending.events_of(plan.OVERLOADED, "rate_limited")
    claims = ending.events_of(plan.OVERLOADED, "claimed")
    if not ended or len(claims) < 2:
        yield f"{plan.OVERLOADED.title!r} was not put aside and taken up again"
    elif claims[1]["created_at"] < (ended[0]["payload"].get("until") or 0):
        yield f"{plan.OVERLOADED.title!r} was taken up before the time that the provider asked for"


# --- the work -------------------------------------------------------------------------------------------------
def _answer_was_used(ending: Ending) -> Iterator[str]:
    result = ending.handed_over(plan.ASKED)
    counted = _functions_over(plan.THRESHOLD, result.get("packages", ()))
    if (result.get("threshold"), result.get("over")) != (plan.THRESHOLD, counted):
        yield (
            f"{plan.ASKED.title!r} says {result.get('over')} functions over {result.get('threshold')}, "
            f"the source has {counted} over the answer's {plan.THRESHOLD}"
        )


def _functions_over(threshold: int, packages: Sequence[str]) -> int:
    subject = SUBJECTS["complexity"]
    files = [path for package in packages for path in modules_of(package, stdlib())]
    sources = [read_module(path, stdlib()) for path in files]
    over: int = subject.sum_up({source.name: subject.measure(source) for source in sources}, threshold)["over"]
    return over


def _report_is_right(ending: Ending) -> Iterator[str]:
    report = report_path(ending)
    results = [ending.handed_over(card) for card in plan.ANALYSES]
    if report is None or not all(results):
        yield "there is no report, or no result for it"
        return
    yield from (f"the report: {wrong}" for wrong in findings(report.read_text(encoding="utf-8"), results))


def report_path(ending: Ending) -> Path | None:
    """Return where the approved report is; None when there is none."""
    metadata: list[Any] = [run["metadata"] or {} for run in ending.runs_of(plan.REVIEWED)]
    named = [Path(facts["report"]) for facts in metadata if facts.get("report")]
    return next((path for path in reversed(named) if path.is_file()), None)


def _page_is_published(board: Kanban, ending: Ending) -> Iterator[str]:
    """The page hangs on its card, is made of the approved report, and the bridge closed the card by exit code 0."""
    report = report_path(ending)
    text = page(report.read_text(encoding="utf-8")) if report else ""
    wanted = hashlib.sha256(text.encode()).hexdigest()
    attached = board.show(ending.ids[plan.PUBLISHED.title])["attachments"]
    if [(one["name"], one["sha256"]) for one in attached] != [(PAGE.name, wanted)]:
        yield f"the page that was attached is not that of the report: {[one['name'] for one in attached]}"
    closed = {event["actor"] for event in ending.events_of(plan.PUBLISHED, "completed")}
    if closed != {f"bridge:{plan.BRIDGED}"}:
        yield f"{plan.PUBLISHED.title!r} was closed by {closed}, not by the bridge"


# --- the processes --------------------------------------------------------------------------------------------
def _hand_overs_are_complete(ending: Ending) -> Iterator[str]:
    found = ending.hand_overs()
    for why in (AFTER_PARENTS, *RELEASES.values()):
        if not any(one.why == why for one in found):
            yield f"no card was claimed after: {why}"
    for one in found:
        if one.spawned_ms is None or one.began_ms is None:
            yield f"run {one.run_id} after {one.why!r} has no running worker"
        elif not one.free_ms <= one.claimed_ms <= one.spawned_ms <= one.began_ms:
            yield f"the instants of run {one.run_id} are not in their order: {one}"


def _nothing_is_left(ending: Ending) -> Iterator[str]:
    yield from (f"the {name} ended with {code}, not with 0" for name, code in ending.exit_codes.items() if code)
    for runs in ending.runs.values():
        open_ = [run["id"] for run in runs if run["process_state"] != "ended"]
        yield from (f"the processes of run {number} are not known to be gone" for number in open_)
    yield from (f"{what} is left" for what in ending.left)
