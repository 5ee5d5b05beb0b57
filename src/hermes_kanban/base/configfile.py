"""Changes config.yaml, which belongs to people: one entry comes or goes, every other byte stays as it was.

Nothing is written anew from its values, for that loses comments, quotes and the way it was set out. PyYAML says where
in the text a map ends; the entry is put there as text. Whatever the result, it is parsed and compared with what it is
to mean before anything is written: a file in a form that is not understood here is refused, never damaged.
"""

from __future__ import annotations

import errno
import os
from textwrap import indent

import yaml

from hermes_kanban.base import yamlfile
from hermes_kanban.base.errors import ConfigInvalid, DiskFull, InvalidValue, Refusal, StoreRefused
from hermes_kanban.base.flush import flush_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_STEP = 2  # columns by which a map below another one is moved in
_NO_FOLDS = 10**9
_NULL = "tag:yaml.org,2002:null"


# --- the text -------------------------------------------------------------------------------------------------
def put(text: str, keys: tuple[str, ...], value: dict[str, Any], what: str) -> str:
    """Return the text with a new entry; the maps above it are made where they are missing.

    Args:
        keys: the names from the top down; the last one must not be there yet.
        value: plain values of YAML.
        what: the file, for errors.

    Raises:
        ConfigInvalid: it is no YAML, or in a form that cannot be changed safely; the hint holds the lines to add.
    """
    wanted = _document(text, what)
    _map_of(wanted, keys, what)[keys[-1]] = value
    outer: Any = None
    key: Any = None
    node: Any = yaml.compose(text, yaml.SafeLoader)
    left = keys
    while len(left) > 1 and (pair := _find(node, left[0])):
        outer, (key, node), left = node, pair, left[1:]
    entry = _nested(left, value)
    hint = f"add it by hand:\n{_block(_nested(keys, value), 0, chr(10))}"
    if key is not None and _empty(node) and not outer.flow_style:
        return _agreed((_below(text, key, node, entry),), wanted, what, hint)
    return _agreed(_into(text, node, entry), wanted, what, hint)


def drop(text: str, keys: tuple[str, ...], what: str) -> str:
    """Return the text without an entry that is there; comments above it stay.

    Raises:
        ConfigInvalid: it is no YAML, or in a form that cannot be changed safely.
    """
    wanted = _document(text, what)
    del _map_of(wanted, keys, what)[keys[-1]]
    above: Any = None
    key_node: Any = None
    node: Any = yaml.compose(text, yaml.SafeLoader)
    for key in keys:
        above, (key_node, node) = node, _find(node, key) or (key_node, node)
    start, end = key_node.start_mark.index, node.end_mark.index
    made = (
        _without_item(text, start, end)
        if above.flow_style
        else _without_lines(text, start, _after(text, node, key_node.start_mark.column))
    )
    return _agreed((made,), wanted, what, f"remove {'.'.join(keys)} by hand")


def _document(text: str, what: str) -> Any:
    try:
        found = yamlfile.parse(text, what)
    except InvalidValue as error:
        raise ConfigInvalid(str(error), hint="mend the file; nothing was done") from error
    return {} if found is None else found


def _map_of(document: Any, keys: tuple[str, ...], what: str) -> dict[str, Any]:
    """Return the map that is to hold the last of the keys; the maps above are made where they are missing."""
    found = document
    for key in keys[:-1]:
        if isinstance(found, dict):
            found[key] = {} if found.get(key) is None else found[key]
            found = found[key]
    if isinstance(found, dict):
        return found
    raise ConfigInvalid(f"{what}: {'.'.join(keys[:-1])} must be a map", hint="mend the file; nothing was done")


def _agreed(ways: tuple[str, ...], wanted: Any, what: str, hint: str) -> str:
    """Return the first way to write it that means what is wanted."""
    for made in ways:
        try:
            if _plain(yamlfile.parse(made, what)) == _plain(wanted):
                return made
        except InvalidValue:
            continue
    raise ConfigInvalid(f"{what} is written in a form that cannot be changed safely", hint=hint)


def _plain(document: Any) -> Any:
    """A map that became empty reads as nothing."""
    if isinstance(document, dict):
        return {key: _plain(value) for key, value in document.items()} or None
    return document


def _nested(keys: tuple[str, ...], value: dict[str, Any]) -> dict[str, Any]:
    for key in reversed(keys):
        value = {key: value}
    return value


# --- where ----------------------------------------------------------------------------------------------------
def _find(node: Any, name: str) -> tuple[Any, Any] | None:
    """Return the nodes of key and value in a map; as everywhere in YAML the last of several counts."""
    pairs = reversed(node.value) if isinstance(node, yaml.MappingNode) else ()
    return next((pair for pair in pairs if pair[0].value == name), None)


def _empty(node: Any) -> bool:
    return node is None or node.tag == _NULL or (isinstance(node, yaml.MappingNode) and not node.value)


