"""A worker without a mind: does what its words say, one after the other, and speaks to the board through `hermes`.

    python -I fake_worker.py ACTION [ACTION …]        an action is a word with its arguments: "exit 75", "leave 3"

`obey` makes it a puppet: it reads actions, a line each, from the pipe `$HERMES_HOME/puppets/BOARD.RUN`, and writes each
line that it has done to the file beside it (`….did`). `follow` makes it an actor: what it does in which attempt stands
in `$HERMES_HOME/puppets/TASK.json` (see storm.py). It needs nothing but the standard library.
"""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

TASK, RUN = os.environ["HERMES_KANBAN_TASK"], os.environ["HERMES_KANBAN_RUN_ID"]
PUPPETS = os.path.join(os.environ["HERMES_HOME"], "puppets")
PIPE = os.path.join(PUPPETS, f"{os.environ['HERMES_KANBAN_BOARD']}.{RUN}")
SEAT: list[int] = []  # the locked file of our seat, if we have one
BLOCK = [
    *("--cause", "human decision needed", "--what", "told so", "--option", "A: go on", "--option", "B: stop"),
    *("--recommend", "A", "--next", "choose", "--kind", "needs_input"),
]


def obey() -> None:
    """Be a puppet until told to end."""
    os.mkfifo(PIPE, 0o600)
    descriptor = os.open(PIPE, os.O_RDWR)  # a writer too, so that there is no end between two lines
    with open(descriptor, encoding="utf-8") as pipe:
        for line in pipe:
            act(line.strip())
            note(f"{PIPE}.did", line.strip())


def follow() -> None:
    """Do what the card's script says for this attempt. A lock shows whether another attempt at the card goes on.

    It is the open file's own: the kernel frees it when the last process that has it is gone, those left behind too.
    """
    mine = os.path.join(PUPPETS, TASK)
    with open(f"{mine}.json", encoding="utf-8") as handle:
        script = json.load(handle)
    busy = os.open(f"{mine}.busy", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(busy, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        note(os.path.join(PUPPETS, "overlaps"), f"{TASK}: run {RUN} beside {_others()}")
    if script.get("seats") and not _seated(script["seats"]):
        note(os.path.join(PUPPETS, "overlaps"), f"{TASK}: run {RUN} is one worker too many")
    note(f"{mine}.starts", RUN)
    with open(f"{mine}.starts", encoding="utf-8") as handle:
        attempt = len(handle.readlines()) - 1
    work(script["work"])
    for line in (script["attempts"][attempt:] or [script["last"]])[0]:
        act(line)


def _seated(many: int) -> bool:
    """Take one of so many seats, which is free again when this process is gone; false where all are taken."""
    for number in range(many):
        seat = os.open(os.path.join(PUPPETS, f"seat.{number}"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(seat, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(seat)
        else:
            SEAT.append(seat)
            return True
    return False


def _others() -> list[str]:
    """Return who else works on the card: pid and run, as their environments have them."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as handle:
                words = handle.read().split(b"\0")
            with open(f"/proc/{pid}/stat", "rb") as handle:
                stat = handle.read().rpartition(b")")[2].split()[:4]
        except OSError:
            continue
        run = next((word for word in words if word.startswith(b"HERMES_KANBAN_RUN_ID=")), b"").decode()
        if f"HERMES_KANBAN_TASK={TASK}".encode() in words and run[21:] != RUN:
            found.append(f"{pid} of {run[21:]} {b' '.join(stat).decode()}")
    return found


def note(path: str, line: str) -> None:
    """Append a line in one write, so that those of several processes stay whole."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(descriptor, f"{line}\n".encode())
    os.close(descriptor)


def hermes(*words: str) -> None:
    """Do a verb of the board, whatever comes of it; its words go into the log."""
    subprocess.run(["hermes", "kanban", *words], stdin=subprocess.DEVNULL, check=False)


def complete() -> None:
    hermes("complete", TASK, "--summary", f"done by run {RUN}")


def block() -> None:
    hermes("block", TASK, *BLOCK)


def leave(many: str) -> None:
    """Leave processes behind that ignore a request to end, each in a session of its own."""
    for _ in range(int(many)):
        if os.fork() == 0:
            _stand_up()
            os.setsid()
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            _for_ever()


def bomb(width: str, generations: str) -> None:
    """Leave processes that fork and end, again and again, in sessions of their own; the last ones stay."""
    for _ in range(int(width)):
        if os.fork() == 0:
            _stand_up()
            for _ in range(int(generations)):
                if os.fork():
                    os._exit(0)
                os.setsid()
            _for_ever()


def _stand_up() -> None:
    """A child does not sit on its parent's seat: a slot is its shim's, and a killed shim gives it back at once."""
    while SEAT:
        os.close(SEAT.pop())


def zombie() -> None:
    """Have a child that has ended and that nobody collects."""
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


def stubborn() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def die(name: str) -> None:
    os.kill(os.getpid(), getattr(signal, f"SIG{name}"))


def work(milliseconds: str) -> None:
    time.sleep(int(milliseconds) / 1000)


def _for_ever() -> None:
    while True:
        signal.pause()


ACTIONS: dict[str, Callable[..., None]] = {
    "obey": obey,
    "follow": follow,
    "hermes": hermes,
    "complete": complete,
    "block": block,
    "leave": leave,
    "bomb": bomb,
    "zombie": zombie,
    "stubborn": stubborn,
    "die": die,
    "work": work,
    "exit": lambda code: os._exit(int(code)),
    "say": lambda *words: print(*words, flush=True),
    "note": lambda name, *words: note(os.path.join(PUPPETS, name), " ".join(words)),
}


def act(line: str) -> None:
    """Do one action."""
    word, *arguments = line.split()
    ACTIONS[word](*arguments)


if __name__ == "__main__":
    for action in sys.argv[1:]:
        act(action)
