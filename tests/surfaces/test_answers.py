"""Each verb's answer in its three forms: lines, one JSON document, ids alone."""

from __future__ import annotations

import json
from pathlib import Path

import apsw
import pytest

from hermes_kanban.model import status as s
from hermes_kanban.model.run import Run
from hermes_kanban.model.task import Task
from hermes_kanban.store import sqlite
from tests.surfaces.hermes import Hermes

REASON = """cause: spec undecided
what happened: section 3.2 names two formats
options: A: JSON / B: YAML
recommendation: A, it is used elsewhere
next action needed: choose one"""


def test_a_write_prints_the_id_and_the_new_state(hermes: Hermes) -> None:
    answer = hermes("create", "first", "--idempotency-key", "k", "--tenant", "t")
    task, state = answer.out.split()
    assert (answer.code, state, answer.out.count("\n")) == (0, s.READY, 1)
    assert hermes.ok("edit", task, "--priority", "7", "-q") == task
    row = hermes.ask("edit", task, "--title", "new", "--body=", "--skill", "a", "--skill", "b", "--max-runtime", "2h")
    assert (row["id"], row["title"], row["priority"], row["body"]) == (task, "new", 7, "")
    assert (row["skills"], row["max_runtime_seconds"], row["warnings"]) == (["a", "b"], 7200, [])
    assert hermes.ask("edit", task, "--tenant", "none")["tenant"] is None
    assert hermes.ok("assign", task, "ann") == f"{task} {s.READY}"
    assert hermes.ask("assign", task, "none")["assignee"] is None


def test_create_takes_every_field(hermes: Hermes) -> None:
    parent = hermes.create("parent")
    row = hermes.ask(
        *("create", "two", "words", "--body", "b", "--assignee", "ann", "--parent", parent, "--tenant", "t"),
        *("--priority", "-5", "--idempotency-key", "k", "--max-runtime", "60", "--max-retries", "3", "--skill", "x"),
        *("--model", "m", "--provider", "p", "--goal", "--goal-max-turns", "4", "--reviewer", "rev", "--session", "s"),
        *("--acceptance", "a", "--by", "somebody", "--workspace", f"dir:{hermes.home}"),
    )
    assert set(Task.FIELDS) <= row.keys()
    expected = {
        "title": "two words",
        "status": s.TODO,
        "priority": -5,
        "max_runtime_seconds": 60,
        "max_retries": 3,
        "skills": ["x"],
        "model_override": "m",
        "provider_override": "p",
        "goal": True,
        "goal_max_turns": 4,
        "reviewer": "rev",
        "session_id": "s",
        "created_by": "somebody",
        "workspace_kind": s.DIR,
        "workspace_path": str(hermes.home),
        "created": True,
        "gated": True,
        "gated_by": [parent],
    }
    assert {name: row[name] for name in expected} == expected


def test_a_card_may_begin_held(hermes: Hermes) -> None:
    assert hermes.status(hermes.create("idea", "--triage")) == s.TRIAGE
    blocked = hermes.create("stuck", "--status", "blocked", "--reason", REASON)
    assert hermes.ask("show", blocked)["block_fields"]["options"] == ["A: JSON", "B: YAML"]
    later = hermes.ask("create", "later", "--at", "+30m", "--idempotency-key", "l")
    assert later["status"] == s.SCHEDULED
    assert later["scheduled_at"] - later["created_at"] in (1799, 1800)
    assert hermes("create", "x", "--triage", "--status", "blocked").code == 2  # a contradiction
    assert hermes("create", "x", "--reason", "why").code == 2
    assert hermes("create", "x", "--status", "running").code == 7  # an unknown initial status


def test_a_key_seen_before_returns_the_first_card(hermes: Hermes) -> None:  # P51, C125
    first = hermes.ask("create", "one", "--idempotency-key", "k")
    again = hermes("create", "other title", "--idempotency-key", "k")
    assert again.out == f"{first['id']} {s.READY}\n"
    assert "created: false" in again.err
    assert "another title" in again.err
    row = hermes.ask("create", "one", "--idempotency-key", "k")
    assert (row["id"], row["created"], row["warnings"]) == (first["id"], False, [])
    assert hermes.ask("create", "x", "--idempotency-key", "k")["warnings"]


