"""Lanes: how they are read, what a worker is told by arguments and variables, and what cannot be one (D5, D10, T7)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_kanban import compose
from hermes_kanban.base import plugins, settings
from hermes_kanban.base.errors import ConfigInvalid
from hermes_kanban.kernel import verbs
from hermes_kanban.lanes import command, environment, prompt, registry
from hermes_kanban.lanes.command import Facts
from hermes_kanban.lanes.environment import SpawnFacts, worker_environment
from hermes_kanban.lanes.lane import KEYS
from hermes_kanban.lanes.order import POLICIES
from hermes_kanban.lanes.registry import Lane, NotSpawnable
from hermes_kanban.model import status as s

FACTS = Facts("t_1", "/work place", "the\nprompt $(x) {model}", "some-model")
SPAWN = SpawnFacts("/home/h", "coder", "", s.WORKER, "t_1", "b", "/h/kanban.db", "/w", "/ws", 7, "host:1:x")
HOSTILE = (
    "$(touch made)",
    "`touch made`",
    "; touch made",
    "| sh",
    "&& touch made",
    "\n touch made",
    "{task_id}",
    "-rf",
    "'\"\\",
)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """An empty home."""
    made = tmp_path / "home"
    made.mkdir()
    return made


def world(home: Path, **values: Any) -> compose.Environment:
    """Return a process's surroundings with these values of `kanban:`."""
    return compose.Environment({}, str(home), settings.Settings(values))


def profile(home: Path, name: str, config: str | None, about: str = "") -> Path:
    folder = home / "profiles" / name
    folder.mkdir(parents=True)
    if config is not None:
        (folder / "config.yaml").write_text(config, encoding="utf-8")
    if about:
        (folder / "profile.yaml").write_text(about, encoding="utf-8")
    return folder


def lane(**values: Any) -> Lane:
    return registry.checked("/nowhere", "x", {"argv": ["tool"]} | values, "config", "kanban.lanes.x")


def refused(**values: Any) -> ConfigInvalid:
    with pytest.raises(ConfigInvalid) as refusal:
        lane(**values)
    assert refusal.value.hint
    assert "kanban.lanes.x" in refusal.value.message
    return refusal.value


def resolved(env: compose.Environment, name: str) -> Lane:
    found = registry.resolve(env, name)
    assert isinstance(found, Lane), found
    return found


def unspawnable(env: compose.Environment, name: str) -> NotSpawnable:
    found = registry.resolve(env, name)
    assert isinstance(found, NotSpawnable), found
    assert found.reason
    assert found.hint
    return found


# --- settings of a lane ---------------------------------------------------------------------------------------
FULL = {
    "type": "command", "argv": ["tool", "{task_id}"], "args": ["-v"], "model": "m", "env": ["A_KEY"],
    "success_policy": "complete", "timeout": 60, "max_concurrency": 2, "wait_for": "all", "memory_limit": 1000,
    "orchestrates": True, "description": "d",
}  # fmt: skip


def test_a_lane_has_what_is_written() -> None:
    made = lane(**FULL)
    for key, value in FULL.items():
        assert getattr(made, key) == (tuple(value) if isinstance(value, list) else value)
    assert (made.name, made.source, made.profile) == ("x", "config", None)


def test_what_is_not_written_has_a_usual_value() -> None:
    assert lane(model=None, timeout=None) == Lane("x", argv=("tool",))
    assert lane().success_policy == "require_call"  # a card is never done only because a program ended


def test_every_key_is_a_field_of_a_lane() -> None:
    assert set(KEYS) | {"name", "source"} == set(Lane.FIELDS)


WRONG: dict[str, list[Any]] = {
    "type": [1, ["command"]],
    "argv": ["tool x", [1], [None], ["a\0b"], ["\ud800"], {"a": 1}, ["x" * 200_000]],
    "args": ["-v", [True]],
    "model": [1, "x" * 201],
    "env": ["A", ["A=1"], ["A B"], [""], ["1A"], {"A": "1"}, [1]],
    "success_policy": ["done", "", 1, True],
    "timeout": [0, -1, 2_592_001, "60", 1.5, True],
    "max_concurrency": [-1, 10_001, "2", True],
    "wait_for": ["me", 1],
    "memory_limit": [-1, "1G", True],
    "orchestrates": ["yes", 1],
    "profile": ["../x", "", 1, "a/b", "none", ".x"],
    "description": [1, "x" * 2001],
}


