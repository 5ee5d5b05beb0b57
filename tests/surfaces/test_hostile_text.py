"""Nothing that somebody wrote on a card is obeyed by a terminal, a shell or a path (T7)."""

from __future__ import annotations

import json

import pytest

from tests.surfaces.hermes import Hermes, line_of
from tests.surfaces.test_watch import on_terminal

ESCAPES = "\x1b]0;owned\x07\x1b[2J\x1b[31mred\x9b1m\r\u202eevil\u2066\u200b\u2028"
BIDI = "payload\u202egnp.exe"  # passes as a title: no control character of the old kind
MARKUP = "[bold red]x[/] <b>&amp;</b> $(touch pwned) `id` ../../etc; rm -rf ~"
FORBIDDEN = [
    c for c in (*map(chr, range(32)), *map(chr, range(127, 160)), *"\u202e\u2066\u200b\u2028") if c not in "\n\t"
]


@pytest.fixture
def task(hermes: Hermes) -> str:
    """A card with hostile text in every field that takes any."""
    hermes.create("parent " + BIDI)
    task = hermes.create(BIDI, "--body", ESCAPES, "--acceptance", ESCAPES, "--tenant", BIDI, "--skill", BIDI)
    with hermes.script() as worker:
        worker(f"hermes kanban claim {task} --assignee ann --ttl 60 >/dev/null")
        hermes.ok("reclaim", task)
        hermes.ok("comment", task, ESCAPES + MARKUP, "--author", MARKUP[:20].strip())
        hermes.ok("block", task, "--cause", ESCAPES, "--what", ESCAPES, "--option", ESCAPES, "--next", MARKUP)
    return task


def harmless(text: str) -> None:
    assert not [char for char in FORBIDDEN if char in text], ascii(text)


def test_no_verb_sends_it_to_a_terminal(hermes: Hermes, task: str) -> None:
    for words in (
        *(["list"], ["board"], ["inbox"], ["show", task], ["context", task], ["runs", task], ["why", task]),
        *(["events"], ["tail", task], ["stats"], ["verify"], ["boards"], ["boards", "show"]),
    ):
        answer = hermes(*words)
        assert answer.code == 0, answer
        harmless(answer.out + answer.err)
    assert "\\x1b[2J" in hermes.ok("show", task)
    assert "\\u202e" in hermes.ok("list")


def test_no_escape_of_a_card_is_among_the_colours_of_a_terminal(hermes: Hermes, task: str) -> None:
    for words in (["list"], ["board"], ["show", task], ["inbox"]):
        shown = on_terminal(hermes, *words)
        assert "\x1b]0;" not in shown
        assert "\x1b[2J" not in shown
        assert "\x9b" not in shown
        assert "\u202e" not in shown
    assert "[bold red]" in on_terminal(hermes, "show", task)  # markup is text


def test_no_error_sends_it_back(hermes: Hermes) -> None:
    for words in (
        ["show", ESCAPES],
        ["list", "--status", ESCAPES],
        ["create", "x", "--assignee", ESCAPES],
        ["create", "x", "--at", ESCAPES],
        [ESCAPES],
        ["list", "--board", ESCAPES],
        ["list", "--" + ESCAPES],
        ["create", "x", "--workspace", ESCAPES],
        ["complete", "t_1", "--metadata", ESCAPES],
        ["create", "x", "--body", "@" + ESCAPES],
        ["create", BIDI, "--idempotency-key", BIDI, "--assignee", BIDI],
    ):
        answer = hermes(*words)
        assert "Traceback" not in answer.err
        harmless(answer.out + answer.err)


def test_documents_hold_it_as_it_was_written(hermes: Hermes, task: str) -> None:
    shown = hermes.ask("show", task)
    assert (shown["title"], shown["body"]) == (BIDI, ESCAPES)
    assert shown["comments"][0]["body"] == ESCAPES + MARKUP
    answer = hermes("list", "--json")
    assert answer.out.count("\n") == 1
    assert json.loads(answer.out)


def test_a_line_of_watch_is_one_line_whatever_is_in_it(hermes: Hermes, task: str) -> None:
    count = len(hermes.kinds(task))
    process = hermes.start("watch", "--since", "0", "--task", task)
    assert [json.loads(line_of(process))["task_id"] for _ in range(count)] == [task] * count
    process.kill()
    process.communicate()


def test_words_of_a_card_never_reach_a_shell_or_a_path(hermes: Hermes) -> None:
    task = hermes.create(MARKUP, "--body", MARKUP)
    place = hermes.ok("claim", task)
    assert place == f"{hermes.home}/kanban/workspaces/{task}"
    assert not list(hermes.home.rglob("pwned"))
