"""What the log tells afterwards: the attempts at each card, and how long cards waited for their next worker.

Hand-over times are differences of the events' own times (`at_ms`, milliseconds), save the last one of each: when the
worker program itself began is said by its own clock, after its interpreter had started.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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
    """A card that became free and went to its next worker.

    Args:
        task_id, run_id: the card, and the attempt that took it.
        why: what made it free.
        free_ms: when, milliseconds since the epoch; the other times too.
        claimed_ms: when it was claimed.
        spawned_ms: when its worker process was there and let go; None: it never was.
        began_ms: when the worker program began, by its own clock; None: it did not say.
    """

    task_id: str
    run_id: int
    why: str
    free_ms: int
    claimed_ms: int
    spawned_ms: int | None = None
    began_ms: int | None = None

    @property
    def waits(self) -> tuple[int | None, int | None, int | None]:
        """Return the milliseconds until the claim, the worker process, the worker program."""
        times = (self.claimed_ms, self.spawned_ms, self.began_ms)
        claimed, spawned, began = (None if time is None else time - self.free_ms for time in times)
        return claimed, spawned, began


def hand_overs(
    events: Iterable[Json], parents: Mapping[str, Sequence[str]], began: Mapping[int, int]
) -> tuple[HandOver, ...]:
    """Return each hand-over, in the order of the claims.

    Args:
        events: the log, oldest first.
        parents: the cards that have parents, with these.
        began: by run, when its worker program began.
    """
    done_at: dict[str, int] = {}
    free: dict[str, tuple[str, int]] = {}
    found: dict[int, HandOver] = {}
    for event in events:
        task_id, kind, now, run_id = event["task_id"], event["kind"], event["at_ms"], event["run_id"]
        if kind in RELEASES:
            free[task_id] = (RELEASES[kind], now)
        elif kind == "completed":
            done_at[task_id] = now
            free |= {child: (AFTER_PARENTS, now) for child, needs in parents.items() if _last(task_id, needs, done_at)}
        elif kind == "claimed" and task_id in free:
            found[run_id] = HandOver(task_id, run_id, *free.pop(task_id), claimed_ms=now)
        elif kind == "spawned" and run_id in found:
            found[run_id] = replace(found[run_id], spawned_ms=now, began_ms=began.get(run_id))
    return tuple(found.values())


def _last(task_id: str, needs: Sequence[str], done_at: Mapping[str, int]) -> bool:
    """Whether this was the last parent that a card waited for."""
    return task_id in needs and all(parent in done_at for parent in needs)


def hand_over_lines(found: Sequence[HandOver], titles: Mapping[str, str]) -> Iterator[str]:
    """Yield the hand-overs as a table for 80 columns, with the middle (p50) and the greatest time of each column."""
    yield f"  {'card':12} {'was free since':18} {'claimed':>10} {'process':>10} {'program':>10}"
    for one in found:
        yield f"  {titles[one.task_id]:12} {one.why:18} {_cells(one.waits)}"
    columns = [[wait for one in found if (wait := one.waits[at]) is not None] for at in range(3)]
    for name, figure in (("p50", median), ("max", max)):
        yield f"  {name:12} {'':18} {_cells([round(figure(column)) if column else None for column in columns])}"


def _cells(times: Iterable[int | None]) -> str:
    return " ".join(f"{'-' if time is None else f'{time} ms':>10}" for time in times)


def run_lines(runs: Mapping[str, Sequence[Json]], titles: Mapping[str, str], start_ms: int) -> Iterator[str]:
    """Yield a table of all attempts for 80 columns, oldest first, each with its last words on a line below.

    Args:
        start_ms: milliseconds since the epoch, from which the seconds under `start` count.
    """
    yield f"{'run':>3} {'card':12} {'role':11} {'worker':11} {'outcome':18} {'exit':>4} {'start':>6} {'took':>6}"
    rows = sorted((run["id"], task_id, run) for task_id, all_ in runs.items() for run in all_)
    for number, task_id, run in rows:
        began, ended = run["started_ms"], run["ended_ms"] or run["started_ms"]
        code = "-" if run["exit_code"] is None else run["exit_code"]
        what = f"{titles[task_id]:12} {run['role']:11} {run['profile'] or '-':11} {run['outcome'] or '-':18} {code:>4}"
        yield f"{number:3d} {what} {(began - start_ms) / 1000:5.1f}s {(ended - began) / 1000:5.1f}s"
        words = run["summary"] or run["error"]
        if words:
            yield f"    {_first_line(words)}"


def _first_line(text: str, width: int = 74) -> str:
    line = harmless(text.partition("\n")[0])
    return line if len(line) <= width else line[: width - 3] + "..."


def harmless(text: str) -> str:
    """Return the text without anything that a terminal would obey."""
    return "".join(character if character.isprintable() else "?" for character in text)