def test_a_script_without_a_key_is_warned(hermes: Hermes) -> None:  # P51
    assert "idempotency key" in hermes("create", "x").err
    assert hermes.set(HERMES_KANBAN_ROLE="bridge")("create", "x").code == 7


def test_the_tenant_of_the_environment_is_the_default(hermes: Hermes) -> None:
    assert hermes.set(HERMES_TENANT="acme").ask("create", "x", "--idempotency-key", "k")["tenant"] == "acme"


def test_a_body_comes_from_standard_input_or_a_file(hermes: Hermes, tmp_path: Path) -> None:
    task = hermes.ok("create", "x", "--body", "-", "--idempotency-key", "k", "-q", stdin=b"zeile 1\nzeile 2\n")
    assert hermes.ask("show", task)["body"] == "zeile 1\nzeile 2\n"
    (tmp_path / "note").write_text("from a file", encoding="utf-8")
    hermes.ok("comment", task, f"@{tmp_path / 'note'}")
    assert hermes.ask("show", task)["comments"][0]["body"] == "from a file"
    assert hermes("create", "x", "--body", "-", stdin=b"a\xff").code == 7


# --- lists ---
def test_a_list_is_an_array_of_whole_rows(hermes: Hermes) -> None:  # P15b
    hermes.create("one", "--assignee", "ann")
    hermes.create("two", "--priority", "5")
    rows = hermes.ask("list")
    assert [row["title"] for row in rows] == ["two", "one"]
    assert set(rows[0]) == {*Task.FIELDS, "lease_over"}
    assert hermes.ask("ls", "--assignee", "ann", "--status", "ready")[0]["title"] == "one"
    assert hermes.ask("list", "--search", "tw")[0]["title"] == "two"
    assert hermes.set(HERMES_KANBAN_NAME="ann").ask("list", "--mine")[0]["title"] == "one"
    assert hermes.ok("list", "-q").split() == [row["id"] for row in rows]
    assert hermes("list", "--mine", "--assignee", "ann").code == 2


def test_a_list_that_was_cut_says_how_to_get_the_rest(hermes: Hermes) -> None:
    ids = [hermes.create(f"card {n}") for n in range(3)]
    first = hermes("list", "--limit", "2", "--json")
    assert [row["id"] for row in first.json] == ids[:2]
    assert "--offset 2" in first.err
    rest = hermes("list", "--limit", "2", "--offset", "2", "--json")
    assert [row["id"] for row in rest.json] == ids[2:]
    assert rest.err == ""
    events = hermes("events", "--limit", "2")
    assert "--since 2" in events.err
    assert hermes("events", "--limit", "3").err == ""  # there is nothing more
    assert hermes("events", "--limit", "100000").code == 0
    assert hermes("events", "--limit", "2", "--kinds", "created", "--since", "1").err == ""
    assert "--limit must be from 1 to 100000" in hermes("events", "--limit", "100001").err
    assert hermes("list", "--limit", "0").code == 7


def test_show_has_every_stored_field_and_what_hangs_on_the_card(hermes: Hermes) -> None:  # P61b
    parent = hermes.create("parent")
    child = hermes.create("child", "--parent", parent)
    hermes.ok("complete", parent, "--summary", "done", "--metadata", '{"a": 1}')
    hermes.ok("comment", child, "a fact")
    found = hermes.ask("show", child)
    assert set(Task.FIELDS) <= found.keys()
    assert [one["id"] for one in found["parents"]] == [parent]
    assert [event["kind"] for event in found["events"]] == ["created", "promoted", "commented"]
    assert all({"id", "run_id", "at_ms", "payload", "actor"} <= event.keys() for event in found["events"])
    assert found["comments"][0]["body"] == "a fact"
    assert (found["comment_count"], found["attachments"], found["runs"]) == (1, [], [])
    runs = hermes.ask("runs", parent)
    assert set(Run.FIELDS) == set(runs[0])
    assert (runs[0]["summary"], runs[0]["metadata"]) == ("done", {"a": 1})
    assert hermes.ask("context", child)["id"] == child
    assert "Summary: done" in hermes.ask("context", child)["context"]


