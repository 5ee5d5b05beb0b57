"""Attachments: files that belong to a card, added all together or not at all (P61, D20).

The bytes are put into their final place first, outside of the write lock, and only then a row names them: what a
stop leaves in between is at most a file that nobody names. A refused verb takes its files away again.
"""

from __future__ import annotations

from contextlib import contextmanager

from hermes_kanban.base.errors import AttachmentNotFound, FileRefused, Refusal, StoreIo, Unexpected, Usage
from hermes_kanban.base.record import Record, record
from hermes_kanban.kernel import fence, runs
from hermes_kanban.kernel.apply import append_event
from hermes_kanban.model import status as s
from hermes_kanban.model.run import Run
from hermes_kanban.model.task import Task
from hermes_kanban.model.thread import Attachment, StoredFile
from hermes_kanban.store import rows

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from contextlib import AbstractContextManager
    from typing import Protocol, Self

    from hermes_kanban.kernel.context import Blobs, Context
    from hermes_kanban.kernel.reader import Ports

    Source = str | Iterable[bytes]

    class Opens(Protocol):
        """What opens the transaction of a verb on one card (`Board` does)."""

        def __call__(
            self, verb: str, task: str | None = None, run: int | None = None, *, durable: bool = True
        ) -> AbstractContextManager[tuple[Context, Task]]:
            """Return the transaction and the card in it."""


@record
class Wanted(Record):
    """What is to be attached. A file is a path, or its bytes in pieces; `name` goes with a single one."""

    files: tuple[Source, ...] = ()
    url: str | None = None
    name: str | None = None

    def check(self) -> None:
        """Refuse a call that says nothing, or that cannot be meant.

        Raises:
            Usage: no file and no URL; one name for several.
        """
        several = len(self.files) + (self.url is not None)
        if not several:
            raise Usage("attach needs a FILE or --url", hint="`attach ID FILE…`, or `attach ID --url URL`")
        if self.name is not None and several > 1:
            raise Usage("one name cannot be given to several files", hint="attach them one by one, or without --name")


@record
class Attached(Record):
    """A card, and the attachments that it got or lost."""

    task: Task
    attachments: tuple[Attachment, ...] = ()


class Keeping:
    """The files of one call: those that rows name stay, all others are removed at the end of the `with`."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self._named: frozenset[str] | None = None
        self.files: tuple[StoredFile, ...] = ()

    @property
    def blobs(self) -> Blobs:
        """Where the bytes go."""
        return _blobs(self._ports)

    def add(self, file: StoredFile) -> None:
        """Be responsible for one more file."""
        self.files += (file,)

    def name(self, rows_of: tuple[Attachment, ...]) -> None:
        """Note, as the last act of a transaction, which files its rows name."""
        self._named = frozenset(attachment.path for attachment in rows_of)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        refused = isinstance(error, Refusal) and not isinstance(error, StoreIo)
        if self._named is not None and error is not None and not refused:
            return  # a stop or a failing disk in the midst of the commit: the rows may be there, so the files stay
        kept = self._named if self._named is not None and error is None else frozenset[str]()
        for file in self.files:
            if file.path not in kept:
                self.blobs.discard(file.path)


def _blobs(ports: Ports) -> Blobs:
    if ports.blobs is None:
        raise Unexpected("this surface cannot keep files", hint="use the command line")
    return ports.blobs()


# --- attach and detach ------------------------------------------------------------------------------------------
def attach(verb: Opens, ports: Ports, task: str, wanted: Wanted, run: int | None) -> Attached:
    """Put files into place and name them on the card, all or none.

    Raises:
        Usage: nothing is named, or one name for several.
        ClaimLost: a worker or bridge whose run does not hold the card (P12).
        FileRefused, AttachmentTooLarge, UrlRefused, FetchFailed: one of them cannot be had.
    """
    wanted.check()
    with verb("attach", task, run, durable=False) as (ctx, card):
        _owner(ctx, card)  # who may not is told before anything is copied or fetched
    with Keeping(ports) as kept:
        for file in wanted.files:
            kept.add(_kept(kept.blobs, card.id, file, wanted.name))
        if wanted.url is not None:
            kept.add(kept.blobs.keep_url(card.id, wanted.url, wanted.name))
        with verb("attach", card.id, run) as (ctx, card):
            made = _add(ctx, card, kept.files)
            kept.name(made.attachments)
    return made


def _kept(blobs: Blobs, task_id: str, file: Source, name: str | None) -> StoredFile:
    if isinstance(file, str):
        return blobs.keep_file(task_id, file, name)
    return blobs.keep_chunks(task_id, file, name)


def _owner(ctx: Context, card: Task) -> Run | None:
    """Return the caller's own run. A person may attach anywhere: that disturbs no run, so nothing is overridden."""
    run, mine = fence.holder(ctx, card, "attach", override=True)
    return run if mine else None


