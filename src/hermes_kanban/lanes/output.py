"""What a worker prints: cut into lines, freed of secrets, kept in the log; and what can be read off it (D10, D13).

Nothing is written before it went through the redactor, and no fault of the disk ever stops the worker: what cannot
be written is counted and dropped, while its last lines are still remembered.
"""

from __future__ import annotations

import os
import re
import stat
from collections import deque

from hermes_kanban.model.secrets import Redactor, redact

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

LONGEST_LINE = 65_536
KEY_MARK = b"PRIVATE KEY"  # from the first one on, lines are looked at one by one: a block has many
NEWS_KEPT = 64  # different lines: a loop that repeats a few of them is no progress (C32)
TAIL_LINES, TAIL_BYTES, TAIL_LINE = 20, 2000, 500
MOST_PENDING_TAIL = 4096  # bytes of a line that may matter for the tail and for what is news
MOST_RETRY_AFTER = 86_400
DIGITS = b"0123456789"
RETRY_AFTER = re.compile(rb"\[kanban-retry-after\] ([0-9]{1,5})\s*")
END_OF_LINE = re.compile(rb"\n|\r\n|\r(?!\Z)")  # a carriage return may have its line feed in the next piece
ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])")
CONTROLS = {code: " " for code in (*range(32), *range(127, 160), *range(0x2028, 0x202F), *range(0x2066, 0x206A))}


