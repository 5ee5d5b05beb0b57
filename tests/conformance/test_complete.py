"""Complete: one step for card, run, event and children; what it keeps and what it refuses (P1, P21 to P23)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from hermes_kanban.base.errors import InvalidValue, UnknownCards, WrongState
from hermes_kanban.kernel.finish import Handoff
from hermes_kanban.model import status as s
from hermes_kanban.model.task import Task, TaskDraft
from tests.world import FULL_REASON, World

DONE = Handoff("done", {"changed_files": ["a.py"]})


# --- one transaction -------------------------------------------------------------------------------------------
class PowerFailure(Exception):
    """Stands for anything that ends a transaction in its middle."""


class FailingStore:
    """A store whose first write transaction dies after so many of its writes."""

    def __init__(self, store: Any, survives: int) -> None:
        self._store = store
        self.left = survives
        self.fired = False
        self._transactions = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    @contextmanager
    def write(self, *, durable: bool = True) -> Iterator[Any]:
        self._transactions += 1
        with self._store.write(durable=durable) as tx:
            yield _FailingTransaction(tx, self) if self._transactions == 1 else tx

    def spend(self) -> None:
        self.left -= 1
        if self.left < 0:
            self.fired = True
            raise PowerFailure


class _FailingTransaction:
    def __init__(self, tx: Any, store: FailingStore) -> None:
        self._tx = tx
        self._store = store

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._tx, name)
        if name not in ("run", "insert", "assign"):
            return found

        def write(*given: Any, **values: Any) -> Any:
            answer = found(*given, **values)
            self._store.spend()
            return answer

        return write


Act = Callable[[World], Any]


def _running(world: World) -> tuple[str, Any]:
    claim = world.claimed()[1]
    return claim.task.id, claim


def _with_child(world: World) -> tuple[str, Act]:
    card, claim = _running(world)
    world.card(parents=(card,))
    return card, lambda w: w.script("bot", claim).complete(card, DONE)


def _lapsed(world: World) -> tuple[str, Act]:
    card, _ = _running(world)
    world.clock.advance(60)
    return card, lambda w: w.script("other").claim(card)


def _judged(world: World) -> tuple[str, Act]:
    card = world.in_review().id
    claim = world.script("rev").claim(card)
    return card, lambda w: w.script("rev", claim).request_changes(card, "again")


def _as_owner(act: Callable[[Any, str], Any]) -> Callable[[World], tuple[str, Act]]:
    def scene(world: World) -> tuple[str, Act]:
        card, claim = _running(world)
        return card, lambda w: act(w.script("bot", claim), card)

    return scene


def _as_person(act: Callable[[Any, str], Any], **fields: Any) -> Callable[[World], tuple[str, Act]]:
    def scene(world: World) -> tuple[str, Act]:
        card = world.card(**fields).id
        return card, lambda w: act(w.person, card)

    return scene


SCENES: dict[str, Callable[[World], tuple[str, Act]]] = {
    "complete with a child": _with_child,
    "claim of a lapsed card": _lapsed,
    "request-changes": _judged,
    "claim": _as_person(lambda board, card: board.claim(card)),
    "heartbeat": _as_owner(lambda board, card: board.heartbeat(card, "on the way")),
    "comment": _as_owner(lambda board, card: board.comment(card, "a fact")),
    "block": _as_owner(lambda board, card: board.block(card, FULL_REASON, s.NEEDS_INPUT)),
    "request-review": _as_owner(lambda board, card: board.request_review(card, DONE, "rev")),
    "complete by hand": _as_person(lambda board, card: board.complete(card, DONE)),
    "unblock": _as_person(lambda board, card: board.unblock(card, "B"), status=s.BLOCKED, reason="why"),
    "promote": _as_person(lambda board, card: board.promote(card), status=s.TRIAGE),
    "schedule": _as_person(lambda board, card: board.schedule(card)),
    "archive": _as_person(lambda board, card: board.archive(card)),
}


@pytest.mark.parametrize("scene", SCENES)
def test_a_verb_that_dies_in_its_middle_changes_nothing(world: World, scene: str) -> None:  # P1
    card, act = SCENES[scene](world)
    before, whole = world.facts(card), world.store
    for survives in range(50):
        world.store = FailingStore(whole, survives)
        try:
            act(world)
        except PowerFailure:
            world.store = whole
            assert world.facts(card) == before
        else:
            break
    assert survives > 1, "a verb writes a row and an event"
    world.store = whole
    assert world.facts(card) != before
    world.verified()


def test_card_run_event_and_children_change_together(world: World) -> None:  # P1, P4
    board, claim = world.claimed()
    child = world.card(parents=(claim.task.id,))
    last = world.person.last_event_id()
    closed = board.complete(claim.task.id, DONE)
    assert (closed.task.status, closed.promoted) == (s.DONE, (child.id,))
    assert closed.run is not None
    assert (closed.run.outcome, world.status(child)) == (s.COMPLETED, s.READY)
    new = world.person.events(since=last)
    assert [(event.task_id, event.kind) for event in new] == [(claim.task.id, "completed"), (child.id, "promoted")]
    assert new[0].run_id == claim.run.id
    world.verified()


# --- what it keeps ---------------------------------------------------------------------------------------------
def test_the_run_keeps_summary_and_metadata_whole(world: World) -> None:  # P22
    board, claim = world.claimed()
    summary = f"{'x' * 500}\nsecond line"
    board.complete(claim.task.id, Handoff(summary, {"a": [1, {"b": None}]}, "the result"))
    (run,) = world.person.runs(claim.task.id)
    assert (run.summary, run.metadata) == (summary, {"a": [1, {"b": None}]})
    assert world.task(claim.task).result == "the result"
    assert world.person.events(task=claim.task.id)[-1].payload["summary"] == "x" * 400
    world.verified()


def test_a_result_alone_is_a_summary(world: World) -> None:  # P22
    board, claim = world.claimed()
    board.complete(claim.task.id, Handoff(result="42\nbecause"))
    assert world.person.runs(claim.task.id)[0].summary == "42\nbecause"
    assert world.person.events(task=claim.task.id)[-1].payload["summary"] == "42"


@pytest.mark.parametrize("who", ["owner", "person"])
@pytest.mark.parametrize("handoff", [Handoff(), Handoff(metadata={"a": 1}), Handoff(" \n"), Handoff("", None, " ")])
def test_complete_needs_a_summary_or_a_result(world: World, who: str, handoff: Handoff) -> None:  # P22
    card = world.card()
    board = world.claimed(card)[0] if who == "owner" else world.person
    with world.refuses(card, InvalidValue) as refusal:
        board.complete(card.id, handoff)
    assert refusal.value.exit_code == 7
    assert "summary" in refusal.value.message


def test_a_persons_bulk_complete_needs_no_summary(world: World) -> None:  # P22
    card = world.card()
    assert world.person.complete(card.id, Handoff(), bulk=True).task.status == s.DONE
    assert world.person.runs(card.id) == ()
    _, claim = world.claimed()
    with world.refuses(claim.task, InvalidValue):
        world.script("bot", claim).complete(claim.task.id, Handoff(), bulk=True)
    world.verified()


@pytest.mark.parametrize("metadata", ["text", 7, ["a"], True])
def test_metadata_is_a_json_object(world: World, metadata: Any) -> None:  # P22
    board, claim = world.claimed()
    with world.refuses(claim.task, InvalidValue, logged=False) as refusal:
        board.complete(claim.task.id, Handoff("done", metadata))
    assert refusal.value.fields["argument"] == "metadata"


def test_a_summary_by_hand_is_kept_on_a_run_of_no_length(world: World) -> None:  # P21
    card = world.card()
    world.person.complete(card.id, DONE)
    (run,) = world.person.runs(card.id)
    assert (run.role, run.outcome, run.summary, run.metadata) == (s.MANUAL, s.COMPLETED, DONE.summary, DONE.metadata)
    assert run.started_ms == run.ended_ms
    event = world.person.events(task=card.id)[-1]
    assert (event.kind, event.run_id) == ("completed", run.id)
    world.verified()


def test_a_manual_run_is_no_attempt(world: World) -> None:  # P21, C80
    board, claim = world.claimed()
    board.block(claim.task.id, FULL_REASON, s.NEEDS_INPUT)
    world.person.complete(claim.task.id, Handoff("I did it myself"))
    runs = world.person.runs(claim.task.id)
    assert [run.role for run in runs] == [s.IMPLEMENTER, s.MANUAL]
    assert world.task(claim.task).started_at == claim.run.started_at
    world.verified()


def test_a_block_by_hand_keeps_its_reason_on_a_manual_run(world: World) -> None:  # P21
    card = world.card()
    world.person.block(card.id, FULL_REASON)
    (run,) = world.person.runs(card.id)
    assert (run.role, run.outcome, run.end_reason) == (s.MANUAL, s.OUT_BLOCKED, FULL_REASON.text)
    assert world.person.events(task=card.id)[-1].run_id == run.id
    world.verified()


# --- from where ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("state", [s.TRIAGE, s.TODO, s.SCHEDULED])
def test_an_unstarted_card_is_completed_by_override_alone(world: World, state: str) -> None:  # P12c
    parent = world.card()
    fields: dict[str, dict[str, Any]] = {
        s.TRIAGE: {"status": s.TRIAGE},
        s.TODO: {"parents": (parent.id,)},
        s.SCHEDULED: {"scheduled_at": world.clock.now_ms() // 1000 + 60},
    }
    card = world.card(**fields[state])
    with world.refuses(card, WrongState) as refusal:
        world.person.complete(card.id, DONE)
    assert state in refusal.value.message
    assert world.person.complete(card.id, DONE, override=True).task.status == s.DONE
    assert world.person.events(task=card.id)[-1].payload["override"] is True
    world.verified()


@pytest.mark.parametrize("override", [False, True])
@pytest.mark.parametrize("state", [s.DONE, s.ARCHIVED])
def test_a_closed_card_is_not_completed_again(world: World, state: str, override: bool) -> None:  # P14
    card = world.card()
    world.person.complete(card.id, DONE)
    if state == s.ARCHIVED:
        world.person.archive(card.id)
    with world.refuses(card, WrongState):
        world.person.complete(card.id, DONE, override=override)


def test_a_success_clears_what_the_card_carried(world: World) -> None:  # P24, P26b, P40
    board, claim = world.claimed()
    board.block(claim.task.id, FULL_REASON, s.NEEDS_INPUT)
    world.person.unblock(claim.task.id, "B")
    board, claim = world.claimed(world.task(claim.task))
    board.block(claim.task.id, FULL_REASON, s.NEEDS_INPUT)
    assert world.task(claim.task).block_recurrences == 1
    card = world.person.complete(claim.task.id, DONE).task
    assert (card.block_recurrences, card.last_block_kind, card.answer_comment_id) == (0, None, None)
    assert (card.hold_reason, card.hold_release, card.block_kind, card.block_fields) == (None,) * 4
    world.verified()


# --- cards that the worker says it made ------------------------------------------------------------------------
def _made(world: World, board: Any, key: str) -> Task:
    made: Task = board.create(TaskDraft("follow-up", idempotency_key=key)).task
    return made


def test_a_card_that_does_not_exist_refuses_the_completion(world: World) -> None:  # P23, C148
    board, claim = world.claimed()
    with world.refuses(claim.task, UnknownCards) as refusal:
        board.complete(claim.task.id, Handoff("done", created=("t_00000000",)))
    assert refusal.value.fields["unknown"] == ["t_00000000"]
    assert world.status(claim.task) == s.RUNNING


def test_a_card_of_somebody_else_refuses_the_completion(world: World) -> None:  # P23
    board, claim = world.claimed()
    theirs = world.card("of ann")
    with world.refuses(claim.task, UnknownCards) as refusal:
        board.complete(claim.task.id, Handoff("done", created=(theirs.id,)))
    assert refusal.value.fields["unknown"] == [theirs.id]


def test_the_refusal_says_how_to_go_on_and_that_way_works(world: World) -> None:  # P23, C149
    board, claim = world.claimed()
    with world.refuses(claim.task, UnknownCards) as refusal:
        board.complete(claim.task.id, Handoff("done", created=("t_00000000",)))
    assert "without them" in refusal.value.hint
    assert board.complete(claim.task.id, Handoff("done")).task.status == s.DONE
    world.verified()


@pytest.mark.parametrize("role", [None, s.BRIDGE])
def test_a_claimer_may_name_the_cards_that_it_made(world: World, role: str | None) -> None:  # P23
    claim = world.script("bot", role=role).claim(world.card().id)
    board = world.script("bot", claim, role=role)
    mine = _made(world, board, "k1")
    assert board.complete(claim.task.id, Handoff("done", created=(mine.id,))).task.status == s.DONE
    world.verified()


def test_an_orchestrator_may_name_the_cards_of_its_run(world: World) -> None:  # P23, P52
    _, claim = world.claimed()
    board = world.worker(claim, role=s.ORCHESTRATOR)
    mine = _made(world, board, "k1")
    assert board.complete(claim.task.id, Handoff("done", created=(mine.id,))).task.status == s.DONE
