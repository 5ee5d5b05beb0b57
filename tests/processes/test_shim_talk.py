"""What a shim says while a run goes on, to whom, and whose orders it takes (D6, D13, P13, P14b, P70)."""

from __future__ import annotations

import os
import select
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hermes_kanban.lanes import channel
from tests.processes.reports import Report
from tests.processes.shims import PATIENCE, RUN, YES, Shim, alive, py, shim, until

FOREVER = "import time\nwhile True: time.sleep(60)\n"
GO = "open('../go').read()\n"  # waits for the test
BUSY = "while True: pass\n"
OPEN, CLOSED, TAKEN = YES, {"ok": True, "state": "closed", "by_owner": True}, {"ok": True, "state": "closed"}


@contextmanager
def waiting(folder: Path, rest: str = "", **changes: Any) -> Iterator[Shim]:
    """A run whose worker prints `up`, waits for `go`, and does the rest."""
    os.mkfifo(folder / "go")
    with shim(folder, py(f"print('up')\n{GO}{rest}"), **changes) as s:
        yield s


def go(s: Shim) -> None:
    (s.folder / "go").write_text("")


class Guest:
    """Somebody who connects to the socket of a run."""

    def __init__(self, s: Shim) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(s.order["socket"])
        self.lines = channel.Lines()
        self.inbox: list[dict[str, Any]] = []

    def hear(self) -> dict[str, Any]:
        while not self.inbox:
            assert select.select([self.sock], [], [], PATIENCE)[0], "the shim says nothing"
            data = self.sock.recv(65_536)
            assert data, "the shim hung up"
            self.inbox += self.lines.feed(data)
        return self.inbox.pop(0)

    def say(self, **message: Any) -> None:
        channel.send(self.sock, message)

    def shout(self) -> None:
        """Say what is no message, and listen to what comes of it."""
        self.sock.sendall(b"x" * 2_000_000 + b"\n")
        self.sock.recv(1)

    def __enter__(self) -> Guest:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()


# --- beats ----------------------------------------------------------------------------------------------------
def next_beat(s: Shim) -> dict[str, Any]:
    """Return the next beat, and answer it."""
    beat = s.hear("beat")
    s.say(**OPEN)
    return beat


def test_output_makes_a_beat_active_and_silence_does_not(tmp_path: Path) -> None:  # P13
    with waiting(tmp_path, "print('more')\n" + FOREVER, beat=0.2) as s:
        s.begin()
        until(lambda: next_beat(s)["active"])  # it said `up`
        beats = [next_beat(s), next_beat(s)]
        assert [beat["active"] for beat in beats] == [False, False]
        assert (beats[0]["run"], beats[0]["lock"], type(beats[0]["idle"])) == (RUN, s.mark, int)
        go(s)
        until(lambda: next_beat(s)["active"])


def test_computing_makes_a_beat_active(tmp_path: Path) -> None:  # P13, C31
    with shim(tmp_path, py("import os\nos.fork()\n" + BUSY), beat=0.2) as s:
        s.begin()
        until(lambda: s.hear("beat")["active"])


def test_what_ended_processes_computed_counts_too(tmp_path: Path) -> None:  # P13
    turns = "import os, time\nwhile True:\n    if not os.fork():\n        while time.process_time() < 0.1: pass\n"
    with shim(tmp_path, py(turns + "        os._exit(0)\n    os.wait()\n"), beat=0.2) as s:
        s.begin()
        until(lambda: s.hear("beat")["active"])


def test_a_loop_that_repeats_itself_is_no_news(tmp_path: Path) -> None:  # C32
    loop = "import time\ni = 0\nwhile True:\n    i += 1\n    print('step', i)\n    time.sleep(0.05)\n"
    with shim(tmp_path, py(loop), beat=0.5) as s:
        s.begin()
        until(lambda: next_beat(s)["active"])

        def goes_round() -> bool:
            beat = next_beat(s)
            return bool(beat["active"] and beat["idle"] >= 1)

        until(goes_round)


def test_a_beat_comes_at_least_three_times_in_a_lease(tmp_path: Path) -> None:  # P13
    with shim(tmp_path, py(FOREVER), beat=60, ttl=0.9) as s:
        s.begin()
        next_beat(s)
        next_beat(s)


# --- what an answer means -------------------------------------------------------------------------------------
def test_an_answer_that_the_worker_closed_the_run_begins_its_grace(tmp_path: Path) -> None:  # D14b, C19
    with waiting(tmp_path, beat=0.1, closing_grace=0.3) as s:
        s.begin()
        s.hear("beat")
        s.say(**CLOSED)
        record = s.end()
        assert record is not None
        assert (record.stop, record.overstayed) == ("", True)


