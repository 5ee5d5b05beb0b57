"""The bytes of attachments on disk: one folder per card below the board's attachments root (P61).

A file is written under a temporary name, hashed and counted on the way, flushed, and then renamed to a name that
was free: two of the same name both stay. Files are 0600, folders 0700. Every step goes through the descriptor of
the card's folder, which must be a real folder directly below the root, so that no link and no name leads out.
Loaded only by verbs that are about files.
"""

from __future__ import annotations

import errno
import os
import stat

from hermes_kanban.base import ids
from hermes_kanban.base.errors import AttachmentTooLarge, FileRefused, InvalidValue, StoreRefused
from hermes_kanban.base.flush import flush_names
from hermes_kanban.base.lazy import module
from hermes_kanban.model.thread import StoredFile
from hermes_kanban.store.errors import translate_os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import AbstractContextManager
    from io import FileIO
    from typing import Protocol

    class Download(Protocol):
        """What comes from a URL."""

        name: str
        size: int | None
        content_type: str
        url: str
        chunks: Iterable[bytes]


CHUNK = 65_536
LONGEST_NAME = 200  # bytes; room is left for a number, and for the temporary names of other tools
LONGEST_ENDING = 20
LONGEST_TASK_ID = 64
NUMBERED = 100  # files of one name in one folder that get small numbers
NAMELESS = "file"
UNKNOWN_TYPE = "application/octet-stream"

