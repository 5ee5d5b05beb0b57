"""What a dispatcher says to a shim that is still starting is heard (D13, D14)."""

from __future__ import annotations

import socket

from hermes_kanban.lanes import channel, shim
from hermes_kanban.lanes.order import Order

ORDER = Order(
    run=7,
    task="t_1",
    lock="host:1:a",
    argv=("true",),
    workspace="/",
    log="/dev/null",
    log_bytes=1000,
    folder="/",
    socket="/nowhere",
    ttl=30,
    beat=10,
    report=(),
    max_runtime=60,
    kill_grace=1,
    closing_grace=1,
    memory_limit=0,
    wait_for="leader",
    policy="require_call",
)
STOP = {"do": "stop", "reason": "gateway_stop"}


def test_a_word_that_comes_with_the_order_is_left_for_the_supervisor() -> None:  # D14
    starter, first = socket.socketpair()
    with starter, first:
        channel.send(starter, ORDER.as_dict())
        channel.send(starter, STOP)
        assert shim._order(first, 7) == ORDER
        first.setblocking(False)
        assert channel.Lines().feed(first.recv(channel.CHUNK)) == [STOP]
