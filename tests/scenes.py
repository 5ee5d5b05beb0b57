"""Scenes: every writing verb of a board, and everything that its supervision writes, each where it does real work.

A scene brings a fresh board into a state, does one call on it, and says what must then be so. Whoever stops, starves
or breaks the board beneath the call (`tests/crashes`), or the code itself, asks this table: a verb without a scene
fails `test_every_verb_has_a_scene`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from hermes_kanban.base.errors import (
    ClaimLost,
    Forbidden,
    NotClaimable,
    NotFound,
    Refusal,
    StateRefusal,
    Unexpected,
    Usage,
    WorkspaceFailed,
)
from hermes_kanban.model import status as s
from hermes_kanban.model.claim import Caps
from hermes_kanban.model.exits import ExitRecord
from hermes_kanban.model.task import TaskDraft
from tests.crashes import situations as board
from tests.crashes.outcomes import (
    RUNNING,
    both,
    claimed_by,
    counted,
    family_went_on,
    has_files,
    has_lane,
    is_,
    keyed,
    lease_was_renewed,
    one_open_run,
    run_ended,
    titled,
    was_deferred,
)
from tests.crashes.situations import BYTES, HANDOFF, Facts
from tests.world import FULL_REASON, PROCESS, World


@dataclass(frozen=True)
class Scene:
    """One call on a prepared board.

    Args:
        name: unique; begins with the verb.
        verb: the method of `Board` or `Supervision`.
        prepare: brings a fresh board into the state; returns what the call needs to know.
        act: the call.
        done: fails unless what the call does is there, whole.
        again: how the same call may be refused when it was done before; () when it answers as the first time.
        commits: how many transactions of it change something (a claim reserves, then tells; P11).
        durable: an answer that somebody relies on, also after a power loss.
        words: the command line that does the same; None where there is none.
        env: more of that command's environment.
        refused: its answer is a refusal; a disk that fails may take the note of it, or be in its words.
    """

    name: str
    verb: str
    prepare: Callable[[World], Facts]
    act: Callable[[World, Facts], Any]
    done: Callable[[World, Facts], None]
    again: tuple[type[Refusal], ...] = ()
    commits: int = 1
    durable: bool = True
    words: Callable[[Facts], tuple[str, ...]] | None = None
    env: Callable[[Facts], dict[str, str]] = lambda _facts: {}
    refused: bool = False

    @property
    def has_words(self) -> bool:
        """Whether the command line can do it."""
        return self.words is not None

    def __str__(self) -> str:
        return self.name


# --- the calls --------------------------------------------------------------------------------------------------
def record(facts: Facts, **known: Any) -> ExitRecord:
    claim = facts.claim
    return ExitRecord(claim.run.id, claim.task.id, claim.fence.lock, **({"tail": ("last words",)} | known))


def refused_late(world: World, facts: Facts) -> None:
    """Complete with a fence that does not hold any more: refused, and the refusal is noted (P12)."""
    with pytest.raises(ClaimLost):
        world.worker(facts.claim).complete(facts.card.id, HANDOFF)


def refused_place(world: World, facts: Facts) -> None:
    with pytest.raises(WorkspaceFailed):
        world.script().claim(facts.card.id, ttl=60)


def refused_heartbeat(world: World, facts: Facts) -> None:
    with pytest.raises(ClaimLost):
        world.worker(facts.claim).heartbeat(facts.card.id)


def give_back(world: World, facts: Facts) -> None:
    world.script("bot", facts.claim).give_back(facts.claim, Usage("the ticket could not be written"))


GRAPH = (
    TaskDraft(title="the goal", name="goal", idempotency_key="goal", parents=("step",)),
    TaskDraft(title="a step", name="step", idempotency_key="step"),
)


def as_worker(facts: Facts) -> dict[str, str]:
    claim = facts.claim
    lock = claim.run.claim_lock
    return {
        "HERMES_KANBAN_TASK": claim.task.id,
        "HERMES_KANBAN_RUN_ID": str(claim.run.id),
        "HERMES_KANBAN_CLAIM_LOCK": lock,
        "HERMES_PROFILE": "bot",
    }


REFUSED_AGAIN = (StateRefusal, ClaimLost, Forbidden)


# --- the table --------------------------------------------------------------------------------------------------
VERBS = (
    Scene(
        "create",
        "create",
        board.empty,
        lambda w, f: w.person.create(TaskDraft(title="new", idempotency_key="key", body="what is to be done")),
        keyed("key"),
        words=lambda f: ("create", "new", "--idempotency-key", "key"),
    ),
    Scene(
        "create below a parent, held",
        "create",
        board.plain(),
        lambda w, f: w.person.create(TaskDraft(title="new", parents=(f.card.id,), status=s.BLOCKED, reason="why")),
        titled("new"),
    ),
    Scene(
        "apply",
        "apply",
        board.empty,
        lambda w, f: w.person.apply(GRAPH),
        keyed("goal", "step"),
        words=lambda f: ("apply", f.graph),
    ),
    Scene(
        "edit",
        "edit",
        board.plain(),
        lambda w, f: w.person.edit(f.card.id, {"title": "other", "body": "words", "priority": 5}),
        titled("other"),
        words=lambda f: ("edit", f.card.id, "--title", "other"),
    ),
    Scene(
        "assign",
        "assign",
        board.plain(),
        lambda w, f: w.person.assign(f.card.id, "bot"),
        counted("assigned", 2),
        words=lambda f: ("assign", f.card.id, "bot"),
    ),
    Scene(
        "link",
        "link",
        board.pair(linked=False),
        lambda w, f: w.person.link(f.card.id, f.child.id),
        is_(s.TODO, of="child"),
        words=lambda f: ("link", f.card.id, f.child.id),
    ),
    Scene(
        "unlink",
        "unlink",
        board.pair(linked=True),
        lambda w, f: w.person.unlink(f.card.id, f.child.id),
        is_(s.READY, of="child"),
        (NotFound,),
        words=lambda f: ("unlink", f.card.id, f.child.id),
    ),
    Scene(
        "archive",
        "archive",
        board.plain(),
        lambda w, f: w.person.archive(f.card.id),
        is_(s.ARCHIVED),
        REFUSED_AGAIN,
        words=lambda f: ("archive", f.card.id),
    ),
    Scene(
        "archive with its children",
        "archive",
        board.parent_of_open,
        lambda w, f: w.person.archive(f.card.id, "archive"),
        both(is_(s.ARCHIVED), is_(s.ARCHIVED, of="child"), is_(s.ARCHIVED, of="grandchild")),
        REFUSED_AGAIN,
    ),
    Scene(
        "archive and release its children",
        "archive",
        board.parent_of_open,
        lambda w, f: w.person.archive(f.card.id, "release"),
        both(is_(s.ARCHIVED), is_(s.READY, of="child"), is_(s.TODO, of="grandchild")),
        REFUSED_AGAIN,
    ),
    Scene(
        "archive over a running claim",
        "archive",
        board.claimed,
        lambda w, f: w.person.archive(f.card.id, override=True),
        both(is_(s.ARCHIVED), one_open_run),
        REFUSED_AGAIN,
    ),
    Scene(
        "unarchive",
        "unarchive",
        board.archived,
        lambda w, f: w.person.unarchive(f.card.id),
        is_(s.READY, "unarchived"),
        REFUSED_AGAIN,
        words=lambda f: ("unarchive", f.card.id),
    ),
    Scene(
        "claim",
        "claim",
        board.plain(),
        lambda w, f: w.script().claim(f.card.id, ttl=60),
        RUNNING,
        REFUSED_AGAIN,
        commits=2,
        words=lambda f: ("claim", f.card.id),
    ),
    Scene("claim the next", "claim", board.plain(), lambda w, f: w.script().claim(), RUNNING, REFUSED_AGAIN, commits=2),
    Scene(
        "claim in a folder",
        "claim",
        lambda w: board.plain(workspace_kind="dir", workspace_path=str(w.folder))(w),
        lambda w, f: w.script().claim(f.card.id, ttl=60),
        RUNNING,
        REFUSED_AGAIN,
        commits=2,
    ),
    Scene(
        "claim a lapsed one",
        "claim",
        board.lapsed,
        lambda w, f: w.script("other").claim(f.card.id, ttl=60),
        both(RUNNING, claimed_by("other")),
        REFUSED_AGAIN,
        commits=2,
    ),
    Scene(
        "claim in a place that is taken",
        "claim",
        board.taken_place,
        refused_place,
        both(is_(s.READY), one_open_run, counted("reclaimed", 2)),
        (NotClaimable,),
        commits=2,
        refused=True,
    ),
    Scene(
        "give_back",
        "give_back",
        board.claimed,
        give_back,
        both(is_(s.READY), one_open_run),
        (*REFUSED_AGAIN, Unexpected),
    ),
    Scene(
        "heartbeat",
        "heartbeat",
        board.idle_claim,
        lambda w, f: w.script("bot", f.claim).heartbeat(f.card.id, "half of it"),
        both(RUNNING, lease_was_renewed),
        durable=False,
        words=lambda f: ("heartbeat", f.card.id, "--note", "half of it"),
        env=as_worker,
    ),
    Scene(
        "heartbeat of a lost claim",
        "heartbeat",
        board.lost,
        refused_heartbeat,
        counted("refused"),
        durable=False,
        refused=True,
    ),
    Scene(
        "comment",
        "comment",
        board.claimed,
        lambda w, f: w.script("bot", f.claim).comment(f.card.id, "a fact"),
        counted("commented", 2),
        words=lambda f: ("comment", f.card.id, "a fact"),
    ),
    Scene(
        "attach",
        "attach",
        board.file_beside,
        lambda w, f: w.script("bot", f.claim).attach(f.card.id, (f.path, (BYTES, b""))),
        has_files("source.txt", "file"),
        words=lambda f: ("attach", f.card.id, f.path, f.other),
    ),
    Scene(
        "detach",
        "detach",
        board.with_file,
        lambda w, f: w.person.detach(f.card.id, f.attachment.id),
        has_files(),
        (NotFound,),
        words=lambda f: ("attach-rm", f.card.id, str(f.attachment.id)),
    ),
    Scene(
        "complete",
        "complete",
        board.family,
        lambda w, f: w.worker(f.claim).complete(f.card.id, HANDOFF),
        family_went_on,
        words=lambda f: ("complete", f.card.id, "--summary", HANDOFF.summary or ""),
        env=as_worker,
    ),
    Scene(
        "complete with an artifact",
        "complete",
        board.family,
        lambda w, f: w.worker(f.claim).complete(f.card.id, HANDOFF.evolve(artifacts=("report.txt",))),
        both(family_went_on, has_files("report.txt")),
        words=lambda f: ("complete", f.card.id, "--summary", HANDOFF.summary or "", "--artifact", "report.txt"),
        env=as_worker,
    ),
    Scene(
        "complete by hand",
        "complete",
        board.plain(),
        lambda w, f: w.person.complete(f.card.id, HANDOFF),
        both(is_(s.DONE, "completed"), one_open_run),
        REFUSED_AGAIN,
    ),
    Scene(
        "complete a lost claim", "complete", board.lost, refused_late, counted("refused"), durable=False, refused=True
    ),
    Scene(
        "request_review",
        "request_review",
        board.claimed,
        lambda w, f: w.worker(f.claim).request_review(f.card.id, HANDOFF, "rev"),
        both(is_(s.REVIEW, "review_requested"), one_open_run),
        words=lambda f: ("request-review", f.card.id, "--summary", "look", "--reviewer", "rev"),
        env=as_worker,
    ),
    Scene(
        "request_changes",
        "request_changes",
        board.under_review,
        lambda w, f: w.worker(f.claim, "rev").request_changes(f.card.id, "the second part is missing"),
        both(is_(s.READY), one_open_run, counted("changes_requested")),
        words=lambda f: ("request-changes", f.card.id, "the second part is missing"),
        env=lambda f: as_worker(f) | {"HERMES_PROFILE": "rev"},
    ),
    Scene(
        "block",
        "block",
        board.claimed,
        lambda w, f: w.worker(f.claim).block(f.card.id, FULL_REASON, s.NEEDS_INPUT),
        both(is_(s.BLOCKED, "blocked"), one_open_run),
        words=lambda f: ("block", f.card.id, FULL_REASON.text),
        env=as_worker,
    ),
    Scene(
        "block in a loop",
        "block",
        board.blocked_before,
        lambda w, f: w.worker(f.claim).block(f.card.id, FULL_REASON, s.NEEDS_INPUT),
        both(is_(s.TRIAGE, "block_loop_detected"), one_open_run),
    ),
    Scene(
        "unblock",
        "unblock",
        board.blocked,
        lambda w, f: w.person.unblock(f.card.id, "B: YAML"),
        is_(s.READY, "unblocked"),
        REFUSED_AGAIN,
        words=lambda f: ("unblock", f.card.id, "--answer", "B: YAML"),
    ),
    Scene(
        "promote",
        "promote",
        board.plain(status=s.TRIAGE),
        lambda w, f: w.person.promote(f.card.id),
        is_(s.READY, "promoted"),
        REFUSED_AGAIN,
        words=lambda f: ("promote", f.card.id),
    ),
    Scene(
        "schedule",
        "schedule",
        board.claimed,
        lambda w, f: w.person.schedule(f.card.id, None, "not now", override=True),
        both(is_(s.SCHEDULED), one_open_run),
        REFUSED_AGAIN,
        words=lambda f: ("schedule", f.card.id, "--reason", "not now", "--override"),
    ),
    Scene(
        "reclaim",
        "reclaim",
        board.claimed,
        lambda w, f: w.person.reclaim(f.card.id),
        both(is_(s.READY, "reclaimed"), one_open_run),
        REFUSED_AGAIN,
        words=lambda f: ("reclaim", f.card.id),
    ),
    Scene(
        "reopen",
        "reopen",
        board.closed,
        lambda w, f: w.person.reopen(f.card.id),
        both(is_(s.READY, "reopened"), is_(s.TODO, of="child")),
        REFUSED_AGAIN,
        words=lambda f: ("reopen", f.card.id),
    ),
)

SUPERVISED = (
    Scene(
        "claim_for_dispatch",
        "claim_for_dispatch",
        board.plain(),
        lambda w, f: w.board().claim_for_dispatch(f.card.id, ttl=60, lane="lane", name="bot", caps=Caps()),
        RUNNING,
        REFUSED_AGAIN,
    ),
    Scene(
        "keep",
        "keep",
        board.claimed,
        lambda w, f: w.board().keep(f.claim.run.id, "lane", "/log"),
        both(RUNNING, has_lane),
        durable=False,
    ),
    Scene(
        "started",
        "started",
        board.dispatched,
        lambda w, f: w.board().started(f.claim.run.id, f.claim.fence.lock, PROCESS),
        both(RUNNING, counted("spawned")),
    ),
    Scene(
        "spawn_failed",
        "spawn_failed",
        board.dispatched,
        lambda w, f: w.board().spawn_failed(f.claim.run, "no such program", "install it"),
        both(is_(s.READY), one_open_run, run_ended, counted("spawn_failed")),
    ),
    Scene(
        "hand_back",
        "hand_back",
        board.dispatched,
        lambda w, f: w.board().hand_back(f.claim.run),
        both(is_(s.READY), one_open_run, run_ended, counted("reclaimed")),
    ),
    Scene(
        "renew",
        "renew",
        board.idle,
        lambda w, f: w.board().renew(f.claim.run.id, f.claim.fence.lock, active=True),
        both(RUNNING, lease_was_renewed, counted("heartbeat")),
        durable=False,
    ),
    Scene(
        "extend",
        "extend",
        board.idle,
        lambda w, f: w.board().extend(f.claim.run.id),
        both(RUNNING, lease_was_renewed, counted("claim_extended")),
        durable=False,
    ),
    Scene(
        "defer",
        "defer",
        board.idle,
        lambda w, f: w.board().defer(f.claim.run.id, "it does not end"),
        both(RUNNING, was_deferred, counted("reclaim_deferred")),
        durable=False,
    ),
    Scene(
        "settle a failure",
        "settle",
        board.alive,
        lambda w, f: w.board().settle(f.claim.run.id, record(f, code=1)),
        both(is_(s.READY), one_open_run, run_ended, counted("failed")),
    ),
    Scene(
        "settle the last failure",
        "settle",
        board.failed_once,
        lambda w, f: w.board().settle(f.claim.run.id, record(f, signal=9)),
        both(is_(s.BLOCKED), one_open_run, run_ended, counted("gave_up")),
    ),
    Scene(
        "settle a rate limit",
        "settle",
        board.alive,
        lambda w, f: w.board().settle(f.claim.run.id, record(f, code=75)),
        both(is_(s.READY), one_open_run, run_ended, counted("rate_limited")),
    ),
    Scene(
        "settle what vanished",
        "settle",
        board.alive,
        lambda w, f: w.board().settle(f.claim.run.id, None),
        both(is_(s.READY), one_open_run, run_ended, counted("crashed")),
    ),
    Scene(
        "settle by policy",
        "settle",
        board.alive,
        lambda w, f: w.board().settle(f.claim.run.id, record(f, code=0, policy="complete")),
        both(is_(s.DONE), one_open_run, run_ended, counted("completed")),
    ),
    Scene(
        "never_came_alive",
        "never_came_alive",
        board.never_alive,
        lambda w, f: w.board().never_came_alive(f.claim.run.id),
        both(is_(s.READY), one_open_run, counted("spawn_failed")),
    ),
    Scene(
        "fell_silent",
        "fell_silent",
        board.silent,
        lambda w, f: w.board().fell_silent(f.claim.run.id),
        both(is_(s.READY), one_open_run),
    ),
    Scene(
        "prove_ended",
        "prove_ended",
        board.ended_by_owner,
        lambda w, f: w.board().prove_ended(f.claim.run.id),
        both(is_(s.DONE), run_ended),
    ),
    Scene(
        "release_due",
        "release_due",
        board.due,
        lambda w, f: w.board().release_due(),
        both(is_(s.READY, "due"), is_(s.READY, "due", of="later")),
    ),
    Scene("probe", "probe", board.tripped, lambda w, f: w.board().probe(), both(is_(s.READY), counted("unblocked"))),
    Scene("guard", "guard", board.guarded, lambda w, f: w.board().guard(f.left), counted("respawn_guarded")),
)

SCENES = VERBS + SUPERVISED
every_scene = pytest.mark.parametrize("scene", SCENES, ids=str)
