"""What every verb gets: the transaction, the actor, the settings. Nothing else of the world reaches it."""

from __future__ import annotations

from hermes_kanban.base.record import Record, record
from hermes_kanban.model.actors import Actor
from hermes_kanban.model.claim import Fence

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    from hermes_kanban.base.settings import Settings
    from hermes_kanban.store.driver import Transaction

    class Names(Protocol):
        """Who can take work besides those who have claimed before (P50b)."""

        def lanes(self) -> tuple[str, ...]:
            """Return the names of lanes."""

        def profiles(self) -> tuple[str, ...]:
            """Return the names of profiles."""

    class Workspaces(Protocol):
        """Where a card is worked on. Called outside of transactions."""

        def check(self, kind: str, path: str | None, branch: str | None) -> None:
            """Refuse what could never be prepared (at create)."""

        def path_for(self, task_id: str, kind: str, path: str | None, branch: str | None) -> str:
            """Return the absolute path, without making anything."""

        def prepare(self, task_id: str, kind: str, path: str | None, branch: str | None) -> str:
            """Make the place and return its absolute path.

            Raises:
                WorkspaceFailed: it cannot be made.
            """


@record
class Context(Record):
    """One call of one verb."""

    tx: Transaction
    actor: Actor
    settings: Settings
    fence: Fence | None = None
    implicit: bool = False
    warnings: list[str] | None = None

    @property
    def now(self) -> int:
        """Epoch seconds, the same through the whole transaction."""
        return self.tx.now

    def warn(self, text: str) -> None:
        """Tell the caller something that does not stop the verb."""
        if self.warnings is not None and text not in self.warnings:
            self.warnings.append(text)
