"""Garbage from other processes is read without a fault: what shims and dispatchers say, records, registries (T6)."""

from __future__ import annotations

import fcntl
import io
import json
import os
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_kanban import gateway
from hermes_kanban.base.errors import InvalidValue
from hermes_kanban.dispatcher import control, lease, links
from hermes_kanban.dispatcher.report import PassReport
from hermes_kanban.lanes import answers, channel, order, report, runfiles
from hermes_kanban.lanes.settling import Pauses, lane_key, settle
from hermes_kanban.model.exits import ExitRecord
from hermes_kanban.tickets import TicketStore
from tests.fuzz import garbage, ground
from tests.fuzz.judge import harmless
from tests.fuzz.test_command_line import EXAMPLES, HOW
from tests.unit.test_channel import ORDER
from tests.world import SHIM, WORKER, SqliteWorld

light = settings(HOW, max_examples=max(10, EXAMPLES // 4))
heavy = settings(HOW, max_examples=max(10, EXAMPLES // 10))


@contextmanager
def a_world() -> Iterator[tuple[SqliteWorld, Any]]:
    """A board with one run that its dispatcher has started."""
    with tempfile.TemporaryDirectory(prefix="hk") as folder:
        world = SqliteWorld(Path(folder))
        try:
            yield world, world.dispatched()
        finally:
            world.close()


# --- the channel of a shim ------------------------------------------------------------------------------------
@light
@given(st.lists(garbage.raw, max_size=4), st.integers(1, 9))
def test_bytes_are_messages_or_refused(pieces: list[bytes], size: int) -> None:  # T6
    data = b"\n".join(pieces)[:200_000]
    lines, step = channel.Lines(), len(data) // size + 1
    with suppress(InvalidValue):
        for at in range(0, len(data), step):
            assert all(isinstance(message, dict) for message in lines.feed(data[at : at + step]))


def told(message: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a message as it comes out of the channel, None where it does not come through."""
    try:
        return channel.parse(json.dumps(message).encode())
    except InvalidValue:
        return None


def test_an_order_is_taken_or_refused() -> None:  # T6
    for message in map(told, garbage.spoilt(ORDER)):
        with suppress(InvalidValue):
            found = order.parse(message or {})
            assert json.dumps(found.as_dict(), allow_nan=False)
            assert [os.fsencode(word) for word in (found.workspace, found.log, found.folder, found.socket, *found.argv)]


@light
@given(st.lists(garbage.raw, max_size=3))
def test_a_link_to_garbage_ends_and_that_is_all(pieces: list[bytes]) -> None:  # T6
    near, far = socket.socketpair()
    link = links.Link(1, near)
    with near, far:
        far.setblocking(False)
        for piece in pieces:
            far.send(piece[:50_000] + b"\n")
        messages, _ = link.receive()
    assert all(isinstance(message, dict) for message in messages)


REPORTS = {
    "started": {"op": "started", "shim": list(SHIM), "worker": list(WORKER)},
    "beat": {"op": "beat", "active": True, "idle": 0},
    "ended": {"op": "ended"},
}


@pytest.mark.parametrize("op", REPORTS)
def test_a_report_is_booked_or_refused_and_ends_no_loop(op: str) -> None:  # T6, D9
    with a_world() as (world, claim):
        desk = answers.Desk(str(world.folder / "runs"), Pauses(str(world.folder)))
        for message in map(told, garbage.spoilt(REPORTS[op] | {"run": claim.run.id, "lock": claim.fence.lock})):
            before = world.run(claim)
            answer = answers.answer(world.board(), desk, claim.run.id, message or {})
            if answer is None or not answer["ok"]:
                assert world.run(claim) == before
        assert world.person.verify() == ()


# --- files of a run -------------------------------------------------------------------------------------------
RECORD = ExitRecord(1, "t", "l", code=1, worker=WORKER).as_dict()


@pytest.mark.parametrize("code", [0, 1])
def test_an_exit_record_is_booked_or_passed_over(code: int) -> None:  # T6, P45
    with a_world() as (world, first):
        claim, folder = first, world.folder / "runs"
        folder.mkdir()
        for part, value in ((part, value) for part in RECORD for value in garbage.EXTREMES):
            run, lock = claim.run.id, claim.fence.lock
            right = RECORD | {"run": run, "task": claim.task.id, "lock": lock, "code": code}
            (folder / f"{run}.exit").write_text(json.dumps(right | {part: value}), encoding="utf-8")
            found = runfiles.read_exit(str(folder), run)
            if found is not None and (found.run, found.lock) == (run, lock):
                settle(world.board(), Pauses(str(world.folder)), run, found)
                assert not world.run(claim).open
                claim = world.dispatched()
        assert world.person.verify() == ()


@light
@given(garbage.raw)
def test_bytes_are_no_exit_record(data: bytes) -> None:  # T6, P45
    with tempfile.TemporaryDirectory(prefix="hk") as folder:
        Path(folder, "7.exit").write_bytes(data)
        assert runfiles.read_exit(folder, 7) is None


ROSTER = runfiles.Roster(7, "boot", 1.5, SHIM, WORKER, (SHIM, WORKER), (1, 2)).as_dict()


@light
@given(garbage.encoded(ROSTER))
def test_a_roster_is_read_or_passed_over(data: bytes) -> None:  # T6
    with tempfile.TemporaryDirectory(prefix="hk") as folder:
        Path(folder, "7.lock").write_bytes(data)
        found = runfiles.read_roster(folder, 7)
        assert found is None or all(isinstance(pid, int) for pid, _ in found.known)
        assert runfiles.held(folder, 7) is False


def test_each_part_of_a_roster_may_be_anything(tmp_path: Path) -> None:  # T6
    for message in garbage.spoilt(ROSTER):
        (tmp_path / "7.lock").write_text(json.dumps(message), encoding="utf-8")
        found = runfiles.read_roster(str(tmp_path), 7)
        assert found is None or all(isinstance(pid, int) for pid, _ in found.known)


@light
@given(garbage.raw)
def test_a_pause_is_a_time_or_none(data: bytes) -> None:  # T6
    with tempfile.TemporaryDirectory(prefix="hk") as folder:
        path = Path(folder, "kanban", "pauses", lane_key("lane"))
        path.parent.mkdir(parents=True)
        path.write_bytes(data)
        assert Pauses(folder).until("lane") >= 0


TICKET = {"task_id": "t_00000001", "run_id": 3, "lock": "l", "workspace": "/w", "boot": "b", "namespace": "n"} | {
    "chain": [[1, "1", "sh", False]]
}


@light
@given(garbage.encoded(TICKET))
def test_a_ticket_is_one_or_passed_over(data: bytes) -> None:  # T6, P12b
    with tempfile.TemporaryDirectory(prefix="hk") as folder:
        Path(folder, "t_00000001.3.json").write_bytes(data)
        found = TicketStore(folder).of_task("t_00000001")
        assert [(one.task_id, one.run_id) for one in found] in ([], [("t_00000001", 3)])


# --- who dispatches -------------------------------------------------------------------------------------------
HELD = {"pid": 1, "host": "h", "last_pass_ms": 1, "full": "", "waiting": [], "skipped_nonspawnable": []} | {
    "stranded_in_ready": [],
    "errors": [],
}


def status(here: ground.Ground, *words: str) -> None:
    code, out, err = here.run(["gateway", *words], ground.PERSON)
    assert code == 0, (code, out, err)


@pytest.mark.parametrize("part", HELD)
def test_what_a_dispatcher_wrote_is_shown_or_passed_over(part: str) -> None:  # T6, D9
    with ground.fresh() as here:
        path = Path(here.place.folder, "dispatcher.lock")
        for value in garbage.EXTREMES:
            path.write_text(json.dumps(HELD | {part: value}), encoding="utf-8")
            with path.open("rb") as held:
                fcntl.flock(held, fcntl.LOCK_EX)
                for words in (["status"], ["status", "--json"]):
                    status(here, *words)


@light
@given(garbage.raw)
def test_a_lease_of_garbage_is_a_lease(data: bytes) -> None:  # T6, D3
    with tempfile.TemporaryDirectory(prefix="hk") as folder:
        path = Path(folder, "dispatcher.lock")
        path.write_bytes(data)
        with path.open("rb") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            assert isinstance(lease.holder(folder), dict)


REGISTERED = {"pid": os.getpid(), "started": "1", "since_ms": 5}


def test_a_registry_of_garbage_names_no_gateway() -> None:  # T6, D6
    with ground.fresh() as here:
        entry = Path(gateway.registry_folder(str(here.home)), "1")
        entry.parent.mkdir(mode=0o700)
        for data in (*garbage.RAW, *(json.dumps(one).encode() for one in garbage.spoilt(REGISTERED))):
            entry.write_bytes(data)
            assert gateway.running(str(here.home)) == []
        for words in (["status"], ["status", "--json"], ["stop"]):
            status(here, *words)


@heavy
@given(st.lists(garbage.encoded({"op": "pass", "most": 3}), min_size=1, max_size=2))
def test_a_question_of_garbage_is_none(pieces: list[bytes]) -> None:  # T6
    near, far = socket.socketpair()
    with near, far:
        far.setblocking(False)
        for piece in pieces:
            far.send(piece[:50_000])
        far.shutdown(socket.SHUT_WR)
        found = control.receive(near)
    assert found is None or isinstance(found, dict)


REPORT = PassReport("default", full="x", errors=("e",)).as_dict() | {
    **{"started": [{"task": "t", "run": 1, "name": "n", "lane": "l"}], "ended": [{"task": "t", "run": 1}]},
    **{"left": [{"task": "t", "text": "x"}], "waiting": [{"name": "n", "text": "x"}], "released": ["t"]},
    **{"skipped_nonspawnable": [{"name": "n", "cards": 1}], "stranded_in_ready": ["n"], "probed": ["t"]},
}


@pytest.mark.parametrize("part", REPORT)
def test_what_a_dispatcher_answers_is_shown_or_refused(part: str) -> None:  # T6
    busy = mock.patch("hermes_kanban.dispatcher.service.BoardService.once", return_value=None)
    with ground.fresh() as here, busy, _somebody_listens(here):
        for value in garbage.EXTREMES:
            answer = told(REPORT | {part: value})
            with mock.patch("hermes_kanban.dispatcher.control.receive", return_value=answer):
                code, out, err = here.run(["kanban", "dispatch"], ground.PERSON)
            assert code in (0, 8), (code, out, err)
            harmless(out + err)


@contextmanager
def _somebody_listens(here: ground.Ground) -> Iterator[None]:
    path = control.control_path(str(here.root / "run" / "hermes-kanban"), here.place.database)
    made = control.Control(path)
    assert made.open() is not None
    try:
        yield
    finally:
        made.close()


# --- the report program ---------------------------------------------------------------------------------------
@heavy
@given(garbage.encoded(REPORTS["beat"]), st.sampled_from(("1", "²", "-1", "9" * 30, "9" * 5000, "x", "", "999")))
def test_a_report_of_nobody_is_refused(data: bytes, run: str) -> None:  # T6, P70
    with ground.fresh() as here:
        before = here.state()
        out, given_ = io.StringIO(), io.TextIOWrapper(io.BytesIO(data))
        variables = here.variables({})
        told_by = mock.patch.object(sys, "stdin", given_)
        with mock.patch.dict(os.environ, variables, clear=True), told_by, redirect_stdout(out):
            code = report.main([here.place.database, run, "beat"])
        assert code in (2, 3, 6, 7), out.getvalue()
        assert json.loads(out.getvalue())["ok"] is False
        assert here.state() == before
