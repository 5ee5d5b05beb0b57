"""Command lines to values: order, repetition, numbers, texts from files, instants. No process is started here."""

from __future__ import annotations

import io
import itertools
import json
import random
import sys
from pathlib import Path

import pytest

from hermes_kanban.base.errors import InvalidValue, Refusal, Usage
from hermes_kanban.base.limits import LIMITS
from hermes_kanban.cli import usage
from hermes_kanban.cli.parse import Helped, parse
from hermes_kanban.cli.values import label_of
from hermes_kanban.cli.when import instant
from hermes_kanban.kernel.verbs import BY_NAME, VERBS, Parameter, Verb

each_verb = pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
NUMBERS = sorted({(v.name, p.name) for v in VERBS for p in v.parameters if p.type in ("int", "seconds", "pause")})


def sample(parameter: Parameter) -> str:
    if parameter.limit and parameter.type != "when":
        return str(LIMITS[parameter.limit].lowest + 1)
    by_type = {
        "choice": next(iter(parameter.choices), ""),
        "json": '{"a": 1}',
        "when": "2030-01-01T00:00:00Z",
        "id": "t_00000001",
    }
    return by_type.get(parameter.type, f"a {parameter.name}")


def pieces(verb: Verb) -> tuple[list[list[str]], list[list[str]]]:
    """Return options and words, each as what must stand together."""
    options, words = [], []
    for p in verb.parameters:
        if p.positional:
            words.append([sample(p)])
        elif p.type == "flag":
            options.append([f"--{p.name}"])
        else:
            options.append([f"--{p.name}", sample(p)])
            if p.many:
                options.append([f"--{p.name}={sample(p)}"])
    return options, words


def values(verb: str, *words: str) -> dict[str, object]:
    return parse(BY_NAME[verb], list(words)).values


@each_verb
def test_options_and_words_mix_in_any_order(verb: Verb) -> None:
    options, words = pieces(verb)
    common = [["--json"], ["-q"], ["--board", "b"]]
    dice = random.Random(verb.name)
    expected = None
    for _ in range(12):
        mixed = [*options, *common]
        dice.shuffle(mixed)
        for word in words:  # the words keep their order among themselves
            last = max((i for i, piece in enumerate(mixed) if piece in words), default=-1)
            mixed.insert(dice.randint(last + 1, len(mixed)), word)
        parsed = parse(verb, list(itertools.chain.from_iterable(mixed)))
        found = (parsed.values, parsed.board, parsed.json, parsed.quiet)
        expected = expected or found
        assert found == expected
    assert expected is not None
    for parameter in verb.parameters:
        assert expected[0][parameter.name] not in (None, (), False), parameter.name


@each_verb
def test_every_verb_explains_itself(verb: Verb) -> None:
    with pytest.raises(Helped) as helped:
        parse(verb, ["--help"])
    text = str(helped.value)
    assert text.startswith(f"usage: {verb.command}")
    for parameter in verb.parameters:
        assert parameter.help in text
    assert len(usage.usage_line(verb)) <= 120


@each_verb
def test_an_unknown_option_is_refused(verb: Verb) -> None:  # P50b
    with pytest.raises(Usage) as refusal:
        parse(verb, ["--no-such-option", "x"])
    assert "--no-such-option" in refusal.value.message
    assert "--help" in refusal.value.hint


def test_a_misspelt_option_is_recognised() -> None:
    with pytest.raises(Usage, match="no option --sumary") as refusal:
        values("complete", "t_1", "--sumary", "x")
    assert "--summary" in refusal.value.hint


@pytest.mark.parametrize("words", [["t_1", "--summary", "a", "--summary", "b"], ["t_1", "--run=1", "--run=2"]])
def test_what_is_meant_once_is_given_once(words: list[str]) -> None:
    with pytest.raises(Usage, match="2 times"):
        values("complete", *words)


def test_an_option_without_its_value_is_refused() -> None:
    with pytest.raises(Usage, match="--summary"):
        values("complete", "t_1", "--summary")


def test_options_are_not_abbreviated() -> None:
    with pytest.raises(Usage):
        values("complete", "t_1", "--summ", "x")


def test_missing_and_surplus_words_are_refused() -> None:
    with pytest.raises(Usage, match="CHILD is missing"):
        values("link", "t_1")
    with pytest.raises(Usage, match="too many: 't_3'"):
        values("link", "t_1", "t_2", "t_3")
    with pytest.raises(Usage, match="too many"):
        values("heartbeat", "t_1", "half", "done")


def test_words_after_an_option_belong_to_the_text() -> None:  # rough edge: `comment ID hello --author me there`
    found = values("comment", "t_1", "hello", "--author", "me", "there")
    assert (found["text"], found["author"]) == ("hello there", "me")


