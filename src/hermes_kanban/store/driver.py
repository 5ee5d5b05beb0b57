"""What the kernel needs of a store. Each engine implements these protocols; nothing else is engine-specific."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from typing import Any, Protocol

    Row = tuple[Any, ...]

    class Transaction(Protocol):
        """One transaction: a consistent view, and one instant (habit 8)."""

        now: int
        now_ms: int

        def one(self, name: str, **values: Any) -> Row | None:
            """Return the first row of a named statement."""

        def all(self, name: str, **values: Any) -> list[Row]:
            """Return all rows of a named statement."""

        def search(self, name: str, filters: tuple[str, ...], **values: Any) -> list[Row]:
            """Return all rows of a named statement under these named filters."""

        def run(self, name: str, **values: Any) -> int:
            """Execute a named statement; return how many rows it changed."""

        def insert(self, name: str, **values: Any) -> int:
            """Execute a named INSERT; return the new row's number."""

        def assign(self, name: str, changes: dict[str, Any], **values: Any) -> int:
            """Execute a named UPDATE that sets these columns; return how many rows it changed."""

    class ChangeFeed(Protocol):
        """Waits until somebody else may have committed."""

        def wait(self, seconds: float) -> bool:
            """Return True as soon as the store changed, False when the time is over."""

        def fileno(self) -> int:
            """Return what a selector may watch, -1 where there is nothing to watch."""

        def changed(self) -> bool:
            """Whether the store changed since this was asked last."""

        def monotonic(self) -> float:
            """Return the clock that the waits are measured by, in seconds."""

        def close(self) -> None:
            """Free what the feed holds."""

    class Store(Protocol):
        """A board's store."""

        location: str
        warnings: tuple[str, ...]

        def read(self) -> AbstractContextManager[Transaction]:
            """Begin a transaction that only reads; it sees one state of the board."""

        def write(self, *, durable: bool = True) -> AbstractContextManager[Transaction]:
            """Begin a transaction that writes; it commits at the end, or changes nothing.

            Args:
                durable: True when somebody relies on the answer (survives a power loss), False for
                    heartbeats and telemetry (survives the death of any process).

            Raises:
                Busy, DiskFull, StoreIo: safe to try again.
                StoreRefused: it is not.
            """

        def feed(self) -> ChangeFeed:
            """Return a feed of change notices."""

        def check_integrity(self) -> list[str]:
            """Return what the engine finds wrong with its own structures."""

        def close(self) -> None:
            """Close the store."""

        def schema_differences(self) -> list[str]:
            """Return what in the file's schema is not as the migrations made it, the write guards included (P72)."""
