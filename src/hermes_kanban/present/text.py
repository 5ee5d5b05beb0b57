"""Text for people: nothing of a card ever reaches a terminal as a command (T7).

`safe` is the one escape function. Control characters, codes that turn the direction of writing, and halves of
characters are shown as `\\x1b`, `\\u202e` and the like; everything else stays as it was written.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# Not printable by Python's rule, and harmless: blanks of all widths, and the joiners of scripts and emoji.
_HARMLESS = frozenset(
    "\u00a0\u1680\u202f\u205f\u3000\u200c\u200d\u00ad\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
)
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_LINES = frozenset("\n\t")


def safe(text: str, *, lines: bool = False) -> str:
    """Return the text with everything escaped that a terminal would obey.

    Args:
        lines: keep line breaks and tabs (a body, a comment); else they are shown as `\\n` and `\\t`.
    """
    if text.isprintable():
        return text
    kept = _LINES if lines else frozenset[str]()
    return "".join(c if c.isprintable() or c in _HARMLESS or c in kept else _escaped(c) for c in text)


def _escaped(char: str) -> str:
    code = ord(char)
    if char in _SHORT:
        return _SHORT[char]
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65_536 else f"\\U{code:08x}"


def width(text: str) -> int:
    """Return how many columns a terminal gives to the text."""
    if text.isascii():
        return len(text)
    return sum(_columns(char) for char in text)


def _columns(char: str) -> int:
    code = ord(char)
    if code < 0x300:
        return 1
    if any(low <= code <= high for low, high in _ZERO):
        return 0
    return 2 if any(low <= code <= high for low, high in _WIDE) else 1


# Enough of Unicode's tables to keep columns straight; a miss only shifts a column.
_ZERO = ((0x300, 0x36F), (0x200B, 0x200F), (0x20D0, 0x20FF), (0xFE00, 0xFE0F), (0xE0100, 0xE01EF))
_WIDE = (
    (0x1100, 0x115F),
    (0x2E80, 0x303E),
    (0x3041, 0xA4CF),
    (0xAC00, 0xD7A3),
    (0xF900, 0xFAFF),
    (0xFE30, 0xFE6F),
    (0xFF00, 0xFF60),
    (0xFFE0, 0xFFE6),
    (0x1F300, 0x1FAFF),
    (0x20000, 0x3FFFD),
)


def cut(text: str, most: int) -> str:
    """Return the text in at most so many columns, with `…` where something was left out."""
    if width(text) <= most:
        return text
    kept, used = [], 0
    for char in text:
        used += _columns(char)
        if used >= most:
            break
        kept.append(char)
    return "".join(kept) + "…"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, room: int = 0) -> list[str]:
    """Return lines of columns under their heads; cells must be `safe` already.

    Args:
        room: columns of the terminal; the last column is cut to fit (0: nothing is cut).
    """
    cells = [tuple(heads), *(tuple(row) for row in rows)]
    sizes = [max(width(row[index]) for row in cells) for index in range(len(heads))]
    return [_line(row, sizes, room) for row in cells]


def _line(row: tuple[str, ...], sizes: list[int], room: int) -> str:
    padded = [cell + " " * (size - width(cell)) for cell, size in zip(row[:-1], sizes[:-1], strict=True)]
    before = "".join(f"{cell}  " for cell in padded)
    last = cut(row[-1], max(10, room - width(before))) if room else row[-1]
    return (before + last).rstrip()


def indented(text: str, by: str = "  ") -> str:
    """Return the text with each line moved in."""
    return "\n".join(by + line if line else line for line in text.splitlines())