class Log:
    """The log of a task: appended to, put aside as `.1` when it grows too long, never a link or a pipe.

    Args:
        path: where it is; 0600.
        limit: bytes, 0 for none.
    """

    def __init__(self, path: str, limit: int) -> None:
        self._path, self._limit = path, limit
        self._descriptor: int | None = None
        self._size = 0
        self._dropped = 0
        self._whole = True  # what was written last ended a line

    def write(self, data: bytes) -> None:
        """Append lines, or count them as dropped."""
        try:
            self._make_room(len(data))
        except OSError:
            self._dropped += len(data)
            return
        gap, self._dropped = self._dropped, 0
        if gap and not self._append(self._mark(f"[kanban-log-gap] {gap} bytes could not be written")):
            self._dropped = gap + len(data)
            return
        self._append(data)

    def mark(self, text: str) -> None:
        """Append a line of our own."""
        self.write(self._mark(text))

    def _mark(self, text: str) -> bytes:
        return (b"" if self._whole else b"\n") + text.encode() + b"\n"

    def close(self) -> None:
        """Let go of the file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _make_room(self, size: int) -> None:
        if self._descriptor is not None and not os.fstat(self._descriptor).st_nlink:
            self.close()  # somebody has removed it
        if self._descriptor is None:
            self._open()
        if self._limit and self._size and self._size + size > self._limit:
            self.close()
            self._put_aside()
            self._open()

    def _put_aside(self) -> None:
        try:
            os.rename(self._path, f"{self._path}.1")
        except FileNotFoundError:
            return  # somebody has removed it

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(self._path, flags, 0o600)
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            os.close(descriptor)
            raise OSError(f"{self._path} is no file")
        self._descriptor, self._size, self._whole = descriptor, found.st_size, True

    def _append(self, data: bytes) -> bool:
        """Append as much as the disk takes and count the rest as dropped; whether all of it was taken."""
        assert self._descriptor is not None
        try:
            while data:
                written = os.write(self._descriptor, data)
                self._size += written
                self._whole = data[written - 1 : written] == b"\n"
                data = data[written:]
        except OSError:
            self._dropped += len(data)
        return not data


class Output:
    """The stream of a worker's output, on its way into the log.

    Attributes:
        total: bytes that were printed.
        news_at: when something new was said last, in the caller's seconds (C32).
        retry_after: seconds after which the provider may be asked again, as the worker said last.
    """

    def __init__(self, log: Log, now: float) -> None:
        self.log = log
        self.total = 0
        self.news_at = now
        self.retry_after: int | None = None
        self._rest = b""
        self._redactor = Redactor()
        self._keys = False
        self._said: dict[bytes, None] = {}
        self._last: deque[bytes] = deque(maxlen=3 * TAIL_LINES)  # some of them show nothing

    def feed(self, data: bytes, now: float) -> None:
        """Take a piece of output as it came; a line that is not whole yet waits for its end."""
        self.total += len(data)
        *lines, self._rest = _lines(self._rest + data)
        self._take(lines, now)

    def end(self, now: float) -> None:
        """Take what is left: there is no more."""
        rest, self._rest = self._rest, b""
        self._take([rest] if rest else [], now)
        self._redactor = Redactor()

    def tail(self) -> tuple[str, ...]:
        """Return the last lines, for people: redacted, without escape codes, at most 20 and 2000 bytes in all."""
        kept: list[str] = []
        left = TAIL_BYTES
        for line in filter(None, map(plain, reversed(self._last))):
            left -= len(line.encode())
            if left < 0 or len(kept) == TAIL_LINES:
                break
            kept.append(line)
        return tuple(reversed(kept))

    def _take(self, lines: list[bytes], now: float) -> None:
        clean = self._cleaned(lines)
        for line in clean:
            self._read_off(line[:MOST_PENDING_TAIL], now)
        if data := b"".join(clean):
            self.log.write(data)

    def _cleaned(self, lines: list[bytes]) -> list[bytes]:
        """Return the lines without secrets; most of the time there are none, and one look at all of them shows it."""
        together = b"".join(lines)
        self._keys = self._keys or KEY_MARK in together
        if not self._keys and redact(together) == together:
            return lines
        return [self._redactor.line(line) for line in lines]

    def _read_off(self, line: bytes, now: float) -> None:
        """Note what a clean line tells."""
        if not line.strip():
            return
        said = line.translate(None, DIGITS)
        if said not in self._said:
            self.news_at = now
        self._said.pop(said, None)
        self._said[said] = None  # the one that was said last stands last
        if len(self._said) > NEWS_KEPT:
            del self._said[next(iter(self._said))]
        self._last.append(line)
        found = RETRY_AFTER.fullmatch(line)
        if found and int(found[1]) <= MOST_RETRY_AFTER:
            self.retry_after = int(found[1])


def plain(line: bytes) -> str:
    """Return a line of output as text that no terminal obeys, at most 500 bytes long."""
    text = ESCAPES.sub("", line.decode("utf-8", "replace")).translate(CONTROLS).strip()
    if len(text.encode()) <= TAIL_LINE:
        return text
    return text.encode()[: TAIL_LINE - 3].decode("utf-8", "ignore") + "…"


def iso_utc(at_ms: int) -> str:
    """Return an instant (milliseconds since the epoch) as people and programs read it, to the second."""
    days, left = divmod(at_ms // 1000, 86_400)
    era, day_of_era = divmod(days + 719_468, 146_097)  # eras of 400 years that begin with a March
    year = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day = day_of_era - (365 * year + year // 4 - year // 100)
    shifted = (5 * day + 2) // 153
    month = shifted + 3 if shifted < 10 else shifted - 9
    year += era * 400 + (month <= 2)
    day -= (153 * shifted + 2) // 5 - 1
    return f"{year:04}-{month:02}-{day:02}T{left // 3600:02}:{left // 60 % 60:02}:{left % 60:02}Z"


def _lines(data: bytes) -> Iterator[bytes]:
    """Yield the lines of a piece of output, each with its end, and at last what is not whole yet.

    A line that is longer than 64 KiB is cut at its last blank, so that no secret is cut in two.
    """
    at = 0
    for found in END_OF_LINE.finditer(data):
        yield from _cut(data[at : found.end()], whole=True)
        at = found.end()
    yield from _cut(data[at:], whole=False)


def _cut(line: bytes, *, whole: bool) -> Iterator[bytes]:
    while len(line) > LONGEST_LINE:
        blank = line.rfind(b" ", 1, LONGEST_LINE) + 1 or LONGEST_LINE
        yield line[:blank]
        line = line[blank:]
    if line or not whole:
        yield line