@pytest.mark.parametrize(("key", "value"), [(k, v) for k, values in WRONG.items() for v in values])
def test_a_wrong_value_is_refused_by_its_key_and_what_it_must_be(key: str, value: Any) -> None:  # T6
    error = refused(**{key: value})
    assert error.message.startswith(f"kanban.lanes.x.{key} must be {KEYS[key].wanted}")


def test_every_key_is_checked() -> None:
    assert set(WRONG) == set(KEYS)


def test_an_unknown_key_is_refused_with_the_nearest(home: Path) -> None:  # P50b
    error = refused(max_concurency=2)
    assert "max_concurency" in error.message
    assert "did you mean max_concurrency?" in error.hint
    assert "success_policy" in refused(zzz=1).hint


def test_an_unknown_type_is_refused_with_the_nearest() -> None:
    assert "did you mean codex?" in refused(type="codx").hint
    assert "command" in refused(type="").hint


@pytest.mark.parametrize("name", [name for name, check in registry.TYPES.items() if check is None])
def test_a_type_of_a_later_release_is_said_to_be_one(home: Path, name: str) -> None:
    found = unspawnable(world(home, lanes={"x": {"type": name}}), "x")
    assert found.known
    assert "not part of this release yet" in found.reason
    assert name in found.reason


def test_what_a_run_sets_cannot_be_passed_on() -> None:  # D10
    for name in environment.RESERVED:
        assert name in refused(env=["PATH", name]).message


def test_the_words_of_policies_are_the_same_everywhere() -> None:
    (declared,) = [p.choices for p in verbs.BY_NAME["lanes add"].parameters if p.name == "success-policy"]
    assert declared == POLICIES


def test_the_map_of_lanes_is_the_caller_s_own_copy() -> None:
    values = settings.Settings({"lanes": {"x": {"argv": ["tool"]}}})
    values.mapping("lanes")["x"]["argv"].append("more")
    assert values.mapping("lanes") == {"x": {"argv": ["tool"]}}
    assert settings.Settings().mapping("lanes") == {}


# --- placeholders ---------------------------------------------------------------------------------------------
def argv(*words: str, args: tuple[str, ...] = (), facts: Facts = FACTS) -> list[str]:
    return command.argv(lane(argv=list(words), args=list(args), model="m"), facts)


def test_a_placeholder_is_one_argument_or_what_follows_an_option_s_name() -> None:  # D10
    words = argv("tool", "{task_id}", "--in={workspace}", "--model={model}", args=("--", "{prompt}"))
    assert words == ["tool", "t_1", "--in=/work place", "--model=some-model", "--", "the\nprompt $(x) {model}"]


def test_what_came_in_is_not_looked_at_again() -> None:
    facts = Facts("{workspace}", "{prompt}", "{model}{task_id}", "{task_id}")
    assert argv("tool", "{task_id}", "{workspace}", "{prompt}", "--m={model}", facts=facts) == [
        "tool", "{workspace}", "{prompt}", "{model}{task_id}", "--m={task_id}",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "word", ["{}", "{other}", "{Task_Id}", "{ task_id }", "{{x}}", '{"json": 1}', "${HOME}", "a{b,c}"]
)
def test_other_braces_stay(word: str) -> None:
    assert argv("tool", word) == ["tool", word]


@pytest.mark.parametrize(
    "word",
    [
        "x{prompt}",
        "{prompt}x",
        "{prompt} {model}",
        "{{prompt}}",
        "-m={prompt}",
        "A={task_id}",
        "--={prompt}",
        "run {prompt}",
    ],
)
def test_a_placeholder_among_other_text_is_refused_with_what_to_write(word: str) -> None:
    error = refused(argv=["tool", word], model="m")
    assert word in error.message
    assert "--name={prompt}" in error.hint


