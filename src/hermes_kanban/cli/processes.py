"""The processes that start workers: gateway, dispatch, daemon (D1 to D9). These are a person's verbs (P70)."""

from __future__ import annotations

import os
import select
import signal
from contextlib import suppress

from hermes_kanban import boards, compose
from hermes_kanban.base.clock import SystemClock
from hermes_kanban.base.errors import Refusal, Retryable
from hermes_kanban.base.lazy import module
from hermes_kanban.cli.call import Call
from hermes_kanban.kernel.caller import without_card
from hermes_kanban.model.actors import require
from hermes_kanban.present.text import safe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from hermes_kanban.dispatcher.report import PassReport

_PASS_SECONDS = 30.0
_STOP_SECONDS = 8.0
_HEARD_SECONDS = 2.0  # a shim that lives hears at once
_LOOK_SECONDS = 0.05
_SHOWN = (
    *("id", "task_id", "profile", "lane", "host", "worker_pid", "process_state", "started_at"),
    *("last_heartbeat_at", "heartbeat_note"),
)


def _only_people(call: Call, place: boards.Place) -> None:
    require(without_card(compose.caller(call.env, place)), call.verb.name)


def gateway_start(call: Call) -> int:
    """Run the gateway in the foreground until SIGTERM or SIGINT."""
    env = call.env
    place = call.place if call.board_name is not None else boards.place(env.home, boards.DEFAULT, env.variables)
    _only_people(call, place)
    dispatch = env.values.flag("dispatch_in_gateway") and env.variables.get("HERMES_KANBAN_DISPATCH_IN_GATEWAY") != "0"
    only = place.slug if call.board_name is not None else None
    return _serve(call, only, dispatch=dispatch and not call["no-dispatch"], workers=call["stop-workers"])


def daemon(call: Call) -> int:
    """Run the dispatcher of one board alone; the gateway took its place."""
    call.out.note("note: `daemon` is an old word; `hermes gateway start` dispatches every board of this home")
    _only_people(call, call.place)
    return _serve(call, call.place.slug, dispatch=True, workers=False)


def _serve(call: Call, only: str | None, *, dispatch: bool, workers: bool) -> int:
    asyncio = module("asyncio")
    gateway = module("hermes_kanban.gateway")

    async def serve() -> None:
        await gateway.Gateway(call.env, only, dispatch=dispatch, workers=workers).run()

    asyncio.run(serve())
    call.out.flush()
    os._exit(0)  # a loop that waits for a lock is a thread that nobody waits for (D6)


def gateway_status(call: Call) -> int:
    """Show which gateways run, who dispatches each board, and what runs; works with the gateway down too."""
    rows = [_board_status(call, name) for name in boards.names(call.env.home, call.env.variables)]
    gateways = module("hermes_kanban.gateway").running(call.env.home)
    document = {"gateways": gateways, "boards": rows}
    call.out.answer(document, lambda: _status_text(call, document), (row["board"] for row in rows))
    return 0


def _board_status(call: Call, name: str) -> dict[str, Any]:
    place = _place(call, name)
    holder = module("hermes_kanban.dispatcher.lease").holder(place.folder)
    row: dict[str, Any] = {"board": name, "dispatcher": holder, "workers": [], "error": None}
    try:
        row["workers"] = _workers(compose.open_reader(call.env, place))
    except Refusal as error:
        row["error"] = error.as_dict()
    return row


def _place(call: Call, name: str) -> boards.Place:
    variables = {n: v for n, v in call.env.variables.items() if n != "HERMES_KANBAN_DB"}
    return boards.place(call.env.home, name, variables)


def _workers(reader: Any) -> list[dict[str, Any]]:
    return [
        {name: getattr(run, name) for name in _SHOWN} | {"title": reader.show(run.task_id, 1).task.title}
        for run in reader.watched()
    ]


