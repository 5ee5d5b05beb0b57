"""Other processes for the store's tests: they answer in lines, and the tests wait for these lines, never for time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 60.0


def command(role: str, *words: object) -> list[str]:
    """Return the command line of a role of `tests/store/roles.py`."""
    return [sys.executable, "-m", "tests.store.roles", role, *map(str, words)]


def surroundings(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return our environment and these variables of the board."""
    return dict(os.environ) | dict(more or {})


class Process:
    """A child in a role. It is killed at the end if it is still there."""

    def __init__(self, role: str, *words: object, env: Mapping[str, str] | None = None) -> None:
        self._child = subprocess.Popen(
            command(role, *words),
            cwd=ROOT,
            env=surroundings(env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = self._child.pid

    def line(self) -> str:
        """Return the next line that it prints ("" at its end)."""
        assert self._child.stdout is not None
        return self._child.stdout.readline().strip()

    def rest(self) -> list[str]:
        """Return what it printed besides, up to its end; a half line of a killed process is no answer."""
        assert self._child.stdout is not None
        return [line.strip() for line in self._child.stdout.read().splitlines(keepends=True) if line.endswith("\n")]

    def answer(self) -> Any:
        """Return the JSON document in its next line."""
        return json.loads(self.line())

    def go(self) -> None:
        """Let it go on."""
        assert self._child.stdin is not None
        self._child.stdin.write("go\n")
        self._child.stdin.flush()

    def send(self, number: int) -> None:
        self._child.send_signal(number)

    def kill(self) -> None:
        """End it as nothing can be survived, and wait until it is gone."""
        self._child.send_signal(signal.SIGKILL)
        self._child.wait()

    def end(self) -> int:
        """Wait until it ends and return its exit code."""
        return self._child.wait(PATIENCE)

    def close(self) -> None:
        if self._child.poll() is None:
            self.kill()
        for stream in (self._child.stdin, self._child.stdout):
            assert stream is not None
            try:
                stream.close()
            except BrokenPipeError:
                continue


@contextmanager
def process(role: str, *words: object, env: Mapping[str, str] | None = None) -> Iterator[Process]:
    """Start a process in a role."""
    started = Process(role, *words, env=env)
    try:
        yield started
    finally:
        started.close()


def ask(role: str, *words: object, env: Mapping[str, str] | None = None, prefix: tuple[str, ...] = ()) -> Any:
    """Run a role to its end and return the JSON document that it printed."""
    done = subprocess.run(
        [*prefix, *command(role, *words)],
        cwd=ROOT,
        env=surroundings(env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def in_namespace(role: str, *words: object) -> Any:
    """Run a role where it may mount file systems that nobody else sees, or skip the test."""
    probe = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs tmpfs "$0"', str(ROOT / "tests")]
    try:
        done = subprocess.run(probe, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("no `unshare` here: file systems cannot be mounted for a test")
    if done.returncode != 0:
        pytest.skip(f"file systems cannot be mounted here: {done.stderr.strip()}")
    return ask(role, *words, prefix=("unshare", "-m"))


def until(true: Callable[[], bool]) -> None:
    """Wait until something is so that sends no signal of its own."""
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.005)


def waits_for_lock(pid: int) -> bool:
    """Whether a process stands in the kernel's queue for a file lock."""
    try:
        lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    except FileNotFoundError:
        pytest.skip("no /proc/locks here: who waits for a lock cannot be seen")
    return any(words[1] == "->" and words[5] == str(pid) for words in map(str.split, lines) if len(words) > 5)
