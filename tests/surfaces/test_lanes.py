"""`lanes`: what there is and whether it works; `lanes add` and `lanes rm` change config.yaml and nothing else."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from hermes_kanban import boards, compose
from hermes_kanban.lanes import registry
from hermes_kanban.lanes.registry import Lane
from hermes_kanban.model.claim import Caps
from tests.surfaces.hermes import CONFIG, Hermes

ADD = ("lanes", "add", "coder")
PROGRAM = ("--", "sh", "-c", 'exec tool "$1"', "sh", "{prompt}")


def config(hermes: Hermes) -> str:
    return (hermes.home / "config.yaml").read_text(encoding="utf-8")


def resolved(hermes: Hermes, name: str) -> Lane:
    values = compose.settings.load(str(hermes.home))
    found = registry.resolve(compose.Environment({}, str(hermes.home), values), name)
    assert isinstance(found, Lane), found
    return found


# --- adding and removing --------------------------------------------------------------------------------------
def test_an_added_lane_answers_for_its_name(hermes: Hermes) -> None:  # D5, P50b
    assert "coder" in hermes("create", "x", "--assignee", "coder", "--idempotency-key", "k").err  # nobody answers yet
    hermes.ok(
        *ADD, "--max-concurrency", "2", "--env", "A_KEY", "--env", "B_KEY", "--success-policy", "complete",
        "--timeout", "15m", "--model", "big", *PROGRAM, "-v", "-v", "--json", "", "- x", "--model={model}",
    )  # fmt: skip
    assert resolved(hermes, "coder") == Lane(
        name="coder",
        argv=("sh", "-c", 'exec tool "$1"', "sh", "{prompt}", "-v", "-v", "--json", "", "- x", "--model={model}"),
        model="big",
        env=("A_KEY", "B_KEY"),
        success_policy="complete",
        timeout=900,
        max_concurrency=2,
    )
    assert hermes("create", "y", "--assignee", "coder", "--idempotency-key", "l").err == ""


def test_all_else_in_the_file_stays(hermes: Hermes) -> None:
    before = f"# mine\nmodel:   big   # why\n{CONFIG}# the end\n"
    (hermes.home / "config.yaml").write_text(before, encoding="utf-8")
    (hermes.home / "config.yaml").chmod(0o640)
    hermes.ok(*ADD, *PROGRAM)
    assert [line for line in config(hermes).splitlines() if line in before.splitlines()] == before.splitlines()
    assert (hermes.home / "config.yaml").stat().st_mode & 0o777 == 0o640
    hermes.ok("lanes", "rm", "coder")
    assert config(hermes) == before.replace("# the end", "  lanes:\n# the end")
    assert hermes("lanes").out.startswith("no lanes")


def test_a_home_without_a_config_gets_one(bare: Hermes) -> None:
    bare.ok(*ADD, "--", "sh")
    assert config(bare) == "kanban:\n  lanes:\n    coder:\n      type: command\n      argv: [sh]\n"
    assert [row["name"] for row in bare.ask("lanes")] == ["coder"]
    assert bare("lanes").err == ""  # lanes may come before the first board


def test_a_name_is_taken_once(hermes: Hermes) -> None:
    hermes.ok(*ADD, "--", "sh")
    before = config(hermes)
    again = hermes(*ADD, "--json", "--", "true")
    assert (again.code, again.json["error"]["lane"]) == (4, "coder")
    assert config(hermes) == before
    assert hermes("lanes", "rm", "other").code == 3
    hermes.ok("lanes", "rm", "coder")
    assert hermes("lanes", "rm", "coder").code == 3


REFUSED = {
    "no program": ([], 7),
    "no name": (["--", "sh"], 7),
    "unknown type": (["--type", "codx", "--", "sh"], 7),
    "later type": (["--type", "codex", "--", "sh"], 7),
    "policy": (["--success-policy", "perhaps", "--", "sh"], 7),
    "bound": (["--max-concurrency", "10001", "--", "sh"], 7),
    "time": (["--timeout", "0", "--", "sh"], 7),
    "variable": (["--env", "A=b", "--", "sh"], 7),
    "of the run": (["--env", "HERMES_KANBAN_TASK", "--", "sh"], 7),
    "code": (["--", "sh", "-c", "{prompt}"], 7),
    "joined": (["--", "tool", "do {prompt}"], 7),
    "model": (["--", "tool", "{model}"], 7),
    "option": (["--nonsense", "--", "sh"], 2),
    "board": (["--board", "default", "--", "sh"], 2),
    "no dashes": (["tool", "-v"], 2),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_could_not_work_is_refused_and_nothing_changes(hermes: Hermes, why: str) -> None:  # P50, P50b, T6, T7
    words, code = REFUSED[why]
    before = config(hermes)
    answer = hermes("lanes", "add", *(["coder"] if why != "no name" else [""]), *words)
    assert answer.code == code, answer
    assert "hint: " in answer.err
    assert config(hermes) == before


@pytest.mark.parametrize("name", ["none", "../x", "a/b", "a b", ".x", "-x", "ä", "x" * 101, "a\nb"])
def test_a_lane_s_name_is_plain(hermes: Hermes, name: str) -> None:
    assert hermes("lanes", "add", "--", name, "sh").code == 7


def test_a_program_that_is_not_there_is_a_warning(hermes: Hermes) -> None:
    answer = hermes(*ADD, "--", "no-such-tool")
    assert answer.code == 0
    assert "'no-such-tool' is not found" in answer.err
    (row,) = hermes.ask("lanes")
    assert (row["ok"], row["program"]) == (False, None)
    assert resolved(hermes, "coder")


def test_secrets_are_named_and_never_shown(hermes: Hermes) -> None:
    rich = hermes.set(OPENAI_API_KEY="hunter2", OTHER_API_KEY="hunter3")
    answer = rich(*ADD, "--env", "OPENAI_API_KEY", "--", "sh")
    assert "OTHER_API_KEY" in answer.err
    assert rich.ask("lanes")[0]["withheld"] == ["OTHER_API_KEY"]
    assert "OTHER_API_KEY" in rich.ok("lanes")
    for text in (answer.err, answer.out, rich("lanes", "--json").out, config(hermes)):
        assert "hunter" not in text


@pytest.mark.parametrize(
    "inside", [{"HERMES_KANBAN_TASK": "t_1"}, {"HERMES_KANBAN_ROLE": "bridge"}, {"HERMES_KANBAN_ROLE": "orchestrator"}]
)
def test_only_people_change_lanes(hermes: Hermes, inside: dict[str, str]) -> None:  # P70
    hermes.ok("lanes", "add", "old", "--", "sh")
    before = config(hermes)
    for words in ((*ADD, "--json", "--", "sh"), ("lanes", "rm", "old", "--json")):
        answer = hermes.set(**inside)(*words)
        assert (answer.code, answer.json["error"]["code"]) == (6, "forbidden")
    assert config(hermes) == before
    assert hermes.set(**inside).ask("lanes")[0]["name"] == "old"


def test_many_at_once_all_come_in(bare: Hermes) -> None:
    gate = bare.home.parent / "gate"
    os.mkfifo(gate)
    starter = ["sh", "-c", 'read go <"$1"; exec hermes kanban lanes add "$2" -q -- sh', "sh", str(gate)]
    names = [f"lane{number}" for number in range(6)]
    options: dict[str, int] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE}
    racing = [subprocess.Popen([*starter, name], env=bare.env, **options) for name in names]
    with gate.open("w") as opened:
        opened.write("go\n" * len(names))
        opened.flush()
        assert [one.communicate(timeout=120)[0] for one in racing] == [f"{name}\n".encode() for name in names]
    assert [one.returncode for one in racing] == [0] * len(names)
    assert sorted(row["name"] for row in bare.ask("lanes")) == names


def test_a_file_that_cannot_be_written_is_an_error(hermes: Hermes) -> None:  # T4
    (hermes.home / "config.yaml").unlink()
    (hermes.home / "config.yaml").symlink_to("/proc/no/such/config.yaml")
    answer = hermes(*ADD, "--json", "--", "sh")
    assert (answer.code, answer.json["error"]["code"]) == (9, "store_refused")
    assert os.readlink(hermes.home / "config.yaml") == "/proc/no/such/config.yaml"


# --- looking --------------------------------------------------------------------------------------------------
MIXED = """\
kanban:
  lanes:
    good: {argv: [echo, "{task_id}"], max_concurrency: 3}
    "bad\\e[31m": {argv: [sh]}
    wrong: {argv: sh}
    later: {type: claude_code}
