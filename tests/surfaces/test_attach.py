"""Files on the command line: attach, attachments, attach-rm, and the artifacts of a completion (P61, D20, C158)."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_kanban.model import status as s
from tests.site import Site, serving
from tests.surfaces.hermes import CONFIG, Answer, Hermes
from tests.surfaces.test_import_budget import imported


@pytest.fixture
def site() -> Iterator[Site]:
    with serving() as running:
        yield running


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    folder = tmp_path / "desk"
    folder.mkdir()
    return folder


def written(folder: Path, name: str, body: bytes = b"text\n") -> str:
    (folder / name).write_bytes(body)
    return str(folder / name)


def configured(hermes: Hermes, **values: Any) -> Hermes:
    lines = "".join(f"  {name}: {str(value).lower()}\n" for name, value in values.items())
    (hermes.home / "config.yaml").write_text(CONFIG + lines, encoding="utf-8")
    return hermes


def files(hermes: Hermes) -> list[str]:
    root = hermes.home / "kanban" / "attachments"
    return sorted(path.name for path in root.rglob("*") if not path.is_dir())


def refused(hermes: Hermes, task: str, exit_code: int, code: str, *words: str, stdin: bytes | None = None) -> Answer:
    """Run a verb that must be refused and change nothing: no row, no event, no file (but for a `refused` event)."""

    def state() -> tuple[Any, ...]:
        kinds = [kind for kind in hermes.kinds(task) if kind != "refused"]
        return hermes.ask("attachments", task), kinds, files(hermes), hermes.status(task)

    before = state()
    answer = hermes(*words, "--json", stdin=stdin)
    assert (answer.code, answer.json["error"]["code"]) == (exit_code, code), answer
    assert answer.json["error"]["hint"]
    assert "Traceback" not in answer.err
    assert state() == before
    return answer


# --- attach -----------------------------------------------------------------------------------------------------
def test_attach_answers_in_three_forms(hermes: Hermes, desk: Path) -> None:
    task = hermes.create()
    a, b = written(desk, "a.txt", b"abc"), written(desk, "b.txt")
    plain = hermes("attach", task, a, b)
    assert (plain.code, plain.out) == (0, f"{task} ready\n")
    assert plain.err.count("note: attachment") == 2
    assert hermes.ok("attach", task, a, "-q") == task
    found = hermes.ask("attach", task, a)
    assert (found["id"], found["status"], len(found["attachments"])) == (task, s.READY, 1)
    row = found["attachments"][0]
    assert (row["id"], row["name"], row["size"], row["content_type"]) == (4, "a.txt", 3, "text/plain")
    assert row["sha256"] == hashlib.sha256(b"abc").hexdigest()
    assert Path(row["path"]).read_bytes() == b"abc"
    assert hermes.kinds(task) == ["created", *["attached"] * 4]
    assert hermes.ask("verify")["ok"]


def test_standard_input_is_attached_under_a_name(hermes: Hermes, desk: Path) -> None:  # P61
    task = hermes.create()
    body = bytes(range(256)) * 1000
    hermes.ok("attach", task, "-", "--name", "../raw.bin", stdin=body)
    hermes.ok("attach", "--name=empty", task, "-", stdin=b"")
    raw, empty = hermes.ask("attachments", task)
    assert (raw["name"], Path(raw["path"]).read_bytes()) == ("raw.bin", body)
    assert (empty["name"], empty["size"]) == ("empty", 0)
    refused(hermes, task, 2, "usage", "attach", task, "-", stdin=b"x")
    refused(hermes, task, 2, "usage", "attach", task, "-", written(desk, "a"), "--name", "b", stdin=b"x")


@pytest.mark.parametrize(
    ("exit_code", "code", "words"),
    [
        (2, "usage", ()),
        (2, "usage", ("--nam", "x")),
        (7, "file_refused", ("/no/such/file",)),
        (7, "file_refused", ("/",)),
        (7, "file_refused", ("GOOD", "/no/such/file")),
        (7, "attachment_too_large", ("GOOD", "LARGE")),
        (7, "url_refused", ("GOOD", "--url", "file:///etc/passwd")),
        (7, "url_refused", ("--url", "http://user:secret@example.org/x")),
        (7, "invalid_value", ("GOOD", "--run", "0")),
        (5, "claim_lost", ("GOOD", "--run", "77")),
    ],
)
def test_a_refused_attach_leaves_nothing(
    hermes: Hermes, desk: Path, exit_code: int, code: str, words: tuple[str, ...]
) -> None:  # P61, C103
    configured(hermes, attachment_limit_bytes=100)
    task = hermes.create()
    paths = {"GOOD": written(desk, "good"), "LARGE": written(desk, "large", b"x" * 101)}
    answer = refused(hermes, task, exit_code, code, "attach", task, *(paths.get(word, word) for word in words))
    assert "secret" not in answer.err + answer.out
    assert files(hermes) == []


def test_an_unknown_card_has_no_files(hermes: Hermes, desk: Path) -> None:
    hermes.create()
    for words in (
        ("attach", "t_00000000", written(desk, "a")),
        ("attachments", "t_00000000"),
        ("attach-rm", "t_00000000", "1"),
    ):
        answer = hermes(*words, "--json")
        assert (answer.code, answer.json["error"]["code"]) == (3, "task_not_found")
    assert files(hermes) == []


# --- attachments, show, context, attach-rm ----------------------------------------------------------------------
def test_readers_get_absolute_paths_that_can_be_read(hermes: Hermes, desk: Path) -> None:  # P61b, P62, C91
    task = hermes.create()
    assert hermes.ok("attachments", task) == ""
    assert hermes.ask("attachments", task) == []
    name = "evil\x1b[31m\n<b>.txt"
    hermes.ok("attach", task, written(desk, name), "--name", f"/etc/{name}")
    (one,) = hermes.ask("attachments", task)
    assert os.path.isabs(one["path"])
    assert Path(one["path"]).read_bytes() == b"text\n"
    assert hermes.ask("show", task)["attachments"] == [one]
    assert hermes.ok("attachments", task, "-q") == str(one["id"])
    for verb in ("attachments", "show", "context"):
        text = hermes.ok(verb, task)
        assert one["path"] in text
        assert "\x1b" not in text


def test_attach_rm_takes_row_and_file_away(hermes: Hermes, desk: Path) -> None:
    task = hermes.create()
    hermes.ok("attach", task, written(desk, "a"), written(desk, "b"))
    for number, exit_code, code in (("3", 3, "attachment_not_found"), ("0", 7, "invalid_value"), ("x", 2, "usage")):
        refused(hermes, task, exit_code, code, "attach-rm", task, number)
    bridge = hermes.set(HERMES_KANBAN_ROLE="bridge")
    refused(bridge, task, 6, "forbidden", "attach-rm", task, "1")
    assert hermes.ask("attach-rm", task, "1")["attachments"][0]["name"] == "a"
    assert files(hermes) == ["b"]
    assert hermes.kinds(task)[-1] == "detached"
    refused(hermes, task, 3, "attachment_not_found", "attach-rm", task, "1")
    assert hermes.ask("verify")["ok"]


# --- the fence --------------------------------------------------------------------------------------------------
def test_a_script_attaches_through_its_own_claim_alone(hermes: Hermes, desk: Path) -> None:  # P12, P12b, P13
    task, path = hermes.create(), written(desk, "a")
    with hermes.script() as mine, hermes.script() as other:
        assert mine(f"hermes kanban claim {task}")[0] == 0
        code, text = mine(f"hermes kanban attach {task} {path} --json")
        assert code == 0, text
        (row,) = json.loads(text)["attachments"]
        assert (row["run_id"], row["added_by"].partition(":")[0]) == (1, "bridge")
        attach = f"hermes kanban attach {task} {path}"
        for late in (f"HERMES_KANBAN_ROLE=bridge {attach}", f"{attach} --run 1", f"HERMES_KANBAN_RUN_ID=1 {attach}"):
            assert other(late)[0] == 5
        worker = hermes.set(HERMES_KANBAN_TASK=task, HERMES_KANBAN_RUN_ID="1", HERMES_KANBAN_CLAIM_LOCK="guessed")
        refused(worker, task, 5, "claim_lost", "attach", task, path)
    assert files(hermes) == ["a"]
    assert hermes.kinds(task).count("refused") >= 1
    hermes.ok("attach", task, path)  # a person anywhere


def test_a_killed_attach_leaves_no_row(hermes: Hermes, desk: Path) -> None:  # C119
    task = hermes.create()
    process = hermes.start("attach", task, "-", "--name", "half", stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(b"x" * 200_000)
    process.stdin.flush()  # more than a pipe holds: the command is reading
    process.kill()
    process.communicate()
    assert hermes.ask("attachments", task) == []
    assert "half" not in files(hermes)
    assert hermes.kinds(task) == ["created"]
    hermes.ok("attach", task, "-", "--name", "half", stdin=b"whole")
    assert Path(hermes.ask("attachments", task)[0]["path"]).read_bytes() == b"whole"


# --- downloads --------------------------------------------------------------------------------------------------
def test_inner_addresses_are_refused(hermes: Hermes, site: Site) -> None:  # P61, C158
    task = hermes.create()
    site.page("/x", b"inner")
    for url in (
        site.url("/x"),
        site.url("/x", "localhost"),
        site.url("/x", "[::1]"),
        site.url("/x", "[::ffff:127.0.0.1]"),
        site.url("/x", "2130706433"),
        "http://169.254.169.254/latest/meta-data/",
        "http://10.0.0.1/",
        "https://192.168.1.1/",
    ):
        refused(hermes, task, 7, "url_refused", "attach", task, "--url", url)
    assert site.asked == []


def test_a_download_is_attached_where_it_is_allowed(hermes: Hermes, site: Site) -> None:  # P61
    configured(hermes, attach_private_addresses=True)
    task = hermes.create()
    site.page("/files/report.pdf", b"%PDF", content_type="text/html")
    start = site.redirect("/start?key=secret", site.url("/files/report.pdf"))
    proxied = hermes.set(http_proxy="http://127.0.0.1:9", HTTP_PROXY="http://127.0.0.1:9")
    row = proxied.ask("attach", task, "--url", start)["attachments"][0]
    assert (row["name"], row["size"], row["content_type"]) == ("report.pdf", 4, "application/pdf")
    assert row["source_url"] == site.url("/files/report.pdf")
    assert Path(row["path"]).read_bytes() == b"%PDF"
    hermes.ok("attach", task, "--url", start, "--name", "mine.txt")
    assert [one["name"] for one in hermes.ask("attachments", task)] == ["report.pdf", "mine.txt"]
    assert "secret" not in hermes.ok("show", task, "--json") + hermes.ok("events", "--task", task)
    assert hermes.ask("verify")["ok"]


def test_a_download_that_fails_leaves_nothing(hermes: Hermes, site: Site) -> None:  # P61, C104, C158
    configured(hermes, attach_private_addresses=True, attachment_limit_bytes=1000)
    task = hermes.create()
    for number in range(6):
        site.redirect(f"/{number}", f"/{number + 1}")
    site.page("/6", b"end")
    site.pages["/half"] = (200, {"Content-Length": "100"}, b"half")
    site.pages["/stream"] = (200, {}, b"x" * 1001)
    for url, exit_code, code in (
        (site.url("/0"), 7, "url_refused"),
        (site.redirect("/file", "file:///etc/passwd"), 7, "url_refused"),
        (site.url("/missing"), 7, "url_refused"),
        (site.page("/broken", b"", 503), 8, "fetch_failed"),
        (site.url("/half"), 8, "fetch_failed"),
        (site.page("/large", b"x" * 1001), 7, "attachment_too_large"),
        (site.url("/stream"), 7, "attachment_too_large"),
        ("http://127.0.0.1:1/", 8, "fetch_failed"),
    ):
        refused(hermes, task, exit_code, code, "attach", task, "--url", url)
    hermes.ok("attach", task, "--url", site.url("/1"))
    assert files(hermes) == ["6"]


def test_nothing_is_asked_for_in_vain(hermes: Hermes, site: Site) -> None:  # P12
    configured(hermes, attach_private_addresses=True)
    task = hermes.create()
    url = site.page("/x", b"x")
    refused(hermes.set(HERMES_KANBAN_ROLE="bridge"), task, 5, "claim_lost", "attach", task, "--url", url)
    assert site.asked == []


# --- artifacts --------------------------------------------------------------------------------------------------
def test_a_worker_completes_with_its_files(hermes: Hermes) -> None:  # D20, C98
    task = hermes.create()
    done = hermes.sh(
        'ws=$(hermes kanban claim "$1") && mkdir "$ws/out" && echo found > "$ws/out/report.md" && cd / && '
        'hermes kanban complete "$1" --summary x --artifact out/report.md --artifact "$ws/out/report.md"',
        task,
    )
    assert (done.code, done.out) == (0, f"{task} done\n"), done
    rows = hermes.ask("attachments", task)
    assert {(row["name"], row["run_id"]) for row in rows} == {("report.md", 1)}
    assert {Path(row["path"]).read_text() for row in rows} == {"found\n"}
    assert rows[0]["path"] in done.err
    assert hermes.kinds(task)[-1] == "completed"


@pytest.mark.parametrize(
    ("artifact", "code"),
    [("nothing.md", "file_refused"), ("/etc/hostname", "file_refused"), ("large", "attachment_too_large")],
)
def test_a_bad_artifact_leaves_the_card_open(hermes: Hermes, artifact: str, code: str) -> None:  # D20, C98, C103
    configured(hermes, attachment_limit_bytes=100)
    task = hermes.create()
    with hermes.script() as script:
        assert script(f'ws=$(hermes kanban claim {task}); printf %200s x > "$ws/large"; echo ok > "$ws/good"')[0] == 0
        exit_code, text = script(
            f"hermes kanban complete {task} --summary x --artifact good --artifact {artifact} --json"
        )
        assert exit_code == 7
        assert f'"code":"{code}"' in text
        assert (hermes.status(task), hermes.ask("attachments", task), files(hermes)) == (s.RUNNING, [], [])
        for _ in range(2):  # the repeated call is answered from what is stored (P12)
            exit_code, text = script(f"hermes kanban complete {task} --summary x --artifact good")
            assert exit_code == 0, text
    assert files(hermes) == ["good"]
    assert hermes.kinds(task) == ["created", "claimed", "attached", "completed"]


def test_artifacts_are_of_one_card(hermes: Hermes) -> None:  # P22
    first, second = hermes.create(), hermes.create()
    refused(hermes, first, 2, "usage", "complete", first, second, "--artifact", "x")


# --- speed ------------------------------------------------------------------------------------------------------
def test_only_a_download_loads_what_speaks_to_the_network(hermes: Hermes, desk: Path, site: Site) -> None:
    configured(hermes, attach_private_addresses=True)
    task, path, url = hermes.create(), written(desk, "a.txt"), site.page("/x", b"x")
    network = {"socket", "ssl", "http.client", "threading"}
    modules = imported(hermes, "attach", task, path)
    assert not (network | {"rich", "yaml", "subprocess", "tempfile", "shutil"}) & modules
    assert network <= imported(hermes, "attach", task, "--url", url)
