"""Forked children: each does one thing with the taps in place, and answers through a pipe, or dies on the way."""

from __future__ import annotations

import hashlib
import os
import pickle
import signal
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import apsw

from tests.crashes import taps

_own_number = os.getpid


class Died(Exception):
    """The child was killed before it could answer."""


def ask(work: Callable[[], Any], *, tapped: bool = True) -> Any:
    """Let a child do this work and return its answer.

    Raises:
        Died: it was killed.
        AssertionError: the work failed; the message is its traceback.
    """
    inside, outside = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the test's process may have threads; the child uses none
        child = os.fork()
    if child == 0:
        _be_child(work, outside, tapped=tapped)
    os.close(outside)
    with os.fdopen(inside, "rb") as answers:
        told = answers.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status == -signal.SIGKILL:
        raise Died
    assert status == 0, f"the child ended with {status}"
    kind, value = pickle.loads(told)
    assert kind == "done", value
    return value


def _be_child(work: Callable[[], Any], outside: int, *, tapped: bool) -> None:
    code = 1
    try:
        try:
            if tapped:
                taps.install()
            answer = ("done", work())
        except BaseException:
            answer = ("failed", traceback.format_exc())
        taps.use(None)
        with open(outside, "wb") as pipe:
            pickle.dump(answer, pipe)
        code = 0
    finally:
        os._exit(code)


def die() -> None:
    """End this process as nothing can be survived."""
    os.kill(_own_number(), signal.SIGKILL)
    signal.pause()


def no_chance(number: int | None = None, seed: str = "") -> None:
    """Let what differs by chance be the same in each child: ids, tokens, SQLite's salts.

    Args:
        number: which process it takes itself for.
    """
    given = [0]

    def urandom(size: int) -> bytes:
        given[0] += 1
        return hashlib.shake_128(f"{seed}{given[0]}".encode()).digest(size)

    os.urandom = urandom
    os.getpid = (lambda: number) if number else _own_number
    apsw.randomness(0)  # it asks for a new beginning, and the taps' file system gives it
