"""What a bridge waits on: the channels of its shims, the board's pokes, and its own wake-up."""

from __future__ import annotations

import os
import selectors

from hermes_kanban.base import settings
from hermes_kanban.dispatcher import links
from hermes_kanban.lanes import launch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hermes_kanban.boards import Place
    from hermes_kanban.compose import Environment
    from hermes_kanban.dispatcher.links import Link


class Hold:
    """One claim that a bridge looks after until its end is booked.

    Attributes:
        link: the channel to its shim, if there is one now.
        tries: how often its end could not be booked.
        again: when to try to book it, of the monotonic clock; None: when its shim says so.
        word: what the log calls the booking.
    """

    def __init__(self, run: int, task: str, pid: int | None = None, word: str = "ended") -> None:
        self.run, self.task, self.pid, self.word = run, task, pid, word
        self.link: Link | None = None
        self.tries = 0
        self.again: float | None = None


class Channels:
    """One selector over all of them.

    Args:
        env, place: whose board, for the sockets of shims.
    """

    def __init__(self, env: Environment, place: Place) -> None:
        self._env, self._place = env, place
        self._selector = selectors.DefaultSelector()
        self._wake_in, self._wake_out = os.pipe()
        os.set_blocking(self._wake_in, False)
        os.set_blocking(self._wake_out, False)
        self._selector.register(self._wake_in, selectors.EVENT_READ, None)
        self._children: set[int] = set()

    def wake(self) -> None:
        """End the wait; safe in a signal handler."""
        try:
            os.write(self._wake_out, b"!")
        except OSError:
            return

    def listen(self, descriptor: int) -> None:
        """Wake for the board's pokes too; -1 stands for none."""
        if descriptor >= 0:
            self._selector.register(descriptor, selectors.EVENT_READ, None)

    def wait(self, seconds: float) -> list[Hold]:
        """Wait for anything, at most so long; return the claims whose shims have something to say."""
        found = self._selector.select(max(0.0, seconds))
        for key, _ in found:
            if key.fd == self._wake_in:
                os.read(self._wake_in, 512)
        self._children = {pid for pid in self._children if not links.collect_child(pid)}
        return [key.data for key, _ in found if key.data is not None]

    def watch(self, hold: Hold, link: Link) -> None:
        """Listen to a shim; one that is our child is collected when it has ended."""
        hold.link = link
        self._selector.register(link.sock, selectors.EVENT_READ, hold)
        if link.pid:
            self._children.add(link.pid)

    def connect(self, hold: Hold) -> bool:
        """Connect to the shim of a run that goes on; False where that is not possible now."""
        runtime = settings.runtime_folder(self._env.variables)
        found = links.connect(launch.socket_path(runtime, self._place.database, hold.run), hold.run)
        if found is not None:
            self.watch(hold, found)
        return found is not None

    def unwatch(self, hold: Hold) -> None:
        """Let go of a shim's channel; it goes on by itself."""
        if hold.link is not None:
            self._selector.unregister(hold.link.sock)
            hold.link.close()
            hold.link = None
