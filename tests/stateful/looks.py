"""The readers' half of the histories: what lists and queues say is what the model says of the same cards."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import rule

from hermes_kanban.kernel.query import Filter
from tests.conformance.machines import Machine
from tests.stateful.cards import Cards
from tests.stateful.dispatcher import CARDS
from tests.stateful.rules import Card
from tests.stateful.supervised import NAMES

STATES = ("triage", "todo", "scheduled", "ready", "running", "review", "blocked", "done", "archived")


class Looks(Cards):
    """Reads; nothing of them changes the board."""

    def _open(self) -> list[Card]:
        return [card for card in self.model.cards.values() if card.status != "archived"]

    @rule(name=st.sampled_from([*NAMES, "none"]), status=st.sampled_from(STATES), parent=CARDS)
    def lists(self, name: str, status: str, parent: str) -> None:
        def ids(wanted: Filter) -> list[str]:
            return [listed.task.id for listed in self.person.list(wanted).cards]

        def ordered(cards: list[Card]) -> list[str]:  # P16
            return [card.id for card in sorted(cards, key=lambda card: (-card.priority, card.seq))]

        theirs = None if name == "none" else name
        assert ids(Filter(assignee=name)) == ordered([c for c in self._open() if c.assignee == theirs])
        assert ids(Filter(parent=parent)) == ordered([c for c in self._open() if parent in c.parents])
        found = [c for c in self.model.cards.values() if c.status == status]
        lapsed = [c for c in self._open() if status == "ready" and self.model.lapsed(c)]
        assert ids(Filter(statuses=(status,))) == ordered(found + lapsed)  # P10

    @rule()
    def counts(self) -> None:
        counts = {column.status: column.count for column in self.person.columns()}
        assert {status: number for status, number in counts.items() if number} == {
            status: number for status in STATES[:-1] if (number := sum(card.status == status for card in self._open()))
        }
        ready = [card for card in self._open() if card.status == "ready"]
        waiting = {name: number for name, number, _ in self.person.waiting()}
        assert waiting == {
            name: sum((card.assignee or "") == name for card in ready) for name in {c.assignee or "" for c in ready}
        }

    @rule()
    def runs_that_go_on(self) -> None:
        board, runs = self.world.board(), self.model.runs.values()
        assert [run.id for run in board.watched()] == [r.id for r in runs if r.shim and r.process != "ended"]
        assert [run.id for run in board.pulled()] == [r.id for r in runs if r.pull and r.open]

    @rule()
    def what_comes_next(self) -> None:  # D1
        """What happens by itself next: a start time, the end of a rest, a fresh attempt."""
        model, board = self.model, self.world.board()
        times = [card.at for card in self._open() if card.status == "scheduled"]
        times += [model.rests_until(card) for card in self._open() if card.status in ("ready", "review")]
        times += [card.probe_at for card in self._open()]
        assert board.next_due() == min((at for at in times if at is not None and at > model.now), default=None)
        due = [card for card in self._open() if card.status == "scheduled" and (card.at or model.now + 1) <= model.now]
        probes = [card for card in self._open() if (card.probe_at or model.now + 1) <= model.now]
        assert board.anything_due() == bool(due or probes)

    @rule()
    def plan(self) -> None:
        found = self.person.plan(Machine(*NAMES))
        assert [planned.card.id for planned in found.starts] == self.model.planned()  # P16, C136, C140