def test_ids_may_be_shortened(hermes: Hermes) -> None:
    task = hermes.create()
    assert hermes.ask("show", task[:6])["id"] == task
    assert hermes.ask("context", task[:6])["id"] == task
    assert hermes.ok("comment", task[:6], "short").split()[0] == task
    other = hermes.create()
    assert hermes("show", "t_").code == 2  # the beginning of both
    assert other in hermes("show", "t_").err


def test_the_board_and_the_counts_name_every_state(hermes: Hermes) -> None:
    hermes.create("only")
    columns = hermes.ask("board")["columns"]
    assert [c["status"] for c in columns] == list(s.STATES[:-1])
    assert [c["count"] for c in columns if c["status"] == s.READY] == [1]
    assert list(hermes.ask("stats")["status"]) == list(s.STATES)
    text = hermes.ok("stats")
    assert all(f"{state}: " in text for state in s.STATES)
    plain = hermes.ok("board")
    assert f"{s.READY} 1" in plain
    assert "only" in plain


def test_why_prints_both_answers(hermes: Hermes) -> None:  # P3b
    parent = hermes.create("parent")
    child = hermes.create("child", "--parent", parent)
    answer = hermes.ask("why", child)
    assert answer["claim_reasons"][0]["task_ids"] == [parent]
    assert (answer["claimable"], answer["dispatchable"]) == (False, False)
    assert "anybody may claim it: yes" in hermes.ok("why", parent)
    assert f"waits for {parent}" in hermes.ok("why", child)


def test_verify_says_whether_all_agrees(hermes: Hermes) -> None:
    hermes.create()
    assert hermes.ok("verify") == "ok"
    assert hermes.ask("verify") == {"ok": True, "findings": [], "warnings": []}
    file = apsw.Connection(str(hermes.home / "kanban.db"))
    file.create_scalar_function(sqlite.GUARD, lambda: None, 0)
    file.execute("UPDATE task_rows SET priority = 5")
    file.close()
    answer = hermes("verify", "--json")
    assert (answer.code, answer.json["ok"]) == (1, False)
    assert "priority is 5" in answer.json["findings"][0]["problem"]
    assert "priority is 5" in hermes("verify").out


# --- work ---
def test_the_whole_way_of_a_card(hermes: Hermes) -> None:
    first = hermes.create("first", "--assignee", "bot")
    second = hermes.create("second", "--parent", first)
    claim = hermes("claim", first, "--ttl", "900")
    assert claim.out == f"{hermes.home}/kanban/workspaces/{first}\n"
    assert Path(claim.out.strip()).is_dir()
    assert claim.err == f"{first} {s.RUNNING} run 1\n"
    assert hermes.ok("heartbeat", first, "--note", "step 2 of 4") == f"{first} {s.RUNNING}"
    assert hermes.ask("comment", first, "--author", "claude-code-bridge", "本文")["delivery"] == "own_run"
    done = hermes("complete", first, "--summary", "made it", "--metadata", '{"files": ["a"]}')
    assert done.out == f"{first} {s.DONE}\n"
    assert f"{second} may start now" in done.err
    again = hermes.ask("complete", first, "--summary", "made it")
    assert (again["already"], again["promoted"], again["run"]["outcome"]) == (True, [second], s.COMPLETED)
    assert hermes.ok("verify") == "ok"


def test_a_comment_on_a_running_card_reaches_its_worker(hermes: Hermes) -> None:  # P62b, C185
    task = hermes.create()
    with hermes.script() as worker:
        worker(f"hermes kanban claim {task}")
        told = hermes("comment", task, "mind the gap", "--json")
        assert told.json["delivery"] == "next_heartbeat"
        assert "next heartbeat" in hermes("comment", task, "and the step").err
        notices = json.loads(worker(f"hermes kanban heartbeat {task} --json")[1])["notices"]
        assert [one["body"] for one in notices] == ["mind the gap", "and the step"]
        hermes.ok("comment", task, "a third")
        assert "notice: comment 3 by human:" in worker(f"hermes kanban heartbeat {task}")[1]
        assert worker(f"hermes kanban heartbeat {task}")[1] == f"{task} {s.RUNNING}"


