"""What the other processes of the store's tests do: `python -m tests.store.roles ROLE WORDS…`."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import apsw

from hermes_kanban import boards
from hermes_kanban.base.errors import Refusal
from hermes_kanban.kernel.query import Filter
from hermes_kanban.store.turnstile import Turnstile
from tests.store import homes


def say(answer: Any) -> None:
    print(answer if isinstance(answer, str) else json.dumps(answer), flush=True)


def wait_for_go() -> None:
    """Wait until the test says so; end if it is gone."""
    if not sys.stdin.readline():
        sys.exit(1)


def refusal_of(attempt: Callable[[], object]) -> dict[str, Any]:
    """Return how something was refused ({} when it was not)."""
    try:
        attempt()
    except Refusal as error:
        return {**error.as_dict(), "exit_code": error.exit_code}
    return {}


def hold(path: str) -> None:
    """Take the turn and keep it until told to leave."""
    queue = Turnstile(path)
    queue.enter(60)
    say("in")
    wait_for_go()
    queue.leave()
    say("out")


def turns(path: str, number: str, log: str) -> None:
    """Take many turns, one after another, as a busy writer does."""
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND)
    queue = Turnstile(path)
    say("up")
    wait_for_go()
    for _ in range(int(number)):
        queue.enter(60)
        os.write(descriptor, f"{os.getpid()}\n".encode())
        time.sleep(0.001)  # the work that is done inside
        queue.leave()


def lock_raw(path: str) -> None:
    """Lock a board as a foreign program does: without queueing."""
    connection = apsw.Connection(path)
    connection.execute("BEGIN IMMEDIATE")
    say("in")
    wait_for_go()
    connection.execute("ROLLBACK")
    say("out")


def init(home: str) -> None:
    """Make the board of a home in the same instant as others; say its id."""
    say("up")
    wait_for_go()
    made = homes.make(home)
    with homes.store(made.database).read() as tx:
        row = tx.one("schema.meta", key="board_id")
    say(row[0] if row else "none")


def upgrade(path: str) -> None:
    """Open a board with newer code; say which schema it has then."""
    say("up")
    wait_for_go()
    opened = homes.store(path, migrations=homes.EXTENDED)
    say(str(opened._connection.pragma("user_version")))
    opened.close()


def commit(home: str) -> None:
    """Create one card each time the test says so."""
    board = homes.opened(home)
    say("up")
    while True:
        wait_for_go()
        say(homes.card(board, f"{os.getpid()}-{board.last_event_id()}"))


def write_on(home: str) -> None:
    """Create cards without end through one connection; say each when it was acknowledged."""
    board = homes.opened(home)
    number = 0
    while True:
        number += 1
        say(homes.card(board, f"{os.getpid()}-{number}", body="x" * (number % 7) * 900))


def open_and_close(home: str) -> None:
    """Create cards without end, each through a connection of its own."""
    number = 0
    while True:
        number += 1
        board = homes.opened(home)
        say(homes.card(board, f"{os.getpid()}-{number}"))
        homes.store_of(board).close()


def look_on(home: str) -> None:
    """Read without end."""
    say("up")
    while True:
        board = homes.opened(home, write=False)
        board.list(Filter(limit=50))
        board.stats()
        homes.store_of(board).close()


def leave_log(home: str) -> None:
    """Create a card and die without closing: the card is in the log only."""
    board = homes.opened(home)
    say(homes.card(board, "left"))
    os._exit(0)


def listen(home: str) -> None:
    """Wait for changes until killed."""
    board = homes.opened(home, write=False)
    feed = board.feed()
    say("up")
    while True:
        feed.wait(3600)


def fork(home: str) -> None:
    """Use a board's connection in a forked child: each use is refused, and the parent's board is unharmed."""
    board = homes.opened(home)
    homes.card(board, "before")
    feed = board.feed()
    store = homes.store_of(board)
    inside, outside = os.pipe()
    child = os.fork()
    if child == 0:
        uses = (
            lambda: homes.card(board, "child"),
            board.stats,
            store.check_integrity,
            lambda: feed.wait(0),
        )
        codes = [refusal_of(use).get("code") for use in uses]
        store.close()
        os.write(outside, json.dumps(codes).encode())
        os._exit(0)
    os.waitpid(child, 0)
    homes.card(board, "after")
    say({"child": json.loads(os.read(inside, 4096)), "cards": titles(board), "verify": problems(board)})


def child_keeps_descriptor(path: str) -> None:
    """Fork in the middle of a turn; the child outlives it. Say whether the turn is free all the same."""
    queue = Turnstile(path)
    queue.enter(0)
    inside, outside = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(outside)
        os.read(inside, 1)
        os._exit(0)
    queue.leave()
    other = Turnstile(path)
    free = not refusal_of(lambda: other.enter(0))
    os.close(outside)
    os.waitpid(child, 0)
    say({"free": free})


def modes(home: str) -> None:
    """Make boards under a lenient umask; say the modes of everything that was made."""
    os.umask(0o022)
    os.mkdir(home)
    os.chmod(home, 0o755)
    home = os.path.join(home, "deep", "home")
    for name in (boards.DEFAULT, "side"):
        made = homes.make(home, name)
        boards.describe(made, {"name": name})
    boards.switch(home, "side", {})
    with open(os.path.join(home, "config.yaml"), "w", encoding="utf-8") as handle:
        handle.write("kanban: {reviewer: rev}\n")
    os.chmod(os.path.join(home, "config.yaml"), 0o600)
    board = homes.opened(home)
    homes.card(board, "one")
    feed = board.feed()
    old = homes.place(home, "side").database
    homes.store(old, migrations=homes.EXTENDED).close()
    found = {}
    for top in (os.path.dirname(home), f"{home}-run"):
        for folder, folders, files in os.walk(top):
            found |= {os.path.join(folder, n): os.lstat(os.path.join(folder, n)).st_mode & 0o777 for n in folders}
            found |= {os.path.join(folder, n): os.lstat(os.path.join(folder, n)).st_mode & 0o777 for n in files}
    feed.close()
    say({os.path.relpath(path, home): mode for path, mode in found.items() if not path.endswith(".sock")})


def unprivileged(home: str) -> None:
    """Try to use a board as another user."""
    os.setgid(65534)
    os.setuid(65534)
    database = homes.place(home).database
    say(
        {
            "read": refusal_of(lambda: homes.store(database, read_only=True)),
            "write": refusal_of(lambda: homes.store(database)),
            "init": refusal_of(lambda: homes.make(home)),
        }
    )


def imports() -> None:
    """Say what is loaded after the modules of the hot path (this one loaded more: ask a fresh interpreter)."""
    code = (
        "import sys; before = set(sys.modules); import apsw; apsw_too = set(sys.modules);"
        "import hermes_kanban.store.sqlite, hermes_kanban.boards, json;"
        "print(json.dumps(sorted(set(sys.modules) - apsw_too)))"
    )
    say(json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout))


# --- inside a mount namespace -----------------------------------------------------------------------------------
def mount(options: str, target: str) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", target], check=True)


def remount(options: str, target: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", target], check=True)


def titles(board: Any) -> list[str]:
    return sorted(listed.task.title for listed in board.list(Filter(limit=1000)).cards)


def problems(board: Any) -> list[str]:
    return [finding.problem for finding in board.verify()]


def read_only(disk: str) -> None:
    """Use a board whose file system became read-only, closed well and with a log left behind."""
    mount("size=16m", disk)
    home = os.path.join(disk, "home")
    homes.make(home)
    board = homes.opened(home)
    first = homes.card(board, "first")
    homes.store_of(board).close()
    said: dict[str, Any] = {}
    for state in ("closed", "log"):
        if state == "log":
            remount("rw", disk)
            subprocess.run([sys.executable, "-m", "tests.store.roles", "leave_log", home], check=True, stdout=2)
        remount("ro", disk)
        reader = homes.opened(home, write=False)
        said[state] = {
            "titles": titles(reader),
            "shown": reader.show(first).task.title,
            "context": len(reader.context(first)),
            "write": refusal_of(lambda: homes.card(homes.opened(home), "second")),
            "init": refusal_of(lambda: homes.make(home)),
            "switch": refusal_of(lambda: boards.switch(home, boards.DEFAULT, {})),
            "new_board": refusal_of(lambda: homes.make(home, "other")),
            "upgrade": refusal_of(lambda: homes.store(homes.place(home).database, migrations=homes.EXTENDED)),
        }
        homes.store_of(reader).close()
    remount("rw", disk)
    board = homes.opened(home)
    homes.card(board, "last")
    say(said | {"after": {"titles": titles(board), "verify": problems(board)}})


def filled(disk: str, path: str) -> None:
    """Take all the room there is."""
    with open(path, "wb", buffering=0) as handle:
        while True:
            try:
                handle.write(b"x" * 4096)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                return


def full_disk(disk: str) -> None:
    """Write to a board until the disk is full, look, make room, go on."""
    mount("size=4m", disk)
    home = os.path.join(disk, "home")
    homes.make(home)
    board = homes.opened(home)
    kept, refused = [], {}
    filler = os.path.join(disk, "filler")
    filled(disk, filler)
    os.truncate(filler, os.path.getsize(filler) - 262_144)
    for number in range(1000):
        refused = refusal_of(lambda n=number: kept.append(homes.card(board, f"n{n:04d}", body="y" * 20_000)))  # type: ignore[misc]
        if refused:
            break
    while_full = {
        "write": refused,
        "again": refusal_of(lambda: homes.card(board, "again", body="y" * 100_000)),
        "titles": len(titles(board)),
        "switch": refusal_of(lambda: boards.switch(home, boards.DEFAULT, {})),
        "new_board": refusal_of(lambda: homes.make(home, "other")),
    }
    os.unlink(filler)
    homes.card(board, "roomy")
    boards.switch(home, boards.DEFAULT, {})
    after = {"titles": len(titles(board)), "verify": problems(board), "left": leftovers(home)}
    say({"kept": len(kept), "full": while_full, "after": after})


def full_disk_at_start(disk: str) -> None:
    """Start commands on a full disk: there is no room for the log's index either."""
    mount("size=4m", disk)
    home = os.path.join(disk, "home")
    homes.make(home)
    board = homes.opened(home)
    homes.card(board, "one")
    homes.store_of(board).close()
    boards.switch(home, boards.DEFAULT, {})
    filler = os.path.join(disk, "filler")
    filled(disk, filler)
    database = homes.place(home).database
    said = {
        "write": refusal_of(lambda: homes.card(homes.opened(home), "two", body="y" * 50_000)),
        "upgrade": refusal_of(lambda: homes.store(database, migrations=homes.EXTENDED)),
        "switch": refusal_of(lambda: boards.switch(home, boards.DEFAULT, {})),
        "pointer": boards.current(home),
    }
    os.unlink(filler)
    board = homes.opened(home)
    homes.card(board, "three")
    said |= {"titles": titles(board), "verify": problems(board), "left": leftovers(home)}
    homes.store_of(board).close()
    upgraded = homes.store(database, migrations=homes.EXTENDED)
    say(said | {"version": upgraded._connection.pragma("user_version")})


def leftovers(home: str) -> list[str]:
    """Return half files that nobody needs."""
    found = [name for _, _, files in os.walk(home) for name in files]
    return sorted(name for name in found if name.endswith((".new", ".part", "-journal")))


def die_with_parent() -> None:
    """End when the test ends, however it ends (Linux; elsewhere the closed pipe does it)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, 9)


ROLES: dict[str, Callable[..., None]] = {
    role.__name__: role
    for role in (
        hold,
        turns,
        lock_raw,
        init,
        upgrade,
        commit,
        write_on,
        open_and_close,
        look_on,
        leave_log,
        listen,
        fork,
        child_keeps_descriptor,
        modes,
        unprivileged,
        imports,
        read_only,
        full_disk,
        full_disk_at_start,
    )
}

if __name__ == "__main__":
    die_with_parent()
    ROLES[sys.argv[1]](*sys.argv[2:])
