"""What whoever asks a dispatcher may take of its time."""

from __future__ import annotations

import socket
import threading

from hermes_kanban.dispatcher import control


def test_who_sends_byte_by_byte_holds_up_nobody() -> None:
    ours, theirs = socket.socketpair()
    over, sent = threading.Event(), []

    def trickle() -> None:
        while not over.wait(0.01):
            theirs.send(b" ")
            sent.append(1)

    peer = threading.Thread(target=trickle)
    peer.start()
    try:
        assert control.receive(ours, 0.2) is None
    finally:
        over.set()
        peer.join()
    assert len(sent) > 1
    theirs.send(b'{"op": "state"}\n')
    assert control.receive(ours, 5) == {"op": "state"}
    ours.close()
    theirs.close()
