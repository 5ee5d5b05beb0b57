"""What the log tells afterwards: the attempts at each card, and how long cards waited for their next worker.

All of it is computed from events alone: their order is their id, their time is `at_ms` (milliseconds).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from examples.kanban_cli import Json

# What makes a card free for its next worker, and what that is called in the list.
RELEASES = {
    "unblocked": "answer given",
    "review_requested": "review requested",
    "changes_requested": "changes requested",
}
AFTER_PARENTS = "parents done"


@dataclass(frozen=True)
class HandOver:
    """A card that became free and was claimed: why it was free, and the milliseconds between."""

    task_id: str
    why: str
    milliseconds: int


def hand_overs(events: Iterable[Json], parents: Mapping[str, Sequence[str]]) -> tuple[HandOver, ...]:
    """Return each hand-over, in the order of the claims.

    Args:
        events: the log, oldest first.
        parents: the cards that have parents, with these.
    """
    done_at: dict[str, int] = {}
    free: dict[str, tuple[str, int]] = {}
    found = []
    for event in events:
        task_id, kind, now = event["task_id"], event["kind"], event["at_ms"]
        if kind in RELEASES:
            free[task_id] = (RELEASES[kind], now)
        elif kind == "completed":
            done_at[task_id] = now
            for child, waited_for in parents.items():
                if task_id in waited_for and all(parent in done_at for parent in waited_for):
                    free[child] = (AFTER_PARENTS, max(done_at[parent] for parent in waited_for))
        elif kind == "claimed" and task_id in free:
            why, since = free.pop(task_id)
            found.append(HandOver(task_id, why, now - since))
    return tuple(found)


def hand_over_lines(found: Sequence[HandOver], titles: Mapping[str, str]) -> Iterator[str]:
    """Yield the hand-overs for people, and their least, middle and greatest time."""
    for one in found:
        yield f"  {one.milliseconds:6d} ms  {titles[one.task_id]}: {one.why} -> claimed"
    times = [one.milliseconds for one in found]
    if times:
        yield f"  min {min(times)} ms, median {median(times):.0f} ms, max {max(times)} ms"


def run_lines(runs: Mapping[str, Sequence[Json]], titles: Mapping[str, str], start_ms: int) -> Iterator[str]:
    """Yield a table of all attempts for 80 columns, oldest first, each with its summary on a line below.

    Args:
        start_ms: milliseconds since the epoch, from which the seconds under `start` count.
    """
    yield f"  {'run':>3} {'card':12} {'role':11} {'worker':11} {'outcome':17} {'start':>6} {'took':>6}"
    rows = sorted((run["id"], task_id, run) for task_id, all_ in runs.items() for run in all_)
    for number, task_id, run in rows:
        began, ended = run["started_ms"], run["ended_ms"] or run["started_ms"]
        what = f"{titles[task_id]:12} {run['role']:11} {run['profile'] or '-':11} {run['outcome'] or '-':17}"
        yield f"  {number:3d} {what} {(began - start_ms) / 1000:5.1f}s {(ended - began) / 1000:5.1f}s"
        if run["summary"]:
            yield f"      {_first_line(run['summary'])}"


def _first_line(text: str, width: int = 74) -> str:
    line = harmless(text.partition("\n")[0])
    return line if len(line) <= width else line[: width - 3] + "..."


def harmless(text: str) -> str:
    """Return the text without anything that a terminal would obey."""
    return "".join(character if character.isprintable() else "?" for character in text)
