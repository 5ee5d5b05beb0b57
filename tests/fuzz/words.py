"""Command lines made from the declarations of the verbs: right ones, nearly right ones, and hostile ones (T6).

A verb, a parameter or a limit that is added to `kernel/verbs.py` is fuzzed without a change here.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from hypothesis import strategies as st

from hermes_kanban.base.limits import LIMITS
from hermes_kanban.kernel.verbs import ALIASES, VERBS, Parameter, Verb
from tests.fuzz.ground import NAMES

MEGABYTE = 1_048_576
WRONG_BYTES = b"half \xff\xc3 \xed\xa0\x80".decode("utf-8", "surrogateescape")
TEXTS = (
    *("", " ", "\t", "\n", "-", "--", "---", "-x", "--json", "--help", "-q", "=", "@", "@@", "@@x", "none", "None"),
    *("0", "-1", "1e9", "NaN", "nan", "inf", "-inf", "1_000", "0x10", "٣", "½", "1.5", "9" * 40, "9" * 5000, "1e400"),
    *(
        "\x1b]0;owned\x07\x1b[2J",
        "\x9b31m",
        "\r",
        "a\rb",
        "\u202egnp.exe",
        "\u2066\u2069",
        "\u200b",
        "\ufeff",
        "\u2028",
    ),
    *("\x00", "a\x00b", "\x7f", "e\u0301", "🧑\u200d🚀", "\U000e0041", "\ufffe", WRONG_BYTES, "\udcff"),
    *("../../x", "../../../../etc/passwd", "/dev/full", "/dev/null", ".", "..", "/", "~", "//", "a/b", "C:\\x"),
    *("$(touch pwned)", "`id`", "'; DROP TABLE tasks; --", '"', "'", "\\", "%s%n", "{0}", "[bold]x[/]", "<b>"),
    *("@/dev/full", "@/dev/zero", "@../../x", "@<home>/config.yaml", "@.", "@note.txt", "note.txt", "<home>/kanban.db"),
    *("t_", "T_00000001", "t_00000000", "t_zz", "t", "t_" + "a" * 200, "<run>", "<lock>", "true", "null"),
    *("{}", "[]", "3", '"x"', "{", '{"a": NaN}', '{"a": 1, "a": 2}', '{"a": "\\ud800"}', '{"a": 1e999}'),
    *('{"a": ' + "9" * 5000 + "}", "[" * 3000, '{"a":' * 3000, '{"\\u0000": "\\u0000"}', '{"": null}'),
    *("a, b", ",", "<ready>,<blocked>", "cause: x", "options: A / B", "x" * 501, "é" * 300, "default", "side"),
)
HUGE = ("x" * (MEGABYTE + 1), "\U0001f600" * (MEGABYTE // 4), "\n" * MEGABYTE)  # more than any text may have
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
URLS = ("http://127.0.0.1:1/x", "file:///etc/passwd", "http://[::1]/", "https://", "gopher://a", "http://a b/", "x")
UNKNOWN = ("--no-such-option", "--summ", "-z", "--=x", "--\x1b[2J", "---", "--board")


class Line(NamedTuple):
    """A command line behind `hermes kanban`, and whether it may name several cards, each a call of its own."""

    words: list[str]
    several: bool


# --- values ---------------------------------------------------------------------------------------------------
def _limits(p: Parameter) -> tuple[int, int]:
    return LIMITS[p.limit].lowest, LIMITS[p.limit].highest


def _numbers(p: Parameter) -> st.SearchStrategy[str]:
    lowest, highest = _limits(p)
    return (st.sampled_from((lowest, lowest + 1, highest)) | st.integers(lowest, highest)).map(str)


def _beyond(p: Parameter) -> st.SearchStrategy[str]:
    lowest, highest = _limits(p)
    return st.sampled_from((str(lowest - 1), str(highest + 1), f"{lowest}.5", f"{highest}h", "5x", f"-{highest}m"))


def _instants(_p: Parameter) -> st.SearchStrategy[str]:
    words = ("+30m", "2h", "tomorrow 09:00", "2030-01-01T00:00:00Z", "2031-12-31", "1893456000")
    return st.sampled_from(words) | st.datetimes().map(str)


def _objects(_p: Parameter) -> st.SearchStrategy[str]:
    values = st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=20),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
        max_leaves=8,
    )
    return st.dictionaries(st.text(max_size=8), values, max_size=3).map(json.dumps)


def _sampled(*words: str) -> Callable[[Parameter], st.SearchStrategy[str]]:
    return lambda _p: st.sampled_from(words)


def _choices(p: Parameter) -> st.SearchStrategy[str]:
    return st.sampled_from(p.choices)


def _miswritten(p: Parameter) -> st.SearchStrategy[str]:
    return st.sampled_from((p.choices[0].upper(), p.choices[0][:-1], ",".join(p.choices), f"{p.choices[0]},"))


_TEXTS = _sampled(
    "a short text", "A", "B: YAML", "two\nlines", "\x1b[2J", "\u202egnp.exe", "né🧑", "@note.txt", "-", "@@x"
)
_NAMES = _sampled("ann", "bot", "rev", "side", "acme", "none", "true", "sh", *URLS[:1])
_LINES = _sampled("a line", "note", "scratch", "dir:<cwd>/place", "worktree:<cwd>", "key", *URLS[:2])
# For each type: words that fit it, and words that nearly do.
_BY_TYPE: dict[str, tuple[Callable[[Parameter], st.SearchStrategy[str]], ...]] = {
    **dict.fromkeys(("int", "seconds", "pause"), (_numbers, _beyond)),
    "when": (_instants, _sampled("2030-02-30", "today 25:00", "+", "-1h", "9999-12-31T23:59:59-12:00", "-5")),
    "id": (_sampled(*NAMES), _sampled("<ready>,<todo>", "t_", "<ready>0", "T_1", "<ready> ", "", "<nobody>")),
    "json": (_objects, lambda _p: JSON_VALUES.map(json.dumps)),
    "path": (_sampled("note.txt", "-"), _sampled("<cwd>", "gone.txt", "<home>/kanban.db", "/dev/null", WRONG_BYTES)),
    "choice": (_choices, _miswritten),
    "text": (_TEXTS, _sampled("", " ", "\x00", "@gone.txt", "@<cwd>", "x" * (MEGABYTE + 1))),
    "line": (_LINES, _sampled("", "a\nb", "x" * 501, "dir:note.txt", "dir:../x", "worktree:relative", *URLS)),
    "words": (_sampled("true", "--", "sh", "-c", "{task_id}"), _sampled("", "{", "{unknown}", "\x00")),
    "name": (_NAMES, _sampled("", " x", "x" * 101, "a\tb", "../../x", "None", "nobody-knows")),
}
HOSTILE = st.sampled_from(TEXTS) | st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
FITTING, NEARLY, WILD = 0, 1, 2  # how well a value fits, how well the call as a whole


def value(p: Parameter, how: int) -> st.SearchStrategy[str]:
    """Words for a parameter."""
    return HOSTILE if how == WILD else _BY_TYPE[p.type][how](p)


# --- lines ----------------------------------------------------------------------------------------------------
@st.composite
def line(draw: st.DrawFn, verb: Verb) -> Line:
    """A call of a verb, its words and options in any order: one that fits, one with one wrong value, or a wild one."""
    how = draw(st.sampled_from((FITTING, FITTING, NEARLY, NEARLY, WILD)))
    wrong = draw(st.integers(0, max(0, len(verb.parameters) - 1))) if how == NEARLY else -1
    pieces: list[list[str]] = []
    cards: list[list[str]] = []
    for at, p in enumerate(verb.parameters):
        fits = st.sampled_from((NEARLY, WILD)) if at == wrong else st.just(FITTING) if how != WILD else _ANY
        given = draw(_given(p, fits, wanted=at == wrong))
        pieces += given
        cards += given if _is_card(p) else []
    spoilt = draw(_spoiling()) if how == WILD else []
    pieces += spoilt
    pieces += draw(st.sampled_from(([], [["--json"]], [["-q"]], [["--json"], ["--board", "default"]])))
    mixed = draw(st.permutations(pieces)) if draw(st.booleans()) else pieces
    words = [word for piece in mixed for word in piece]
    name = next((alias for alias, meant in ALIASES.items() if meant == verb.name and draw(st.booleans())), verb.name)
    bulk = any(p.many and _is_card(p) for p in verb.parameters)
    return Line([*name.split(), *words], bulk and _several([*cards, *spoilt]))


def _is_card(p: Parameter) -> bool:
    """Whether it names a card that the verb is done on."""
    return p.type == "id" and p.target == "task"


def _several(pieces: list[list[str]]) -> bool:
    """Whether these may name more than one card."""
    return len(pieces) > 1 or any("," in piece[-1] for piece in pieces)


_ANY = st.sampled_from((FITTING, NEARLY, WILD, WILD))


@st.composite
def _given(draw: st.DrawFn, p: Parameter, fits: st.SearchStrategy[int], *, wanted: bool) -> list[list[str]]:
    """The pieces that one parameter adds to a call: what must stand together, once or several times, or nothing."""
    if not (wanted or p.required or draw(st.integers(0, 3)) == 0):
        return []
    if p.type == "flag":
        return [[f"--{p.name}"]]
    count = 2 if p.many and draw(st.booleans()) else 1
    texts = [draw(value(p, draw(fits))) for _ in range(count)]
    return [[text] if p.positional else _option(p, text, joined=draw(st.booleans())) for text in texts]


def _option(p: Parameter, text: str, *, joined: bool) -> list[str]:
    return [f"--{p.name}={text}"] if joined else [f"--{p.name}", text]


def _spoiling() -> st.SearchStrategy[list[list[str]]]:
    """What spoils a call: a foreign option, one without its value, one word too many."""
    declared = st.sampled_from([f"--{p.name}" for verb in VERBS for p in verb.parameters if not p.positional])
    spoilt = st.one_of(
        declared.map(lambda name: [name]),
        st.tuples(declared, HOSTILE).map(list),
        st.sampled_from(UNKNOWN).map(lambda name: [name]),
        HOSTILE.map(lambda text: [text]),
        st.just(["--"]),
        st.sampled_from(HUGE).map(lambda text: [f"--summary={text}"]),
    )
    return st.lists(spoilt, max_size=2)


def any_line() -> st.SearchStrategy[Line]:
    """A call of any verb, or words that call none."""
    made: list[st.SearchStrategy[Any]] = [line(verb) for verb in VERBS]
    nothing = st.lists(HOSTILE, max_size=4).map(lambda words: Line(words, several=False))
    return st.one_of(*made, nothing)
