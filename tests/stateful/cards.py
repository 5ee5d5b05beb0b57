"""The people's half of the histories: making cards, changing what is written on them, links, files."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import multiple, precondition, rule

from hermes_kanban.model.task import TaskDraft
from tests.stateful.dispatcher import CARDS, YES, Dispatcher
from tests.world import FULL_REASON

MOST_CARDS = 6
PEOPLE = st.sampled_from(["ann", "ann", "ann", "ann", "stranger", "bot", "chief", "worker", "inside", "below", "child"])
NAMES = st.sampled_from([None, "bot", "rev", "other"])
RETRIES = st.sampled_from([None, None, None, 1, 3])
FIELDS = {"key": "idempotency_key", "at": "scheduled_at", "retries": "max_retries"}
EDITS = {
    "priority": st.integers(-2, 2),
    "reviewer": NAMES,
    "tenant": st.sampled_from([None, "blue", "green"]),
    "retries": RETRIES,
}


def written(draft: dict[str, Any]) -> dict[str, Any]:
    """Return the fields by the kernel's names."""
    return {FIELDS.get(name, name): value for name, value in draft.items()}


class Cards(Dispatcher):
    """What is on the board and what is written there."""

    def _draft(self, draft: dict[str, Any]) -> TaskDraft:
        return TaskDraft(title="card", reason=FULL_REASON.text, **written(draft))

    def _create(self, seat: str, draft: dict[str, Any]) -> str | None:
        board, who, _ = self.caller(seat, None)
        answer, told = self.both(
            lambda: board.create(self._draft(draft)),
            lambda got: self.model.create(who, draft, got.task.id if got else "none"),
        )
        if answer is None:
            return None
        assert (answer.task.id, answer.created) == told  # P51
        return str(answer.task.id) if answer.created else None

    @precondition(lambda self: len(self.model.cards) < MOST_CARDS)
    @rule(
        target=CARDS,
        seat=st.sampled_from(["ann", "ann", "stranger", "bridge", "worker", "chief", "child"]),
        parents=st.lists(CARDS, max_size=2, unique=True),
        status=st.sampled_from([None, None, None, "triage", "blocked"]),
        delay=st.sampled_from([None, None, -5, 50]),
        names=st.tuples(NAMES, NAMES),
        rest=st.tuples(
            st.sampled_from([None, "k1", "k2"]), st.sampled_from([None, "blue"]), st.integers(-1, 1), RETRIES
        ),
    )
    def create(
        self,
        seat: str,
        parents: list[str],
        status: str | None,
        delay: int | None,
        names: tuple[str | None, str | None],
        rest: tuple[str | None, str | None, int, int | None],
    ) -> Any:
        draft: dict[str, Any] = {"parents": tuple(parents), "key": rest[0], "tenant": rest[1], "priority": rest[2]}
        draft |= {"assignee": names[0], "reviewer": names[1], "status": status, "retries": rest[3]}
        if delay is not None and status is None:
            draft["at"] = self.model.now + delay
        made = self._create(seat, draft)
        return multiple(*([made] if made else []))

    @precondition(lambda self: len(self.model.cards) < MOST_CARDS - 1)
    @rule(
        target=CARDS,
        seat=st.sampled_from(["ann", "ann", "stranger", "bridge", "worker", "chief", "child"]),
        parent=CARDS,
        keys=st.lists(st.sampled_from([None, "k1", "k2"]), min_size=1, max_size=2),
        backwards=YES,
        dry_run=st.sampled_from([False, False, True]),
    )
    def apply(self, seat: str, parent: str, keys: list[str | None], backwards: bool, dry_run: bool) -> Any:
        """Make a chain of cards at once, listed from either end (P53)."""
        board, who, _ = self.caller(seat, None)
        drafts: list[dict[str, Any]] = [{"key": key, "parents": ()} for key in keys]
        drafts[0]["parents"] = (parent,)
        real = [
            self._draft(draft | {"name": f"n{place}", "parents": (f"n{place - 1}",) if place else (parent,)})
            for place, draft in enumerate(drafts)
        ]
        order = slice(None, None, -1 if backwards else 1)
        answer, told = self.both(
            lambda: board.apply(tuple(real[order]), dry_run=dry_run)[order],
            lambda got: self.model.apply(who, drafts, [c.task.id for c in got] if got else keys, dry_run=dry_run),
        )
        if answer is None:
            return multiple()
        assert [made.created for made in answer] == told
        return multiple(*(made.task.id for made in answer if made.created and not dry_run))

    @rule(seat=PEOPLE, card=CARDS, field=st.sampled_from([*EDITS, None]), data=st.data())
    def edit(self, seat: str, card: str, field: str | None, data: Any) -> None:
        board, who, _ = self.caller(seat, card)
        changes = {} if field is None else {field: data.draw(EDITS[field])}
        self.both(lambda: board.edit(card, written(changes)), lambda _: self.model.edit(who, card, changes))

    @rule(seat=PEOPLE, card=CARDS, name=NAMES)
    def assign(self, seat: str, card: str, name: str | None) -> None:
        board, who, _ = self.caller(seat, card)
        self.both(lambda: board.assign(card, name), lambda _: self.model.assign(who, card, name))

    @rule(seat=PEOPLE, parent=CARDS, child=CARDS)
    def link(self, seat: str, parent: str, child: str) -> None:
        board, who, _ = self.caller(seat, child)
        answer, told = self.both(lambda: board.link(parent, child), lambda _: self.model.link(who, parent, child))
        if answer is not None:
            assert answer.created == told
            assert set(answer.gated_by) == set(self.model.waits_for(self.model.cards[child]))

    @rule(seat=PEOPLE, child=CARDS, other=CARDS, real=YES)
    def unlink(self, seat: str, child: str, other: str, real: bool) -> None:
        parents = self.model.cards[child].parents
        parent = parents[0] if real and parents else other
        board, who, _ = self.caller(seat, child)
        self.both(lambda: board.unlink(parent, child), lambda _: self.model.unlink(who, parent, child))

    @rule(seat=st.sampled_from(["owner", "owner", "ann", "stranger", "late", "inside", "below", "child"]), card=CARDS)
    def attach(self, seat: str, card: str) -> None:
        card = self.at_work(seat, card)
        board, who, run = self.caller(seat, card)
        answer, _ = self.both(
            lambda: board.attach(card, ([b"what was found"],), name="found", **run),
            lambda got: self.model.attach(who, card, got.attachments[0].id if got else 0),
        )
        if answer is not None:
            assert len(self._kept()) == sum(len(one.files) for one in self.model.cards.values())

    @rule(seat=PEOPLE, card=CARDS, real=st.sampled_from([True, True, False]))
    def detach(self, seat: str, card: str, real: bool) -> None:
        board, who, _ = self.caller(seat, card)
        files = self.model.cards[card].files
        number = files[0] if real and files else 4711
        self.both(lambda: board.detach(card, number), lambda _: self.model.detach(who, card, number))
        assert len(self._kept()) == sum(len(one.files) for one in self.model.cards.values())  # none without its row

    def _kept(self) -> list[Any]:
        return [path for path in (self.folder / "attachments").rglob("*") if path.is_file()]
