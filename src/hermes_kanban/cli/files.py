"""The verbs about files: attach, attachments, attach-rm (P61)."""

from __future__ import annotations

import sys

from hermes_kanban.cli.call import Call
from hermes_kanban.present import documents
from hermes_kanban.present.text import safe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from hermes_kanban.model.thread import Attachment

_STDIN = "-"
_CHUNK = 65_536


def attach(call: Call) -> int:
    """Add files to a card, all or none."""
    files, name = call["file"], call["name"]
    if _STDIN in files and name is None:
        raise call.usage("standard input has no name", hint="`attach ID - --name NAME`")
    sources = tuple(_stdin() if file == _STDIN else file for file in files)
    answer = call.board(call["id"]).attach(call["id"], sources, url=call["url"], name=name, run=call["run"])
    notes = () if call.out.json else (f"note: attachment {_line(one)}" for one in answer.attachments)
    return call.changed(answer.task, documents.attached(answer), *notes)


def _stdin() -> Iterator[bytes]:
    """Yield what comes on standard input."""
    while sys.stdin is not None and (chunk := sys.stdin.buffer.read(_CHUNK)):
        yield chunk


def attachments(call: Call) -> int:
    """Show the files of a card, with the paths where they are to be read."""
    found = call.reader().attachments(call["id"])
    call.out.answer(
        [documents.plain(one) for one in found],
        lambda: "\n".join(_line(one) for one in found),
        (str(one.id) for one in found),
    )
    return 0


def _line(one: Attachment) -> str:
    return f"{one.id}  {safe(one.name)}  {one.size} bytes  {safe(one.path)}"


def attach_rm(call: Call) -> int:
    """Remove a file from a card."""
    answer = call.board(call["id"]).detach(call["id"], call["n"])
    return call.changed(answer.task, documents.attached(answer))


HANDLERS = {"attach": attach, "attachments": attachments, "attach-rm": attach_rm}
