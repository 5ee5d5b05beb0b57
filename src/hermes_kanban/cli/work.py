"""The verbs of whoever works on a card: claim, heartbeat, comment, complete, reviews, block."""

from __future__ import annotations

from hermes_kanban import compose
from hermes_kanban.base.clock import SystemClock, span
from hermes_kanban.base.errors import NotClaimable, NothingReady, Refusal, Usage
from hermes_kanban.base.ids import looks_like_task
from hermes_kanban.base.lazy import late
from hermes_kanban.cli.call import Call, nobody
from hermes_kanban.model import status as s
from hermes_kanban.present import documents

TYPE_CHECKING = False
if not TYPE_CHECKING:
    unattended, finish, blocks = late(
        "hermes_kanban.dispatcher.unattended", "hermes_kanban.kernel.finish", "hermes_kanban.model.blocks"
    )
else:
    from typing import Any

    from hermes_kanban.dispatcher import unattended
    from hermes_kanban.kernel import finish
    from hermes_kanban.kernel.board import Board
    from hermes_kanban.kernel.finish import Closed
    from hermes_kanban.model import blocks
    from hermes_kanban.model.claim import Claim
    from hermes_kanban.model.task import Task

SWEEP_SECONDS = 10.0
EXPORTED = ("HERMES_KANBAN_RUN_ID", "HERMES_KANBAN_CLAIM_LOCK", "HERMES_KANBAN_WORKSPACE")


# --- claim ----------------------------------------------------------------------------------------------------
def claim(call: Call) -> int:
    """Take a card: stdout gets its workspace's path and nothing else (P11)."""
    task = call["id"]
    _check_claim(call)
    board = call.board(*([task] if task else []))
    made = _take(call, board)
    _leave_ticket(call, board, made)
    call.warn_of_board()
    if not call.out.json and not call.out.quiet and task is not None:
        call.out.note(f"{made.task.id} {made.task.status} run {made.run.id}")
    call.out.answer(documents.claimed(made), _claim_text(call, made), [made.task.id])
    return 0


def _take(call: Call, board: Board) -> Claim:
    """Claim; where nothing can be had, look whether a worker of a board without a dispatcher ended unseen (C46)."""
    clock = SystemClock()
    wait: float | None = call["wait"]
    deadline = clock.monotonic() + (wait or 0)
    while True:
        left = None if wait is None else min(SWEEP_SECONDS, max(0.0, deadline - clock.monotonic()))
        try:
            return board.claim(call["id"], ttl=call["ttl"], review=call["review"], assignee=call["assignee"], wait=left)
        except (NothingReady, NotClaimable):
            swept = unattended.sweep(call.env, call.place, board.watched())
            if not swept and (wait is None or clock.monotonic() >= deadline):
                raise


def _check_claim(call: Call) -> None:
    task, following = call["id"], call["next"]
    if (task is None) == (not following):
        raise call.usage("claim needs an ID or --next, and not both", hint="`claim ID`, or `claim --next`")
    if task is not None and (call["review"] or call["wait"] is not None):
        raise call.usage("--review and --wait go with --next", hint="`claim --next --wait 60`")


def _claim_text(call: Call, made: Claim) -> str:
    if call["export"]:
        values = (str(made.run.id), made.run.claim_lock or "", made.workspace)
        return "\n".join(f"export {name}={quoted(value)}" for name, value in zip(EXPORTED, values, strict=True))
    return f"{made.task.id} {made.workspace}" if call["next"] else made.workspace


def quoted(text: str) -> str:
    """Return the text as one word of a POSIX shell, whatever is in it."""
    return "'" + text.replace("'", "'\"'\"'") + "'"


def _leave_ticket(call: Call, board: Board, made: Claim) -> None:
    """Remember the claim for whoever made it (P12b).

    Where that cannot be done, it stands only if the answer itself holds run and lock (`--export`, `--json`); they are
    never told on stderr, since that ends in logs.

    Raises:
        Refusal: there is no ticket, and the claim has been given back.
    """
    try:
        compose.leave_ticket(call.place, made)
    except Refusal as error:
        if not (call["export"] or call.out.json):
            board.give_back(made, error)
            error.message = f"{made.task.id} was given back, since its claim cannot be remembered: {error.message}"
            error.hint = f"{error.hint}; `claim --export` needs no ticket".removeprefix("; ")
            raise
        names = " and ".join(EXPORTED[:2])
        call.out.warn(
            [
                f"{made.task.id} is yours, but it cannot be remembered: {error.message}; "
                f"later commands need run and lock of this answer in their environment: {names}"
            ]
        )


# --- while it lasts -------------------------------------------------------------------------------------------
def heartbeat(call: Call) -> int:
    """Renew the claim; comments that the run has not seen are told (P13, P62b)."""
    board = call.board(call["id"])
    run, notices = board.heartbeat(call["id"], call["note"], run=call["run"])
    compose.touch_ticket(call.place, run.task_id, run.id)
    call.warn_of_board()
    if not call.out.json:
        for one in notices:
            call.out.note(f"notice: comment {one.id} by {one.author_kind}:{one.author}: {one.body}")
    document = documents.beaten(run, notices)
    call.out.answer(document, f"{run.task_id} {document['status']}", [run.task_id])
    return 0