@pytest.mark.parametrize("answer", [TAKEN, {"ok": False, "message": "claim lost"}])
def test_an_answer_that_the_run_was_taken_ends_it(tmp_path: Path, answer: dict[str, Any]) -> None:  # P12c
    with waiting(tmp_path, beat=0.1) as s:
        s.begin()
        s.hear("beat")
        s.say(**answer)
        record = s.end()
        assert record is not None
        assert (record.stop, record.overstayed) == ("override", False)


def test_an_answer_that_there_is_none_yet_changes_nothing(tmp_path: Path) -> None:
    with waiting(tmp_path, beat=0.1) as s:
        s.begin()
        for _ in range(2):
            s.hear("beat")
            s.say(ok=False, retry=True)
        go(s)
        record = s.end()
        assert record is not None
        assert (record.code, record.stop) == (0, "")


# --- a new gateway --------------------------------------------------------------------------------------------
def test_a_new_gateway_goes_on_where_the_old_one_left_off(tmp_path: Path) -> None:  # D6
    with waiting(tmp_path, beat=0.2, report=["false"]) as s:
        started = s.begin()
        s.hear("beat")
        s.hang_up()
        with Guest(s) as gateway:
            hello = gateway.hear()
            assert hello == {**started, "op": "hello"}
            assert gateway.hear()["op"] == "beat"
            gateway.say(**OPEN)
            go(s)
            while gateway.hear() != {"op": "ended", "run": RUN}:
                gateway.say(**OPEN)
            gateway.say(**OPEN)
            s.wait()
        record = s.record()
        assert record is not None
        assert (record.code, record.stop) == (0, "")


def test_a_visitor_may_stop_a_run_while_the_gateway_watches_it(tmp_path: Path) -> None:
    with waiting(tmp_path, beat=0.1) as s:
        s.begin()
        with Guest(s) as visitor:
            assert visitor.hear()["op"] == "hello"
            for _ in range(3):
                s.hear("beat")  # still goes to the gateway
                s.say(**OPEN)
            visitor.say(do="stop", reason="bridge_stop")
            record = s.end()
        assert record is not None
        assert record.stop == "bridge_stop"


def test_nonsense_on_the_channel_costs_the_connection_alone(tmp_path: Path) -> None:
    with waiting(tmp_path, beat=0.1, report=["false"]) as s:
        s.begin()
        with Guest(s) as stranger:
            stranger.hear()
            with pytest.raises((BrokenPipeError, ConnectionResetError)):
                stranger.shout()
        for _ in range(2):
            s.hear("beat")
            s.say(**OPEN)
        s.say(do="dance")
        s.say(nothing="at all")
        go(s)
        record = s.end()
        assert record is not None
        assert record.code == 0


def test_everything_that_was_said_before_hanging_up_counts(tmp_path: Path) -> None:
    with waiting(tmp_path, report=["false"]) as s:
        s.begin()
        s.say(do="stop", reason="gateway_stop")
        s.hang_up()
        s.wait()
        record = s.record()
        assert record is not None
        assert record.stop == "gateway_stop"


# --- who may not ----------------------------------------------------------------------------------------------
KNOCK = """
import os, socket, sys
if len(sys.argv) > 2 and os.fork() == 0:
    os.setsid()
    if os.fork(): os._exit(0)
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
try:
    s.sendall(b'{"do":"stop","reason":"override"}\\n')
    print('heard', s.recv(1000))
except (BrokenPipeError, ConnectionResetError):
    print('heard', b'')
"""


@pytest.mark.parametrize("orphan", [[], ["orphan"]], ids=["child", "orphan"])
def test_a_worker_may_not_give_orders_to_its_own_shim(tmp_path: Path, orphan: list[str]) -> None:  # P70
    argv = (sys.executable, "-I", "-u", "-c", KNOCK, str(tmp_path / "7.shim"), *orphan)
    with shim(tmp_path, argv, closing_grace=15) as s:
        s.begin()
        record = s.end()
        assert record is not None
        assert (record.code, record.stop) == (0, "")
        assert set(record.tail) == {"heard b''"}


REFUSED = 3


