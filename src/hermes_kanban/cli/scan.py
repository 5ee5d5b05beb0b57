"""Splits a command line into options and words, by a table of option names; what they mean is said elsewhere.

`argparse` builds a parser of regular expressions and looks up translations at each start, which costs a short command
more than its own work; the declarations of the verbs leave it nothing to do but this.
"""

from __future__ import annotations

from hermes_kanban.base.record import Record, record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

FLAG, VALUE, BARE = "flag", "value", "bare"  # takes nothing, takes one value, may stand alone


class Malformed(Exception):
    """An option that is unknown, lacks its value, or has one too many. `option` is set for an unknown one."""

    def __init__(self, message: str, option: str = "") -> None:
        super().__init__(message)
        self.option = option


@record
class Scanned(Record):
    """What stands in a command line.

    Args:
        options: for each option that is there its values in order (None: a flag, or an option that stands alone).
        words: everything else, in order; all that follows `--` is words.
    """

    options: Mapping[str, list[str | None]]
    words: list[str]


def scan(words: list[str], known: Mapping[str, str]) -> Scanned:
    """Split a command line.

    Args:
        words: the command line behind the verb.
        known: the options, with dashes, and of which kind each is.

    Raises:
        Malformed: it is no command line of these options.
    """
    options: dict[str, list[str | None]] = {}
    found: list[str] = []
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if word == "--":
            found += words[at:]
            break
        if not _is_option(word):
            found.append(word)
            continue
        name, equals, rest = word.partition("=")
        value: str | None = rest if equals else None
        kind = known.get(name)
        if kind is None:
            raise Malformed(f"no option {word[:60]}", name)
        if kind == FLAG and equals:
            raise Malformed(f"{name} takes no value")
        if kind != FLAG and not equals:
            value, at = _following(name, words, at, bare=kind == BARE)
        options.setdefault(name, []).append(value)
    return Scanned(options, found)


def _is_option(word: str) -> bool:
    """`-` is standard input, `-5` a number, `- a list` a text: an option is a dash and letters."""
    return (
        len(word) > 1
        and word[0] == "-"
        and (word[1] == "-" or word[1].isalpha())
        and " " not in word.split("=", maxsplit=1)[0]
    )


def _following(name: str, words: list[str], at: int, *, bare: bool) -> tuple[str | None, int]:
    """Return the value that follows an option, and where to go on."""
    if at < len(words) and words[at] != "--" and not _is_option(words[at]):
        return words[at], at + 1
    if bare:
        return None, at
    raise Malformed(f"{name} needs a value (one that begins with a dash is written {name}=VALUE)")
