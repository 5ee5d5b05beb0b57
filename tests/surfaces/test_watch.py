"""Followers: every event once, in order, on a line of its own, until a signal or a reader that goes away."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from hermes_kanban.model import status as s
from tests.surfaces.hermes import Hermes, line_of


@contextmanager
def watching(hermes: Hermes, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run `watch`; on entry it waits for news."""
    before = hermes.waiters()
    process = hermes.start(*(words or ("watch",)))
    while hermes.waiters() == before and process.poll() is None:
        os.sched_yield()
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def event_of(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    event: dict[str, Any] = json.loads(line_of(process))
    return event


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_events_from_now_on_until_a_signal(hermes: Hermes, number: signal.Signals) -> None:
    hermes.create("before")
    with watching(hermes) as process:
        task = hermes.create("after", "--assignee", "ann", "--tenant", "t")
        event = event_of(process)
        assert (event["kind"], event["task_id"], event["actor"][:6]) == ("created", task, "human:")
        assert (event["title"], event["assignee"], event["tenant"]) == ("after", "ann", "t")
        assert {"id", "run_id", "payload", "created_at", "at_ms"} <= event.keys()
        hermes.ok("comment", task, "x")
        assert event_of(process)["id"] == event["id"] + 1
        process.send_signal(number)
        assert process.communicate(timeout=60) == (b"", b"")
        assert process.returncode == 0


def test_a_shell_s_background_job_ends_too(hermes: Hermes) -> None:
    script = """hermes kanban watch --since 0 > out & pid=$!
    until [ -s out ]; do :; done
    kill -INT $pid; wait $pid; echo "ended $?" """
    hermes.create()
    answer = hermes.run(["sh", "-c", f"cd {hermes.home}; {script}"])
    assert answer.out == "ended 0\n"


def test_watch_goes_on_where_it_stopped(hermes: Hermes) -> None:  # P80
    ids = [hermes.create(f"card {number}") for number in range(3)]
    with watching(hermes, "watch", "--since", "1") as process:
        assert [event_of(process)["task_id"] for _ in range(2)] == ids[1:]


def test_watch_shows_what_was_asked_for(hermes: Hermes) -> None:
    task = hermes.create("mine", "--assignee", "ann")
    filters = (["--assignee", "ann"], ["--task", task[:8]], ["--kinds", "commented,completed"])
    processes = [hermes.start("watch", "--interval", "5", *words) for words in filters]
    while hermes.waiters() < len(processes):
        os.sched_yield()
    other = hermes.create("other", "--assignee", "bot", "--tenant", "t")
    hermes.ok("comment", task, "x")
    hermes.ok("complete", other, "--summary", "x")
    seen = [[event_of(process)] for process in processes]
    seen[2].append(event_of(processes[2]))
    for process in processes:
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=60)[0] == b""
    assert [[event["task_id"] for event in events] for events in seen] == [[task], [task], [task, other]]


def test_watch_ends_when_its_reader_goes(hermes: Hermes) -> None:
    reader, writer = os.pipe()
    process = hermes.start("watch", "--interval", "1", stdout=writer)
    os.close(writer)
    os.close(reader)
    assert process.communicate(timeout=60)[1] == b""  # without any news
    assert process.returncode == 0


def test_watching_holds_no_transaction(hermes: Hermes) -> None:
    with watching(hermes) as process:
        for number in range(3):
            hermes.create(f"card {number}")
            event_of(process)
        program = """import apsw, sys
c = apsw.Connection(sys.argv[1])
c.execute("SELECT count(*) FROM sqlite_schema").fetchall()
print(c.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE))"""
        answer = hermes.run(["python", "-c", program, str(hermes.home / "kanban.db")])
        assert answer.out == "(0, 0)\n", answer  # an open read transaction would keep the log from being emptied


def test_tail_shows_the_newest_and_follows(hermes: Hermes) -> None:
    task = hermes.create()
    for number in range(3):
        hermes.ok("comment", task, f"fact {number}")
    assert [event["payload"]["excerpt"] for event in hermes.ask("tail", task, "--limit", "2")] == ["fact 1", "fact 2"]
    with watching(hermes, "tail", task, "--limit", "1", "--follow") as process:
        assert "fact 2" in line_of(process)
        hermes.create("another card")
        hermes.ok("comment", task, "fact 3")
        assert "fact 3" in line_of(process)


