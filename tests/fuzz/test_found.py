"""What fuzzing found, as small cases that stay (T6)."""

from __future__ import annotations

import fcntl
import json
import sys
from io import BytesIO, TextIOWrapper
from pathlib import Path
from unittest import mock

import pytest

from hermes_kanban import gateway
from hermes_kanban.base import strictjson
from hermes_kanban.base.errors import InvalidValue
from hermes_kanban.lanes import answers, channel, order, report, runfiles
from hermes_kanban.lanes.settling import Pauses, settle
from tests.fuzz import ground
from tests.fuzz.judge import judge
from tests.unit.test_channel import ORDER
from tests.world import SHIM, WORKER, World


def test_a_graph_whose_answer_cannot_be_printed_makes_no_cards() -> None:
    """The cards were made, then the answer with the entry's name failed: exit 1 (P53)."""
    with ground.fresh() as here:
        graph = json.dumps([{"title": "A", "name": "\ud800", "idempotency-key": "k"}])
        (here.cwd / "graph.json").write_text(graph, encoding="utf-8")
        seen = here.call(["apply", "graph.json", "--json"], ground.PERSON)
        judge(here, seen)
        assert seen.code == InvalidValue.exit_code


@pytest.mark.parametrize("idle", ["1e999", "Infinity", "9" * 400, "1e300"])
def test_a_beat_with_a_number_of_no_column_ends_no_dispatcher(world: World, idle: str) -> None:
    """An OverflowError came out of `answer`, and the loop of the board died of it again and again (D9)."""
    claim = world.alive()
    desk = answers.Desk(str(world.folder / "runs"), Pauses(str(world.folder)))
    head = json.dumps({"op": "beat", "run": claim.run.id, "lock": claim.fence.lock})
    try:
        message = channel.parse(f'{head[:-1]}, "idle": {idle}}}'.encode())
    except InvalidValue:
        return  # a link that says such things is let go
    assert answers.answer(world.board(), desk, claim.run.id, message) is not None
    assert world.run(claim).open


@pytest.mark.parametrize("pid", [2**70, 1e300, "4711", True, None])
def test_a_pid_is_a_whole_number(world: World, pid: object) -> None:
    claim = world.dispatched()
    desk = answers.Desk(str(world.folder / "runs"), Pauses(str(world.folder)))
    message = {"op": "started", "run": claim.run.id, "lock": claim.fence.lock, "shim": [pid, "1"], "worker": WORKER}
    try:
        told = channel.parse(json.dumps(message).encode())
    except InvalidValue:
        return
    answer = answers.answer(world.board(), desk, claim.run.id, told)
    assert answer is not None
    assert answer["ok"] is False


@pytest.mark.parametrize(
    "odd", [{"peak_memory": 2**63}, {"code": -1}, {"signal": -(2**63)}, {"code": 2**64}, {"worker": [1e999, "1"]}]
)
def test_a_damaged_exit_record_is_none(world: World, tmp_path: Path, odd: dict[str, object]) -> None:
    """It could be read but not booked: every pass over the board failed at it (P45, D2)."""
    claim = world.alive()
    right = {"run": claim.run.id, "task": claim.task.id, "lock": claim.fence.lock, "code": 1, "worker": list(WORKER)}
    record = tmp_path / f"{claim.run.id}.exit"
    record.write_text(json.dumps(right | odd), encoding="utf-8")
    assert runfiles.read_exit(str(tmp_path), claim.run.id) is None
    record.write_text(json.dumps(right), encoding="utf-8")
    found = runfiles.read_exit(str(tmp_path), claim.run.id)
    assert found is not None
    settle(world.board(), Pauses(str(tmp_path)), claim.run.id, found)
    assert not world.run(claim).open


@pytest.mark.parametrize("odd", [{"tail": ["half \ud800"]}, {"spawn_error": "\ud800"}, {"code": 0, "policy": "\ud800"}])
def test_words_that_cannot_be_kept_spoil_no_exit_record(world: World, tmp_path: Path, odd: dict[str, object]) -> None:
    """UnicodeEncodeError: the run could not be booked, and every pass over the board failed at it (P45)."""
    claim = world.alive()
    right = {"run": claim.run.id, "task": claim.task.id, "lock": claim.fence.lock, "code": 1, "worker": list(WORKER)}
    (tmp_path / f"{claim.run.id}.exit").write_text(json.dumps(right | odd), encoding="utf-8")
    found = runfiles.read_exit(str(tmp_path), claim.run.id)
    assert found is not None
    settle(world.board(), Pauses(str(tmp_path)), claim.run.id, found)
    assert not world.run(claim).open
    assert world.person.verify() == ()