DANGEROUS = [
    ["{prompt}"],
    ["{task_id}", "x"],
    ["sh", "-c", "{prompt}"],
    ["/bin/bash", "-lc", "{prompt}"],
    ["bash", "-o", "pipefail", "-c", "{prompt}"],
    ["bash", "-x", "-c", "{task_id}"],
    ["bash", "{prompt}"],
    ["env", "A=b", "bash", "-c", "{prompt}"],
    ["env", "-S", "{prompt}"],
    ["env", "{prompt}"],
    ["timeout", "5", "{prompt}"],
    ["sudo", "-u", "me", "{prompt}"],
    ["nice", "sh", "-ec", "{workspace}"],
    ["busybox", "sh", "-c", "{prompt}"],
    ["python3.11", "-c", "{prompt}"],
    ["python", "-I", "-c", "{prompt}"],
    ["python", "-m", "{prompt}"],
    ["python", "{prompt}"],
    ["node", "-e", "{prompt}"],
    ["node", "--eval={prompt}"],
    ["node", "--eval", "{prompt}"],
    ["node", "-pe", "{prompt}"],
    ["deno", "eval", "{prompt}"],
    ["perl", "-ne", "{prompt}"],
    ["ruby", "-e", "{prompt}"],
    ["php", "-r", "{prompt}"],
    ["pwsh", "-NoProfile", "-Command", "{prompt}"],
    ["powershell.exe", "-EncodedCommand", "{prompt}"],
    ["awk", "{prompt}"],
    ["sed", "-e", "{prompt}"],
    ["osascript", "-e", "{prompt}"],
    ["su", "me", "-c", "{prompt}"],
    ["psql", "base", "-c", "{prompt}"],
    ["vim", "-c", "{prompt}", "file"],
    ["ssh", "host", "agent", "{prompt}"],
    ["tmux", "new-session", "{prompt}"],
    ["docker", "run", "--rm", "image", "sh", "-c", "{prompt}"],
    ["npx", "{model}"],
]


@pytest.mark.parametrize("words", DANGEROUS, ids=" ".join)
def test_a_card_s_text_never_becomes_a_command(words: list[str]) -> None:  # D10, T7
    error = refused(argv=words, model="m")
    assert "would run a card's text" in error.message
    assert 'exec tool "$1"' in error.hint


def test_arguments_behind_it_are_looked_at_too() -> None:
    assert refused(argv=["sh"], args=["-c", "{prompt}"])


HARMLESS = [
    ["claude", "-p", "{prompt}"],
    ["sh", "-c", 'exec tool "$1"', "sh", "{prompt}"],
    ["bash", "-euo", "pipefail", "-c", 'tool "$@"', "bash", "{task_id}", "{prompt}"],
    ["bash", "run.sh", "-c", "{prompt}"],
    ["python", "-m", "agent", "-c", "{prompt}"],
    ["python", "/opt/agent.py", "{prompt}"],
    ["node", "/opt/agent/cli.js", "-p", "{prompt}", "--model={model}"],
    ["env", "-u", "X", "A=b", "tool", "-c", "{prompt}"],
    ["timeout", "-k", "5", "60", "tool", "{prompt}"],
    ["ssh", "host", "agent", "--task={task_id}"],
    ["awk", "{print}", "{workspace}"],
    ["docker", "run", "-e", "A", "image", "{prompt}"],
    ["tool", "--shell", "-c", "{prompt}"],
]


@pytest.mark.parametrize("words", HARMLESS, ids=" ".join)
def test_a_card_s_text_may_be_an_argument(words: list[str]) -> None:
    made = argv(*words)
    assert len(made) == len(words)
    assert FACTS.prompt in made or "t_1" in " ".join(made) or FACTS.workspace in made


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_text_arrives_as_one_argument(tmp_path: Path, text: str) -> None:  # T7, with a real process
    words = argv(
        sys.executable, "-c", "import sys; sys.stdout.write(repr(sys.argv[1:]))", "{prompt}", "--x={prompt}",
        facts=Facts("t_1", str(tmp_path), text, "m"),
    )  # fmt: skip
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == repr([text, f"--x={text}"])
    assert os.listdir(tmp_path) == []