def test_the_board_is_drawn_again_after_each_change(hermes: Hermes) -> None:
    with watching(hermes, "board", "--watch") as process:
        assert [line_of(process).split() for _ in range(4)][3] == [s.READY, "0"]
        hermes.create("fresh")
        while "fresh" not in line_of(process):
            pass
    assert hermes("board", "--watch", "--json").code == 2


def test_the_board_is_drawn_side_by_side_on_a_terminal(hermes: Hermes) -> None:
    hermes.create("on the left")
    hermes.create("idea", "--triage")
    shown = on_terminal(hermes, "board")
    assert "│" in shown
    assert "\x1b[" in shown
    line = next(line for line in shown.splitlines() if "idea" in line)
    assert "on the left" in line
    plain = on_terminal(hermes.set(NO_COLOR="1"), "list")
    assert "\x1b[" not in plain
    assert "\x1b[32mready\x1b[0m" in on_terminal(hermes, "list")
    assert "\x1b[" not in on_terminal(hermes.set(TERM="dumb"), "list")


def test_a_board_higher_than_the_window_is_cropped_to_it(hermes: Hermes) -> None:
    graph = [{"title": f"a title of some length, number {n}", "triage": n % 3 == 0} for n in range(40)]
    hermes.ok("apply", "-", stdin=json.dumps(graph).encode())
    with terminal(hermes, "board", "--watch", lines=14) as (process, read):
        shown = read(until=b"more")
        process.send_signal(signal.SIGINT)
        shown += read()
        assert process.wait(60) == 0
    page, home = "\x1b[?1049h", "\x1b[H\x1b[J"
    assert shown.startswith(page + home)
    assert shown.endswith("\x1b[?1049l")
    for frame in shown.removesuffix("\x1b[?1049l").split(home)[1:]:
        assert frame.count("\n") < 14
        assert len(re.findall(r"… and \d+ more", frame)) == 2


def test_ids_are_whole_in_a_narrow_window(hermes: Hermes) -> None:
    ids = [hermes.create("card"), hermes.create("idea", "--triage"), hermes.create("later", "--in", "1h")]
    hermes.ok("complete", hermes.create("x"), "--summary", "x")
    for columns in (40, 62, 0):  # too narrow for side by side, just wide enough, unknown
        shown = on_terminal(hermes.set(NO_COLOR="1"), "board", columns=columns)
        assert all(task in shown for task in ids)
        assert max(map(len, shown.splitlines())) <= (columns or 80)


@contextmanager
def terminal(
    hermes: Hermes, *words: str, columns: int = 80, lines: int = 24
) -> Iterator[tuple[subprocess.Popen[bytes], Callable[..., str]]]:
    """Run a verb on a terminal; `read` returns what it prints, to the end or until some bytes are there."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    process = hermes.set(**({"TERM": "xterm"} | hermes.variables)).start(*words, stdout=slave)
    os.close(slave)

    def read(until: bytes | None = None) -> str:
        found = b""
        try:
            while (until is None or until not in found) and (piece := os.read(master, 65_536)):
                found += piece
        except OSError:  # the end of a terminal, on Linux
            pass
        return found.decode()

    try:
        yield process, read
    finally:
        process.kill()
        process.communicate()
        os.close(master)


def on_terminal(hermes: Hermes, *words: str, columns: int = 80) -> str:
    """Return what a verb prints to a terminal."""
    with terminal(hermes, *words, columns=columns) as (process, read):
        shown = read()
        assert process.wait(60) == 0
    return shown


def test_a_watch_on_a_deleted_board_says_so_and_ends(hermes: Hermes) -> None:
    process = hermes.start("watch", "--since", "0", "--interval", "1")
    hermes.create("seen")
    assert "created" in line_of(process)
    for path in hermes.home.glob("kanban.db*"):
        path.unlink()
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (3, b"")
    assert b"deleted or replaced" in err