def test_behind_two_dashes_everything_is_a_word() -> None:
    assert values("comment", "t_1", "--", "--json", "is", "-q")["text"] == "--json is -q"
    assert values("comment", "--author=me", "--", "t_1", "--x")["text"] == "--x"


def test_a_text_may_begin_with_a_dash_or_be_a_negative_number() -> None:
    assert values("comment", "t_1", "-5 degrees outside")["text"] == "-5 degrees outside"
    assert values("complete", "t_1", "--summary=-x")["summary"] == "-x"
    assert values("complete", "t_1", "--summary=--")["summary"] == "--"
    assert values("create", "x", "--priority", "-5")["priority"] == -5


def test_ids_and_words_of_a_vocabulary_may_be_listed_with_commas() -> None:
    assert values("list", "--status", "ready,running", "--status", "todo")["status"] == ("ready", "running", "todo")
    assert values("block", "t_1", "--ids", "t_2, t_3", "--what", "a, b")["ids"] == ("t_2", "t_3")
    assert values("create", "x", "--skill", "a,b")["skill"] == ("a,b",)


def test_an_id_that_is_named_twice_counts_once() -> None:
    assert values("archive", "t_1", "t_2", "t_1")["id"] == ("t_1", "t_2")


def test_a_word_outside_of_the_vocabulary_is_an_invalid_value() -> None:
    with pytest.raises(InvalidValue, match="--status") as refusal:
        values("list", "--status", "redy")
    assert "did you mean ready" in refusal.value.hint


def test_the_board_may_be_named_once() -> None:
    assert parse(BY_NAME["list"], ["--board", "a", "--board=a"]).board == "a"
    with pytest.raises(Usage, match="two boards"):
        parse(BY_NAME["list"], ["--board", "a", "--board", "b"])


# --- numbers ---
def call_with(verb: str, name: str, text: str) -> list[str]:
    """Return words of a call of a verb in which one parameter has this value."""
    parameters = BY_NAME[verb].parameters
    words = [text if p.name == name else "x" for p in parameters if p.required]
    return words if any(p.name == name and p.positional for p in parameters) else [*words, f"--{name}={text}"]


@pytest.mark.parametrize(("verb", "option"), NUMBERS)
@pytest.mark.parametrize("text", ["1e23", "99999999999999999999", "9" * 5000, "inf", "nan", "-99999999999", "1e400"])
def test_a_number_out_of_every_range_is_refused_by_naming_the_range(verb: str, option: str, text: str) -> None:  # P50
    parameter = next(p for p in BY_NAME[verb].parameters if p.name == option)
    limit = LIMITS[parameter.limit]
    with pytest.raises(InvalidValue) as refusal:
        values(verb, *call_with(verb, option, text))
    assert f"{limit.lowest} to {limit.highest}" in refusal.value.message + refusal.value.hint
    assert label_of(parameter) in refusal.value.message
    assert len(refusal.value.message) < 300


@pytest.mark.parametrize(("verb", "option"), NUMBERS)
@pytest.mark.parametrize("text", ["abc", "", "1_0", "٣", "0x10", "1.5.2"])
def test_a_text_that_is_no_number_is_wrong_usage(verb: str, option: str, text: str) -> None:
    with pytest.raises(Usage):
        values(verb, *call_with(verb, option, text))


@pytest.mark.parametrize("text", ["0", "-1", "1.5"])
@pytest.mark.parametrize(("verb", "option"), [("claim", "ttl"), ("watch", "interval"), ("create", "max-runtime")])
def test_times_are_positive_whole_seconds(verb: str, option: str, text: str) -> None:
    with pytest.raises(InvalidValue):
        values(verb, *(["x"] if verb == "create" else []), f"--{option}", text)


def test_durations_may_have_a_unit() -> None:
    assert values("claim", "t_1", "--ttl", "15m")["ttl"] == 900
    assert values("claim", "t_1", "--ttl", "2h")["ttl"] == 7200
    assert values("claim", "--next", "--wait", "0.5")["wait"] == 0.5
    assert values("claim", "--next", "--wait", "2m")["wait"] == 120


def test_wait_without_a_time_is_a_day() -> None:  # P16
    assert values("claim", "--wait", "--next")["wait"] == 86_400
    assert values("claim", "--next", "--wait")["wait"] == 86_400
    assert values("claim", "--next")["wait"] is None