def _below(text: str, key: Any, node: Any, entry: dict[str, Any]) -> str:
    """Give a value to a key that has none: what stands for nothing goes, the entry comes on the lines below."""
    text = text[: node.start_mark.index].rstrip(" ") + text[node.end_mark.index :]
    at = _end_of_line(text, key.end_mark.index)
    return _spliced(text, at, _block(entry, key.start_mark.column + _STEP, _newline(text)))


def _into(text: str, node: Any, entry: dict[str, Any]) -> tuple[str, ...]:
    """Return the ways to add an entry at the end of a map (`node` None: of an empty file)."""
    if isinstance(node, yaml.MappingNode) and node.flow_style:
        at = node.end_mark.index - 1
        return tuple(f"{text[:at]}{comma}{_flow(entry)}{text[at:]}" for comma in ("" if _empty(node) else ", ", " "))
    if _empty(node):
        return (_spliced(text, len(text), _block(entry, 0, _newline(text))),)
    column = node.start_mark.column
    return (_spliced(text, _after(text, node, column), _block(entry, column, _newline(text))),)


def _after(text: str, node: Any, column: int) -> int:
    """Return where the line after a node begins.

    Comments that follow belong to what comes next, unless they are moved in deeper than the column of its own key.
    """
    at = _after_words(text, node)
    while (line := text[at : _end_of_line(text, at)]).lstrip(" ").startswith("#"):
        if len(line) - len(line.lstrip(" ")) <= column:
            break
        at += len(line)
    return at


def _after_words(text: str, node: Any) -> int:
    """Return where the line after a node's last word begins."""
    while not isinstance(node, yaml.ScalarNode) and node.value and not node.flow_style:
        last = node.value[-1]
        node = last[1] if isinstance(last, tuple) else last
    end: int = node.end_mark.index
    if getattr(node, "style", None) in ("|", ">"):  # a block of text ends where the next line begins
        return text.rfind("\n", 0, end) + 1 if end < len(text) else end
    return _end_of_line(text, end)


def _end_of_line(text: str, at: int) -> int:
    found = text.find("\n", at)
    return len(text) if found < 0 else found + 1


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


# --- what -----------------------------------------------------------------------------------------------------
def _spliced(text: str, at: int, lines: str) -> str:
    before = text[:at]
    if before and not before.endswith("\n"):
        before += _newline(text)
    return before + lines + text[at:]


def _without_lines(text: str, start: int, end: int) -> str:
    return text[: text.rfind("\n", 0, start) + 1] + text[end:]


def _without_item(text: str, start: int, end: int) -> str:
    """Take an item out of a flow map, with one of the commas beside it."""
    before, behind = text[:start], text[end:]
    if behind.lstrip().startswith(","):
        return before + behind.lstrip()[1:].lstrip(" ")
    return (before.rstrip()[:-1] if before.rstrip().endswith(",") else before) + behind


def _block(entry: dict[str, Any], column: int, newline: str) -> str:
    dumped = yaml.safe_dump(entry, allow_unicode=True, sort_keys=False, default_flow_style=None, width=_NO_FOLDS)
    return indent(str(dumped), " " * column).replace("\n", newline)


def _flow(entry: dict[str, Any]) -> str:
    dumped = yaml.safe_dump(entry, allow_unicode=True, sort_keys=False, default_flow_style=True, width=_NO_FOLDS)
    return str(dumped).strip()[1:-1]


# --- the file -------------------------------------------------------------------------------------------------
def read(path: str) -> str:
    """Return the text of the file, "" where there is none.

    Raises:
        ConfigInvalid: it is no text, or no file.
    """
    try:
        with open(path, encoding="utf-8", newline="") as handle:
            return handle.read()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigInvalid(f"{path} cannot be read: {error}", hint="mend the file; nothing was done") from error


def write(path: str, text: str) -> None:
    """Write the file as a whole: a new one, then a rename. A link stays a link, the mode stays (new: 0600).

    Raises:
        DiskFull: there is no room.
        StoreRefused: it cannot be written.
    """
    target = os.path.realpath(path)
    half = f"{target}.{os.getpid()}.new"
    try:
        os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
        descriptor = os.open(half, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as handle:
            _keep_rights(target, descriptor)
            handle.write(text)
            handle.flush()
            os.fsync(descriptor)  # else a power loss may keep the rename and lose the words
        os.replace(half, target)
        flush_names(os.path.dirname(target))  # else the old words may come back
    except OSError as error:
        _forget(half)
        raise refusal(error, target) from error


def _keep_rights(target: str, descriptor: int) -> None:
    try:
        found = os.stat(target)
    except FileNotFoundError:
        return
    mine = os.fstat(descriptor)
    if (found.st_uid, found.st_gid) != (mine.st_uid, mine.st_gid):
        os.fchown(descriptor, found.st_uid, found.st_gid)
    os.fchmod(descriptor, found.st_mode & 0o7777)


def _forget(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return


def refusal(error: OSError, path: str) -> Refusal:
    """Return the refusal for a file that cannot be written."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(f"disk full: {path} cannot be written", hint="make room, then try again")
    return StoreRefused(
        f"{path} cannot be written: {error.strerror}",
        hint="give this user the right to write there, or set another HERMES_HOME",
        reason="read_only",
    )
