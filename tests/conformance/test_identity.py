"""Who is calling, decided from facts below every surface, and what each kind of caller may do (P12b, P70, P71)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hermes_kanban.base.errors import ClaimLost, Forbidden, Refusal
from hermes_kanban.kernel.board import Board
from hermes_kanban.kernel.caller import Caller, Identity, Ticket, identify
from hermes_kanban.kernel.finish import Handoff
from hermes_kanban.model import status as s
from hermes_kanban.model.actors import ANY, OWN, RIGHTS, Actor, require
from hermes_kanban.model.claim import Claim, Fence
from hermes_kanban.model.task import TaskDraft
from tests.world import FULL_REASON, SHIM, WORKER, World


def ticket(claim: Claim) -> Ticket:
    return Ticket(claim.task.id, claim.run.id, claim.run.claim_lock or "")


def who(world: World, card: str | None, named: int | None = None, /, **facts: Any) -> Identity:
    with world.store.read() as tx:
        return identify(tx, Caller(**({"name": "caller"} | facts)), card, named)


def label(world: World, card: str | None, named: int | None = None, /, **facts: Any) -> str:
    return who(world, card, named, **facts).actor.label


# --- every row of the precedence (P70) ---------------------------------------------------------------------------
ENVIRONMENTS: dict[str, dict[str, Any]] = {
    "at a terminal": {"interactive": True},
    "with a role": {"role": s.BRIDGE},
    "with another card": {"task": "t_00000000", "run": "99", "lock": "x"},
    "with an orchestrator's role": {"role": s.ORCHESTRATOR, "task": "t_00000000"},
    "with an exported run": {"run": "99", "lock": "x"},
}


@pytest.mark.parametrize("facts", ENVIRONMENTS.values(), ids=ENVIRONMENTS.keys())
def test_inside_a_shim_one_is_that_runs_worker_whatever_the_environment_says(  # P70
    world: World, facts: dict[str, Any]
) -> None:
    claim = world.alive()
    found = who(world, claim.task.id, inside_shim=True, shim_run=claim.run.id, shim=SHIM, **facts)
    assert (found.actor.label, found.actor.task_id) == ("worker:bot", claim.task.id)
    assert not found.actor.interactive
    assert found.fence == claim.fence


def test_a_run_that_orchestrates_makes_an_orchestrator(world: World) -> None:  # P70
    claim = world.alive(orchestrates=True)
    found = who(world, claim.task.id, inside_shim=True, shim_run=claim.run.id, shim=SHIM, role=s.WORKER)
    assert found.actor.label == "orchestrator:bot"


POSERS: dict[str, Any] = {
    "another pid": (SHIM[0] + 1, SHIM[1]),
    "the same pid, used again": (SHIM[0], "99"),
    "the worker itself": WORKER,
    "nobody": None,
}


@pytest.mark.parametrize("orchestrates", [False, True])
@pytest.mark.parametrize("shim", POSERS.values(), ids=POSERS.keys())
def test_who_only_calls_itself_the_run_s_shim_may_write_nothing(  # P70, C145
    world: World, shim: Any, orchestrates: bool
) -> None:
    claim = world.alive(orchestrates=orchestrates)
    free = world.card("free")
    found = who(world, claim.task.id, inside_shim=True, shim_run=claim.run.id, shim=shim)
    assert found.actor == Actor(s.WORKER, "caller")
    board = world.inside(claim, shim=shim)
    for act in (
        lambda: board.heartbeat(claim.task.id),
        lambda: board.complete(claim.task.id, Handoff("stolen")),
        lambda: board.complete(claim.task.id, Handoff("stolen"), run=claim.run.id),
        lambda: board.archive(claim.task.id),
        lambda: board.create(TaskDraft(title="x")),
        lambda: board.claim(free.id),
    ):
        with world.unchanged(Forbidden):
            act()
    board.comment(claim.task.id, "a fact like any other's")
    assert world.run(claim) == claim.run.evolve(**known_of(world, claim))
    world.inside(claim).complete(claim.task.id, Handoff("done"))
    world.verified()


def known_of(world: World, claim: Claim) -> dict[str, Any]:
    """Return what a run has once its shim is known, and what it still has not."""
    now = world.clock.now_ms() // 1000
    facts = {"shim_pid": SHIM[0], "shim_started": SHIM[1], "worker_pid": WORKER[0], "worker_started": WORKER[1]}
    facts |= {"process_state": s.ALIVE, "boot_id": "boot", "pid_namespace": "4026531836", "progressed": False}
    return facts | {"last_heartbeat_at": now, "claim_expires": now + claim.run.claim_ttl}


def test_before_its_shim_is_known_nobody_is_inside_of_a_run(world: World) -> None:  # P70, D11
    claim = world.dispatched()
    for shim in (SHIM, None):
        board = world.inside(claim, shim=shim)
        with world.unchanged(Forbidden):
            board.complete(claim.task.id, Handoff("stolen"))
    world.verified()


def test_inside_a_shim_of_another_board_nothing_may_be_written(world: World) -> None:  # P70
    _, claim = world.claimed()
    free = world.card("free")
    board = world.board("bot", inside_shim=True, shim_run=None, tickets=(ticket(claim),))
    for act in (
        lambda: board.complete(claim.task.id, Handoff("x")),
        lambda: board.create(TaskDraft(title="x")),
        lambda: board.archive(claim.task.id),
        lambda: board.claim(free.id),
    ):
        with world.unchanged(Forbidden):
            act()


def test_the_environments_task_makes_a_worker_or_orchestrator(world: World) -> None:  # P70
    _, claim = world.claimed()
    given = {"task": claim.task.id, "run": str(claim.run.id), "lock": claim.run.claim_lock}
    assert label(world, claim.task.id, **given) == "worker:caller"
    assert label(world, claim.task.id, interactive=True, **given) == "worker:caller"
    assert label(world, claim.task.id, role=s.ORCHESTRATOR, **given) == "orchestrator:caller"
    assert label(world, claim.task.id, role=s.BRIDGE, **given) == "worker:caller"
    assert who(world, claim.task.id, **given).fence == claim.fence
    assert label(world, None, **given) == "worker:caller"


@pytest.mark.parametrize("run", [None, "", "abc", "-1", "1.0", "٣", "9" * 30, "0"])
def test_an_unreadable_run_means_refuse(world: World, run: str | None) -> None:  # P70, C2
    _, claim = world.claimed()
    board = world.board("bot", interactive=False, task=claim.task.id, run=run, lock=claim.run.claim_lock)
    with world.unchanged(ClaimLost):
        board.complete(claim.task.id, Handoff("x"))
    world.verified()


def test_a_named_run_needs_its_ticket_or_lock(world: World) -> None:  # P12b
    _, claim = world.claimed()
    card, number = claim.task.id, claim.run.id
    assert who(world, card, number, tickets=(ticket(claim),)).fence == claim.fence
    assert who(world, card, number, lock=claim.run.claim_lock).fence == claim.fence
    assert label(world, card, number, tickets=(ticket(claim),)) == "bridge:caller"
    with pytest.raises(ClaimLost) as refusal:
        who(world, card, number)
    assert "HERMES_KANBAN_CLAIM_LOCK" in refusal.value.hint
    with pytest.raises(ClaimLost):
        who(world, card, number + 1, tickets=(ticket(claim),))


def test_an_exported_fence_counts_for_its_own_card_only(world: World) -> None:  # P12b
    _, claim = world.claimed()
    other = world.card("other")
    exported = {"run": str(claim.run.id), "lock": claim.run.claim_lock}
    found = who(world, claim.task.id, **exported)
    assert (found.actor.kind, found.fence, found.implicit) == (s.BRIDGE, claim.fence, False)
    assert who(world, other.id, **exported) == Identity(Actor(s.HUMAN, "caller"))
    assert who(world, claim.task.id, run="abc").fence == Fence(0, "")
    world.board("caller", interactive=False, **exported).complete(claim.task.id, Handoff("ok"))
    world.verified()


def test_a_tickets_owner_is_a_bridge_for_that_card_while_it_runs(world: World) -> None:  # P70, P12b
    board, claim = world.claimed(name="bot")
    other = world.card("other")
    mine = {"tickets": (ticket(claim),)}
    assert label(world, claim.task.id, **mine) == "bridge:bot"
    assert label(world, other.id, **mine) == "human:caller"
    assert label(world, None, **mine) == "human:caller"
    board.block(claim.task.id, FULL_REASON)
    assert label(world, claim.task.id, **mine) == "human:caller"
    with world.refuses(claim.task, ClaimLost, logged=True):
        board.complete(claim.task.id, Handoff("late"))
    assert board.unblock(claim.task.id, "B").status == s.READY
    assert board.archive(claim.task.id).status == s.ARCHIVED
    world.verified()


def test_a_person_at_a_terminal_stays_one_with_the_tickets_fence(world: World) -> None:  # P70
    _, claim = world.claimed()
    found = who(world, claim.task.id, tickets=(ticket(claim),), interactive=True)
    assert (found.actor.label, found.actor.may_always_decide) == ("human:caller", True)
    assert (found.fence, found.implicit) == (claim.fence, True)


def test_an_owner_that_lost_a_claim_must_name_its_run(world: World) -> None:  # P12b
    _, first = world.claimed(ttl=60)
    world.clock.advance(60)
    _, second = world.claimed(first.task, ttl=60)
    board = world.script("bot", first, second)
    with world.unchanged(ClaimLost) as refusal:
        board.heartbeat(first.task.id)
    assert f"--run {second.run.id}" in refusal.value.hint
    board.heartbeat(first.task.id, run=second.run.id)
    with world.refuses(first.task, ClaimLost, logged=True):
        board.heartbeat(first.task.id, run=first.run.id)
    board.complete(first.task.id, Handoff("ok"), run=second.run.id)
    world.verified()


def test_an_owner_that_closed_its_earlier_claim_need_not(world: World) -> None:  # P12b
    board, first = world.claimed()
    board.block(first.task.id, FULL_REASON)
    world.person.unblock(first.task.id)
    _, second = world.claimed(first.task)
    world.script("bot", first, second).complete(first.task.id, Handoff("ok"))
    world.verified()


@pytest.mark.parametrize(
    ("role", "kind"),
    [
        (s.BRIDGE, s.BRIDGE),
        (s.ORCHESTRATOR, s.ORCHESTRATOR),
        (s.WORKER, s.WORKER),
        (s.DISPATCHER, s.WORKER),
        (None, s.HUMAN),
        (s.HUMAN, s.HUMAN),
    ],
)
def test_a_declared_role_stands_last_and_never_gives_the_dispatchers(  # P70
    world: World, role: str | None, kind: str
) -> None:
    card = world.card()
    assert label(world, card.id, role=role) == f"{kind}:caller"
    assert label(world, card.id, role=role, interactive=True) == f"{kind}:caller"


# --- the table of rights: every kind of actor, every verb of the board (P70) ------------------------------------------
Act = Callable[[Board, str, str], object]
VERBS: dict[str, tuple[str, Act]] = {
    "create": ("create", lambda b, c, o: b.create(TaskDraft(title="new", idempotency_key="k"))),
    "apply": ("apply", lambda b, c, o: b.apply((TaskDraft(title="new", idempotency_key="k"),))),
    "claim": ("claim", lambda b, c, o: b.claim(o)),
    "heartbeat": ("heartbeat", lambda b, c, o: b.heartbeat(c)),
    "comment": ("comment", lambda b, c, o: b.comment(c, "a fact")),
    "attach": ("attach", lambda b, c, o: b.attach(c, ((b"bytes",),), name="file")),
    "detach": ("attach-rm", lambda b, c, o: b.detach(c, 1)),
    "complete": ("complete", lambda b, c, o: b.complete(c, Handoff("ok"))),
    "request_review": ("request-review", lambda b, c, o: b.request_review(c, Handoff("ok"))),
    "request_changes": ("request-changes", lambda b, c, o: b.request_changes(c, "again")),
    "block": ("block", lambda b, c, o: b.block(c, FULL_REASON)),
    "unblock": ("unblock", lambda b, c, o: b.unblock(c)),
    "promote": ("promote", lambda b, c, o: b.promote(c)),
    "schedule": ("schedule", lambda b, c, o: b.schedule(c)),
    "reopen": ("reopen", lambda b, c, o: b.reopen(c)),
    "assign": ("assign", lambda b, c, o: b.assign(c, "ann")),
    "edit": ("edit", lambda b, c, o: b.edit(c, {"priority": 3})),
    "archive": ("archive", lambda b, c, o: b.archive(c)),
    "unarchive": ("unarchive", lambda b, c, o: b.unarchive(c)),
    "reclaim": ("reclaim", lambda b, c, o: b.reclaim(c)),
    "link": ("link", lambda b, c, o: b.link(o, c)),
    "unlink": ("unlink", lambda b, c, o: b.unlink(o, c)),
}
GIVES_BACK = {"give_back"}  # the last step of a claim that failed, by the process that made it
KINDS = (s.HUMAN, s.BRIDGE, s.WORKER, s.ORCHESTRATOR)


def test_the_table_names_every_verb_of_the_board() -> None:  # P70
    public = {name for name in vars(Board) if not name.startswith("_")}
    assert public - GIVES_BACK == VERBS.keys()
    assert {verb for verb, _ in VERBS.values()} >= {v for kind in KINDS[1:] for v in RIGHTS[kind]} - {
        "specify",
        "decompose",
    }


def acting(world: World, kind: str) -> tuple[Board, str, str]:
    """Return a view of that kind that holds a card, that card, and a free one."""
    _, claim = world.claimed()
    views = {
        s.HUMAN: lambda: world.person,
        s.BRIDGE: lambda: world.script("bot", claim, role=s.BRIDGE),
        s.WORKER: lambda: world.worker(claim),
        s.ORCHESTRATOR: lambda: world.worker(claim, role=s.ORCHESTRATOR),
    }
    return views[kind](), claim.task.id, world.card("free").id


def forbidden(act: Act, board: Board, card: str, other: str) -> Forbidden | None:
    try:
        act(board, card, other)
    except Forbidden as refusal:
        return refusal if "verb" in refusal.fields else None
    except Refusal:
        return None
    return None


@pytest.mark.parametrize("name", VERBS)
@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_caller_may_what_the_table_says(world: World, kind: str, name: str) -> None:  # P70
    verb, act = VERBS[name]
    board, card, other = acting(world, kind)
    before = world.everything()
    refusal = forbidden(act, board, card, other)
    assert (refusal is None) == (kind == s.HUMAN or verb in RIGHTS[kind])
    if refusal:
        assert world.everything() == before
        assert "block" in refusal.hint
        assert refusal.exit_code == 6
    world.verified()


@pytest.mark.parametrize("name", [name for name, (verb, _) in VERBS.items() if RIGHTS[s.WORKER].get(verb) == OWN])
@pytest.mark.parametrize("kind", [s.WORKER, s.ORCHESTRATOR])
def test_a_worker_acts_on_its_own_card_only(world: World, kind: str, name: str) -> None:  # P70, C143
    board, _, other = acting(world, kind)
    for state in (s.READY, s.RUNNING):
        if state == s.RUNNING:
            world.script("other").claim(other)
        with world.unchanged(Forbidden) as refusal:
            VERBS[name][1](board, other, other)
        assert "comment" in refusal.value.hint
    assert board.comment(other, "but a word is welcome").comment.author_kind == kind
    world.verified()


@pytest.mark.parametrize("kind", s.ACTORS)
def test_the_rules_table_is_the_specifications(kind: str) -> None:  # P70
    own = {"heartbeat", "complete", "block", "request-review", "request-changes", "attach"}
    anywhere = {
        s.WORKER: {"comment"},
        s.BRIDGE: {"comment", "claim", "create"},
        s.ORCHESTRATOR: {"comment", "create", "apply", "link", "unblock", "specify", "decompose"},
    }
    if kind in anywhere:
        assert {verb for verb, scope in RIGHTS[kind].items() if scope == OWN} == own
        assert {verb for verb, scope in RIGHTS[kind].items() if scope == ANY} == anywhere[kind]
    for verb in ("archive", "delete", "assign", "reclaim", "dispatch", "gc", "repair"):
        if kind == s.HUMAN or verb in RIGHTS[kind]:
            require(Actor(kind, "x"), verb, "t_00000000")
            continue
        with pytest.raises(Forbidden):
            require(Actor(kind, "x"), verb, "t_00000000")


def test_every_actor_reads(world: World) -> None:  # P70
    for kind in KINDS:
        board, card, _ = acting(world, kind)
        assert board.show(card).task.id == card
        assert board.context(card)
        assert board.stats()["status"]


# --- delegated children (P71) ------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", VERBS)
def test_a_delegated_child_may_only_read(world: World, name: str) -> None:  # P71
    _, claim = world.claimed()
    other = world.card("free")
    board = world.worker(claim, delegated=True)
    with world.unchanged(Forbidden) as refusal:
        VERBS[name][1](board, claim.task.id, other.id)
    assert "dispatcher" in refusal.value.hint
    assert "HERMES" not in refusal.value.hint, "the hint must not say how to take the mark off"
    assert board.show(claim.task.id).task.status == s.RUNNING
    world.verified()


def test_the_mark_holds_inside_a_shim_too(world: World) -> None:  # P71
    claim = world.alive()
    board = world.inside(claim, delegated=True)
    with world.unchanged(Forbidden):
        board.heartbeat(claim.task.id)


# --- comments (P60) ------------------------------------------------------------------------------------------------
def test_a_worker_cannot_choose_another_author(world: World) -> None:  # P60
    _, claim = world.claimed()
    for board in (world.worker(claim), world.worker(claim, role=s.ORCHESTRATOR)):
        with world.unchanged(Forbidden):
            board.comment(claim.task.id, "I am somebody else", author="ann")
        assert board.comment(claim.task.id, "my own", author="bot").comment.author == "bot"
    world.verified()
