"""What a worker prints, on its way through the shim: the log, the tail, secrets, faults of the disk (D10, D13, P63)."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hermes_kanban.model.exits import ExitRecord
from tests.processes.shims import Shim, py, shim, until

START = r"\[kanban-worker-start\] run=7 pid=[0-9]+ at=20[0-9]{2}-[01][0-9]-[0-3][0-9]T[0-9:]{8}Z"


def run(s: Shim) -> ExitRecord:
    s.begin()
    record = s.end()
    assert record is not None
    return record


def test_the_log_has_a_start_the_output_and_the_exit(tmp_path: Path) -> None:  # D10, D13
    with shim(tmp_path, ("sh", "-c", "echo out; echo err >&2; printf 'no end'; exit 3")) as s:
        s.log.write_text("from a former run\n")
        s.log.chmod(0o600)
        record = run(s)
        former, start, *rest = s.text().splitlines()
        assert former == "from a former run"
        assert start.startswith(f"[kanban-worker-start] run=7 pid={record.worker[0] if record.worker else 0} at=20")
        assert rest == ["out", "err", "no end", "[kanban-worker-exit] rc=3"]
        assert record.output_bytes == len("out\nerr\nno end")
        assert record.tail == ("out", "err", "no end")


def test_a_new_log_is_for_its_owner_only(tmp_path: Path) -> None:
    with shim(tmp_path, ("true",)) as s:
        run(s)
        assert s.log.stat().st_mode & 0o777 == 0o600


def test_lines_are_in_the_log_before_the_worker_ends(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "go")
    with shim(tmp_path, py("print('up')\nopen('../go').read()\n")) as s:
        s.begin()
        until(lambda: "up\n" in s.text())
        (tmp_path / "go").write_text("")
        s.end()


def test_secrets_reach_neither_log_nor_record(tmp_path: Path) -> None:  # C47, P63
    token = "ghp_" + "a1B2c3D4e5" * 4
    key = "\n".join(["-----BEGIN RSA PRIVATE KEY-----", *["MIIEpAIBAAKCAQEA" * 4] * 3, "-----END RSA PRIVATE KEY-----"])
    text = f"before\n{token[:9]}{token[9:]}\nuse {token} now\n{key}\nafter\n"
    slowly = f"import os, time\nfor c in {text!r}:\n    os.write(1, c.encode())\n    time.sleep(0.0002)\n"
    with shim(tmp_path, py(slowly)) as s:
        record = run(s)
        for shown in (s.text(), "\n".join(record.tail)):
            assert token not in shown
            assert "MIIEpAIBAAKCAQEA" not in shown
            assert "before" in shown
            assert "after" in shown
        assert "use [redacted: GitHub token] now" in record.tail


def test_the_tail_is_the_last_lines_harmlessly(tmp_path: Path) -> None:  # C47
    noisy = "for i in range(100): print(f'line {i}')\n"
    noisy += "print('\\x1b[31mred\\x1b[0m \\x1b]0;title\\x07\\tx')\nprint('caf\\xe9')\n"
    with shim(tmp_path, py(noisy)) as s:
        record = run(s)
    assert len(record.tail) == 20
    assert record.tail[-3:] == ("line 99", "red  x", "caf\u00e9")


def test_any_bytes_are_taken(tmp_path: Path) -> None:
    every = "import os\nos.write(1, bytes(range(256)) * 300)\nos.write(1, b'\\n\\xff\\xfe\\n')\n"
    with shim(tmp_path, py(every)) as s:
        record = run(s)
        assert record.code == 0
        assert record.output_bytes == 256 * 300 + 4
        assert "".join(record.tail).isprintable()
        assert bytes(range(256)) * 2 in s.log.read_bytes()


def test_a_flood_without_line_ends_is_kept(tmp_path: Path) -> None:
    with shim(tmp_path, py("import sys\nsys.stdout.write('x' * 1_000_000)\n"), log_bytes=0) as s:
        record = run(s)
        assert record.output_bytes == 1_000_000
        assert s.text().splitlines()[1] == "x" * 1_000_000


def test_the_worker_says_when_to_try_again(tmp_path: Path) -> None:  # C40
    with shim(tmp_path, ("sh", "-c", "echo '[kanban-retry-after] 30'; echo '[kanban-retry-after] 600'; exit 75")) as s:
        record = run(s)
    assert (record.code, record.retry_after) == (75, 600)


def test_a_long_log_is_put_aside(tmp_path: Path) -> None:  # D10
    with shim(tmp_path, py("for i in range(30_000): print(f'line {i:05}')\n"), log_bytes=100_000) as s:
        run(s)
        former = s.log.with_suffix(".log.1")
        assert s.log.stat().st_size <= 100_000
        assert 0 < former.stat().st_size <= 100_000
        assert former.stat().st_mode & 0o777 == 0o600
        lines = former.read_text().splitlines() + s.text().splitlines()
        kept = [line for line in lines if line.startswith("line")]
        assert kept == [f"line {i:05}" for i in range(30_000 - len(kept), 30_000)]


# --- faults of the disk ---------------------------------------------------------------------------------------
def test_a_link_in_place_of_the_log_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine\n")
    with shim(tmp_path, ("echo", "hello")) as s:
        s.log.symlink_to(victim)
        record = run(s)
        assert (record.code, record.tail) == (0, ("hello",))
    assert victim.read_text() == "mine\n"


def test_a_pipe_in_place_of_the_log_stops_nobody(tmp_path: Path) -> None:
    with shim(tmp_path, ("echo", "hello")) as s:
        os.mkfifo(s.log)
        assert run(s).tail == ("hello",)


def test_a_missing_log_folder_stops_nobody(tmp_path: Path) -> None:
    with shim(tmp_path, ("echo", "hello"), log=str(tmp_path / "no" / "such" / "t_ab.log")) as s:
        record = run(s)
        assert (record.code, record.tail, record.output_bytes) == (0, ("hello",), 6)


def test_a_log_that_someone_removed_is_made_again(tmp_path: Path) -> None:
    with shim(tmp_path, py("print('up')\nopen('../go').read()\nprint('more')\n")) as s:
        os.mkfifo(tmp_path / "go")
        s.begin()
        until(lambda: "up\n" in s.text())
        s.log.unlink()
        (tmp_path / "go").write_text("")
        s.end()
        assert s.text().splitlines() == ["more", "[kanban-worker-exit] rc=0"]


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """A file system that is soon full."""
    place = folder / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(place)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
def test_a_full_disk_stops_neither_the_worker_nor_the_record_of_its_end(tmp_path: Path) -> None:  # P45
    with small_disk(tmp_path, "200k") as disk, shim(disk, py("pass"), log_bytes=0) as s:
        flood = "for i in range(20_000): print(f'a line of words that fills the disk {i}')\nprint('the end')\n"
        s.order["argv"] = list(py(flood + "import sys\nsys.exit(5)\n"))
        record = run(s)
        assert (record.code, record.tail[-1]) == (5, "the end")
        assert s.text().startswith("[kanban-worker-start]")
        assert "the end\n" not in s.text()  # so the disk was full


def test_output_goes_on_once_there_is_room_again(tmp_path: Path) -> None:
    talk = "import sys\nfor part in ('a' * 6000, 'b' * 6000, 'c'):\n    print(part)\n    open('../go').read()\n"
    os.mkfifo(tmp_path / "go")
    with shim(tmp_path, py(talk), log_bytes=0) as s:
        s.begin()
        resource.prlimit(s.pid, resource.RLIMIT_FSIZE, (8000, resource.RLIM_INFINITY))
        until(lambda: s.text().count("a") >= 6000)
        (tmp_path / "go").write_text("")
        until(lambda: s.log.stat().st_size == 8000)
        resource.prlimit(s.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        (tmp_path / "go").write_text("")
        until(lambda: "\nc\n" in s.text())
        (tmp_path / "go").write_text("")
        record = s.end()
        assert record is not None
        assert record.code == 0
        lost = 6001 - len(s.text().splitlines()[2])
        assert f"\n[kanban-log-gap] {lost} bytes could not be written\nc\n" in s.text()


def test_output_after_the_worker_ended_is_kept_too(tmp_path: Path) -> None:  # D14b
    with shim(tmp_path, ("sh", "-c", "(sleep 0.2; echo late) & echo soon"), closing_grace=15) as s:
        assert run(s).tail == ("soon", "late")
        assert s.text().splitlines()[-1] == "[kanban-worker-exit] rc=0"


def test_a_worker_that_closes_its_output_runs_on(tmp_path: Path) -> None:
    with shim(tmp_path, py("import os, time\nos.close(1)\nos.close(2)\ntime.sleep(0.2)\nos._exit(4)\n")) as s:
        assert run(s).code == 4
