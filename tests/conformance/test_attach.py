"""Attachments and artifacts: rows, events and files come together or not at all, and only through an open run (P61)."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hermes_kanban.base.errors import (
    AttachmentNotFound,
    AttachmentTooLarge,
    Busy,
    ClaimLost,
    FileRefused,
    Forbidden,
    InvalidValue,
    NotClaimable,
    Refusal,
    StoreIo,
    TaskNotFound,
    Unexpected,
    UnknownCards,
    Usage,
    WrongState,
)
from hermes_kanban.kernel import attach as attaching
from hermes_kanban.kernel.board import Board
from hermes_kanban.kernel.finish import Handoff
from hermes_kanban.model import status as s
from hermes_kanban.model.claim import Claim
from hermes_kanban.model.task import Task
from hermes_kanban.model.thread import Attachment
from tests.world import World

DONE = Handoff("done")


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    folder = tmp_path / "desk"
    folder.mkdir()
    return folder


def written(folder: Path, name: str, body: bytes = b"text\n") -> str:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(body)
    return str(folder / name)


def files(world: World) -> list[str]:
    """Return every file of an attachment, whether a row names it or not."""
    root = world.folder / "attachments"
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir())


def attached(world: World, card: Task) -> tuple[Attachment, ...]:
    """Return the card's attachments; each must be there as its row says, and nothing else."""
    found = world.person.attachments(card.id)
    for one in found:
        body = Path(one.path).read_bytes()
        assert (len(body), hashlib.sha256(body).hexdigest()) == (one.size, one.sha256)
    assert world.person.show(card.id).attachments == found
    assert {one.path for one in found} == {str(world.folder / "attachments" / name) for name in files(world)}
    world.verified()
    return found


@contextmanager
def refuses(world: World, card: Task, error: type[Refusal], *, logged: bool = False) -> Iterator[Any]:
    """Expect a refusal after which rows, events and files are as before."""
    before = (world.person.attachments(card.id), files(world))
    with world.refuses(card, error, logged=logged) as refusal:
        yield refusal
    assert (world.person.attachments(card.id), files(world)) == before


def payloads(world: World, card: Task, kind: str) -> list[dict[str, Any]]:
    return [event.payload for event in world.person.events(task=card.id, kinds=(kind,), limit=1000)]


# --- attach -----------------------------------------------------------------------------------------------------
def test_a_person_attaches_files_to_any_card(world: World, desk: Path) -> None:  # P61
    card = world.card()
    answer = world.person.attach(card.id, (written(desk, "a.txt", b"abc"), written(desk, "b.bin", b"")))
    first, second = attached(world, card)
    assert (answer.task.id, answer.attachments) == (card.id, (first, second))
    assert (first.name, first.size, first.content_type) == ("a.txt", 3, "text/plain")
    assert (first.task_id, first.run_id, first.added_by, first.source_url) == (card.id, None, "human:ann", None)
    assert first.path == str(world.folder / "attachments" / card.id / "a.txt")
    assert first.created_at == world.clock.now_ms() // 1000
    assert payloads(world, card, "attached") == [
        {"attachment": one.id, "name": one.name, "size": one.size, "sha256": one.sha256} for one in (first, second)
    ]


@pytest.mark.parametrize("state", [s.TRIAGE, s.BLOCKED, s.RUNNING, s.REVIEW, s.DONE, s.ARCHIVED])
def test_a_person_attaches_in_every_state_and_nothing_moves(world: World, desk: Path, state: str) -> None:  # P61
    card = world.card()
    {
        s.TRIAGE: lambda: world.person.schedule(card.id),
        s.BLOCKED: lambda: world.person.schedule(card.id),
        s.RUNNING: lambda: world.claimed(card),
        s.REVIEW: lambda: world.person.request_review(card.id, DONE),
        s.DONE: lambda: world.person.complete(card.id, DONE),
        s.ARCHIVED: lambda: world.person.archive(card.id),
    }[state]()
    before = (world.task(card), world.person.runs(card.id))
    world.person.attach(card.id, (written(desk, "a"),))
    assert (world.task(card), world.person.runs(card.id)) == before
    assert len(attached(world, card)) == 1


def test_a_person_names_a_file_and_gives_its_bytes(world: World) -> None:  # P61
    card = world.card()
    world.person.attach(card.id, ((b"ab", b"c"),), name="../notes .md")
    (one,) = attached(world, card)
    assert (one.name, Path(one.path).read_bytes()) == ("notes .md", b"abc")


