"""The block template, read leniently from text and made from fields (P25, P26)."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_kanban.model import blocks

LINES = {
    "cause": "cause: spec undecided",
    "what": "what happened: section 3.2 names two formats",
    "options": "options: A: JSON / B: YAML",
    "recommendation": "recommendation: A, it is used elsewhere",
    "next_action": "next action needed: choose one",
}
FIELDS = {
    "cause": "spec undecided",
    "what": "section 3.2 names two formats",
    "options": ["A: JSON", "B: YAML"],
    "recommendation": "A, it is used elsewhere",
    "next_action": "choose one",
}


def read(text: str) -> dict[str, object]:
    return blocks.from_text(text).fields() or {}


def test_the_template_text_gives_the_five_parts() -> None:  # P25
    text = "\n".join(LINES.values())
    reason = blocks.from_text(text)
    assert (reason.fields(), reason.text) == (FIELDS, text)
    assert blocks.missing(reason, dependency=False) == ()


@pytest.mark.parametrize("order", list(permutations(LINES))[::7])
def test_the_parts_may_come_in_any_order(order: tuple[str, ...]) -> None:  # P25
    assert read("\n".join(LINES[name] for name in order)) == FIELDS


def test_full_width_colons_are_colons() -> None:  # P25
    reason = blocks.from_text(
        "cause：auth missing\nwhat happened：鍵が無い\noptions：A / B\nrecommendation：A\nnext：渡す"
    )
    assert blocks.missing(reason, dependency=False) == ()
    assert (reason.cause, reason.what, reason.options) == ("auth missing", "鍵が無い", ("A", "B"))
    assert "：" in reason.text


@pytest.mark.parametrize(
    "head",
    [
        "Cause:",
        "CAUSE :",
        "  cause:",
        "- cause:",
        "* cause:",
        "## cause:",
        "**cause**:",
        "**Cause:**",
        "1. cause:",
        "> cause:",
        "cause:\n",
    ],
)
def test_heads_are_read_whatever_their_dress(head: str) -> None:  # P25
    assert blocks.from_text(f"{head} test failure").cause == "test failure"


@pytest.mark.parametrize(
    ("short", "name"),
    [("what", "what"), ("option", "options"), ("recommend", "recommendation"), ("next action", "next_action")],
)
def test_short_heads_are_known(short: str, name: str) -> None:  # P25
    assert list(read(f"{short}: this")) == [name]


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("A / B / C", ("A", "B", "C")),
        ("A, B, C", ("A", "B", "C")),
        ("A、B、C", ("A", "B", "C")),
        ("keep/drop the column, ask", ("keep/drop the column", "ask")),
        ("A: JSON, as now / B: YAML, as wanted", ("A: JSON, as now", "B: YAML, as wanted")),
        ("\n- A: one, two\n- B: three / four", ("A: one, two", "B: three / four")),
        ("\n* A\n\n* B\n", ("A", "B")),
        ("only one", ("only one",)),
        ("", ()),
    ],
)
def test_options_split_at_lines_else_at_slashes_else_at_commas(text: str, options: tuple[str, ...]) -> None:  # P25
    assert blocks.from_text(f"cause: environment\noptions: {text}\nnext: choose").options == options


def test_a_part_may_go_over_several_lines() -> None:  # P25
    found = read("what happened: the build fails\nsince: the upgrade\n\nwith code 2\nnext: look")
    assert found == {"what": "the build fails\nsince: the upgrade\nwith code 2", "next_action": "look"}


def test_free_text_has_no_parts_and_is_kept() -> None:  # P25
    reason = blocks.from_text("  it does not work: no idea why \n")
    assert (reason.text, reason.fields()) == ("it does not work: no idea why", None)
    assert len(blocks.missing(reason, dependency=False)) == 5


@pytest.mark.parametrize("cause", blocks.CAUSES)
def test_causes_are_known_in_any_spelling(cause: str) -> None:  # P25
    for spelling in (
        cause,
        cause.upper(),
        cause.replace(" ", "_"),
        cause.replace(" ", "-"),
        f"<{cause}>",
        f" {cause}.",
    ):
        assert blocks.cause_of(spelling) == cause


def test_an_unknown_cause_is_kept_and_named_as_missing() -> None:  # P25
    reason = blocks.from_text("\n".join(LINES.values())).evolve(cause=blocks.cause_of("Bad Luck"))
    assert reason.cause == "Bad Luck"
    assert [part.partition(" ")[0] for part in blocks.missing(reason, dependency=False)] == ["cause"]
    assert blocks.cause_of("  ") is None


def test_fields_and_text_say_the_same() -> None:  # P25
    made = blocks.from_fields(
        "spec_undecided", FIELDS["what"], ("A: JSON", "B: YAML"), "A, it is used elsewhere", "choose one"
    )  # type: ignore[arg-type]
    assert made.fields() == FIELDS
    assert read(made.text) == FIELDS


def test_a_dependency_needs_cause_and_what_happened_only() -> None:  # P25
    reason = blocks.from_fields("environment", "waits", (), None, None)
    assert blocks.missing(reason, dependency=True) == ()
    assert blocks.missing(reason, dependency=False) == ("options", "recommendation", "next action needed")
    assert blocks.missing(blocks.Reason("x"), dependency=True) == ("cause", "what happened")


@given(st.text(max_size=300))
def test_any_text_can_be_read_and_is_kept(text: str) -> None:  # P25
    reason = blocks.from_text(text)
    assert reason.text == text.strip()
    assert all(option for option in reason.options)


@given(st.lists(st.sampled_from([*LINES.values(), "", "：", "options：", "/", ",", "- B", "next:"]), max_size=12))
def test_any_mixture_of_parts_can_be_read(lines: list[str]) -> None:  # P25
    found = read("\n".join(lines))
    assert set(found) <= set(FIELDS)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ("B", "B: YAML"),
        ("b", "B: YAML"),
        (" b) ", "B: YAML"),
        ("A", "A: JSON"),
        ("D", None),
        ("C", "C: neither"),
        ("B: but later", "B: but later"),
        ("yes", "yes"),
        ("", ""),
        ("ß", "ß"),
    ],
)
def test_an_answer_by_letter_is_the_option(answer: str, text: str | None) -> None:  # P26
    assert blocks.expand_answer(answer, {"options": ["A: JSON", "B: YAML", "neither"]}) == text


def test_an_answer_to_a_block_without_options_stays_as_it_is() -> None:  # P26
    assert blocks.expand_answer("A", None) == "A"
    assert blocks.expand_answer("A", {"options": ["A"]}) == "A"
