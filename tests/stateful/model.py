"""A small pure model of the protocol, written from its rules and sharing no code with the kernel.

Each verb either changes cards, links and runs, and returns what a caller would hear, or raises `Refused` with every
code that the rules allow for this call: they do not say which of two good reasons is named first. Time stands still
until `advance`. Starts in a day and workspaces are not modelled; runs under a shim are in `supervised`.
"""

from __future__ import annotations

from typing import Any

from tests.stateful.rules import Card, Kept, Questions, Refused, Run, Seat

HELD = ("triage", "blocked", "scheduled")
COMPLETABLE = ("running", "ready", "review", "blocked")
BY_OVERRIDE = ("todo", "triage", "scheduled")


class Model(Questions):
    """The board as the rules want it."""

    # --- changes that several verbs share ----------------------------------------------------------------------
    def _leave(self, card: Card, run: Run | None, by: str) -> None:
        """End the card's open run: by its owner's verb, or from outside, which starts its quarantine."""
        if card.run is not None:
            open_run = self.runs[card.run]
            open_run.by = by if run is not None else "override"
            if not open_run.pull and open_run.process != "ended":
                open_run.process = "closing"
                open_run.rests = open_run.until + self.limits.quarantine > self.now
            card.run = None

    def _left(self, run: Run | None, card: Card) -> None:
        if run is not None:
            run.left = card.status

    def _let_go(self, card: Card) -> tuple[str, ...]:  # P4
        moved = []
        for child in sorted(self.children(card.id), key=lambda c: c.seq):
            if child.status == "todo" and not self.waits_for(child):
                child.status = self.gate(child)
                moved.append(child.id)
        return tuple(moved)

    def _lapse(self, card: Card) -> None:
        assert card.run is not None
        run = self.runs[card.run]
        run.by, run.process, card.run = "lease", "ended", None
        self._lost(card, run)

    def _lost(self, card: Card, run: Run) -> None:  # P44
        card.lost_leases = 0 if run.progressed else card.lost_leases + 1
        if card.lost_leases >= self.limits.lost_leases:
            self._trip(card)
        else:
            card.status = self.gate(card)

    def _trip(self, card: Card, *, sticky: bool = False) -> None:  # P40, P27
        card.status, card.sticky = "blocked", sticky
        card.probe_at = None if sticky else self.now + self.limits.retry

    def _due(self, card: Card) -> None:
        if card.status == "scheduled" and card.at is not None and card.at <= self.now:
            card.at = None
            card.status = self.gate(card)

    # --- verbs ---------------------------------------------------------------------------------------------------
    def create(self, seat: Seat, draft: dict[str, Any], new_id: str) -> tuple[str, bool]:
        who = self.who(seat, None)
        if who.kind == "worker":
            raise Refused("forbidden")
        if who.kind == "bridge" and draft.get("key") is None:  # P51
            raise Refused("key_required")
        for known in self.cards.values():
            if draft.get("key") is not None and known.key == draft["key"] and known.status != "archived":
                return known.id, False
        parents = list(dict.fromkeys(draft.get("parents", ())))
        if any(self.cards[p].status == "archived" and not self.cards[p].was_done for p in parents):
            raise Refused("invalid_value")  # P6: it would wait for ever
        tenant = draft.get("tenant") or next((self.cards[p].tenant for p in parents), None)  # P52
        card = Card(new_id, len(self.cards) + 1, draft.get("status") or "", parents, draft.get("priority", 0), tenant)
        card.key, card.assignee, card.reviewer = draft.get("key"), draft.get("assignee"), draft.get("reviewer")
        at = draft.get("at")
        card.at = at if at is not None and at > self.now else None
        card.status = card.status or self.gate(card)
        self.cards[new_id] = card
        return new_id, True

    def link(self, seat: Seat, parent_id: str, child_id: str) -> bool:
        parent, child = self.cards[parent_id], self.cards[child_id]
        self._persons(seat, child)
        why = set()
        if parent_id == child_id or self._below(child_id, parent_id):
            why.add("cycle")
        if child.status == "running":
            why.add("child_running")
        if child.status in ("done", "archived"):
            why.add("wrong_state")
        if parent.status == "archived" and not parent.was_done:
            why.add("invalid_value")
        if why:
            raise Refused(*why)
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
        self._persons(seat, child)
        if parent_id not in child.parents:
            raise Refused("not_found")
        self._unlink(parent_id, child)

    def _unlink(self, parent_id: str, child: Card) -> None:
        child.parents.remove(parent_id)
        if child.status == "todo" and not self.waits_for(child):
            child.status = self.gate(child)

    def claim(self, seat: Seat, card_id: str, ttl: int, run_id: int, *, far: bool = False) -> Run:
        card = self.cards[card_id]
        if self.who(seat, None).kind == "worker":
            raise Refused("forbidden")
        with self.whole():
            self._due(card)
            if card.status == "running":
                if not self.may_take(card, far):
                    raise Refused("not_claimable")
                self._lapse(card)
                if card.status in ("blocked", "todo"):
                    raise Kept("not_claimable", "gated")
            if card.status not in ("ready", "review"):
                raise Refused("wrong_state", "gated") if card.status == "todo" else Refused("wrong_state")
            why = ({"gated"} if self.waits_for(card) else set()) | ({"not_claimable"} if self.resting(card) else set())
            if self._own_work(seat.name, seat.terminal, card):
                why.add("self_review")
            if why:
                raise Refused(*why)
            return self._opened(card, seat.name, ttl, run_id)

    def _own_work(self, name: str, terminal: bool, card: Card) -> bool:  # P30, P30b
        return card.phase == "review" and name in {card.implementer, *card.hands} and not terminal

    def _opened(self, card: Card, name: str, ttl: int, run_id: int) -> Run:
        role = "reviewer" if card.status == "review" else "implementer"
        run = self.runs[run_id] = Run(run_id, card.id, name, role, ttl, self.now + ttl, self.now)
        card.status, card.run, card.cool_until = "running", run_id, 0
        if role == "implementer":
            card.implementer = name
            card.hands.add(name)
        return run

    def claim_next(self, seat: Seat, ttl: int, run_id: int, *, review: bool, assignee: str | None) -> Run:
        if self.who(seat, None).kind == "worker":
            raise Refused("forbidden", "nothing_ready")  # a look comes before the question who asks
        self.release_due()
        role = "reviewer" if review else "implementer"
        while found := self._first(seat, role, assignee):
            if found.status == "running":
                self._lapse(found)
            if self.may_start(found):
                return self._opened(found, seat.name, ttl, run_id)
        raise Kept("nothing_ready")

    def _first(self, seat: Seat, role: str, assignee: str | None) -> Card | None:  # P16
        def fits(card: Card) -> bool:
            if card.status == "running":
                assert card.run is not None
                queue = self.runs[card.run].role
            else:
                queue = {"ready": "implementer", "review": "reviewer"}.get(card.status, "")
            whose = card.reviewer if role == "reviewer" else card.assignee
            wanted = assignee is None or whose == (None if assignee == "none" else assignee)
            return (
                queue == role
                and wanted
                and self.may_take(card, False)
                and not self._own_work(seat.name, seat.terminal, card)
            )

        return min(filter(fits, self.cards.values()), key=lambda c: (-c.priority, c.seq), default=None)

    def heartbeat(self, seat: Seat, card_id: str, note: str | None) -> int:
        card = self.cards[card_id]
        _, run, why = self._acting(seat, card, override=True)
        if why or run is None:
            raise Refused(*(why or {"claim_lost"}))
        run.until = self.now + run.ttl  # P13
        run.progressed |= note is not None
        return run.until

    def comment(self, seat: Seat, card_id: str) -> None:
        card = self.cards[card_id]
        who = self.who(seat, card_id)
        proof = seat.named is not None or (seat.env is not None and seat.env[1] == card_id)
        stale = proof and not self.holds(who, card)
        if who.unclear or stale:
            raise Refused("claim_lost")
        if self.holds(who, card):
            run = self.runs[who.shown or 0]
            run.until, run.progressed = self.now + run.ttl, True
        card.comments += 1

    def complete(self, seat: Seat, card_id: str, *, summary: bool, override: bool) -> tuple[bool, tuple[str, ...]]:
        card = self.cards[card_id]
        who, run, why = self._acting(seat, card, override=override)
        if self._repeats(who, card, "complete"):
            return True, ()
        extra = BY_OVERRIDE if override and who.kind == "human" else ()
        if not summary:
            why.add("invalid_value")  # P22
        if card.status not in COMPLETABLE + extra:
            why.add("wrong_state")
        if self._own_work(run.name if run else who.name, who.terminal, card):
            why.add("self_review")
        if why:
            raise Refused(*why)
        self._leave(card, run, "complete")
        card.status, card.at, card.probe_at, card.cool_until = "done", None, None, 0
        card.recurrences, card.last_kind = 0, None
        card.forgive()
        self._left(run, card)
        return False, self._let_go(card)

    def request_review(self, seat: Seat, card_id: str, reviewer: str | None, *, override: bool) -> bool:
        card = self.cards[card_id]
        who, run, why = self._acting(seat, card, override=override)
        if self._repeats(who, card, "request-review"):
            return True
        if card.status not in ("running", "ready"):
            why.add("wrong_state")
        if run is not None and run.role == "reviewer":
            why.add("forbidden")
        if why:
            raise Refused(*why)
        self._leave(card, run, "request-review")
        card.implementer = run.name if run else card.implementer or card.assignee or who.name
        wanted = reviewer or card.reviewer
        card.reviewer = None if wanted == card.implementer else wanted  # P30b
        card.status, card.phase = "review", "review"
        card.forgive()
        self._left(run, card)
        return False

    def request_changes(self, seat: Seat, card_id: str, *, override: bool) -> bool:
        card = self.cards[card_id]
        held = self.runs[card.run] if card.run is not None else None
        who, run, why = self._acting(seat, card, override=override)
        if self._repeats(who, card, "request-changes"):
            return True
        if card.status not in ("running", "review"):
            why.add("wrong_state")
        if held is not None and held.role != "reviewer":
            why |= {"forbidden", "wrong_state"}
        if why:
            raise Refused(*why)
        self._leave(card, run, "request-changes")
        card.phase, card.assignee, card.rounds = "work", card.implementer or card.assignee, card.rounds + 1
        card.status = "blocked" if card.rounds >= self.limits.rounds else self.gate(card)  # P31, P30b
        card.comments += 1
        card.hands.clear()  # a new round begins
        self._left(run, card)
        return False

    def block(self, seat: Seat, card_id: str, kind: str | None, *, full: bool, override: bool) -> bool:
        card = self.cards[card_id]
        who, run, why = self._acting(seat, card, override=override)
        if self._repeats(who, card, "block"):
            return True
        if card.status not in ("running", "ready", "review", "todo"):
            why.add("wrong_state")
        if not full and who.kind != "human":
            why.add("block_template")  # P25
        if why:
            raise Refused(*why)
        self._leave(card, run, "block")
        self._park(card, kind, by_agent=who.kind != "human")
        self._left(run, card)
        return False

    def _park(self, card: Card, kind: str | None, *, by_agent: bool) -> None:  # P24
        if kind == "dependency" and self.waits_for(card):
            card.status = "todo"
            return
        kind = "needs_input" if kind == "dependency" else kind
        card.status = "blocked"
        if kind is None or not by_agent:
            return
        if kind == card.last_kind:
            card.recurrences += 1
            if card.recurrences >= self.limits.recurrences:
                card.status = "triage"
        card.last_kind = kind

    def release(self, seat: Seat, card_id: str, verb: str) -> None:
        """`unblock` or `promote` (P3, P26)."""
        card = self.cards[card_id]
        self._persons(seat, card)
        why = set()
        if card.status not in (HELD[1:] if verb == "unblock" else HELD):
            why.add("wrong_state")
        elif verb == "promote" and self.waits_for(card):
            why.add("gated")
        if why:
            raise Refused(*why)
        card.at, card.probe_at, card.cool_until, card.sticky = None, None, 0, False
        if verb == "unblock":
            card.forgive()  # P40: a person's `unblock`, nothing else
        card.status = self.gate(card)

    def schedule(self, seat: Seat, card_id: str, at: int | None, *, override: bool) -> None:
        card = self.cards[card_id]
        self._persons(seat, card)
        _, run, why = self._acting(seat, card, override=override, persons=True)
        if card.status in ("scheduled", "done", "archived"):
            why.add("wrong_state")
        if at is not None and at <= self.now:
            why.add("invalid_value")
        if why:
            raise Refused(*why)
        self._leave(card, run, "schedule")
        card.status, card.at, card.probe_at = "scheduled", at, None

    def release_due(self) -> None:
        for card in sorted(self.cards.values(), key=lambda c: c.seq):
            self._due(card)

    def reopen(self, seat: Seat, card_id: str) -> None:
        card = self.cards[card_id]
        self._persons(seat, card)
        if card.status != "done":
            raise Refused("wrong_state")
        card.phase, card.rounds = "work", 0
        self._drop_dead(card)
        card.status = self.gate(card)
        for child in self.children(card_id):  # P6
            if child.status == "ready":
                child.status = "todo"

    def _drop_dead(self, card: Card) -> None:
        """A parent that was archived unfinished is never done: nobody waits for it (P6)."""
        dead = [p for p in card.parents if self.cards[p].status == "archived" and not self.cards[p].was_done]
        card.parents = [p for p in card.parents if p not in dead]

    def archive(self, seat: Seat, card_id: str, children: str | None, *, override: bool) -> None:
        self._persons(seat, self.cards[card_id])
        with self.whole():
            self._archive(seat, self.cards[card_id], children, override)

    def _archive(self, seat: Seat, card: Card, children: str | None, override: bool) -> None:
        _, run, why = self._acting(seat, card, override=override, persons=True)
        if card.status == "archived":
            why.add("wrong_state")
        waiting = [c for c in self.children(card.id) if c.status not in ("done", "archived")]
        if card.status not in ("done", "archived") and waiting and children is None:
            why.add("open_children")  # P6
        if why:
            raise Refused(*why)
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
        self._persons(seat, card)
        why = set() if card.status == "archived" else {"wrong_state"}
        rivals = [c for c in self.cards.values() if c.key == card.key and c.status != "archived" and c is not card]
        if card.key is not None and rivals:
            why |= {"wrong_state", "invalid_value"}  # P51: a key is unique among cards that are not archived
        if why:
            raise Refused(*why)
        if not card.was_done:
            self._drop_dead(card)
        card.status = "done" if card.was_done else self.gate(card)
        card.was_done = False

    def reclaim(self, seat: Seat, card_id: str) -> None:
        card = self.cards[card_id]
        self._persons(seat, card)
        if card.status != "running":
            raise Refused("wrong_state")
        self._leave(card, None, "override")
        card.status = self.gate(card)