def test_two_of_the_same_name_both_stay(world: World, desk: Path) -> None:  # P61
    card = world.card()
    paths = (written(desk, "a.txt", b"one"), written(desk / "sub", "a.txt", b"two"))
    world.person.attach(card.id, paths)
    assert [(one.name, Path(one.path).read_bytes()) for one in attached(world, card)] == [
        ("a.txt", b"one"),
        ("a.txt", b"two"),
    ]


@pytest.mark.parametrize("who", ["script", "worker"])
def test_the_owner_attaches_and_its_claim_goes_on(world: World, desk: Path, who: str) -> None:  # P12, P13, P44
    script, claim = world.claimed(ttl=60)
    board = script if who == "script" else world.worker(claim)
    world.clock.advance(50)
    board.attach(claim.task.id, (written(desk, "a"),))
    now = world.clock.now_ms() // 1000
    (run,) = world.person.runs(claim.task.id)
    assert (run.claim_expires, run.last_heartbeat_at, run.progressed) == (now + 60, now, True)
    (one,) = attached(world, claim.task)
    assert (one.run_id, one.added_by) == (run.id, "bridge:bot" if who == "script" else "worker:bot")
    assert world.person.events(task=claim.task.id)[-1].run_id == run.id
    world.clock.advance(59)
    with world.refuses(claim.task, NotClaimable):
        world.script("other").claim(claim.task.id)


def test_a_persons_file_does_not_extend_somebody_elses_claim(world: World, desk: Path) -> None:  # P13
    _, claim = world.claimed(ttl=60)
    world.clock.advance(50)
    world.person.attach(claim.task.id, (written(desk, "a"),))
    assert world.person.runs(claim.task.id) == (claim.run,)


# --- the fence --------------------------------------------------------------------------------------------------
def late(world: World) -> dict[str, tuple[Board, Task]]:
    """Return callers whose run does not hold their card."""
    lost, old = world.claimed(ttl=60)
    world.clock.advance(60)
    world.claimed(old.task, "other")
    closed, ended = world.claimed(world.card("ended"))
    closed.complete(ended.task.id, DONE)
    free = world.card("free")
    return {
        "reclaimed": (lost, old.task),
        "reclaimed worker": (world.worker(old), old.task),
        "closed": (closed, ended.task),
        "no claim": (world.script("bot", role=s.BRIDGE), free),
        "somebody else's": (world.script("third", role=s.BRIDGE), old.task),
        "wrong lock": (world.script("bot", run=str(old.run.id), lock="guessed"), old.task),
    }


LATE = ("reclaimed", "reclaimed worker", "closed", "no claim", "somebody else's", "wrong lock")


@pytest.mark.parametrize("who", LATE)
def test_a_late_or_foreign_run_attaches_nothing(world: World, desk: Path, who: str) -> None:  # P12
    board, card = late(world)[who]
    path = written(desk, "a")
    with refuses(world, card, ClaimLost, logged=True):
        board.attach(card.id, (path,))
    with pytest.raises(ClaimLost):
        board.attach(card.id, (path,))
    events = payloads(world, card, "refused")
    assert [(event["verb"], event["code"], event["count"]) for event in events] == [("attach", "claim_lost", 2)]
    assert files(world) == []


def test_a_run_lost_while_the_bytes_come_attaches_nothing(world: World) -> None:  # P12
    board, claim = world.claimed(ttl=60)

    def slow() -> Iterator[bytes]:
        yield b"half"
        world.clock.advance(60)
        world.script("other").claim(claim.task.id)
        assert files(world)  # the bytes are on their way
        yield b"the rest"

    with pytest.raises(ClaimLost):
        board.attach(claim.task.id, (slow(),), name="slow")
    assert attached(world, claim.task) == ()
    assert world.kinds(claim.task)[-1] == "refused"


def test_who_may_not_attach_reads_nothing(world: World) -> None:  # P12, C158
    _, claim = world.claimed()

    def never() -> Iterator[bytes]:
        raise AssertionError("bytes were asked for")
        yield b""

    with refuses(world, claim.task, ClaimLost, logged=True):
        world.script("third", role=s.BRIDGE).attach(claim.task.id, (never(),))
    other = world.card()
    with refuses(world, other, Forbidden):
        world.worker(claim).attach(other.id, (never(),))
    with refuses(world, claim.task, Forbidden):
        world.worker(claim, delegated=True).attach(claim.task.id, (never(),))  # P71
    with pytest.raises(TaskNotFound):
        world.person.attach("t_00000000", (never(),))


