"""The same through real processes: a few hostile calls, and garbage on every socket and file of a gateway (T6)."""

from __future__ import annotations

import socket
from contextlib import suppress
from pathlib import Path

import pytest

from hermes_kanban import gateway
from hermes_kanban.dispatcher.control import control_path
from hermes_kanban.lanes.launch import socket_path
from hermes_kanban.model import status
from hermes_kanban.store.feed import board_mark
from tests.fuzz import garbage, ground
from tests.fuzz.judge import CODES, harmless
from tests.processes.home import Home, home
from tests.surfaces.hermes import Hermes

LONG = b"x" * 130_000  # nearly as much as the system takes as one word
HOSTILE: tuple[list[str | bytes], ...] = (
    *(["create", b"\xff\xfe", "--idempotency-key", "k"], ["show", b"t_\xed\xa0\x80"], ["comment", "<ready>", b"\xc3"]),
    *(["create", LONG, "--idempotency-key", "k"], ["comment", "<ready>", LONG], ["list", "--search", LONG]),
    *(
        [b"\x1b[2J"],
        ["list", b"--\xff"],
        ["attach", "<ready>", b"\xff"],
        ["complete", "<mine>", "--metadata", "[" * 9999],
    ),
    *(["apply", "/dev/full"], ["apply", "/dev/zero"], ["comment", "<ready>", "@/dev/zero"], ["apply", "-"]),
)


@pytest.mark.parametrize("words", HOSTILE, ids=lambda words: ascii(words[0])[:9])
def test_hostile_words_reach_a_real_process(words: list[str | bytes]) -> None:  # T6
    with ground.fresh() as here:
        hermes = Hermes(here.home, XDG_RUNTIME_DIR=str(here.root / "run"), HERMES_PROFILE="bot")
        before = here.state().rows
        told = [here.filled(word) if isinstance(word, str) else word for word in words]
        answer = hermes(*told, stdin=b"[" * 100_000)
        assert answer.code in CODES, answer
        assert "Traceback" not in answer.err
        harmless(answer.err)
        if answer.code:
            assert "\nhint: " in answer.err or answer.err.startswith("hint: ")
            assert answer.out == ""
            assert here.state().rows == before


@pytest.mark.parametrize(
    "name", ["HERMES_HOME", "HERMES_PROFILE", "HERMES_KANBAN_DB", "TERM", "LANG", "LC_ALL", "COLUMNS"]
)
def test_a_variable_of_bytes_is_used_or_refused(name: str) -> None:  # T6
    with ground.fresh() as here:
        hermes = Hermes(here.home, **{"XDG_RUNTIME_DIR": str(here.root / "run"), name: "\udcff\x1b[2J"})
        answer = hermes("list", "--json")
        assert answer.code in CODES, answer
        assert "Traceback" not in answer.err
        harmless(answer.err)


def shout(path: str, data: bytes) -> None:
    """Say something to whoever listens there, and hang up."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock, suppress(OSError):
        sock.settimeout(5)
        sock.connect(path)
        sock.sendall(data[:150_000] + b"\n")
        sock.shutdown(socket.SHUT_WR)
        while sock.recv(65_536):
            continue


def poke(folder: Path, mark: str, data: bytes) -> None:
    for path in folder.glob(f"{mark}*.sock"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock, suppress(OSError):
            sock.setblocking(False)  # as a poke does: one who does not listen just now has been woken already
            sock.sendto(data[:1000], str(path))


def _spoil(here: Home, run: int) -> None:
    """Put garbage into every file that the gateway or the shim looks at while a worker runs."""
    registry = Path(gateway.registry_folder(str(here.path)))
    folders = {"0": registry, f"{run}.exit": Path(here.place.runs), "99.exit": Path(here.place.runs)}
    folders |= {"99.lock": Path(here.place.runs), "t_00000001.3.json": Path(here.place.tickets)}
    for name, folder in folders.items():
        folder.mkdir(mode=0o700, exist_ok=True)
        (folder / name).write_bytes(b'{"run": 1e999, "lock": "\\ud800", "pid": []}')


def test_garbage_ends_neither_gateway_nor_shim(tmp_path: Path) -> None:  # T6, D9, D13
    with home(tmp_path) as here:
        served = here.gateway()
        task = here.create()
        run = here.alive(task)
        runtime = Path(here.hermes.variables["XDG_RUNTIME_DIR"], "hermes-kanban")
        _spoil(here, run.id)
        for data in garbage.RAW:
            shout(socket_path(str(runtime), here.place.database, run.id), data)
            poke(runtime, board_mark(here.place.database), data)
        for data in garbage.RAW[:12]:
            shout(control_path(str(runtime), here.place.database), data)
        assert here.hermes("gateway", "status").code in CODES
        here.ask(run, "complete")
        here.tell(run, "exit 0")
        card, ended = here.ended(task)
        assert (card.status, ended.outcome) == (status.DONE, status.COMPLETED)
        assert served.process.poll() is None
        assert not served.said("loop_restarted")
        assert not served.said("words")
        assert here.board.verify() == ()