# --- JSON ---
@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[1]", "object"),
        ('"x"', "object"),
        ("null", "object"),
        ("{", "line 1 column 2"),
        ("{'a': 1}", "column 2"),
        ('{"a": NaN}', "NaN"),
        ('{"a": [1, -Infinity]}', "Infinity"),
        ('{"a": 1, "a": 2}', "twice"),
        ('{"a": 1} x', "char 9"),
        ("", "char 0"),
        ('{"a":' * 100_000, "JSON"),
    ],
)
def test_metadata_is_one_strict_json_object(text: str, says: str) -> None:  # P22
    with pytest.raises(InvalidValue) as refusal:
        values("complete", "t_1", f"--metadata={text}")
    assert says in refusal.value.message
    assert "--metadata" in refusal.value.message


# --- texts ---
def test_a_text_comes_from_standard_input_or_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "body.md"
    file.write_text("from ä file\n", encoding="utf-8")
    assert values("create", "x", "--body", f"@{file}")["body"] == "from ä file\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("über stdin".encode())))
    assert values("create", "x", "--body", "-")["body"] == "über stdin"


def test_a_text_that_begins_with_the_sign_is_written_with_two() -> None:
    assert values("comment", "t_1", "@@ann please look")["text"] == "@ann please look"
    assert values("comment", "t_1", "@ann", "please", "look")["text"] == "@ann please look"
    with pytest.raises(InvalidValue, match="cannot be read") as refusal:
        values("comment", "t_1", "@ann please look")
    assert "@@" in refusal.value.hint


def test_standard_input_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"x")))
    with pytest.raises(Usage, match="--acceptance and --body"):
        values("create", "x", "--body", "-", "--acceptance", "-")


def test_a_file_that_is_no_text_is_an_invalid_value(tmp_path: Path) -> None:
    file = tmp_path / "picture"
    file.write_bytes(b"ab\xff\xfe")
    with pytest.raises(InvalidValue, match=r"--body is not UTF-8 text \(byte 2\)"):
        values("create", "x", "--body", f"@{file}")


def test_bytes_that_are_no_text_are_refused_by_the_argument_s_name() -> None:
    for words, label in (
        (["x", "--body", "a\udcff"], "--body"),
        (["a\udcff"], "TITLE"),
        (["x", "--assignee=\udcff"], "--assignee"),
    ):
        with pytest.raises(InvalidValue, match="not UTF-8") as refusal:
            values("create", *words)
        assert refusal.value.fields["argument"] == label


# --- instants ---
NOW = 1_800_000_000


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("+30m", 1800),
        ("2h", 7200),
        ("1h30m", 5400),
        ("in 2 h", 7200),
        ("+90s", 90),
        ("1d", 86_400),
        ("+1w", 604_800),
        ("1800000060", 60),
        ("2027-01-15T08:00:00Z", 0),
        ("2027-01-15 09:00:00+01:00", 0),
        ("2027-01-15T08:00:30.5+00:00", 30),
    ],
)
def test_instants(text: str, seconds: int) -> None:
    assert instant(text, NOW) == NOW + seconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "soon",
        "30",
        "tomorrow 25:00",
        "2027-13-01",
        "+",
        "+m",
        "-5m",
        "1x",
        "99999999999999999999d x",
        "@5",
        "9:0:0:0",
    ],
)
def test_what_is_no_instant_is_refused_with_examples(text: str) -> None:
    with pytest.raises(InvalidValue) as refusal:
        instant(text, NOW)
    assert "tomorrow 09:00" in refusal.value.hint


def test_days_and_times_are_meant_in_the_zone_of_this_machine() -> None:
    import datetime

    here = datetime.datetime.fromtimestamp(NOW)
    tomorrow = (here + datetime.timedelta(days=1)).replace(hour=9, minute=0, second=0, microsecond=0)
    assert instant("tomorrow 09:00", NOW) == int(tomorrow.timestamp())
    assert instant("Tomorrow", NOW) == int(tomorrow.replace(hour=0).timestamp())
    later, sooner = here + datetime.timedelta(minutes=5), here - datetime.timedelta(minutes=5)
    assert 240 <= instant(f"{later:%H:%M}", NOW) - NOW <= 300
    assert 86_000 <= instant(f"{sooner:%H:%M}", NOW) - NOW <= 86_400
    assert instant(f"{here:%Y-%m-%d %H:%M:%S}", NOW) == NOW


@pytest.mark.parametrize("text", ["99999999999999999", "+9999999999w", "9999-12-31T23:59:59+00:00x"])
def test_an_instant_beyond_all_calendars_is_refused(text: str) -> None:
    with pytest.raises(Refusal):
        values("create", "x", "--at", text)


def test_a_document_on_one_line_has_no_constants_that_json_does_not_know() -> None:
    from hermes_kanban.present import documents

    with pytest.raises(ValueError, match="JSON"):
        documents.line({"x": float("nan")})
    assert json.loads(documents.line({"ä": "\u2028"})) == {"ä": "\u2028"}
