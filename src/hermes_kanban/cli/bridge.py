"""The pull bridge: started by a person's shell or by a service, never from inside of a run (P70)."""

from __future__ import annotations

import os

from hermes_kanban import compose
from hermes_kanban.base.clock import SystemClock
from hermes_kanban.base.limits import checked_name
from hermes_kanban.bridge.job import Job, alert_of, lane_of
from hermes_kanban.bridge.loop import Bridge
from hermes_kanban.bridge.serve import serve
from hermes_kanban.cli.call import NOBODY, Call
from hermes_kanban.kernel.caller import without_card
from hermes_kanban.model import status as s
from hermes_kanban.model.actors import require


def bridge(call: Call) -> int:
    """Claim the cards of a name and run a program for each; the log goes to stderr, stdout stays empty."""
    _only_from_outside(call)
    clock = SystemClock()
    code, hangs = serve(Bridge(call.env, call.place, _job(call), clock), clock)
    if hangs:
        call.out.flush()
        os._exit(code)  # a loop that waits for a lock, or for git, is a thread that nobody waits for
    return code


def _only_from_outside(call: Call) -> None:
    """People and bridges may; whoever is inside of a run is its worker, and is refused (P70)."""
    actor = without_card(compose.caller(call.env, call.place))
    if actor.kind != s.BRIDGE:
        require(actor, call.verb.name)


def _job(call: Call) -> Job:
    name = call["assignee"]
    if name is None or name == NOBODY:
        raise call.usage("whose cards? --assignee is missing", hint="`--assignee NAME`; cards of nobody have no bridge")
    name = checked_name("--assignee", name)
    return Job(
        name=name,
        lane=lane_of(call.env, name, call["lane"], call["argv"] or (), call["on-success"], call["env"]),
        ttl=call["ttl"],
        concurrency=call["concurrency"] or 1,
        review=call["review"],
        once=call["once"],
        stop_workers=call["stop-workers"],
        alert=alert_of(call["alert-cmd"]),
    )


HANDLERS = {"bridge": bridge}
