"""Who may do what: the second table. The kernel asks it before every write, below every surface (P70)."""

from __future__ import annotations

from hermes_kanban.base.errors import Forbidden
from hermes_kanban.base.record import Record, record
from hermes_kanban.model import status as s

OWN = "own"  # only on the card that the actor's open run holds
ANY = "any"

_OWN_CARD = {
    "heartbeat": OWN,
    "complete": OWN,
    "block": OWN,
    "request-review": OWN,
    "request-changes": OWN,  # with a reviewer's claim: the transition itself asks for the role
    "attach": OWN,
}

BY_RUN = frozenset((*_OWN_CARD, "comment"))  # verbs through which a run acts on its card (P12)

_A = {s.ORCHESTRATOR: "an"}

RIGHTS: dict[str, dict[str, str]] = {
    s.WORKER: _OWN_CARD | {"comment": ANY},
    s.ORCHESTRATOR: _OWN_CARD
    | {name: ANY for name in ("comment", "create", "apply", "link", "unblock", "specify", "decompose")},
    s.BRIDGE: _OWN_CARD | {"comment": ANY, "claim": ANY, "create": ANY},
    s.DISPATCHER: {name: ANY for name in ("claim", "end-run", "release-due", "probe", "reclaim", "heartbeat")},
}


@record
class Actor(Record):
    """Who acts, decided by the kernel from facts.

    Args:
        kind: human, bridge, worker, orchestrator or dispatcher.
        name: the profile, the declared name, or the login name.
        task_id: the card whose run the actor is inside of, if any.
        interactive: a person's own terminal (such a caller stays a person, also with a claim).
        delegated: a child of a worker, which may only read (P71).
    """

    kind: str
    name: str
    task_id: str | None = None
    interactive: bool = False
    delegated: bool = False

    @property
    def label(self) -> str:
        """kind:name, as events keep it."""
        return f"{self.kind}:{self.name}"

    @property
    def is_person(self) -> bool:
        """Whether a person's own verbs are open to this actor."""
        return self.kind == s.HUMAN

    @property
    def may_always_decide(self) -> bool:
        """Whether this is a person at a terminal, who may also judge their own work (P30b)."""
        return self.kind == s.HUMAN and self.interactive


def require(actor: Actor, verb: str, task_id: str | None = None) -> None:
    """Check that the actor may use the verb (on this card).

    Raises:
        Forbidden: it may not; the hint says to block instead, never how to get round it.
    """
    if actor.delegated:
        raise Forbidden(
            f"a delegated child of a worker may only read: {verb} is refused",
            hint="let the dispatcher start the worker; its own process closes the card",
            verb=verb,
            actor=actor.label,
        )
    if actor.kind == s.HUMAN:
        return
    scope = RIGHTS[actor.kind].get(verb)
    if scope is None:
        raise Forbidden(
            f"{verb} is not for {_A.get(actor.kind, 'a')} {actor.kind}",
            hint="if you cannot go on without it, `block` your card and say what is needed",
            verb=verb,
            actor=actor.label,
        )
    if scope == OWN and actor.kind in (s.WORKER, s.ORCHESTRATOR) and task_id != actor.task_id:
        raise Forbidden(
            f"this {actor.kind} works on {actor.task_id or 'no card of this board'}: {verb} of {task_id} is refused",
            hint=f"you may comment on it: `hermes kanban comment {task_id} TEXT`",
            verb=verb,
            actor=actor.label,
            task_id=task_id,
        )