_RESERVED = frozenset('/\\:<>"|?*')
_DEVICES = frozenset(("con", "prn", "aux", "nul", "conin$", "conout$")) | frozenset(
    f"{port}{digit}" for port in ("com", "lpt") for digit in "0123456789¹²³"
)
_PACKED = {"gzip": "application/gzip", "bzip2": "application/x-bzip2", "xz": "application/x-xz"}
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW  # never waits for a pipe's writer
_MAKE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Blobs:
    """The attachments of one board; see `kernel.context.Blobs`.

    Args:
        root: the folder that holds a folder for each card; made on demand.
        most: bytes that one attachment may have.
        fetch: opens a download.
    """

    def __init__(
        self, root: str, most: int, fetch: Callable[[str], AbstractContextManager[Download]] | None = None
    ) -> None:
        self.root = os.path.abspath(root)
        self._most = most
        self._fetch = fetch

    def keep_file(
        self, task_id: str, path: str, name: str | None = None, *, base: str | None = None, inside: str | None = None
    ) -> StoredFile:
        """Copy a plain file.

        Args:
            path: relative to `base`, None: to the current folder.
            name: another name than the file's own.
            inside: the folder in which it must lie once every link is followed.

        Raises:
            FileRefused: missing, unreadable, no plain file, out of bounds, or changed while it was copied.
            AttachmentTooLarge: it has more than the limit.
            DiskFull, StoreIo, StoreRefused: it cannot be written.
        """
        with _opened(path, base, inside) as handle:
            if os.fstat(handle.fileno()).st_size > self._most:
                raise self._too_large(path)
            return self._keep(task_id, _of_file(handle, path), path if name is None else name)

    def keep_chunks(self, task_id: str, chunks: Iterable[bytes], name: str | None) -> StoredFile:
        """Write bytes that come in pieces; raises as `keep_file` does."""
        return self._keep(task_id, _of_stream(chunks), name or "")

    def keep_url(self, task_id: str, url: str, name: str | None = None) -> StoredFile:
        """Download.

        Raises:
            UrlRefused, FetchFailed, AttachmentTooLarge: nothing comes from there.
            DiskFull, StoreIo, StoreRefused: it cannot be written.
        """
        if self._fetch is None:
            raise InvalidValue("nothing can be downloaded here", hint="give the file itself", argument="url")
        with self._fetch(url) as download:
            if download.size is not None and download.size > self._most:
                raise self._too_large(download.url)
            kept = self._keep(task_id, download.chunks, download.name if name is None else name)
        known = kept.content_type != UNKNOWN_TYPE
        said = kept.content_type if known else download.content_type or UNKNOWN_TYPE
        return kept.evolve(source_url=download.url, content_type=said)

    def discard(self, path: str) -> bool:
        """Remove a file; False when it lies elsewhere than directly in a card's folder, or cannot be removed."""
        folder, name = os.path.split(path)
        folder = os.path.realpath(folder)
        if not name or os.path.dirname(folder) != os.path.realpath(self.root):
            return False
        try:
            os.unlink(os.path.join(folder, name))
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True

    # --- writing ---------------------------------------------------------------------------------------------
    def _keep(self, task_id: str, chunks: Iterable[bytes], name: str) -> StoredFile:
        plain = safe_name(name)
        try:
            folder = self._open_folder(task_id)
            try:
                final, size, digest = self._written(folder, chunks, plain)
            finally:
                os.close(folder)
        except OSError as error:
            raise translate_os(error, os.path.join(self.root, task_id, plain)) from error
        return StoredFile(plain, size, content_type(plain), digest, os.path.join(self.root, task_id, final))

    def _open_folder(self, task_id: str) -> int:
        """Make the card's folder; return its descriptor."""
        if not ids.looks_like_task(task_id) or not len(ids.TASK_PREFIX) < len(task_id) <= LONGEST_TASK_ID:
            raise InvalidValue(f"not a task id: {ascii(task_id)[:80]}", hint="ids are as `list` prints them")
        path = os.path.join(self.root, task_id)
        make_private(path)
        flush_names(self.root)  # whoever made the folder may have died before its name was sure
        try:
            return os.open(path, _FOLDER)
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.ENOTDIR):
                raise
            raise StoreRefused(
                f"in the place of a card's attachments is something that is no folder: {path}",
                hint="look at it and move it away; nothing was changed",
                reason="foreign_folder",
            ) from error

    def _written(self, folder: int, chunks: Iterable[bytes], plain: str) -> tuple[str, int, str]:
        """Write, then rename; return the file's name, size and SHA-256. Whatever goes wrong, nothing stays."""
        made = [f".{ids.token()}.part"]
        try:
            size, digest = self._copied(folder, made[0], chunks, plain)
            made.append(_reserved(folder, plain))
            os.replace(*made, src_dir_fd=folder, dst_dir_fd=folder)
            os.fsync(folder)  # else a power loss may keep the row, which is flushed, and lose the name
        except BaseException:
            for name in made:
                _forget(folder, name)
            raise
        return made[1], size, digest

    def _copied(self, folder: int, temporary: str, chunks: Iterable[bytes], plain: str) -> tuple[int, str]:
        digest = module("hashlib").sha256()
        size = 0
        with os.fdopen(os.open(temporary, _MAKE, 0o600, dir_fd=folder), "wb") as handle:
            for chunk in chunks:
                size += len(chunk)
                if size > self._most:
                    raise self._too_large(plain)
                digest.update(chunk)
                handle.write(chunk)
            handle.flush()
            os.fsync(handle.fileno())
        return size, str(digest.hexdigest())

    def _too_large(self, what: str) -> AttachmentTooLarge:
        return AttachmentTooLarge(
            f"{what[:LONGEST_NAME]!r} has more than the {self._most} bytes that an attachment may have",
            hint="leave it where it lasts and name the place in a comment; "
            "kanban.attachment_limit_bytes in config.yaml is the limit",
            limit=self._most,
        )


def make_private(folder: str) -> None:
    """Make a folder and those above it that are missing, each 0700; their names survive a loss of power.

    Raises:
        OSError: one cannot be made.
    """
    if os.path.lexists(folder):
        return
    above = os.path.dirname(folder)
    make_private(above)
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        return  # somebody made it in the same instant; opening it tells whether it is a folder
    flush_names(above)


def _reserved(folder: int, plain: str) -> str:
    """Return a name that nobody has, by making an empty file of it, which the rename then replaces."""
    for number in range(1, NUMBERED + 2):
        final = _numbered(plain, str(number) if number <= NUMBERED else ids.token())
        try:
            os.close(os.open(final, _MAKE, 0o600, dir_fd=folder))
        except FileExistsError:
            continue
        return final
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))