def knock_as_nobody(path: str) -> int:
    """Give an order as another user; return what came of it."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setgid(65_534)
            os.setuid(65_534)
            with socket.socket(socket.AF_UNIX) as sock:
                sock.connect(path)
                code = 2
                sock.sendall(b'{"do":"stop","reason":"override"}\n')
                code = 0 if sock.recv(1000) else REFUSED
        except (BrokenPipeError, ConnectionResetError):
            code = REFUSED
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_another_user_may_not_give_orders(tmp_path: Path) -> None:  # P70
    with tempfile.TemporaryDirectory() as folder, waiting(tmp_path, socket=f"{folder}/7.shim") as s:
        s.begin()
        os.chmod(folder, 0o711)
        os.chmod(s.order["socket"], 0o666)
        assert knock_as_nobody(s.order["socket"]) == REFUSED
        go(s)
        record = s.end()
        assert record is not None
        assert (record.code, record.stop) == (0, "")


# --- the report program ---------------------------------------------------------------------------------------
def test_without_a_gateway_the_report_program_gets_the_beats(tmp_path: Path) -> None:  # D13
    report = Report(tmp_path, beat=(0, OPEN), ended=(0, OPEN))
    with waiting(tmp_path, beat=0.1, ttl=0.6, report=report.argv) as s:
        s.begin()
        s.hang_up()
        until(lambda: len(report.seen("beat")) >= 2)
        message = report.seen("beat")[0]["message"]
        assert (message["op"], message["run"], message["lock"]) == ("beat", RUN, s.mark)
        go(s)
        s.wait()
        assert report.seen()[-1]["message"] == {"op": "ended", "run": RUN}
        record = s.record()
        assert record is not None
        assert (record.code, record.stop) == (0, "")


def test_the_report_programs_answer_ends_a_run_that_was_taken(tmp_path: Path) -> None:  # P12c
    report = Report(tmp_path, beat=(0, TAKEN), ended=(0, OPEN))
    with waiting(tmp_path, ttl=0.3, report=report.argv) as s:
        s.begin()
        s.hang_up()
        s.wait()
        record = s.record()
        assert record is not None
        assert record.stop == "override"


def test_the_report_programs_answer_begins_the_closing_grace(tmp_path: Path) -> None:  # D14b
    report = Report(tmp_path, beat=(0, CLOSED), ended=(0, OPEN))
    with waiting(tmp_path, ttl=0.3, report=report.argv, closing_grace=0.2) as s:
        s.begin()
        s.hang_up()
        s.wait()
        record = s.record()
        assert record is not None
        assert (record.stop, record.overstayed) == ("", True)


@pytest.mark.parametrize("answer", [(1, TAKEN), (0, "{"), (0, "[]"), (0, {"no": 1}), (0, {"ok": False, "retry": True})])
def test_a_report_program_that_fails_changes_nothing(tmp_path: Path, answer: tuple[int, Any]) -> None:
    report = Report(tmp_path, beat=answer)
    with waiting(tmp_path, ttl=0.3, report=report.argv) as s:
        s.begin()
        s.hang_up()
        until(lambda: len(report.seen("beat")) >= 2)
        go(s)
        s.wait()
        record = s.record()
        assert record is not None
        assert (record.code, record.stop) == (0, "")


def test_a_missing_report_program_changes_nothing(tmp_path: Path) -> None:
    with waiting(tmp_path, ttl=0.15, report=["/no/such/program"]) as s:
        s.begin()
        s.hang_up()
        time.sleep(0.3)  # beats fail meanwhile
        go(s)
        s.wait()
        record = s.record()
        assert record is not None
        assert record.code == 0


def test_a_gateway_that_does_not_answer_does_not_cost_the_lease(tmp_path: Path) -> None:  # D13, P13
    report = Report(tmp_path, beat=(0, OPEN), ended=(0, OPEN))
    with waiting(tmp_path, beat=0.2, ttl=0.6, report=report.argv) as s:
        s.begin()
        until(lambda: report.seen("beat"))  # the channel is open, but nobody reads it
        go(s)
        s.end()


def test_a_report_program_that_hangs_keeps_nothing_waiting(tmp_path: Path) -> None:
    hanging = [*py(f"open({str(tmp_path / 'asked')!r}, 'w').close()\n{FOREVER}")]
    with waiting(tmp_path, "print('more')\n", ttl=0.3, report=hanging) as s:
        s.begin()
        s.hang_up()
        until((tmp_path / "asked").exists)
        go(s)
        until(lambda: "more" in s.text())
        until(s.record)  # the end of the worker is seen while the program hangs
        assert s.held()
        assert alive(s.pid)


def test_the_report_program_is_none_of_the_runs_processes(tmp_path: Path) -> None:  # D14b
    report = Report(tmp_path, beat=(0, TAKEN), ended=(0, OPEN))
    slow = [sys.executable, "-I", "-c", "import time\ntime.sleep(0.5)\nexec(open(__import__('sys').argv[1]).read())"]
    program = tmp_path / "program.py"
    program.write_text(f"import os, sys\nos.execv(sys.executable, {report.argv!r} + sys.argv[2:])\n")
    with waiting(tmp_path, ttl=0.3, kill_grace=0.1, report=[*slow, str(program)]) as s:
        s.begin()
        s.hang_up()
        s.wait()
        record = s.record()
        assert record is not None
        assert record.stop == "override"  # so its answer came, although rounds of signals went by
        assert report.seen("ended")
