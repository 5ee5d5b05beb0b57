"""Messages between a shim and who watches it, and orders, without a process (D13)."""

from __future__ import annotations

import os
import socket
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_kanban.base.errors import InvalidValue
from hermes_kanban.lanes import channel, order

ORDER: dict[str, Any] = {
    **{"run": 7, "task": "t_ab", "lock": "l", "argv": ["a", "b"], "workspace": "/w", "log": "/l", "folder": "/f"},
    **{"socket": "/s", "ttl": 900, "beat": 30, "max_runtime": None, "report": ["r"], "unknown": 1},
}


@given(st.lists(st.dictionaries(st.text(), st.text())), st.integers(1, 50))
def test_messages_come_back_whole_however_they_are_cut(messages: list[dict[str, str]], size: int) -> None:
    near, far = socket.socketpair()
    with near, far:
        for message in messages:
            channel.send(near, message)
        near.close()
        lines, found = channel.Lines(), []
        while data := far.recv(size):
            found += lines.feed(data)
    assert found == messages


@pytest.mark.parametrize("data", [b"x\n", b"[]\n", b"3\n", b"\xff\n", b"[" * 100_000 + b"\n", b"x" * 1_100_000])
def test_what_is_no_message_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidValue):
        channel.Lines().feed(data)


def test_a_line_may_have_a_mebibyte() -> None:
    data = b'{"a":"%b"}\n' % (b"x" * (channel.MOST_LINE - 8))
    assert len(channel.Lines().feed(data)) == 1
    with pytest.raises(InvalidValue):
        channel.Lines().feed(data.replace(b"x", b"xx", 1))


def test_the_other_end_is_known_by_the_kernel() -> None:  # P70
    near, far = socket.socketpair()
    with near, far:
        assert channel.other_end(near) == (os.getpid(), os.geteuid())
        assert channel.may_talk(near, 1 << 30)
        assert not channel.may_talk(near, os.getpid())
        assert not channel.may_talk(near, os.getppid())


def test_an_order_is_read() -> None:
    found = order.parse(ORDER)
    assert (found.argv, found.report, found.kill_grace, found.wait_for) == (("a", "b"), ("r",), 5, "leader")


WRONG = {
    **{"run": -1, "task": "", "lock": None, "argv": [], "workspace": "relative", "log": "/a\0b", "folder": 1},
    **{"socket": "", "ttl": 0, "beat": float("inf"), "max_runtime": -5, "kill_grace": True, "closing_grace": "1"},
    **{"log_bytes": 1.5, "memory_limit": -1, "wait_for": "both", "policy": "perhaps", "report": [1], "patience": None},
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_part_of_an_order_is_named(name: str) -> None:
    with pytest.raises(InvalidValue, match=f"the order's {name} cannot be"):
        order.parse({**ORDER, name: WRONG[name]})


def test_missing_parts_are_named() -> None:
    with pytest.raises(InvalidValue, match="lacks lock, argv"):
        order.parse({name: value for name, value in ORDER.items() if name not in ("lock", "argv")})