def comment(call: Call) -> int:
    """Add a fact; say when its reader will see it (P60, P62b)."""
    board = call.board(call["id"])
    added = board.comment(call["id"], call["text"], call["author"], run=call["run"])
    if added.comment.run_id is not None:
        compose.touch_ticket(call.place, added.task.id, added.comment.run_id)
    document = documents.plain(added.comment) | {"status": added.task.status, "delivery": added.delivery}
    note = _DELIVERIES.get(added.delivery)
    return call.changed(added.task, document, *([note] if note else []))


_DELIVERIES = {
    "next_heartbeat": "note: its worker hears of it with its next heartbeat",
    "next_attempt": "",
    "own_run": "",
}


# --- endings --------------------------------------------------------------------------------------------------
def complete(call: Call) -> int:
    """Finish one card, or a person's several (P22)."""
    tasks = call["id"]
    handoff = finish.Handoff(call["summary"], call["metadata"], call["result"], call["created"], call["artifact"])
    several = len(tasks) > 1
    if several and not (handoff.empty and not handoff.created and not handoff.artifacts and call["run"] is None):
        raise call.usage(
            "several cards cannot be completed with one summary, result, metadata, --created, --artifact or --run",
            hint="complete each by itself, or all without these",
        )
    board = call.board(*tasks)

    def act(task: str) -> tuple[Task, dict[str, Any]]:
        answer = board.complete(task, handoff, run=call["run"], override=call["override"], bulk=several)
        card, document = _ended(call, answer)
        return card, document | _kept(call, answer)

    return call.each(tasks, act)


def _kept(call: Call, answer: Closed) -> dict[str, Any]:
    """Say how long the files of a scratch workspace stay, at least (D20)."""
    card, run = answer.task, answer.run
    if card.workspace_kind != s.SCRATCH or card.completed_at is None or run is None or not run.workspace:
        return {}
    seconds = call.env.values.number("scratch_retention_seconds")
    if not call.out.json and not answer.already:
        call.out.note(f"note: the files in {run.workspace} stay for {span(seconds)} at least, artifacts for ever")
    return {"workspace_kept_until": card.completed_at + seconds}


def request_review(call: Call) -> int:
    """Hand the work over for a verdict (P30)."""
    board = call.board(call["id"])
    handoff = finish.Handoff(call["summary"], call["metadata"], call["result"])
    answer = board.request_review(
        call["id"], handoff, nobody(call["reviewer"]), run=call["run"], override=call["override"]
    )
    return call.changed(*_ended(call, answer))


def request_changes(call: Call) -> int:
    """Send reviewed work back (P31)."""
    board = call.board(call["id"])
    answer = board.request_changes(call["id"], call["text"], run=call["run"], override=call["override"])
    return call.changed(*_ended(call, answer))


def block(call: Call) -> int:
    """Stop, and say what is needed (P24, P25)."""
    reason = _reason(call)
    tasks = tuple(dict.fromkeys((call["id"], *call["ids"])))
    board = call.board(*tasks)

    def act(task: str) -> tuple[Task, dict[str, Any]]:
        return _ended(call, board.block(task, reason, call["kind"], run=call["run"], override=call["override"]))

    return call.each(tasks, act)


def _reason(call: Call) -> blocks.Reason:
    text, options = call["reason"], call["option"]
    parts = (call["cause"], call["what"], call["recommend"], call["next"])
    if text is None:
        return blocks.from_fields(call["cause"], call["what"], options, call["recommend"], call["next"])
    if options or any(part is not None for part in parts):
        raise call.usage("give the reason as one text or by its parts, not both", hint="leave one of them out")
    if call["ids"] and looks_like_task(text.split()[-1] if text.split() else ""):
        raise Usage("the reason ends with a card's id", hint="repeat --ids for each card, or put commas between them")
    return blocks.from_text(text)


def _ended(call: Call, answer: Closed) -> tuple[Task, dict[str, Any]]:
    if answer.run and answer.run.pull and not answer.already:
        compose.settle_ticket(call.place, answer.task.id, answer.run.id)
    if not call.out.json:
        if answer.already:
            call.out.note(f"note: {answer.task.id}: this had been done by this run already; nothing was changed")
        for file in answer.attachments:
            call.out.note(f"note: kept as attachment {file.id}: {file.path}")
        for child in answer.promoted:
            call.out.note(f"note: {child} may start now")
    return answer.task, documents.closed(answer)


HANDLERS = {
    "claim": claim,
    "heartbeat": heartbeat,
    "comment": comment,
    "complete": complete,
    "request-review": request_review,
    "request-changes": request_changes,
    "block": block,
}