def _add(ctx: Context, card: Task, files: tuple[StoredFile, ...]) -> Attached:
    run = _owner(ctx, card)
    if run:
        runs.touch(ctx, run, progress=True)  # P13, P44
    return Attached(card, record_files(ctx, card, files, run))


def record_files(ctx: Context, card: Task, files: tuple[StoredFile, ...], run: Run | None) -> tuple[Attachment, ...]:
    """Write the rows that name these files, each with its event."""
    return tuple(_record(ctx, card, file, run.id if run else None) for file in files)


def _record(ctx: Context, card: Task, file: StoredFile, run_id: int | None) -> Attachment:
    number = ctx.tx.insert(
        "attachments.add",
        task_id=card.id,
        run_id=run_id,
        file_name=file.name,
        size=file.size,
        content_type=file.content_type,
        digest=file.sha256,
        path=file.path,
        added_by=ctx.actor.label,
        source_url=file.source_url,
        created_at=ctx.tx.now,
    )
    payload = {"attachment": number, "name": file.name, "size": file.size, "sha256": file.sha256}
    if file.source_url is not None:
        payload["url"] = file.source_url
    append_event(ctx, "attached", card.id, payload, run_id=run_id)
    return _found(ctx, card, number)


def _found(ctx: Context, card: Task, number: int) -> Attachment:
    row = ctx.tx.one("attachments.by_id", id=number)
    found = rows.attachment(row) if row else None
    if found is None or found.task_id != card.id:
        raise AttachmentNotFound(
            f"{card.id} has no attachment {number}",
            hint=f"`hermes kanban attachments {card.id}` shows their numbers",
            task_id=card.id,
            attachment=number,
        )
    return found


def detach(verb: Opens, ports: Ports, task: str, number: int, warnings: list[str]) -> Attached:
    """Remove an attachment: first the row, after its commit the file (a stop in between leaves only the file).

    Raises:
        AttachmentNotFound: the card has none of this number.
    """
    blobs = _blobs(ports)
    with verb("attach-rm", task) as (ctx, card):
        found = _found(ctx, card, number)
        ctx.tx.run("attachments.remove", id=number)
        payload = {"attachment": number, "name": found.name, "sha256": found.sha256}
        append_event(ctx, "detached", card.id, payload)
    if not blobs.discard(found.path):
        warnings.append(f"the attachment is gone, its file could not be removed: {found.path}")
    return Attached(card, (found,))


# --- artifacts of a completion ----------------------------------------------------------------------------------
@contextmanager
def artifacts(
    verb: Opens, ports: Ports, task: str, paths: tuple[str, ...], *, run: int | None, override: bool
) -> Iterator[Keeping]:
    """Copy the files that a completion declares; they go again when it is refused (D20, C98, C103).

    Args:
        paths: relative to the workspace of the caller's run, without one to the current folder.

    Raises:
        ClaimLost: the caller's run does not hold the card.
        FileRefused, AttachmentTooLarge: one cannot be kept; the card stays open.
    """
    folders = _folders(verb, ports, task, run, override=override) if paths else None
    with Keeping(ports) as kept:
        if folders:
            for path in dict.fromkeys(paths):
                kept.add(_artifact(kept.blobs, folders, path))
        yield kept


def _artifact(blobs: Blobs, folders: tuple[str, str | None, str | None], path: str) -> StoredFile:
    task_id, base, inside = folders
    try:
        return blobs.keep_file(task_id, path, base=base, inside=inside)
    except FileRefused as error:
        error.hint = f"{error.hint}; {task_id} is still open: complete it again when the file is right"
        raise


def _folders(
    verb: Opens, ports: Ports, task: str, run: int | None, *, override: bool
) -> tuple[str, str | None, str | None] | None:
    """Return the card's id, where its artifacts' paths begin, and within what they must stay; None: nothing to copy."""
    with verb("complete", task, run, durable=False) as (ctx, card):
        if fence.repeated(ctx, card, "complete"):
            return None  # answered before (P12), perhaps by now without the files
        held, mine = fence.holder(ctx, card, "complete", override=override)
    own = held.workspace if held and mine else None
    if card.workspace_kind != s.SCRATCH:
        return card.id, own, None
    place = own or ports.workspaces.path_for(card.id, card.workspace_kind, card.workspace_path, card.branch_name)
    return card.id, own, place