def _status_text(call: Call, document: dict[str, Any]) -> str:
    lines = [f"gateway {one['pid']} runs" for one in document["gateways"]] or ["no gateway runs"]
    for row in document["boards"]:
        lines.append(f"{row['board']}: {_dispatcher_text(call, row)}")
        facts = row["dispatcher"] or {}
        skipped = facts.get("skipped_nonspawnable") or []
        lines += [
            f"  {safe(str(one.get('name')))}: {one.get('cards')} ready, no lane answers for it" for one in skipped
        ]
        waiting = facts.get("waiting") or []
        lines += [f"  {safe(str(one.get('name')))} waits: {safe(str(one.get('text')))}" for one in waiting]
        lines += [_worker_text(run, call.now) for run in row["workers"]]
    return "\n".join(lines)


def _worker_text(run: dict[str, Any], now: int) -> str:
    """Return a worker on one line; name and lane once where they are the same."""
    who = run["profile"] if run["profile"] == run["lane"] else f"{run['profile']} ({run['lane']})"
    state = f"pid {run['worker_pid']} {run['process_state']} {now - run['started_at']} s"
    beat = run["last_heartbeat_at"]
    heard = "" if beat is None else f", heartbeat {max(0, now - beat)} s ago"
    note = f": {run['heartbeat_note']}" if run["heartbeat_note"] else ""
    return safe(f"  {run['task_id']} run {run['id']} {who} {state}{heard}{note}  {run['title']}")


def _dispatcher_text(call: Call, row: dict[str, Any]) -> str:
    if row["error"]:
        return safe(row["error"]["message"])
    holder = row["dispatcher"]
    if holder is None:
        return "nobody dispatches it"
    age = f", last pass {max(0, call.now - holder['last_pass_ms'] // 1000)} s ago" if "last_pass_ms" in holder else ""
    stranded = holder.get("stranded_in_ready") or []
    lost = f", stranded in ready: {safe(', '.join(map(str, stranded)))}" if stranded else ""
    full = f", {safe(holder['full'])}" if holder.get("full") else ""
    return f"dispatched by {holder.get('pid', '?')}{age}{full}{lost}"


def gateway_stop(call: Call) -> int:
    """Stop every gateway of this home, with the workers if wanted; say which run on. Works with none running too."""
    _only_people(call, boards.place(call.env.home, boards.DEFAULT, call.env.variables))
    gateway = module("hermes_kanban.gateway")
    found = gateway.running(call.env.home)
    for facts in found:
        with suppress(ProcessLookupError):  # it went by itself just now
            os.kill(facts["pid"], signal.SIGUSR1 if call["workers"] else signal.SIGTERM)
    if not _wait(lambda: not gateway.running(call.env.home), _STOP_SECONDS):
        raise Retryable("a gateway does not stop", hint=f"look at its process: {found[0]['pid']}")
    if call["workers"]:
        _end_workers(call)
    rows = [_board_status(call, name) for name in boards.names(call.env.home, call.env.variables)]
    workers = [{"board": row["board"]} | run for row in rows for run in row["workers"]]
    document = {"stopped": [facts["pid"] for facts in found], "workers": workers}
    call.out.answer(document, lambda: _stop_text(document), (str(pid) for pid in document["stopped"]))
    return 0


def _wait(true: Callable[[], bool], seconds: float) -> bool:
    """Wait until something is so, at most so long; return whether it is."""
    deadline = SystemClock().monotonic() + seconds
    while not true():
        if SystemClock().monotonic() > deadline:
            return False
        select.select([], [], [], _LOOK_SECONDS)
    return True


def _end_workers(call: Call) -> None:
    """End the workers that are left: their gateway died, or they were started by `dispatch` (D6).

    Their shims settle by the report program that their runs ended; that is waited for as long as an end may take.
    """
    told: list[tuple[Any, set[int]]] = []
    for name in boards.names(call.env.home, call.env.variables):
        with suppress(Refusal):  # what cannot be read is said by `gateway status`
            place = _place(call, name)
            reader = compose.open_reader(call.env, place)
            ours = [run.id for run in reader.watched() if run.host == call.env.host and not run.pull]
            told.append((reader, {run for run in ours if _tell(call, place, run)}))
    patience = call.env.values.number("kill_grace_seconds") + _STOP_SECONDS
    _wait(lambda: not any(runs & {run.id for run in reader.watched()} for reader, runs in told if runs), patience)


