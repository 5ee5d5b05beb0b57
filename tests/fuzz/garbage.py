"""What stands in a file or comes over a socket when whoever wrote it was broken, or meant harm (T6)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from hypothesis import strategies as st

HUGE = 10**400  # a number of JSON that no float holds, and no column of a board
DEEP = 100_000
RAW = (
    *(b"", b"\0", b"\n", b"\xff\xfe\x00", b"{", b"{}", b"[]", b"null", b"3", b'"x"', b"{}{}", b"{}\n{}", b"NaN"),
    *(b"\xef\xbb\xbf{}", b'{"a": 1, "a": 2}', b'{"a": "\\ud800"}', b"9" * 5000, b"x" * 2_000_000, b" " * 70_000),
    *(b"[" * DEEP, b'{"a":' * DEEP, b"[" * DEEP + b"]" * DEEP, b'{"a":' * DEEP + b"1" + b"}" * DEEP, b"-" * 5000),
    b"\x1b[2J\x1b]0;owned\x07\r",
)
YAML = (
    *(
        "a: &a [x]\nb: *a\n",
        "a: &a [*a]\n",
        "&a [&b [*a, *b]]",
        "<<: {kanban: 3}\n",
        "? [a, b]\n: c\n",
        "--- a\n--- b\n",
    ),
    *("!!python/object/apply:os.system [touch pwned]", "!!python/name:os.system ''", "!!binary 'AA=='", "!!set {a, b}"),
    *("kanban: !!timestamp 2001-01-01", "kanban: 2001-01-01 00:00:00", "kanban: 9999-99-99", "kanban: !!omap [a: 1]"),
    *(
        "kanban: .inf",
        "kanban: .nan",
        "kanban: 0o17",
        "kanban: 1:2:3",
        "kanban: ~",
        "kanban:",
        "kanban: [\n",
        "\tkanban: 1",
    ),
    *("%YAML 9.9\n---\na", "kanban: {a: 1, a: 2}", "kanban: {1: 2}", "kanban: {null: 1}", "kanban: {[a]: 1}", "'\\"),
    *("kanban: '\\ud800'", 'kanban: "\\ud800"', "kanban: !!int 'x'", "kanban: !!float 'x'", "kanban: !!bool 'x'", "*a"),
    *("kanban: {lanes: {a: 1}}", "kanban: {lanes: [a]}", "kanban: {lanes: {a: {argv: 3}}}", "[" * 2000, "a: " * 2000),
    *("kanban: {lanes: {'../../x': {argv: [true]}}}", "kanban: {lanes: {'': {}}}", "kanban: {external_assignees: x}"),
)

numbers = st.sampled_from((0, -1, 1, 2**31, 2**63 - 1, 2**63, -(2**63) - 1, HUGE, -HUGE, True, False)) | st.integers()
floats = st.floats() | st.sampled_from((float("inf"), float("-inf"), float("nan"), 1e308, -0.5))
texts = st.text(max_size=12) | st.sampled_from(
    ("", "\0", "\ud800", "\x1b[2J", "../../x", "/dev/full", "x" * 5000, "closed", "alive", "true", "-1", "9" * 30)
)
plain = st.none() | numbers | floats | texts
values = st.recursive(
    plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=6
)


def mutated(right: Mapping[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """A message that is right but for some of its parts, which are of another kind, missing, or too many."""
    changes = st.dictionaries(st.sampled_from(sorted(right)) | texts, values, max_size=3)
    missing = st.sets(st.sampled_from(sorted(right)), max_size=1)
    return st.builds(lambda new, gone: {n: v for n, v in ({**right, **new}).items() if n not in gone}, changes, missing)


def encoded(right: Mapping[str, Any]) -> st.SearchStrategy[bytes]:
    """The bytes of such a message, or of no message at all."""
    return raw | mutated(right).map(lambda found: json.dumps(found).encode())


raw = st.sampled_from(RAW) | st.binary(max_size=40) | values.map(lambda found: json.dumps(found).encode())
yaml = st.sampled_from(YAML).map(lambda text: text.encode("utf-8", "surrogatepass")) | raw

EXTREMES: tuple[Any, ...] = (
    *(
        None,
        True,
        -1,
        0,
        2**31,
        2**63 - 1,
        -(2**63),
        2**63,
        1e300,
        HUGE,
        -HUGE,
        0.5,
        float("inf"),
        float("-inf"),
        float("nan"),
    ),
    *("", "\0", "\ud800", "x", "\x1b[2J", "9" * 30, [], {}, [None], [1], [1, 2], [[1, 2]], ["\ud800"]),
    *(
        [HUGE, "1"],
        [1e300, "1"],
        [2**63 - 1, "1"],
        [float("inf"), "1"],
        [float("nan"), 1],
        [1, "\ud800"],
        {"a": 1},
        [{}],
        [[]],
        [{"name": HUGE}],
    ),
)


def spoilt(right: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the message with each of its parts missing, and with every extreme value in each part's place."""
    for name in right:
        yield {n: v for n, v in right.items() if n != name}
        for value in EXTREMES:
            yield {**right, name: value}