def test_metadata_that_nobody_could_read_back_is_refused(hermes: Hermes) -> None:  # P22
    task = hermes.create()
    for text in (
        r'{"a": "\ud800"}',
        '{"a": 1e999}',
        '{"a": ' * 200 + "1" + "}" * 200,
        '{"a": [' * 480 + "]}" * 480,
        "[]",
    ):
        answer = hermes("complete", task, "--summary", "x", "--metadata", text, "--json")
        assert (answer.code, answer.json["error"]["argument"].strip("-")) == (7, "metadata")
    kept = {"a": "\x00\x1b ä \u2028", "b": 12345678901234567890123, "c": [[]], "": None}
    hermes.ok("complete", task, "--summary", "x", "--metadata", json.dumps(kept))
    assert hermes.ask("runs", task)[0]["metadata"] == kept


def test_a_claim_s_document_has_all_that_a_worker_needs(hermes: Hermes) -> None:  # P11
    task = hermes.create("x", "--assignee", "bot")
    claim = hermes.ask("claim", task, "--ttl", "60")
    assert (claim["id"], claim["task_id"], claim["status"], claim["run_id"]) == (task, task, s.RUNNING, 1)
    assert (claim["role"], claim["profile"], claim["claim_ttl"]) == (s.IMPLEMENTER, "bot", 60)
    assert claim["claim_lock"].count(":") == 2
    assert claim["workspace"] == f"{hermes.home}/kanban/workspaces/{task}"
    beat = hermes.ask("heartbeat", task, "--note", "x")
    assert (beat["id"], beat["run_id"], beat["notices"]) == (task, 1, [])
    assert beat["claim_expires"] >= claim["claim_expires"]


def test_the_next_card_is_named_with_its_place(hermes: Hermes) -> None:  # P11, P16
    hermes.create("low")
    high = hermes.create("high", "--priority", "9")
    assert hermes.ok("claim", "--next") == f"{high} {hermes.home}/kanban/workspaces/{high}"
    assert hermes("claim", "--next", "--assignee", "ann").code == 4
    assert hermes("claim", "--next", "--review", "--wait", "0").code == 4
    for words in (["claim"], ["claim", high, "--next"], ["claim", high, "--wait"], ["claim", high, "--review"]):
        assert hermes(*words).code == 2


def test_a_waiting_claim_gets_the_card_that_comes(hermes: Hermes) -> None:  # P16
    waiting = hermes.start("claim", "--next", "--assignee", "ann", "--wait")
    task = hermes.create("late", "--assignee", "ann")
    out, _ = waiting.communicate(timeout=60)
    assert out.decode().split()[0] == task
    assert waiting.returncode == 0


def test_several_cards_are_each_reported_and_the_worst_code_counts(hermes: Hermes) -> None:
    ready, blocked = hermes.create("a"), hermes.create("b")
    hermes.ok("block", blocked, "no reason in parts")
    answer = hermes("unblock", ready, "t_00000000", blocked)
    assert answer.out == f"{blocked} {s.READY}\n"
    assert answer.code == 4
    assert answer.err.count("error: ") == 2
    rows = hermes("promote", ready, "t_00000000", "--json")
    assert [row["error"]["code"] for row in rows.json] == ["wrong_state", "task_not_found"]
    assert rows.code == 4
    both = hermes("archive", ready, blocked, "--json")
    assert [row["status"] for row in both.json] == [s.ARCHIVED] * 2
    assert hermes.ok("unarchive", ready, blocked, "-q").split() == [ready, blocked]


def test_a_person_completes_several_without_a_summary(hermes: Hermes) -> None:  # P22
    one, two = hermes.create("a"), hermes.create("b")
    assert hermes("complete", one, two, "--summary", "x").code == 2
    assert hermes.status(one) == s.READY
    assert hermes.ok("complete", one, two) == f"{one} {s.DONE}\n{two} {s.DONE}"
    third = hermes.create("c")
    assert hermes("complete", third).code == 7
    assert "--summary" in hermes("complete", third).err