def _tell(call: Call, place: boards.Place, run: int) -> bool:
    """Tell a shim to end its worker; whether there is one that heard it.

    A shim lets go of a peer that has said its last word once it has read it. Who left earlier might not be heard.
    """
    links = module("hermes_kanban.dispatcher.links")
    runtime = module("hermes_kanban.base.settings").runtime_folder(call.env.variables)
    path = module("hermes_kanban.lanes.launch").socket_path(runtime, place.database, run)
    link = links.connect(path, run)
    if link is None:
        return False
    try:
        if not link.say({"do": "stop", "reason": "gateway_stop"}):
            return False
        link.sock.shutdown(module("socket").SHUT_WR)
        return _wait(lambda: not link.receive()[1], _HEARD_SECONDS)
    except OSError:  # it has gone
        return False
    finally:
        link.close()


def _stop_text(document: dict[str, Any]) -> str:
    lines = [f"stopped gateway {pid}" for pid in document["stopped"]] or ["no gateway runs"]
    for run in document["workers"]:
        lines.append(f"runs on: {run['task_id']} run {run['id']} on board {run['board']}, pid {run['worker_pid']}")
    return "\n".join(lines)


def dispatch(call: Call) -> int:
    """Do one pass and print it; beside a running dispatcher let that one do it. A dry run only looks (D7, C139)."""
    if call["dry-run"]:
        report = _dry(call)
    else:
        _only_people(call, call.place)
        report = _pass(call)
    call.out.answer(report, lambda: _pass_text(report, dry=call["dry-run"]), (row["task"] for row in report["started"]))
    return 0


def _dry(call: Call) -> dict[str, Any]:
    passes = module("hermes_kanban.dispatcher.passes")
    host = module("hermes_kanban.dispatcher.host").LocalHost(call.env)
    found: PassReport = passes.dry(call.place.slug, call.reader(), host, call.env.values, call.now, call["max"])
    return found.as_dict()


def _pass(call: Call) -> dict[str, Any]:
    service = module("hermes_kanban.dispatcher.service")
    gateway = module("hermes_kanban.gateway")
    turns = module("hermes_kanban.dispatcher.turns").Turns()
    one = service.BoardService(call.env, call.place, SystemClock(), turns, gateway.silent)
    report: PassReport | None = one.once(call["max"])
    if report is not None:
        return report.as_dict()
    control = module("hermes_kanban.dispatcher.control")
    runtime = module("hermes_kanban.base.settings").runtime_folder(call.env.variables)
    path = control.control_path(runtime, call.place.database)
    answer: dict[str, Any] = control.ask(path, {"op": "pass", "most": call["max"]}, _PASS_SECONDS)
    if not module("hermes_kanban.dispatcher.report").is_report(answer):
        raise Retryable("the dispatcher of this board answers no report", hint="is it of another version? restart it")
    return answer


def _pass_text(report: dict[str, Any], *, dry: bool) -> str:
    verb = "would start" if dry else "started"
    lines = [f"{verb} {row['task']} for {safe(row['name'])} on lane {safe(row['lane'])}" for row in report["started"]]
    lines += [f"ended {row['task']} run {row['run']}: {row.get('outcome')}" for row in report["ended"]]
    lines += [f"released {task}" for task in report["released"]] + [
        f"fresh attempt {task}" for task in report["probed"]
    ]
    lines += [
        f"no lane answers for {safe(row['name'])}: {row['cards']} ready" for row in report["skipped_nonspawnable"]
    ]
    lines += [f"{safe(row['name'])} waits: {safe(row['text'])}" for row in report["waiting"]]
    lines += [f"{row['task']} waits: {safe(row['text'])}" for row in report["left"]]
    lines += [safe(report["full"])] if report["full"] else []
    lines += [f"error: {safe(text)}" for text in report["errors"]]
    return safe("\n".join(lines), lines=True) or "nothing to do"


HANDLERS = {
    "gateway start": gateway_start,
    "gateway status": gateway_status,
    "gateway stop": gateway_stop,
    "dispatch": dispatch,
    "daemon": daemon,
}
