"""The first part of the model: what the verbs of an attempt do, from the claim to the closing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.stateful.rules import Card, Kept, Questions, Refused, Run, Seat, Who, refuse

COMPLETABLE = ("running", "ready", "review", "blocked")
BY_OVERRIDE = ("todo", "triage", "scheduled")


class Attempts(Questions):
    """Claims, signs of life, endings."""

    # --- changes that several verbs share ----------------------------------------------------------------------
    def _leave(self, card: Card, run: Run | None, by: str) -> None:
        """End the card's open run: by its owner's verb, or from outside, which starts its quarantine."""
        if card.run is None:
            return
        left, card.run = self.runs[card.run], None
        left.by = by if run is not None else "override"
        if left.process != "ended":
            over = not left.shim and (run is not None or left.until <= self.now)
            left.process = "ended" if over else "closing"
            left.rests = self._stays_until(left) > self.now

    def _let_go(self, card: Card) -> tuple[str, ...]:  # P4
        moved = []
        for child in sorted(self.children(card.id), key=lambda c: c.seq):
            if child.status == "todo" and not self.waits_for(child):
                child.status = self.gate(child)
                moved.append(child.id)
        return tuple(moved)

    def _lapse(self, card: Card) -> None:
        assert card.run is not None
        run, card.run = self.runs[card.run], None
        run.by, run.process = "lease", "closing" if run.shim and run.pull and run.process != "ended" else "ended"
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

    def _alive(self, run: Run | None, *, progress: bool) -> None:  # P13, P44
        if run is not None:
            run.until, run.progressed = self.now + run.ttl, run.progressed or progress

    # --- claims --------------------------------------------------------------------------------------------------
    def claim(self, seat: Seat, card_id: str, ttl: int, run_id: int, *, far: bool = False) -> Run:
        card = self.cards[card_id]
        self.may(seat, None, "claim")
        with self.whole():
            self._due(card)
            if card.status == "running":
                refuse(not_claimable=not self.may_take(card, far))
                self._lapse(card)
                if card.status in ("blocked", "todo"):
                    raise Kept("not_claimable", "gated")
            if card.status not in ("ready", "review"):
                refuse(wrong_state=True, gated=card.status == "todo")
            refuse(
                gated=self.waits_for(card),
                not_claimable=self.resting(card),
                self_review=self._own_work(seat.name, seat.terminal, card),
            )
            return self._opened(card, seat.name, ttl, run_id)

    def _own_work(self, name: str, terminal: bool, card: Card) -> bool:  # P30, P30b
        return card.phase == "review" and name in {card.implementer, *card.hands} and not terminal

    def _opened(self, card: Card, name: str, ttl: int, run_id: int) -> Run:
        role = "reviewer" if card.status == "review" else "implementer"
        run = self.runs[run_id] = Run(run_id, card.id, name, role, ttl, self.now + ttl, self.now)
        card.status, card.run, card.cool_until, card.guard = "running", run_id, 0, None
        if role == "implementer":
            card.implementer = name
            card.hands.add(name)
        return run

    def claim_next(self, seat: Seat, ttl: int, run_id: int, *, review: bool, assignee: str | None) -> Run:
        try:
            self.may(seat, None, "claim")
        except Refused as refused:  # a look comes before the question who asks
            raise Refused(*refused.codes, "nothing_ready") from None
        for card in self.cards.values():
            self._due(card)
        role = "reviewer" if review else "implementer"
        while found := self._first(seat, role, assignee):
            if found.status == "running":
                self._lapse(found)
            if self.may_start(found):
                return self._opened(found, seat.name, ttl, run_id)
        raise Kept("nothing_ready")

    def _first(self, seat: Seat, role: str, assignee: str | None) -> Card | None:  # P16
        def fits(card: Card) -> bool:
            queue = {"ready": "implementer", "review": "reviewer"}.get(card.status, "")
            if card.run is not None:
                queue = self.runs[card.run].role
            whose = card.reviewer if role == "reviewer" else card.assignee
            wanted = assignee is None or whose == (None if assignee == "none" else assignee)
            mine = self._own_work(seat.name, seat.terminal, card)
            return queue == role and wanted and self.may_take(card, False) and not mine

        return min(filter(fits, self.cards.values()), key=lambda c: (-c.priority, c.seq), default=None)

    def give_back(self, run_id: int) -> None:  # P11, P12b
        """The claimer could not be told of its claim."""
        run = self.runs[run_id]
        card = self.cards[run.card]
        if card.run == run_id:
            self._leave(card, run, "end")
            card.cool_until = self.now + self.limits.ticket
            card.status = self.gate(card)

    def heartbeat(self, seat: Seat, card_id: str, note: str | None) -> int:
        _, run, denied = self._acting(seat, self.cards[card_id], override=True)
        refuse(claim_lost=denied or run is None)
        assert run is not None
        self._alive(run, progress=note is not None)
        return run.until

    def comment(self, seat: Seat, card_id: str) -> None:
        card = self.cards[card_id]
        who = self.who(seat, card_id)
        refuse(forbidden=who.kind == "child")
        proof = seat.named is not None or (seat.env is not None and seat.env[1] == card_id)
        refuse(claim_lost=who.unclear or (proof and not self.holds(who, card)))
        self._alive(self.runs[who.shown or 0] if self.holds(who, card) else None, progress=True)
        card.comments += 1

    def attach(self, seat: Seat, card_id: str, number: int) -> None:  # P61
        _, run, denied = self._acting(seat, self.cards[card_id], override=True)
        refuse(claim_lost=denied)
        self._alive(run, progress=True)
        self.cards[card_id].files.append(number)

    def detach(self, seat: Seat, card_id: str, number: int) -> None:
        self.may(seat, card_id, "attach-rm")
        refuse(attachment_not_found=number not in self.cards[card_id].files)
        self.cards[card_id].files.remove(number)

    # --- endings -------------------------------------------------------------------------------------------------
    def _close(
        self,
        verb: str,
        seat: Seat,
        card_id: str,
        override: bool,
        judge: Callable[[Who, Run | None, Card], dict[str, Any]],
    ) -> tuple[Card, Who, Run | None] | None:
        """End the open run by a closing verb unless one of these reasons forbids it; None: it was answered before."""
        card = self.cards[card_id]
        who, run, denied = self._acting(seat, card, override=override)
        if self._repeats(who, card, verb):
            return None
        refuse(claim_lost=denied, **judge(who, run, card))
        self._leave(card, run, verb)
        return card, who, run

    def _left(self, run: Run | None, card: Card) -> bool:
        if run is not None:
            run.left = card.status
        return False

    def complete(
        self, seat: Seat, card_id: str, *, summary: bool, override: bool, bulk: bool = False, unknown: bool = False
    ) -> tuple[bool, tuple[str, ...]]:
        def judge(who: Who, run: Run | None, card: Card) -> dict[str, Any]:
            person = who.kind == "human"
            return {
                "invalid_value": not summary and not (bulk and person),  # P22
                "wrong_state": card.status not in COMPLETABLE + (BY_OVERRIDE if override and person else ()),
                "self_review": self._own_work(run.name if run else who.name, who.terminal, card),
                "unknown_cards": unknown,  # P23
            }

        if (closed := self._close("complete", seat, card_id, override, judge)) is None:
            return True, ()
        card, _, run = closed
        card.status, card.at, card.probe_at, card.cool_until = "done", None, None, 0
        card.recurrences, card.last_kind = 0, None
        card.forgive()
        self._left(run, card)
        return False, self._let_go(card)

    def request_review(self, seat: Seat, card_id: str, reviewer: str | None, *, override: bool) -> bool:
        def judge(_who: Who, run: Run | None, card: Card) -> dict[str, Any]:
            reviews = run is not None and run.role == "reviewer"
            return {"wrong_state": card.status not in ("running", "ready"), "forbidden": reviews}

        if (closed := self._close("request-review", seat, card_id, override, judge)) is None:
            return True
        card, who, run = closed
        card.implementer = run.name if run else card.implementer or card.assignee or who.name
        wanted = reviewer or card.reviewer
        card.reviewer = None if wanted == card.implementer else wanted  # P30b
        card.status = card.phase = "review"
        card.forgive()
        return self._left(run, card)

    def request_changes(self, seat: Seat, card_id: str, *, override: bool) -> bool:
        def judge(_who: Who, _run: Run | None, card: Card) -> dict[str, Any]:
            work = card.run is not None and self.runs[card.run].role != "reviewer"
            return {"wrong_state": work or card.status not in ("running", "review"), "forbidden": work}

        if (closed := self._close("request-changes", seat, card_id, override, judge)) is None:
            return True
        card, _, run = closed
        card.phase, card.assignee, card.rounds = "work", card.implementer or card.assignee, card.rounds + 1
        card.status = "blocked" if card.rounds >= self.limits.rounds else self.gate(card)  # P31, P30b
        card.comments += 1
        card.hands.clear()  # a new round begins
        return self._left(run, card)

    def block(self, seat: Seat, card_id: str, kind: str | None, *, full: bool, override: bool) -> bool:
        def judge(who: Who, _run: Run | None, card: Card) -> dict[str, Any]:
            works = card.status in ("running", "ready", "review", "todo")
            return {"wrong_state": not works, "block_template": not full and who.kind != "human"}  # P25

        if (closed := self._close("block", seat, card_id, override, judge)) is None:
            return True
        card, who, run = closed
        self._park(card, kind, by_agent=who.kind != "human")
        return self._left(run, card)

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