def test_a_block_s_reason_is_a_text_or_its_parts(hermes: Hermes) -> None:  # P25
    tasks = [hermes.create(f"card {n}") for n in range(3)]
    hermes.ok("block", tasks[0], REASON)
    hermes.ok(
        *("block", tasks[1], "--ids", tasks[2], "--kind", "needs_input", "--cause", "spec undecided", "--what", "two"),
        *("--option", "A: JSON", "--option", "B: YAML", "--recommend", "A", "--next", "choose"),
    )
    inbox = {row["id"]: row for row in hermes.ask("inbox")}
    assert list(inbox) == tasks
    assert {tuple(row["options"]) for row in inbox.values()} == {("A: JSON", "B: YAML")}
    assert inbox[tasks[2]]["block_kind"] == s.NEEDS_INPUT
    text = hermes.ok("inbox")
    assert text.count("    - B: YAML\n") == 3
    assert f"hermes kanban unblock {tasks[0]} --answer" in text
    assert hermes.ok("unblock", tasks[0], "--answer", "B") == f"{tasks[0]} {s.READY}"
    assert "B: YAML" in hermes.ask("context", tasks[0])["context"]
    assert hermes("block", tasks[0], "text", "--what", "parts too").code == 2
    assert hermes("block", tasks[0]).code == 7
    assert hermes("block", tasks[0], "why", "--ids", tasks[1], tasks[2]).code == 2  # an id that would become text
    assert hermes.ok("inbox", "-q").split() == tasks[1:]


def test_an_agent_gets_the_template(hermes: Hermes) -> None:  # P25
    task = hermes.create("x")
    script = 'hermes kanban claim "$1" >/dev/null 2>&1; hermes kanban block "$1" "it did not work" --json'
    answer = hermes.sh(script, task)
    assert answer.code == 7
    assert answer.json["error"]["code"] == "block_template"
    assert "\n      cause: human decision needed" in answer.err  # hints of several lines are moved in
    assert hermes.status(task) == s.RUNNING


def test_a_review_goes_round(hermes: Hermes) -> None:  # P30, P31
    task = hermes.create("x", "--assignee", "bot")
    work = (
        'hermes kanban claim "$1" >/dev/null 2>&1 && hermes kanban request-review "$1" --summary "look" --reviewer rev'
    )
    assert hermes.set(HERMES_KANBAN_NAME="bot").sh(work, task).out == f"{task} {s.REVIEW}\n"
    verdict = 'hermes kanban claim --next --review >/dev/null 2>&1 && hermes kanban request-changes "$1" not yet --json'
    row = hermes.set(HERMES_KANBAN_NAME="rev").sh(verdict, task).json
    assert (row["status"], row["assignee"], row["run"]["outcome"]) == (s.READY, "bot", s.CHANGES_REQUESTED)
    assert "not yet" in hermes.ask("context", task)["context"]


def test_people_park_release_and_open_again(hermes: Hermes) -> None:
    task = hermes.create("a")
    assert hermes.ok("schedule", task, "--in", "2h", "--reason", "later") == f"{task} {s.SCHEDULED}"
    assert hermes("schedule", task, "--at", "+1h", "--in", "1h").code == 2
    assert hermes.ok("promote", task) == f"{task} {s.READY}"
    child = hermes.create("b", "--parent", task)
    hermes.ok("schedule", child, "--reason", "parked")
    assert f"hermes kanban unlink {task} {child}" in hermes("promote", child).err
    hermes.ok("complete", task, "--summary", "x")
    hermes.ok("unblock", child)
    reopened = hermes("reopen", task, "--json")
    assert (reopened.json["status"], reopened.json["waiting"]) == (s.READY, [child])
    assert hermes.ok("unlink", task, child) == f"{child} {s.READY}"
    linked = hermes("link", task, child, "--json").json
    assert (linked["id"], linked["gated"], linked["gated_by"]) == (child, True, [task])
    assert hermes("archive", task).code == 4  # its child would wait for ever (P6)
    assert hermes.ok("archive", task, "--release-children") == f"{task} {s.ARCHIVED}"
    assert hermes.status(child) == s.READY
    assert hermes("archive", child, "--release-children", "--archive-children").code == 2