def test_a_damaged_roster_is_none(tmp_path: Path) -> None:
    """An infinite pid or time was an OverflowError in whoever looked after a run without a shim (D13)."""
    whole = runfiles.Roster(7, "boot", 1.5, SHIM, WORKER, (SHIM,), (1,)).as_dict()
    for odd in ({"looked": 10**400}, {"shim": [float("inf"), "1"]}, {"sessions": [float("inf")]}, {"run": 1e999}):
        (tmp_path / "7.lock").write_text(json.dumps(whole | odd), encoding="utf-8")
        assert runfiles.read_roster(str(tmp_path), 7) is None


def test_an_order_with_endless_seconds_is_no_order() -> None:
    """`isfinite` fails for a whole number that no float holds."""
    with pytest.raises(InvalidValue):
        channel.parse(json.dumps(ORDER | {"ttl": 10**400}).encode())
    with pytest.raises(InvalidValue):
        order.parse(ORDER | {"ttl": float("inf")})


@pytest.mark.parametrize("text", ["{}", '{"pid": 1}', '{"pid": [], "started": ""}', '{"pid": 1e999}', "[" * 4000])
def test_status_passes_over_what_is_no_gateway(text: str) -> None:
    """KeyError, TypeError, OverflowError: `gateway status` and `gateway stop` ended with exit 1 (D6)."""
    with ground.fresh() as here:
        entry = Path(gateway.registry_folder(str(here.home)), "1")
        entry.parent.mkdir()
        entry.write_text(text, encoding="utf-8")
        for word in ("status", "stop"):
            assert here.run(["gateway", word], ground.PERSON)[0] == 0


@pytest.mark.parametrize(
    "facts", [{"last_pass_ms": "x"}, {"full": 3}, {"waiting": [3]}, {"stranded_in_ready": 3}, {"pid": "\ud800"}]
)
def test_status_shows_what_can_be_shown_of_a_lease(facts: dict[str, object]) -> None:
    """What another release wrote into the lease ended `gateway status` with exit 1 (D9)."""
    with ground.fresh() as here:
        path = Path(here.place.folder, "dispatcher.lock")
        path.write_text(json.dumps({"pid": 1} | facts), encoding="utf-8")
        with path.open("rb") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            for words in (["status"], ["status", "--json"]):
                assert here.run(["gateway", *words], ground.PERSON)[0] == 0


@pytest.mark.parametrize(
    ("run", "message"), [("1", b"[]"), ("1", b"[" * 60_000), ("²", b"{}"), ("1", b'{"shim": 3}'), ("9" * 30, b"{}")]
)
def test_the_report_program_refuses_what_is_no_report(
    run: str, message: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    """AttributeError, RecursionError, ValueError, TypeError, OverflowError: a traceback in the place of an answer."""
    told = mock.patch.object(sys, "stdin", TextIOWrapper(BytesIO(message)))
    with ground.fresh() as here, mock.patch.dict("os.environ", here.variables({}), clear=True), told:
        assert report.main([here.place.database, run, "beat"]) in (2, 3, 6, 7)
    assert json.loads(capsys.readouterr().out)["ok"] is False


@pytest.mark.parametrize("data", [b"[]", b"3", b"NaN", b'{"a": NaN}', b'{"a": 1e999}', b'{"a": "\\ud800"}', b"\xff{}"])
def test_what_cannot_be_kept_is_not_read(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"JSON|number|surrogates|decode"):
        strictjson.parse(data)


def test_names_of_files_may_hold_single_bytes() -> None:  # PEP 383
    assert strictjson.parse(b'{"a": "\\udcff", "b": 9223372036854775807}', halves="surrogateescape") == {
        "a": "\udcff",
        "b": 2**63 - 1,
    }
    with pytest.raises(ValueError, match="surrogates"):
        strictjson.parse(b'{"a": "\\ud800"}', halves="surrogateescape")


def test_two_texts_from_one_input_are_refused_with_a_hint() -> None:
    """The refusal did not say what to do instead."""
    with ground.fresh() as here:
        seen = here.call(["edit", "<ready>", "--body", "-", "--acceptance", "-"], ground.PERSON)
        assert seen.code == 2
        judge(here, seen)
