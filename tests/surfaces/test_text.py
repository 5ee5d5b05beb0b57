"""What a person sees: nothing of a card is obeyed by a terminal, columns stay straight, ages read well."""

from __future__ import annotations

import pytest

from hermes_kanban.base.clock import span
from hermes_kanban.present.ages import age
from hermes_kanban.present.text import cut, indented, safe, table, width

HOSTILE = [chr(code) for code in (*range(32), 127, *range(0x80, 0xA0))] + [
    *map(chr, (0x061C, 0x200B, 0x200E, 0x200F, 0x2028, 0x2029, 0xFEFF, 0xFFF9, 0xE0001, 0xE0041)),
    *map(chr, range(0x202A, 0x202F)),
    *map(chr, range(0x2060, 0x2065)),
    *map(chr, range(0x2066, 0x206A)),
    "\ud800",
    "\udcff",
]


@pytest.mark.parametrize("char", HOSTILE, ids=lambda char: f"{ord(char):04x}")
def test_what_a_terminal_would_obey_is_shown_escaped(char: str) -> None:  # T7
    shown = safe(f"a{char}b")
    assert char not in shown
    assert shown.startswith("a\\")
    assert shown.endswith("b")
    assert shown.isascii()


@pytest.mark.parametrize(
    "text", ["plain", "ä ö ü", "日本語　全角", "👩‍👩‍👧‍👦 ❤️", "non\u00a0breaking", "\\x1b as it is written"]
)
def test_what_is_harmless_stays(text: str) -> None:
    assert safe(text) == text


def test_a_text_of_several_lines_keeps_its_lines() -> None:
    assert safe("a\n\tb\r\n\x1b[31mc", lines=True) == "a\n\tb\\r\n\\x1b[31mc"
    assert safe("a\nb") == "a\\nb"


def test_columns_stay_straight_with_wide_letters() -> None:
    lines = table(("ID", "NAME", "REST"), [("t_1", "日本", "x"), ("t_2", "ab", "y"), ("t_3", "é", "z")])
    assert {width(line[: line.index(end)]) for line, end in zip(lines[1:], "xyz", strict=True)} == {11}


def test_a_line_is_cut_at_the_terminal_s_width() -> None:
    assert cut("abcdef", 6) == "abcdef"
    assert cut("abcdefg", 6) == "abcde…"
    assert width(cut("日本語日本語", 6)) <= 6
    assert all(width(line) <= 30 for line in table(("ID", "TITLE"), [("t_1", "x" * 100)], room=30))


def test_lines_are_moved_in_but_for_empty_ones() -> None:
    assert indented("a\n\nb") == "  a\n\n  b"


def test_ages() -> None:
    assert [span(n) for n in (0, 1, 59, 119, 120, 7199, 7200, 172_799, 172_800)] == [
        "0 s",
        "1 s",
        "59 s",
        "119 s",
        "2 min",
        "119 min",
        "2 h",
        "47 h",
        "2 d",
    ]
    assert (age(None, 5), age(5, 5), age(2, 5), age(9, 5)) == ("", "0 s ago", "3 s ago", "in 4 s")