def test_a_model_is_needed_where_it_is_asked_for() -> None:
    assert "has no model" in refused(argv=["tool", "--model={model}"]).message


def test_no_program_is_no_lane() -> None:
    assert "no argv" in refused(argv=None).message
    assert "no argv" in refused(argv=[]).message
    assert "no argv" in refused(argv=[""]).message


def test_a_text_that_the_system_would_not_take_is_cut_and_says_where_the_rest_is() -> None:
    long = "ä" * 200_000
    words = argv("true", "{prompt}", "--p={prompt}", facts=Facts("t_1", "/", long, "m"))
    assert all(len(word.encode()) <= 131_071 for word in words)
    assert all(word.endswith("`hermes kanban context t_1` shows the rest]") for word in words[1:])
    subprocess.run(words, check=True)
    assert argv("tool", "{prompt}", facts=Facts("t_1", "/", "a\0b", "m"))[1] == "a\ufffdb"


# --- variables ------------------------------------------------------------------------------------------------
GIVEN = {
    "PATH": "relative:/usr/bin::/bin:.", "HOME": "/home/me", "LANG": "C.UTF-8", "LC_ALL": "C", "LC_TIME": "de_DE",
    "TERM": "xterm", "TMPDIR": "/tmp", "TZ": "UTC", "USER": "me", "LOGNAME": "me", "XDG_RUNTIME_DIR": "/run/me",
    "ANTHROPIC_API_KEY": "secret1", "OPENAI_API_KEY": "secret2", "MY_API_KEY": "secret3", "LD_PRELOAD": "/x.so",
    "HERMES_KANBAN_TASK": "t_other", "HERMES_KANBAN_RUN_ID": "99", "HERMES_DELEGATED_CHILD_CONTEXT": "1",
    "HERMES_KANBAN_HOST": "box", "HERMES_KANBAN_ATTACHMENTS_ROOT": "/a", "HERMES_ALLOW_NETWORK_FS": "1",
    "HERMES_KANBAN_NAME": "somebody", "PYTHONPATH": "/evil", "BASH_ENV": "/evil",
}  # fmt: skip


def test_a_worker_gets_its_run_and_little_else() -> None:  # D10
    made = worker_environment(lane(env=["OPENAI_API_KEY", "NOT_SET"]), GIVEN, SPAWN)
    assert made == {
        **{name: GIVEN[name] for name in ("HOME", "LANG", "LC_ALL", "LC_TIME", "TERM", "TMPDIR", "TZ", "USER")},
        **{name: GIVEN[name] for name in ("LOGNAME", "XDG_RUNTIME_DIR", "OPENAI_API_KEY", "HERMES_KANBAN_HOST")},
        **{name: GIVEN[name] for name in ("HERMES_KANBAN_ATTACHMENTS_ROOT", "HERMES_ALLOW_NETWORK_FS")},
        "PATH": f"{environment.own_bin()}:/usr/bin:/bin",
        "HERMES_HOME": "/home/h",
        "HERMES_PROFILE": "coder",
        "HERMES_TENANT": "",
        "HERMES_KANBAN_ROLE": s.WORKER,
        "HERMES_KANBAN_TASK": "t_1",
        "HERMES_KANBAN_BOARD": "b",
        "HERMES_KANBAN_DB": "/h/kanban.db",
        "HERMES_KANBAN_WORKSPACE": "/w",
        "HERMES_KANBAN_WORKSPACES_ROOT": "/ws",
        "HERMES_KANBAN_RUN_ID": "7",
        "HERMES_KANBAN_CLAIM_LOCK": "host:1:x",
    }


def test_an_allow_list_cannot_change_whose_card_a_worker_has() -> None:  # D10
    forged = Lane("x", argv=("t",), env=(*environment.RESERVED, "LD_PRELOAD", "PATH"))
    made = worker_environment(forged, GIVEN, SPAWN)
    assert (made["HERMES_KANBAN_TASK"], made["HERMES_KANBAN_RUN_ID"], made["LD_PRELOAD"]) == ("t_1", "7", "/x.so")
    assert made["PATH"].startswith(environment.own_bin())
    assert {"HERMES_DELEGATED_CHILD_CONTEXT", "HERMES_KANBAN_NAME"} & set(made) == set()


