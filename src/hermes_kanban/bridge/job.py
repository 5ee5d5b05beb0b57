"""What a bridge is to do: whose cards, which program, how many at once, whom to tell when the board cannot be told.

All of it is checked before the first claim: a program that is not there would otherwise block one card after the other.
"""

from __future__ import annotations

import shlex
import shutil

from hermes_kanban.base.errors import ConfigInvalid, InvalidValue, Usage
from hermes_kanban.base.record import Record, record
from hermes_kanban.lanes import registry
from hermes_kanban.lanes.lane import Lane

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hermes_kanban.compose import Environment

POLICY = "complete"  # for a command line: its program cannot be expected to know the board
GIVEN = "command line"


@record
class Job(Record):
    """The task of one bridge.

    Args:
        name: whose cards; also the bridge's own name.
        lane: how each is worked on; its success policy says who closes the card after exit code 0.
        ttl: seconds of a claim's lease, or None for the board's own.
        concurrency: how many cards at the same time.
        review: take reviews instead of work.
        once: leave when nothing is ready and nothing runs.
        stop_workers: end the workers too when the bridge is told to stop.
        alert: the command line of the alert channel; empty: there is none.
    """

    name: str
    lane: Lane
    ttl: int | None = None
    concurrency: int = 1
    review: bool = False
    once: bool = False
    stop_workers: bool = False
    alert: tuple[str, ...] = ()


def lane_of(
    env: Environment, name: str, lane: str | None, argv: tuple[str, ...], policy: str | None, passed: tuple[str, ...]
) -> Lane:
    """Return how the cards are worked on: by a lane of this home, or by a command line.

    Args:
        policy: who closes the card; None: as the lane says, `complete` for a command line.
        passed: names of variables that a command line's program gets; a lane has its own list.

    Raises:
        ConfigInvalid: there is no such lane, or a placeholder stands where a card's text would be run.
        InvalidValue: its program cannot be run.
        Usage: neither or both are given.
    """
    if (lane is None) == (not argv):
        raise Usage("give a lane or a program, and not both", hint="`--lane NAME`, or `-- PROGRAM ARGUMENT …`")
    if lane is not None and passed:
        raise Usage("--env goes with a program", hint=f"the lane {lane} has its own list of variables (`env`)")
    if lane is None:
        given = {"argv": list(argv), "success_policy": policy or POLICY, "env": list(dict.fromkeys(passed))}
        made = registry.checked(env.home, name, given, GIVEN, "the command line")
    else:
        found = registry.resolve(env, lane)
        if not isinstance(found, Lane):
            raise ConfigInvalid(found.reason, hint=found.hint)
        made = found.evolve(success_policy=policy) if policy else found
    health = registry.health(made)
    if health.problem:
        raise InvalidValue(health.problem, hint=health.hint, argument="argv")
    return made


def alert_of(text: str | None) -> tuple[str, ...]:
    """Return the command line of the alert channel: words as a shell would split them, but no shell reads them.

    Raises:
        InvalidValue: it is no command line, or its program is not there: that is not to be found out in an emergency.
    """
    if text is None:
        return ()
    try:
        argv = tuple(shlex.split(text))
    except ValueError as error:
        raise InvalidValue(f"--alert-cmd is no command line: {error}", hint="close its quotes") from error
    if not argv or shutil.which(argv[0]) is None:
        program = argv[0][:80] if argv else ""
        raise InvalidValue(f"--alert-cmd: {program!r} cannot be run", hint="name a program, with its arguments")
    return argv
