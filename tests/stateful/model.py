"""A small pure model of the protocol, written from its rules and sharing no code with the kernel.

Each verb either changes cards, links and runs, and returns what a caller would hear, or raises `Refused` with every
code that the rules allow for this call. Time stands still until `advance`. Starts in a day and workspaces are not
modelled. `rules` holds cards, runs, callers and questions, `attempts` the verbs of an attempt, this module those of
people, `supervised` runs under a shim.
"""

from __future__ import annotations

from typing import Any

from tests.stateful.attempts import Attempts
from tests.stateful.rules import Card, Seat, refuse

HELD = ("triage", "blocked", "scheduled")


class Model(Attempts):
    """The board as the rules want it."""

    # --- cards ---------------------------------------------------------------------------------------------------
    def create(self, seat: Seat, draft: dict[str, Any], new_id: str) -> tuple[str, bool]:
        who = self.may(seat, None, "create")
        refuse(key_required=who.kind == "bridge" and draft.get("key") is None)  # P51
        return self._create(draft, new_id)

    def apply(self, seat: Seat, drafts: list[dict[str, Any]], ids: list[str], *, dry_run: bool) -> list[bool]:  # P53
        """Make several cards, each behind the one before it, or none."""
        self.may(seat, None, "apply")
        before = dict(self.cards)
        made: list[tuple[str, bool]] = []
        with self.whole():
            for draft, new_id in zip(drafts, ids, strict=True):
                parents = [*draft["parents"], *(made[-1][0] for _ in made[-1:])]
                made.append(self._create({**draft, "parents": parents}, new_id))
        if dry_run:
            self.cards = before
        return [created for _, created in made]

    def _create(self, draft: dict[str, Any], new_id: str) -> tuple[str, bool]:
        for known in self.cards.values():
            if draft.get("key") is not None and known.key == draft["key"] and known.status != "archived":
                return known.id, False
        parents = list(dict.fromkeys(draft.get("parents", ())))
        refuse(invalid_value=any(map(self.dead, parents)))  # P6: it would wait for ever
        tenant = draft.get("tenant") or next((self.cards[p].tenant for p in parents), None)  # P52
        card = Card(new_id, len(self.cards) + 1, draft.get("status") or "", parents, draft.get("priority", 0), tenant)
        card.key, card.assignee, card.reviewer = draft.get("key"), draft.get("assignee"), draft.get("reviewer")
        at, card.retries = draft.get("at"), draft.get("retries")
        card.at = at if at is not None and at > self.now else None
        card.status = card.status or self.gate(card)
        self.cards[new_id] = card
        return new_id, True

    def edit(self, seat: Seat, card_id: str, changes: dict[str, Any]) -> None:
        card = self.cards[card_id]
        self.may(seat, card_id, "edit")
        refuse(wrong_state=card.status == "archived", invalid_value=not changes)
        for name, value in changes.items():
            setattr(card, name, value)

    def assign(self, seat: Seat, card_id: str, name: str | None) -> None:
        card = self.cards[card_id]
        self.may(seat, card_id, "assign")
        refuse(wrong_state=card.status in ("running", "done", "archived"))
        card.assignee = name

    def link(self, seat: Seat, parent_id: str, child_id: str) -> bool:
        child = self.cards[child_id]
        self.may(seat, child_id, "link")
        refuse(
            cycle=parent_id == child_id or self._below(child_id, parent_id),
            child_running=child.status == "running",
            wrong_state=child.status in ("done", "archived"),
            invalid_value=self.dead(parent_id),
        )
        if parent_id in child.parents:
            return False
        child.parents.append(parent_id)
        if child.status == "ready" and self.waits_for(child):  # P5
            child.status = "todo"
        return True

    def _below(self, start: str, goal: str) -> bool:
        return any(c.id == goal or self._below(c.id, goal) for c in self.children(start))

    def unlink(self, seat: Seat, parent_id: str, child_id: str) -> None:
        child = self.cards[child_id]
        self.may(seat, child_id, "unlink")
        refuse(not_found=parent_id not in child.parents)
        self._unlink(parent_id, child)

    def _unlink(self, parent_id: str, child: Card) -> None:
        child.parents.remove(parent_id)
        if child.status == "todo" and not self.waits_for(child):
            child.status = self.gate(child)

    # --- people --------------------------------------------------------------------------------------------------
    def release(self, seat: Seat, card_id: str, verb: str, answer: bool) -> None:
        """`unblock` (with an answer) or `promote` (P3, P26)."""
        card, unblocks = self.cards[card_id], verb == "unblock"
        self.may(seat, card_id, verb)
        held = card.status in (HELD[1:] if unblocks else HELD)
        refuse(wrong_state=not held, gated=held and not unblocks and self.waits_for(card))
        card.at, card.probe_at, card.cool_until, card.sticky = None, None, 0, False
        if unblocks:
            card.forgive()  # P40: a person's `unblock`, nothing else
            card.comments += answer
        card.status = self.gate(card)

    def schedule(self, seat: Seat, card_id: str, at: int | None, *, override: bool) -> None:
        card = self.cards[card_id]
        self.may(seat, card_id, "schedule")
        _, run, denied = self._acting(seat, card, override=override, persons=True)
        late = at is not None and at <= self.now
        refuse(claim_lost=denied, wrong_state=card.status in ("scheduled", "done", "archived"), invalid_value=late)
        self._leave(card, run, "schedule")
        card.status, card.at, card.probe_at = "scheduled", at, None

    def release_due(self) -> tuple[str, ...]:
        due = [c for c in self.cards.values() if c.status == "scheduled" and c.at is not None and c.at <= self.now]
        found = tuple(card.id for card in sorted(due, key=lambda c: (c.at, c.seq)))
        for card in due:
            self._due(card)
        return found

    def reopen(self, seat: Seat, card_id: str) -> None:
        card = self.cards[card_id]
        self.may(seat, card_id, "reopen")
        refuse(wrong_state=card.status != "done")
        card.phase, card.rounds = "work", 0
        card.parents = [p for p in card.parents if not self.dead(p)]  # P6: nobody waits for what will never be done
        card.status = self.gate(card)
        for child in self.children(card_id):  # P6
            if child.status == "ready":
                child.status = "todo"

    def archive(self, seat: Seat, card_id: str, children: str | None, *, override: bool) -> None:
        self.may(seat, card_id, "archive")
        with self.whole():
            self._archive(seat, self.cards[card_id], children, override)

    def _archive(self, seat: Seat, card: Card, children: str | None, override: bool) -> None:
        _, run, denied = self._acting(seat, card, override=override, persons=True)
        waiting = [c for c in self.children(card.id) if c.status not in ("done", "archived")]
        unsaid = card.status not in ("done", "archived") and bool(waiting) and children is None
        refuse(claim_lost=denied, wrong_state=card.status == "archived", open_children=unsaid)  # P6
        if card.status != "done":
            for child in waiting:
                if children == "release":
                    self._unlink(card.id, child)
                elif child.status != "archived":
                    self._archive(seat, child, children, override)
        self._leave(card, run, "archive")
        card.was_done, card.status, card.probe_at = card.status == "done", "archived", None

    def unarchive(self, seat: Seat, card_id: str) -> None:
        card = self.cards[card_id]
        self.may(seat, card_id, "unarchive")
        rivals = [c for c in self.cards.values() if c.key == card.key and c.status != "archived" and c is not card]
        taken = card.key is not None and bool(rivals)  # P51: a key is unique among cards that are not archived
        refuse(wrong_state=card.status != "archived" or taken, invalid_value=taken)
        if not card.was_done:
            card.parents = [p for p in card.parents if not self.dead(p)]
        card.status = "done" if card.was_done else self.gate(card)
        card.was_done = False

    def reclaim(self, seat: Seat, card_id: str) -> None:
        card = self.cards[card_id]
        self.may(seat, card_id, "reclaim")
        refuse(wrong_state=card.status != "running")
        self._leave(card, None, "override")
        card.status = self.gate(card)
