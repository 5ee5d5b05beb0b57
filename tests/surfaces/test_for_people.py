"""What people read and guess: reasons with their lines, times as spans, help that tells what a verb prints."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from hermes_kanban.base.errors import Usage
from hermes_kanban.cli import guide, usage
from hermes_kanban.cli.app import main
from hermes_kanban.cli.parse import parse
from hermes_kanban.kernel.verbs import ALIASES, BY_NAME
from hermes_kanban.model import blocks
from hermes_kanban.model import status as s
from hermes_kanban.model.event import Event
from hermes_kanban.present.ages import left
from hermes_kanban.present.events import event
from tests.surfaces.hermes import HERMES, Hermes

NOW = 1_800_000_000
DESTRUCTIVE = ("delete", "reclaim", "override", "--archive-children")


# --- a card ---
@pytest.fixture
def blocked(hermes: Hermes) -> str:
    """A card that waits for an answer; its options have no letters."""
    task = hermes.create("stuck")
    parts = ("--cause", "human decision needed", "--what", "two formats\nand \x1b[31m", "--option", "wait")
    hermes.ok("block", task, *parts, "--option", "B: ask dad", "--recommend", "wait", "--next", "choose")
    return task


def test_the_reason_of_a_block_keeps_its_lines(hermes: Hermes, blocked: str) -> None:  # P26b, T7
    lines = "    what: two formats\n    and \\x1b[31m\n    - A: wait\n    - B: ask dad\n    recommended: wait\n"
    assert f"  held (released by a person):\n    cause: human decision needed\n{lines}" in hermes.ok("show", blocked)
    assert lines in hermes.ok("inbox")
    bare = hermes.create("bare")
    hermes.ok("block", bare, "no parts")
    assert "  held: no parts (released by a person)\n" in hermes.ok("show", bare)


def test_why_says_once_what_is_asked_and_how_to_answer(hermes: Hermes, blocked: str) -> None:  # P3b
    text = hermes.ok("why", blocked)
    assert text.count("two formats") == 1
    assert f"    - A: wait\n    - B: ask dad\n    hermes kanban unblock {blocked} --answer " in text
    assert text.endswith("\nthe dispatcher may start it: no, for the same reason")
    assert hermes.ok("unblock", blocked, "--answer", "A") == f"{blocked} {s.READY}"
    context = hermes.ask("context", blocked)["context"]
    assert context.count("A: wait") == 1  # the answer stands at the top and not among the comments again
    assert "## Comments" not in context


def test_times_are_told_as_what_is_left_of_them(hermes: Hermes) -> None:
    task = hermes.create("x")
    hermes.ok("claim", task, "--ttl", "930")
    refused = hermes("claim", task, "--json")
    message, until = refused.json["error"]["message"], refused.json["error"]["until"]
    assert message.endswith(f" of {hermes.ask('runs', task)[0]['profile']} holds it for another 15 min")
    assert str(until) not in refused.err
    assert " holds it for another 15 min" in hermes.ok("why", task)
    shown = hermes.ok("show", task)
    assert f"{s.READY} -> {s.RUNNING}, role: {s.IMPLEMENTER}, " in shown
    assert "expires: in 15 min" in shown
    assert str(until)[:6] not in shown
    without_ages = [re.sub(r"\d+ s ago", "", text) for text in (hermes.ok("tail", task), shown.replace("\n  ", "\n"))]
    assert without_ages[0] in without_ages[1]


def test_nothing_is_left_of_what_is_over() -> None:
    assert (left(None, 5), left(5, 5), left(4, 5), left(125, 5)) == ("", "", "", " for another 2 min")


def test_an_event_is_one_line_of_words() -> None:
    payload = {"to": s.READY, "why": "a\nb\x1b", "flag": True, "no": False, "none": None, "parents": ["t_1", "t_2"]}
    many = {"parents": [f"t_{n:08x}" for n in range(20)], "facts": {"a": 1}, "excerpt": "x" * 500, "set": {"a": 1}}
    text = event(Event(1, "t_1", 2, "created", payload, "human:ann", NOW, NOW * 1000), NOW)
    assert text == f"1  0 s ago  created  human:ann run 2  {s.READY}, why: a\\nb\\x1b, flag, parents: t_1 t_2"
    text = event(Event(1, "t_1", None, "created", many, "human:ann", NOW, NOW * 1000), NOW)
    assert "t_0000000b … and 8 more, " in text
    assert '{"a":1}' in text
    assert "set" not in text
    assert len(text) < 400


def test_show_has_what_the_last_attempt_left_for_programs(hermes: Hermes) -> None:
    task = hermes.create("x")
    kept = {"files": ["a", "\u202eb"], "n": 1}
    hermes.ok("complete", task, "--summary", "x", "--metadata", json.dumps(kept))
    assert 'metadata of run 1:\n  {"files":["a","\\u202eb"],"n":1}\n' in hermes.ok("show", task)


# --- calls ---
def test_a_card_may_start_later_or_at_once(hermes: Hermes) -> None:
    later = hermes.ask("create", "later", "--in", "1h", "--idempotency-key", "a")
    assert later["status"] == s.SCHEDULED
    assert 3500 <= later["scheduled_at"] - later["created_at"] <= 3600
    assert hermes("create", "x", "--in", "1h", "--at", "+1h").code == 2
    past = hermes("create", "past", "--at", "2020-01-01", "--idempotency-key", "b")
    assert past.out.split()[1] == s.READY
    assert "may start at once" in past.err
    waiting = hermes("create", "y", "--at", "2020-01-01", "--parent", later["id"], "--idempotency-key", "c")
    assert "does not wait for it" in waiting.err
    assert "'-5m': it lies in the past" in hermes("schedule", later["id"], "--in", "-5m").err


def test_who_waited_is_not_told_to_wait(hermes: Hermes) -> None:  # P16
    assert "--wait" in hermes("claim", "--next").err
    assert "--wait" not in hermes("claim", "--next", "--wait", "0").err


def test_a_graph_without_keys_is_told_of_keys_in_the_file(hermes: Hermes, tmp_path: Path) -> None:  # P51
    text = b"[{title: a}, {title: b}]"
    assert hermes("apply", "-", "--dry-run", stdin=text).err.count("warning: ") == 0
    made = hermes("apply", "-", stdin=text)
    assert made.err.count("warning: ") == 1
    assert "idempotency_key: " in made.err
    assert "--idempotency-key" not in made.err
    bridge = hermes.set(HERMES_KANBAN_ROLE="bridge")("apply", "-", stdin=text)
    assert bridge.code in (6, 7)
    file = tmp_path / "graph.json"
    file.write_text('[{"title": "a"},\n {"title": }]', encoding="utf-8")
    answer = hermes("apply", str(file))
    assert f"{file} is not JSON: line 2, column 12: Expecting value" in answer.err
    file.write_text('{"tasks": 5}', encoding="utf-8")
    assert f"{file} must hold a list of tasks" in hermes("apply", str(file)).err


# --- help, and words that people guess ---
def test_the_example_of_the_help_makes_cards(hermes: Hermes) -> None:
    answer = hermes("apply", "-", stdin=guide.EXAMPLE.encode())
    assert (answer.code, answer.err) == (0, "")
    assert [line.split()[1] for line in answer.out.splitlines()] == [s.READY, s.TODO]
    assert guide.EXAMPLE.count("\n") == 5


def test_the_help_says_what_the_declarations_do_not() -> None:
    claim, block, apply = (usage.verb_help(BY_NAME[name]) for name in ("claim", "block", "apply"))
    assert "`ID PATH`" in claim
    assert "also 90s, 15m, 2h, 1d" in claim
    assert all(line in block for line in blocks.TEMPLATE.splitlines())
    assert all(f"\n  {cause}\n" in block + "\n" for cause in blocks.CAUSES)
    assert "from YAML or JSON." in apply
    assert all(key in apply for key in ("idempotency_key", "max_runtime", "parents", *guide.EXAMPLE.splitlines()))
    assert f"leads to: {s.READY}, or {s.TODO} while a parent is open; {s.REVIEW}" in usage.verb_help(BY_NAME["unblock"])
    assert "\n  list, ls " in usage.kanban_help()


def test_a_guessed_word_leads_to_a_verb_that_destroys_nothing() -> None:
    for word, meant in guide.GUESSED.items():
        assert word not in BY_NAME
        assert word not in ALIASES
        verb, *options = meant.split()
        assert {option.removeprefix("--") for option in options} <= {p.name for p in BY_NAME[verb].parameters}
        assert usage.unknown(word) == f"did you mean {meant}? "
    hints = [*guide.GUESSED.values(), *guide.OPTIONS_ELSEWHERE.values()]
    assert not [hint for hint in hints if any(word in hint for word in DESTRUCTIVE)]


def test_an_option_of_another_verb_is_named() -> None:
    for (verb, option), hint in guide.OPTIONS_ELSEWHERE.items():
        with pytest.raises(Usage) as refusal:
            parse(BY_NAME[verb], ["x", option, "y"])
        assert refusal.value.hint.startswith(hint)


def test_a_verb_without_its_group_is_recognised(hermes: Hermes, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 2
    assert "did you mean `hermes kanban list`?" in capfd.readouterr().err
    assert main(["ls"]) == 2
    assert "`hermes kanban ls`" in capfd.readouterr().err
    assert main(["kanban", "--version"]) == 0
    assert capfd.readouterr().out == hermes.run([HERMES, "--version"]).out