# --- all or none ------------------------------------------------------------------------------------------------
def test_one_bad_file_refuses_all(world: World, desk: Path) -> None:  # P61
    card = world.card()
    good = written(desk, "good")
    for bad, error in ((str(desk / "missing"), FileRefused), (str(desk), FileRefused)):
        with refuses(world, card, error):
            world.person.attach(card.id, (good, bad))


def test_a_file_above_the_limit_is_refused(world: World, desk: Path) -> None:  # P61, C103
    world.set(attachment_limit_bytes=10)
    card = world.card()
    world.person.attach(card.id, (written(desk, "ten", b"x" * 10),))
    with refuses(world, card, AttachmentTooLarge):
        world.person.attach(card.id, (written(desk, "ok"), written(desk, "eleven", b"x" * 11)))
    with refuses(world, card, AttachmentTooLarge):
        world.person.attach(card.id, ([b"x" * 6, b"x" * 5],), name="stream")


def test_a_call_that_cannot_be_meant_is_refused(world: World, desk: Path) -> None:
    card = world.card()
    two = (written(desk, "a"), written(desk, "b"))
    with refuses(world, card, Usage):
        world.person.attach(card.id)
    with refuses(world, card, Usage):
        world.person.attach(card.id, two, name="c")
    with refuses(world, card, Usage):
        world.person.attach(card.id, two[:1], url="http://example.org/", name="c")
    with refuses(world, card, InvalidValue):  # nothing downloads in this world
        world.person.attach(card.id, two[:1], url="http://example.org/")


def failing(world: World, error: BaseException) -> Callable[..., Any]:
    """Let the store fail with this error when the rows of files are committed."""
    real = world.store.write
    opened = 0

    @contextmanager
    def write(*, durable: bool = True) -> Iterator[Any]:
        nonlocal opened
        opened += 1
        with real(durable=durable) as tx:
            yield tx
            if opened == 2:
                raise error

    return write


@pytest.mark.parametrize("error", [Busy("locked"), Unexpected("a fault")])
def test_files_go_again_when_the_commit_is_refused(
    world: World, desk: Path, monkeypatch: pytest.MonkeyPatch, error: Refusal
) -> None:  # P1, P61
    card = world.card()
    with monkeypatch.context() as patched, refuses(world, card, type(error)):
        patched.setattr(world.store, "write", failing(world, error))
        world.person.attach(card.id, (written(desk, "a"),))