def test_a_claim_is_taken_back_by_a_person(hermes: Hermes) -> None:  # P12c
    with hermes.script() as other:
        task, second = hermes.create("x"), hermes.create("y")
        other(f"hermes kanban claim {task} --ttl 60; hermes kanban claim {second} --ttl 60")
        assert hermes("complete", task, "--summary", "x").code == 5
        assert hermes.ok("reclaim", task) == f"{task} {s.READY}"
        shown = hermes.ask("show", task)
        assert shown["eligible_reason"] == s.QUARANTINE
        assert hermes.ask("why", task)["claim_reasons"][0]["until"] == shown["eligible_at"]
        done = hermes("complete", second, "--summary", "x", "--override")
        assert (done.code, done.out) == (0, f"{second} {s.DONE}\n")
        assert "warning: run" in done.err
        assert other(f"hermes kanban heartbeat {second}")[0] == 5


# --- graphs ---
GRAPH = {
    "tasks": [
        {"name": "write", "title": "write it", "parents": ["collect"], "assignee": "ann", "idempotency_key": "w"},
        {"name": "collect", "title": "collect", "priority": 3, "max-runtime": "2h", "skills": ["x"], "body": "all"},
        {"title": "an idea", "triage": True},
    ]
}
YAML = """
- name: collect
  title: collect
- name: write
  title: "write: it"
  parents: [collect]
"""


@pytest.mark.parametrize("how", ["file", "stdin"])
def test_a_graph_is_made_in_one_step(hermes: Hermes, tmp_path: Path, how: str) -> None:  # P53
    text = json.dumps(GRAPH)
    (tmp_path / "graph.json").write_text(text, encoding="utf-8")
    source, given = (str(tmp_path / "graph.json"), None) if how == "file" else ("-", text.encode())
    dry = hermes("apply", source, "--dry-run", "--json", stdin=given)
    assert [task["status"] for task in dry.json["tasks"]] == [s.TODO, s.READY, s.TRIAGE]
    assert hermes.ask("list") == []
    made = hermes("apply", source, stdin=given)
    assert made.code == 0, made
    ids = [line.split()[0] for line in made.out.splitlines()]
    assert [parent["id"] for parent in hermes.ask("show", ids[0])["parents"]] == [ids[1]]
    shown = hermes.ask("show", ids[1])
    assert (shown["priority"], shown["max_runtime_seconds"], shown["skills"]) == (3, 7200, ["x"])
    again = hermes("apply", source, stdin=given).out.splitlines()
    assert again[0] == f"{ids[0]} {s.TODO}  write (was there before)"
    assert again[2].endswith(f" {s.TRIAGE}  an idea")


def test_a_graph_may_be_yaml(hermes: Hermes) -> None:
    made = hermes("apply", "-", "-q", stdin=YAML.encode())
    assert len(made.out.split()) == 2
    assert hermes.ask("show", made.out.split()[1])["title"] == "write: it"


FAULTS = (
    ("[{title: a, titel: b}]", "unknown key 'titel'"),
    ("[{name: a}]", "a title is required"),
    ("[{title: a, parents: b}]", "must be a list"),
    ("[{title: a, priority: high}]", "needs a number"),
    ("[{title: a, priority: 5000}]", "): priority must be from -1000 to 1000"),
    ("[{title: a, goal: 'yes'}]", "true or false"),
    ("[{title: 5}]", "must be a text"),
    ("[{title: a, parents: [b], name: b}]", "wait for each other"),
    ("[{title: a}, {title: b, parents: [t_00000000]}]", "no task"),
    ("{tasks: [{title: a}], more: 1}", "unknown key 'more'"),
    ("[]", "list of tasks"),
    ("a: [", "standard input is no YAML: line 1, column 5"),
    ("[{title: a, at: 1, in: 1h}]", "in"),
    ("[{title: a, at: +1h, in: 1h}]", "say the same"),
    ("[1]", "must be a map"),
    ("!!python/object/apply:os.system [true]", "is no YAML: line 1, column 1"),
    ("[{title: &a x}, {title: *a}]", "aliases"),
)


def test_a_graph_with_a_fault_makes_nothing(hermes: Hermes) -> None:  # P50b, P53
    for text, says in FAULTS:
        answer = hermes("apply", "-", stdin=text.encode())
        assert answer.code in (3, 4, 7), (text, answer)
        assert says in answer.err
        assert "Traceback" not in answer.err
        assert answer.out == ""
    assert hermes.ask("events") == []
