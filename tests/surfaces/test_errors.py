"""Refusals on the command line: their exit codes, their two lines, their JSON, and never half an answer."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
from pathlib import Path

import pytest

from hermes_kanban.base import errors
from tests.surfaces.hermes import HERMES, Answer, Hermes


def refused(answer: Answer, exit_code: int, code: str) -> None:
    """Check a refusal that was asked for as JSON: an object on stdout, two lines or more on stderr."""
    assert answer.code == exit_code, answer
    body = answer.json["error"]
    assert body["code"] == code
    assert f"error: {body['message'].splitlines()[0]}" in answer.err
    assert "\nhint: " in answer.err or not body["hint"]
    assert "Traceback" not in answer.err


def test_every_class_of_error_has_its_exit_code(hermes: Hermes) -> None:  # Errors, C184
    task = hermes.create("x")
    refused(hermes("show", "--json"), 2, "usage")
    refused(hermes("show", "t_00000000", "--json"), 3, "task_not_found")
    refused(hermes("--board", "nowhere", "list", "--json"), 3, "board_not_found")
    refused(hermes("unblock", task, "--json"), 4, "wrong_state")
    refused(hermes("claim", "--next", "--assignee", "ann", "--json"), 4, "nothing_ready")
    refused(hermes("heartbeat", task, "--json"), 5, "claim_lost")
    refused(hermes.set(HERMES_KANBAN_ROLE="bridge")("archive", task, "--json"), 6, "forbidden")
    refused(hermes("create", "x" * 501, "--json"), 7, "invalid_value")
    (hermes.home / "kanban.db").write_bytes(b"this is no board, but a text of some length" * 100)
    refused(hermes("list", "--json"), 9, "store_refused")
    refused(hermes("create", "x", "--json"), 9, "store_refused")


def test_a_busy_board_is_safe_to_try_again(hermes: Hermes) -> None:  # exit 8
    (hermes.home / "config.yaml").write_text("kanban:\n  lock_wait_seconds: 0\n", encoding="utf-8")
    hermes.create("x")
    with open(hermes.home / "kanban.db.lock", "rb+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        refused(hermes("create", "y", "--json"), 8, "busy")
        assert len(hermes.ask("list")) == 1  # reads go on while a writer works
    hermes.create("y")


def test_a_fault_of_ours_is_no_traceback(hermes: Hermes) -> None:
    program = (
        "import sys; from hermes_kanban.cli import app, look; "
        "look.HANDLERS['list'] = lambda call: 1 // 0; sys.exit(app.main(['kanban', 'list', '--json']))"
    )
    answer = hermes.run([str(Path(HERMES).with_name("python")), "-c", program])
    refused(answer, 1, "unexpected")
    assert "ZeroDivisionError" in answer.err


def test_wrong_usage_is_three_lines_of_that_verb(hermes: Hermes) -> None:
    for words in (
        ["comment", "t_1", "x", "--autor", "me"],
        ["comment", "t_1"],
        ["claim", "--ttl"],
        ["boards", "show", "a", "b"],
    ):
        answer = hermes(*words)
        lines = answer.err.splitlines()
        assert (answer.code, answer.out, len(lines)) == (2, "", 3)
        verb = " ".join(words[:2]) if words[0] == "boards" else words[0]
        assert lines[0].startswith(f"usage: hermes kanban {verb} ")
        assert lines[1].startswith("error: ")
        assert lines[2].startswith("hint: ")


def test_an_unknown_verb_or_group_is_wrong_usage(hermes: Hermes) -> None:
    answer = hermes("lits", "--json")
    refused(answer, 2, "usage")
    assert "did you mean list?" in answer.err
    assert hermes.run([HERMES, "kanbam", "list"]).code == 2
    assert hermes("boards", "destroy").code == 2
    assert hermes(b"\xff\xfe").code == 2


def test_help_and_version(hermes: Hermes) -> None:
    for argv in ([], ["--help"], ["kanban"], ["kanban", "--help"], ["kanban", "claim", "--help"], ["--version"]):
        answer = hermes.run([HERMES, *argv])
        assert (answer.code, answer.err) == (0, "")
        assert answer.out
    assert "kanban" in hermes.run([HERMES]).out
    assert "work on a card:" in hermes("--help").out
    assert "works from: ready, review" in hermes("claim", "-h").out


def test_bytes_that_are_no_text_name_the_argument(hermes: Hermes) -> None:
    for words, label in (
        (["create", b"a\xff"], "TITLE"),
        (["comment", "t_1", b"\xfe"], "TEXT"),
        (["list", "--assignee", b"\xff"], "--assignee"),
        (["show", b"\xff"], "ID"),
    ):
        answer = hermes(*words, "--json")
        refused(answer, 7, "invalid_value")
        assert answer.json["error"]["argument"] == label
    assert hermes.ask("events") == []


OUT_OF_RANGE = (
    ["create", "x", "--priority", "1e23"],
    ["create", "x", "--priority", "1001"],
    ["create", "x", "--max-retries", "0"],
    ["claim", "--next", "--ttl", "99999999999999999999"],
    ["claim", "--next", "--ttl", "0"],
    ["claim", "--next", "--wait", "-1"],
    ["watch", "--interval", "-1"],
    ["list", "--limit", "100001"],
    ["events", "--since", "-1"],
    ["create", "x", "--at", "99999999999999"],
)


def test_numbers_out_of_range_are_refused_by_naming_the_range(hermes: Hermes) -> None:  # P50
    for words in OUT_OF_RANGE:
        answer = hermes(*words, "--json")
        refused(answer, 7, "invalid_value")
        body = answer.json["error"]
        assert f"{body['lowest']} to {body['highest']}" in body["message"]
    assert hermes.ask("events") == []


IMPOSSIBLE = (
    (["create", " "], 7),
    (["create", "two\nlines"], 7),
    (["create", "esc \x1b[31m"], 7),
    (["create", "x", "--parent", ""], 7),
    (["create", "x", "--parent", "t_00000000"], 3),
    (["create", "x", "--skill", ""], 7),
    (["create", "x", "--assignee", " ann"], 7),
    (["create", "x", "--workspace", "dir:relative/path"], 7),
    (["create", "x", "--workspace", "worktree"], 7),
    (["create", "x", "--workspace", "nowhere"], 7),
    (["create", "x", "--metadata", "{}"], 2),
    (["create", "x", "--at", "tomorow"], 7),
    (["tail", "t_00000000"], 3),
    (["runs", "t_00000000"], 3),
    (["context", "nothing"], 3),
    (["watch", "--task", "t_00000000"], 3),
    (["heartbeat", "t_00000000", "--run", "abc"], 2),
    (["watch", "--kinds", "nonsense"], 7),
    (["--board"], 2),
    (["list", "--board"], 2),
)


def test_what_cannot_be_is_refused_and_nothing_is_written(hermes: Hermes) -> None:  # P50
    for words, code in IMPOSSIBLE:
        answer = hermes(*words, "--json")
        assert answer.code == code, (words, answer)
        assert answer.json["error"]["hint"]
        assert "Traceback" not in answer.err
    assert hermes.ask("events") == []


def test_a_broken_config_is_named(hermes: Hermes) -> None:
    (hermes.home / "config.yaml").write_text("kanban:\n  claim_ttl_seconds: never\n", encoding="utf-8")
    answer = hermes("list", "--json")
    refused(answer, 7, "config_invalid")
    (hermes.home / "config.yaml").write_text("kanban:\n  claim_ttl_second: 5\n", encoding="utf-8")
    row = hermes("create", "x", "--idempotency-key", "k", "--json")
    assert row.code == 0
    assert "did you mean claim_ttl_seconds" in row.json["warnings"][0]
    assert row.json["warnings"][0] in row.err


# --- streams ---
def test_a_reader_that_goes_away_is_no_error(hermes: Hermes) -> None:
    for number in range(3):
        hermes.create(f"card {number} {'x' * 400}")
    script = '(for i in 1 2 3; do hermes kanban list --json; hermes kanban list; done; echo "codes $?" >&2) | head -c 1'
    answer = hermes.sh(script)
    assert answer.err == "codes 0\n"
    closed = os.pipe()
    os.close(closed[0])
    process = hermes.start("list", "--json", stdout=closed[1])
    os.close(closed[1])
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, b"")


def test_an_answer_that_cannot_be_printed_is_an_error(hermes: Hermes) -> None:
    with open("/dev/full", "wb") as full:
        process = hermes.start("stats", stdout=full)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 8
    assert os.strerror(errno.ENOSPC).encode() in err


def test_closed_streams_do_no_harm(hermes: Hermes) -> None:
    assert hermes.sh("hermes kanban create x --idempotency-key k -q >&- 2>&-").code == 0
    assert hermes.sh("hermes kanban create y --idempotency-key l -q <&-").code == 0
    assert hermes.sh("hermes kanban create z --body - --idempotency-key m -q <&-").code == 0
    assert [row["title"] for row in hermes.ask("list")] == ["x", "y", "z"]
    assert hermes.ok("verify") == "ok"


def test_ctrl_c_ends_a_waiting_command_with_130(hermes: Hermes) -> None:
    watched = hermes.start("watch")
    waiting = hermes.start("claim", "--next", "--wait")
    while hermes.waiters() < 2:
        os.sched_yield()
    for process in (waiting, watched):
        process.send_signal(signal.SIGINT)
    assert waiting.communicate(timeout=60) == (b"", b"")
    watched.communicate(timeout=60)
    assert (waiting.returncode, watched.returncode) == (130, 0)


def test_answers_are_utf_8_under_every_locale(hermes: Hermes) -> None:
    hermes.create("日本 ä")
    for locale in ("C", "POSIX", "en_US.ISO-8859-1"):
        answer = hermes.set(LANG=locale, LC_ALL=locale, PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")("list", "--json")
        assert json.loads(answer.raw.decode("utf-8"))[0]["title"] == "日本 ä"


def test_no_error_of_the_kernel_lacks_an_exit_code() -> None:
    classes = [c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, errors.Refusal)]
    assert {c.exit_code for c in classes} == set(range(1, 10))


def test_an_input_without_end_is_refused(hermes: Hermes) -> None:
    for words in (["create", "x", "--body", "@/dev/zero"], ["apply", "/dev/zero"]):
        refused(hermes(*words, "--json"), 7, "invalid_value")
    assert hermes.ask("list") == []


def test_a_graph_with_a_key_twice_is_refused(hermes: Hermes) -> None:
    refused(
        hermes("apply", "-", "--json", stdin=b'{"tasks": [{"title": "a"}], "tasks": [{"title": "b"}]}'),
        7,
        "invalid_value",
    )
    assert hermes.ask("list") == []


@pytest.mark.parametrize(
    "bomb", [b"- title: !!bool foo", b"- title: !!timestamp foo", b"- &a [x]\n- *a", b"- title: !!int ''"]
)
def test_yaml_that_is_more_than_values_is_refused(hermes: Hermes, bomb: bytes) -> None:
    refused(hermes("apply", "-", "--json", stdin=bomb), 7, "invalid_value")


@pytest.mark.parametrize("name", ["HERMES_KANBAN_NAME", "HERMES_PROFILE"])
@pytest.mark.parametrize("value", [" ", "a\nb", "x" * 200])
def test_a_name_that_is_none_is_refused(hermes: Hermes, name: str, value: str) -> None:
    answer = hermes.set(**{name: value})("create", "x")
    assert answer.code == 7, answer
    assert name in answer.err


def test_what_a_full_stdout_swallows_is_said(hermes: Hermes) -> None:
    script = "PYTHONUNBUFFERED=1 hermes kanban create x --idempotency-key k > /dev/full"
    answer = hermes.sh(script)
    assert answer.code == 8, answer
    assert "Traceback" not in answer.err


def test_json_holds_nothing_that_a_terminal_obeys(hermes: Hermes) -> None:  # T7
    task = hermes.create("a title", "--body", "x\u009b31m \u202eevil\u2066")
    answer = hermes("show", task, "--json")
    assert answer.json["body"] == "x\u009b31m \u202eevil\u2066"
    assert not set("\u009b\u202e\u2066") & set(answer.out)


def test_the_answer_says_how_long_the_files_stay(hermes: Hermes) -> None:  # rough edge
    task = hermes.create()
    script = f"hermes kanban claim {task} >/dev/null; hermes kanban complete {task} --summary x"
    answer = hermes.sh(script)
    assert answer.code == 0, answer
    assert "stay for 24 h" in answer.err or "stay for 1 d" in answer.err
