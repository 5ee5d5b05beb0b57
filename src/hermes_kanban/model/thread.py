"""Comments, attachments, links: what hangs on a task."""

from __future__ import annotations

from hermes_kanban.base.record import Record, record


@record
class Comment(Record):
    """A fact for the next reader; never edited (P60)."""

    id: int
    task_id: str
    run_id: int | None
    author: str
    author_kind: str
    body: str
    created_at: int
    at_ms: int


@record
class Attachment(Record):
    """A file that belongs to a task (P61)."""

    id: int
    task_id: str
    run_id: int | None
    name: str
    size: int
    content_type: str
    sha256: str
    path: str
    added_by: str
    source_url: str | None
    created_at: int


@record
class StoredFile(Record):
    """The bytes of an attachment in their final place, before a row names them (P61)."""

    name: str
    size: int
    content_type: str
    sha256: str
    path: str
    source_url: str | None = None


@record
class Link(Record):
    """The child waits for the parent."""

    parent_id: str
    child_id: str
    created_at: int