def test_a_worker_finds_our_own_command_first_also_without_a_path() -> None:
    bare = worker_environment(lane(), {}, SPAWN)
    assert bare["PATH"].split(":")[0] == environment.own_bin()
    assert os.path.isfile(os.path.join(environment.own_bin(), "hermes"))
    assert bare["HOME"]
    assert bare["USER"] == bare["LOGNAME"]


def test_what_is_inherited_holds_no_more_than_a_lane_may_get(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        monkeypatch.delenv(name)
    for name, value in GIVEN.items():
        monkeypatch.setenv(name, value)
    given = environment.inherited(lane(env=["MY_API_KEY"]))
    assert worker_environment(lane(env=["MY_API_KEY"]), given, SPAWN) == worker_environment(
        lane(env=["MY_API_KEY"]), GIVEN, SPAWN
    )
    assert {"ANTHROPIC_API_KEY", "HERMES_KANBAN_TASK", "PYTHONPATH"} & set(given) == set()


# --- what a worker is told ------------------------------------------------------------------------------------
def test_a_worker_is_told_how_to_end_and_then_its_card() -> None:  # W2
    text = prompt.prompt("CARD {task} \x1b", "t_1", s.IMPLEMENTER)
    assert text.endswith("\n\nCARD {task} \x1b")
    for verb in ("show", "heartbeat", "comment", "complete", "request-review", "block"):
        assert f"hermes kanban {verb} t_1" in text
    assert "request-changes" not in text


def test_a_reviewer_is_told_to_judge() -> None:
    text = prompt.prompt("CARD", "t_1", s.REVIEWER)
    assert "hermes kanban complete t_1" in text
    assert "hermes kanban request-changes t_1" in text
    assert "request-review" not in text
    assert "kanban block" not in text


def test_an_orchestrator_is_told_to_hand_work_out() -> None:
    text = prompt.prompt("CARD", "t_1", s.ORCHESTRATOR)
    assert "hermes kanban create" in text
    assert "make no cards" not in text


# --- from a name to a lane ------------------------------------------------------------------------------------
COMMAND = {"argv": ["tool"]}
WORKER = "worker:\n  type: command\n  argv: [tool, --card, '{task_id}']\n"


def test_a_lane_of_the_config_is_found(home: Path) -> None:
    assert resolved(world(home, lanes={"coder": COMMAND}), "coder") == Lane("coder", argv=("tool",))


def test_a_profile_is_a_lane(home: Path) -> None:
    profile(home, "coder", f"model: big\ntoolsets: [files]\n{WORKER}", "description: writes code\n")
    made = resolved(world(home), "coder")
    assert (made.argv, made.profile, made.source) == (("tool", "--card", "{task_id}"), "coder", "profile")
    assert (made.model, made.description, made.orchestrates) == ("big", "writes code", False)


def test_a_profile_with_the_board_s_toolset_orchestrates_and_says_so_nowhere_else(home: Path) -> None:  # P70
    profile(home, "lead", f"toolsets: [kanban, files]\n{WORKER}")
    profile(home, "sly", f"toolsets: [files]\n{WORKER}  orchestrates: true\n  profile: lead\n")
    env = world(home, lanes={"by-lane": COMMAND | {"profile": "lead"}, "not": COMMAND | {"profile": "sly"}})
    assert resolved(env, "lead").orchestrates
    assert resolved(env, "by-lane").orchestrates
    assert not resolved(env, "sly").orchestrates
    assert resolved(env, "sly").profile == "sly"
    assert not resolved(env, "not").orchestrates


def test_a_lane_goes_before_a_profile_of_its_name(home: Path) -> None:
    profile(home, "coder", WORKER)
    assert resolved(world(home, lanes={"coder": COMMAND}), "coder").source == "config"


def test_a_name_that_nothing_answers_for_is_left(home: Path) -> None:  # D5
    env = world(home, lanes={"coder": COMMAND}, external_assignees=["ann"])
    found = unspawnable(env, "codr")
    assert not found.known
    assert "did you mean coder?" in found.hint
    assert "lanes add" in unspawnable(env, "zzz").hint
    outside = unspawnable(env, "ann")
    assert not outside.known
    assert "outside" in outside.reason


INCOMPLETE: dict[str, tuple[Callable[[Path], object], str]] = {
    "empty": (lambda folder: None, "has no config.yaml"),
    "broken": (lambda folder: (folder / "config.yaml").write_text("worker: ["), "is no YAML"),
    "bytes": (lambda folder: (folder / "config.yaml").write_bytes(b"\xff\xfe"), "cannot be read"),
    "list": (lambda folder: (folder / "config.yaml").write_text("- a"), "must hold a map"),
    "folder": (lambda folder: (folder / "config.yaml").mkdir(), "cannot be read"),
    "pipe": (lambda folder: os.mkfifo(folder / "config.yaml"), "it is no file"),
    "dangling": (lambda folder: (folder / "config.yaml").symlink_to("nowhere"), "has no config.yaml"),
    "huge": (lambda folder: (folder / "config.yaml").write_text("#" * 1_100_000), "more than"),
    "worker": (lambda folder: (folder / "config.yaml").write_text("worker: [a]"), "worker must be a map"),
    "toolsets": (lambda folder: (folder / "config.yaml").write_text(f"toolsets: kanban\n{WORKER}"), "toolsets must be"),
    "key": (lambda folder: (folder / "config.yaml").write_text(f"{WORKER}  argw: [x]\n"), "argw is not a setting"),
    "agent": (lambda folder: (folder / "config.yaml").write_text("model: big\n"), "type agent"),
}


@pytest.mark.parametrize("sort", INCOMPLETE)
def test_a_half_made_profile_is_never_started_and_says_why(home: Path, sort: str) -> None:  # C142
    make, reason = INCOMPLETE[sort]
    make(profile(home, "half", None))
    profile(home, "whole", WORKER)
    env = world(home)
    found = unspawnable(env, "half")
    assert found.known
    assert reason in found.reason
    assert resolved(env, "whole")
    assert [(entry.name, isinstance(entry.found, Lane)) for entry in registry.entries(env)] == [
        ("half", False),
        ("whole", True),
    ]


def test_a_mistake_in_one_lane_does_not_hide_the_others(home: Path) -> None:
    lanes = {
        "good": COMMAND,
        "bad": {"argv": "tool"},
        "empty": None,
        "odd name": COMMAND,
        "words": "tool",
        "later": COMMAND,
    }
    env = world(home, lanes=lanes)
    found = {entry.name: entry.found for entry in registry.entries(env)}
    assert list(found) == list(lanes)
    assert [name for name, one in found.items() if isinstance(one, Lane)] == ["good", "later"]
    assert "kanban.lanes.bad.argv" in unspawnable(env, "bad").reason
    assert unspawnable(env, "empty").known
    assert "odd name" in found["odd name"].reason  # type: ignore[union-attr]
    assert not unspawnable(env, "odd name").known


@pytest.mark.parametrize(
    "name", ["../half", "/etc", "..", ".", "", "a/b", "x" * 101, "ä", "none", "a b", ".hidden", "-x", "a\nb"]
)
def test_a_name_is_never_a_path(home: Path, name: str) -> None:  # T7
    profile(home, "half", WORKER)
    (home / "profiles" / ".hidden").mkdir()
    env = world(home, lanes={"inner": COMMAND})
    assert not unspawnable(env, name).known
    assert not compose.usable_name(name)


def test_names_that_can_be_given_are_those_that_could_answer(home: Path) -> None:  # P50b
    profile(home, "half", None)
    (home / "profiles" / "file").write_text("")
    (home / "profiles" / "a b").mkdir()
    names = compose.Names(str(home), settings.Settings({"lanes": {"ok": COMMAND, "bad": 1, "a b": COMMAND}}))
    assert names.lanes() == ("ok", "bad")
    assert names.profiles() == ("half",)
    assert compose.Names(str(home / "none"), settings.Settings()).profiles() == ()


# --- lanes of other packages ----------------------------------------------------------------------------------
OFFERS = """\
MAP = {"argv": ["offered"], "max_concurrency": 3}
def make():
    return {"argv": ["made"]}
def fail():
    raise RuntimeError("its own\\nfault")
class Deep:
    inner = MAP
"""
POINTS = """\
[console_scripts]
other = other:main
[hermes_kanban.lanes]
plain = offers_of_lanes:MAP
made = offers_of_lanes:make
; a remark
deep=offers_of_lanes:Deep.inner [extra]
fails = offers_of_lanes:fail
gone = offers_of_lanes:NOTHING
absent = no_such_module_here:X
word = offers_of_lanes:OFFERS
[other]
no = other:x
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An installed package that offers lanes."""
    site = tmp_path / "site"
    (site / "offers-1.0.dist-info").mkdir(parents=True)
    (site / "offers-1.0.dist-info" / "entry_points.txt").write_text(POINTS, encoding="utf-8")
    (site / "bytes-1.0.dist-info").mkdir()
    (site / "bytes-1.0.dist-info" / "entry_points.txt").write_bytes(b"[hermes_kanban.lanes]\n\xff = x:y\n")
    (site / "none-1.0.dist-info").mkdir()
    (site / "offers_of_lanes.py").write_text(OFFERS, encoding="utf-8")
    monkeypatch.setattr(sys, "path", [*sys.path, str(site), "relative", str(tmp_path / "no.zip")])
    yield site
    sys.modules.pop("offers_of_lanes", None)


def test_another_package_s_lanes_are_found_and_known(home: Path, package: Path) -> None:
    env = world(home, lanes={"made": COMMAND})
    assert resolved(env, "plain") == Lane("plain", argv=("offered",), max_concurrency=3, source="entry point")
    assert resolved(env, "deep").argv == ("offered",)
    assert resolved(env, "made").source == "config"
    assert resolved(world(home), "made").argv == ("made",)
    assert {"plain", "made", "deep", "fails"} <= set(compose.Names(str(home), env.values).lanes())
    assert not unspawnable(env, "other").known


def test_a_broken_offer_is_one_lane_that_cannot_be_used(home: Path, package: Path) -> None:
    for name, words in (("fails", "its own fault"), ("gone", "NOTHING"), ("absent", "no_such_module_here")):
        found = unspawnable(world(home), name)
        assert found.known
        assert words in found.reason
        assert "\n" not in found.reason
    assert len(registry.entries(world(home))) == len(plugins.entry_points(compose.LANES)) == 7


# --- health ---------------------------------------------------------------------------------------------------
def test_health_says_where_the_program_is(tmp_path: Path) -> None:
    program = tmp_path / "tool-of-a-lane"
    program.write_text("#!/bin/sh\n")
    given = {"PATH": str(tmp_path)}
    absent = registry.health(lane(argv=["tool-of-a-lane"]), given)
    assert (absent.program, absent.problem) == (None, f"{program} cannot be run")
    program.chmod(0o755)
    assert registry.health(lane(argv=["tool-of-a-lane"]), given) == registry.Health(str(program))
    assert registry.health(lane(argv=[str(program)]), {}).program == str(program)
    missing = registry.health(lane(argv=["no-such-tool"]), given)
    assert "not found" in missing.problem
    assert str(tmp_path) in missing.hint
    assert "~" in registry.health(lane(argv=["~/bin/tool"]), given).problem
    assert registry.health(lane(argv=["./tool"]), given) == registry.Health(None)


def test_health_finds_our_own_command_first() -> None:
    assert registry.health(lane(argv=["hermes"]), {"PATH": "/nowhere"}).program == f"{environment.own_bin()}/hermes"


def test_health_names_secrets_that_are_there_and_not_passed_on() -> None:
    found = registry.health(lane(argv=["sh"], env=["OPENAI_API_KEY"]), GIVEN)
    assert found.withheld == ("ANTHROPIC_API_KEY", "MY_API_KEY")
    assert not any(secret in repr(found) for secret in ("secret1", "secret2", "secret3"))