"""


def test_each_lane_and_profile_is_listed_with_what_is_wrong(hermes: Hermes) -> None:  # C142
    (hermes.home / "config.yaml").write_text(MIXED, encoding="utf-8")
    (hermes.home / "profiles" / "half").mkdir(parents=True)
    rows = {row["name"]: row for row in hermes.ask("lanes", "list")}
    assert [name for name, row in rows.items() if row["ok"]] == ["good"]
    assert (rows["good"]["running"], rows["good"]["max_concurrency"]) == (0, 3)
    assert rows["good"]["program"].endswith("/echo")
    assert "has no config.yaml" in rows["half"]["problem"]
    assert "not part of this release" in rows["later"]["problem"]
    assert "kanban.lanes.wrong.argv" in rows["wrong"]["problem"]
    assert {row["source"] for row in rows.values()} == {"config", "profile"}
    assert all(row["hint"] for row in rows.values() if not row["ok"])
    text = hermes.ok("lanes")
    assert "\x1b" not in text  # T7
    assert re.search(r"^good +command +ok +0/3 ", text, re.M)
    assert hermes.ok("lanes", "-q").splitlines()[0] == "good"
    assert not Path(hermes.home, "kanban", "boards").exists()  # looking makes nothing


def test_a_broken_lane_can_be_taken_out(hermes: Hermes) -> None:
    (hermes.home / "config.yaml").write_text(MIXED, encoding="utf-8")
    hermes.ok("lanes", "rm", "wrong")
    hermes.ok("lanes", "rm", "bad\x1b[31m")
    assert [row["name"] for row in hermes.ask("lanes")] == ["good", "later"]


def test_a_lane_s_running_workers_are_counted_on_the_board_that_is_meant(hermes: Hermes) -> None:
    hermes.ok(*ADD, "--max-concurrency", "2", "--", "sh")
    hermes.ok("boards", "create", "other")
    task = hermes.create("x", "--assignee", "coder")
    env = compose.Environment(
        {"HERMES_HOME": str(hermes.home)}, str(hermes.home), compose.settings.load(str(hermes.home))
    )
    board = compose.open_supervision(env, boards.place(env.home, "default", env.variables))
    board.claim_for_dispatch(task, ttl=900, lane="coder", name="coder", caps=Caps())
    assert hermes.ask("lanes")[0]["running"] == 1
    assert hermes.ask("--board", "other", "lanes")[0]["running"] == 0
    assert hermes("--board", "nowhere", "lanes").code == 3