@pytest.mark.parametrize("error", [StoreIo("the disk failed"), KeyboardInterrupt()])
def test_an_end_that_tells_nothing_leaves_at_most_a_file(
    world: World, desk: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:  # a row without its file would be worse than a file without a row
    card = world.card()
    path = written(desk, "a")
    with monkeypatch.context() as patched:
        patched.setattr(world.store, "write", failing(world, error))
        with pytest.raises(type(error)):
            world.person.attach(card.id, (path,))
    assert world.person.attachments(card.id) == ()
    assert files(world) == [f"{card.id}/a"]
    world.person.attach(card.id, (str(desk / "a"),))
    assert Path(world.person.attachments(card.id)[0].path).name == "a-2"


def test_a_stop_before_the_rows_leaves_nothing(world: World, desk: Path) -> None:
    card = world.card()

    def stopped() -> Iterator[bytes]:
        yield b"half"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        world.person.attach(card.id, (written(desk, "a"), stopped()))
    assert attached(world, card) == ()


def test_a_surface_without_files_says_so(world: World, desk: Path) -> None:
    card = world.card()
    board = world.person
    board._ports = board._ports.evolve(blobs=None)
    with refuses(world, card, Unexpected):
        board.attach(card.id, (written(desk, "a"),))
    assert board.complete(card.id, DONE).task.status == s.DONE


# --- attach-rm --------------------------------------------------------------------------------------------------
def test_a_person_removes_an_attachment(world: World, desk: Path) -> None:  # P61
    card = world.card()
    first, second = world.person.attach(card.id, (written(desk, "a"), written(desk, "b"))).attachments
    answer = world.person.detach(card.id, first.id)
    assert answer.attachments == (first,)
    assert attached(world, card) == (second,)
    assert payloads(world, card, "detached") == [{"attachment": first.id, "name": "a", "sha256": first.sha256}]
    with refuses(world, card, AttachmentNotFound):
        world.person.detach(card.id, first.id)
    other = world.card()
    with refuses(world, other, AttachmentNotFound):
        world.person.detach(other.id, second.id)
    world.person.attach(card.id, (str(desk / "a"),))
    assert [one.id for one in attached(world, card)] == [second.id, second.id + 1]  # numbers only grow


def test_removing_is_a_persons_verb(world: World, desk: Path) -> None:  # P70
    board, claim = world.claimed()
    (one,) = board.attach(claim.task.id, (written(desk, "a"),)).attachments
    for caller in (board, world.worker(claim), world.script("bot", role=s.BRIDGE), world.script(role=s.ORCHESTRATOR)):
        with refuses(world, claim.task, Forbidden):
            caller.detach(claim.task.id, one.id)
    world.person.detach(claim.task.id, one.id)
    assert attached(world, claim.task) == ()


def test_a_row_without_its_file_can_be_removed(world: World, desk: Path) -> None:
    card = world.card()
    gone, odd = world.person.attach(card.id, (written(desk, "a"), written(desk, "b"))).attachments
    os.unlink(gone.path)
    board = world.person
    board.detach(card.id, gone.id)
    assert board.warnings == []
    os.unlink(odd.path)
    os.mkdir(odd.path)
    board.detach(card.id, odd.id)
    assert len(board.warnings) == 1
    assert attached(world, card) == ()


# --- artifacts --------------------------------------------------------------------------------------------------
def working(world: World, **fields: Any) -> tuple[Board, Claim, Path]:
    """Claim a card; return the owner's view, the claim, and its workspace."""
    board, claim = world.claimed(world.card(**fields))
    return board, claim, Path(claim.workspace)


def test_artifacts_are_kept_with_the_completion(world: World) -> None:  # D20, C98
    board, claim, space = working(world)
    written(space, "report.md", b"# found")
    written(space / "out", "data.json", b"{}")
    paths = ("report.md", str(space / "out" / "data.json"), "report.md")
    answer = board.complete(claim.task.id, Handoff("done", artifacts=paths))
    kept = attached(world, claim.task)
    assert (answer.task.status, answer.attachments) == (s.DONE, kept)
    assert [(one.name, one.run_id, one.added_by) for one in kept] == [
        ("report.md", claim.run.id, "bridge:bot"),
        ("data.json", claim.run.id, "bridge:bot"),
    ]
    assert world.kinds(claim.task)[-3:] == ["attached", "attached", "completed"]
    os.unlink(space / "report.md")
    assert Path(kept[0].path).read_bytes() == b"# found"  # C91: a copy that lasts


def artifact_faults(space: Path, outside: str) -> dict[str, tuple[str, type[Refusal]]]:
    written(space, "large", b"x" * 101)
    (space / "link").symlink_to(outside)
    (space / "folder").mkdir()
    return {
        "missing": ("nothing.md", FileRefused),
        "too large": ("large", AttachmentTooLarge),
        "a folder": ("folder", FileRefused),
        "outside": (outside, FileRefused),
        "above": ("../../desk/secret", FileRefused),
        "a link to outside": ("link", FileRefused),
    }


FAULTS = ("missing", "too large", "a folder", "outside", "above", "a link to outside")


@pytest.mark.parametrize("fault", FAULTS)
def test_a_bad_artifact_refuses_the_completion(world: World, desk: Path, fault: str) -> None:  # D20, C98, C103
    world.set(attachment_limit_bytes=100)
    board, claim, space = working(world)
    written(space, "good")
    path, error = artifact_faults(space, written(desk, "secret"))[fault]
    with refuses(world, claim.task, error) as refusal:
        board.complete(claim.task.id, Handoff("done", artifacts=("good", path)))
    assert world.status(claim.task) == s.RUNNING
    assert refusal.value.hint
    assert board.complete(claim.task.id, Handoff("done", artifacts=("good",))).task.status == s.DONE
    assert [one.name for one in attached(world, claim.task)] == ["good"]


def test_a_completion_refused_for_another_reason_keeps_nothing(world: World) -> None:  # P1, C98
    board, claim, space = working(world)
    written(space, "good")
    for handoff, error in (
        (Handoff(artifacts=("good",)), InvalidValue),
        (Handoff("done", created=("t_00000000",), artifacts=("good",)), UnknownCards),
        (Handoff("done", {"x": float("nan")}, artifacts=("good",)), InvalidValue),
    ):
        with refuses(world, claim.task, error):
            board.complete(claim.task.id, handoff)


def test_a_late_completion_keeps_nothing(world: World) -> None:  # P12
    board, claim, space = working(world)
    written(space, "good")
    world.clock.advance(60)
    world.claimed(claim.task, "other")
    with refuses(world, claim.task, ClaimLost, logged=True):
        board.complete(claim.task.id, Handoff("done", artifacts=("good",)))
    assert payloads(world, claim.task, "refused")[0]["verb"] == "complete"


def test_a_repeated_completion_copies_nothing_again(world: World) -> None:  # P12
    board, claim, space = working(world)
    written(space, "good")
    handoff = Handoff("done", artifacts=("good",))
    board.complete(claim.task.id, handoff)
    os.unlink(space / "good")
    answer = board.complete(claim.task.id, handoff)
    assert (answer.already, answer.attachments) == (True, ())
    assert len(attached(world, claim.task)) == 1


def test_a_repeat_in_the_same_instant_copies_nothing_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:  # P12
    board, claim, space = working(world)
    written(space, "good")
    handoff = Handoff("done", artifacts=("good",))
    real = attaching._folders

    def overtaken(*given: Any, **named: Any) -> Any:
        found = real(*given, **named)
        monkeypatch.setattr(attaching, "_folders", real)
        world.script("bot", claim).complete(claim.task.id, handoff)  # the twin is faster
        return found

    monkeypatch.setattr(attaching, "_folders", overtaken)
    assert board.complete(claim.task.id, handoff).already
    assert len(attached(world, claim.task)) == 1


def test_without_a_run_artifacts_begin_in_the_current_folder(
    world: World, desk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # D20
    free = world.card(workspace_kind="dir", workspace_path=str(desk))
    written(desk, "here.md", b"here")
    monkeypatch.chdir(desk)
    world.person.complete(free.id, Handoff("done", artifacts=("here.md",)))
    (one,) = attached(world, free)
    run = world.person.runs(free.id)[-1]
    assert (run.role, one.run_id, one.added_by) == (s.MANUAL, run.id, "human:ann")  # P21
    scratch = world.card()
    with refuses(world, scratch, FileRefused):
        world.person.complete(scratch.id, Handoff("done", artifacts=("here.md",)))


def test_a_persons_override_keeps_files_of_the_workspace(world: World) -> None:  # P12c, D20
    _, claim, space = working(world)
    path = written(space, "half.md")
    with refuses(world, claim.task, ClaimLost, logged=True):
        world.person.complete(claim.task.id, Handoff("done", artifacts=(path,)))
    world.person.complete(claim.task.id, Handoff("good enough", artifacts=(path,)), override=True)
    assert [one.name for one in attached(world, claim.task)] == ["half.md"]


def test_a_folder_of_ones_own_bounds_nothing(world: World, desk: Path) -> None:  # D20
    project = desk / "project"
    project.mkdir()
    written(project, "in")
    board, claim, _ = working(world, workspace_kind="dir", workspace_path=str(project))
    board.complete(claim.task.id, Handoff("done", artifacts=("in", written(desk, "beside"))))
    assert [one.name for one in attached(world, claim.task)] == ["in", "beside"]


def test_a_card_that_is_done_takes_no_artifacts(world: World, desk: Path) -> None:
    card = world.card(workspace_kind="dir", workspace_path=str(desk))
    world.person.complete(card.id, DONE)
    with refuses(world, card, WrongState):
        world.person.complete(card.id, Handoff("again", artifacts=(written(desk, "a"),)))


# --- what readers get -------------------------------------------------------------------------------------------
def test_the_context_names_files_that_can_be_read(world: World, desk: Path) -> None:  # P62, C91
    card = world.card()
    world.person.attach(card.id, (written(desk, "a\x1b[2J<b>.txt"),), name=None)
    world.person.attach(card.id, ((b"x",),), name="Ünïcode 日本.txt")
    text = world.person.context(card.id)
    lines = text.partition("## Attachments\n\n")[2].partition("\n\n## ")[0].split("\n\n")
    kept = attached(world, card)
    assert len(lines) == len(kept) == 2
    for line, one in zip(lines, kept, strict=True):
        assert line == f"{one.path} ({one.name}, {one.size} bytes)"
        assert os.path.isabs(one.path)
        assert one.path.isprintable()