def _numbered(plain: str, number: str) -> str:
    if number == "1":
        return plain
    stem, ending = _split(plain)
    return f"{stem}-{number}{ending}"


def _forget(folder: int, name: str) -> None:
    try:
        os.unlink(name, dir_fd=folder)
    except OSError:
        return  # the refusal under way names the first fault


# --- reading ----------------------------------------------------------------------------------------------------
def _opened(path: str, base: str | None, inside: str | None) -> FileIO:
    """Open a plain file to read.

    Raises:
        FileRefused: it is none, or not where it must be.
    """
    try:
        real = os.path.realpath(os.path.join(base or "", path), strict=True)
        if inside is not None and not real.startswith(os.path.realpath(inside).rstrip(os.sep) + os.sep):
            raise _refused(path, "it lies outside of the workspace", "put it into the workspace, or `attach` it")
        descriptor = os.open(real, _READ)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        where = f" (looked for in {base})" if base and not os.path.isabs(path) else ""
        words = f"{getattr(error, 'strerror', None) or error}{where}"
        raise _refused(path, words, "name a file that is there and can be read") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _refused(path, "it is no plain file", "pack a folder into one file first (tar, zip)")
    return os.fdopen(descriptor, "rb", buffering=0)


def _of_file(handle: FileIO, path: str) -> Iterator[bytes]:
    """Yield a file's bytes.

    Raises:
        FileRefused: it cannot be read, or it is not the same at the end: half a file would be kept (C104).
    """
    before = os.fstat(handle.fileno())
    size = 0
    try:
        while chunk := handle.read(CHUNK):
            size += len(chunk)
            yield chunk
    except OSError as error:
        raise _refused(path, str(error.strerror), "see whether its disk is well") from error
    after = os.fstat(handle.fileno())
    if size != after.st_size or (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        raise _refused(path, "it changed while it was copied", "attach it when nobody writes to it any more")


def _of_stream(chunks: Iterable[bytes]) -> Iterator[bytes]:
    try:
        yield from chunks
    except OSError as error:
        raise _refused("standard input", str(error.strerror), "give a file") from error


def _refused(path: str, why: str, hint: str) -> FileRefused:
    return FileRefused(f"{path[:LONGEST_NAME]!r} cannot be attached: {why}", hint=hint, argument="file")


# --- names and types --------------------------------------------------------------------------------------------
def safe_name(text: str) -> str:
    """Return a base name that is harmless on every system, in a listing and in a shell (P61).

    No separators, no control characters, no dots or dashes in front, no device name of Windows, at most 200 bytes;
    letters of all scripts stay.
    """
    base = text.rstrip("/\\").replace("\\", "/").rpartition("/")[2]
    shown = "".join("_" if char in _RESERVED or not char.isprintable() else char for char in base)
    name = _cut(shown.strip().lstrip(".- ").rstrip(". ")) or NAMELESS
    return f"_{name}" if name.partition(".")[0].rstrip().lower() in _DEVICES else name


def _cut(name: str) -> str:
    """Shorten the middle of a name, between characters; its ending stays."""
    if len(name.encode()) < LONGEST_NAME:  # one byte is left for the mark before a device's name
        return name
    stem, ending = _split(name)
    room = LONGEST_NAME - 1 - len(ending.encode())
    return stem.encode()[:room].decode("utf-8", "ignore").rstrip(". ") + ending


def _split(name: str) -> tuple[str, str]:
    stem, ending = os.path.splitext(name)
    return (stem, ending) if len(ending.encode()) <= LONGEST_ENDING else (name, "")


def content_type(name: str) -> str:
    """Return the type that a name's ending stands for."""
    kind, packing = module("mimetypes").guess_type(name)
    return _PACKED.get(packing, UNKNOWN_TYPE) if packing else kind or UNKNOWN_TYPE
