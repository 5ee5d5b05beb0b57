"""What every verb gets: the transaction, the actor, the settings. Nothing else of the world reaches it."""

from __future__ import annotations

from hermes_kanban.base.record import Record, record
from hermes_kanban.model.actors import Actor
from hermes_kanban.model.claim import Fence

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Protocol

    from hermes_kanban.base.settings import Settings
    from hermes_kanban.model.thread import StoredFile
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

    class Blobs(Protocol):
        """The bytes of attachments (P61). Called outside of transactions; a refusal leaves nothing behind."""

        def keep_file(
            self,
            task_id: str,
            path: str,
            name: str | None = None,
            *,
            base: str | None = None,
            inside: str | None = None,
        ) -> StoredFile:
            """Copy a plain file (relative to `base`, else the current folder; within `inside` if that is given).

            Raises:
                FileRefused, AttachmentTooLarge: it cannot be an attachment.
                Retryable, StoreRefused: it cannot be written.
            """

        def keep_chunks(self, task_id: str, chunks: Iterable[bytes], name: str | None) -> StoredFile:
            """Write what comes; raises the same."""

        def keep_url(self, task_id: str, url: str, name: str | None = None) -> StoredFile:
            """Download.

            Raises:
                UrlRefused, FetchFailed, AttachmentTooLarge: nothing comes from there.
                Retryable, StoreRefused: it cannot be written.
            """

        def discard(self, path: str) -> bool:
            """Remove a file that no row names; False when it is not ours or cannot be removed."""


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
