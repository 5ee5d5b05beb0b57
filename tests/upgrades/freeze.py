"""Makes the frozen board of the schema that this code has: `frozen/schema_N.db.gz`, and its rows in `schema_N.json`.

    .venv/bin/python tests/upgrades/freeze.py                               # the code of this checkout
    PYTHONPATH=OLD/src .venv/bin/python tests/upgrades/freeze.py            # that of an unpacked release

Run it with the last commit of a schema, that is before the first that has the next migration, and enter the sums that
it prints into `test_upgrades.py`. A frozen file is never made again: it stands for the boards that are out there.

The board is made by the code's own commands, in processes, and by its own kernel for the ends that only a dispatcher
books. Afterwards paths, hosts and numbers of this machine are replaced by neutral ones in every row. No verb makes
rows of `kanban_notify_subs` yet: there one is put in.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

import apsw

from hermes_kanban import boards, compose
from hermes_kanban.base import settings
from hermes_kanban.kernel import failures, find
from hermes_kanban.kernel.context import Context
from hermes_kanban.model import status as s
from hermes_kanban.model.actors import Actor
from hermes_kanban.model.claim import Caps
from hermes_kanban.store import sqlite

HERE = Path(__file__).parent / "frozen"
HOSTILE = "\x1b]0;owned\x07\x1b[2J\u202egnp.exe\u2066 \u200b e\u0301 🧑\u200d🚀 "
HOSTILE += "'; DROP TABLE task_rows; -- $(x) `y` <b>\r\n../.."
FULL = ["--cause", "spec undecided", "--what", "two formats", "--option", "A: JSON", "--option", "B: YAML"]
FULL += ["--recommend", "A", "--next", "choose one"]
ANN, BOT, REV = "ann", "bot", "rev"
ENDS = (s.FAILED, s.CRASHED, s.TIMED_OUT, s.RECLAIMED, s.RATE_LIMITED, s.SPAWN_FAILED, s.PROTOCOL_VIOLATION)

# Who calls what; `{name}` is the id of the card that was created under that name.
STORY: tuple[tuple[str, str], ...] = (
    *((ANN, f"create {name} --idempotency-key key-{name}") for name in ("ready", "parent", "plain", "dropped", "gone")),
    (ANN, "create todo --parent {parent} --priority -7 --skill python --skill sql --max-retries 3 --max-runtime 60"),
    (ANN, "create triage --triage --tenant acme"),
    (ANN, "create scheduled --at 2090-01-01T00:00:00Z --model m --provider p --goal --goal-max-turns 4 --session s1"),
    (ANN, "create held --status blocked --reason later"),
    *((ANN, f"create {name} --assignee bot --reviewer rev") for name in ("running", "reviewed", "changed", "done")),
    *((ANN, f"create {name} --assignee bot") for name in ("asked", "answered", "waits", "refused", "over", "later")),
    *((ANN, f"create end_{outcome} --assignee bot") for outcome in ENDS),
    *((ANN, f"create {name} --assignee bot") for name in ("tripped", "supervised", "quarantined")),
    (BOT, "create by_script --idempotency-key k-script --parent {plain}"),
    *(
        (BOT, f"claim {{{name}}} --ttl 3600")
        for name in ("running", "reviewed", "changed", "done", "asked", "answered")
    ),
    *((BOT, f"claim {{{name}}} --ttl 3600") for name in ("waits", "refused", "over", "later")),
    (BOT, "heartbeat {running} --note half"),
    (BOT, "comment {running} halfway"),
    (ANN, "comment {running} hostile:HOSTILE"),
    (ANN, "edit {plain} --body hostile:HOSTILE --acceptance hostile:HOSTILE --priority 1000"),
    (ANN, "attach {ready} note.txt"),
    (ANN, "attach {plain} note.txt"),
    (ANN, "attach-rm {plain} 2"),
    *((BOT, f"request-review {{{name}}} --summary look") for name in ("reviewed", "changed")),
    (REV, "claim {changed} --ttl 3600"),
    (REV, "request-changes {changed} more-tests"),
    (BOT, 'complete {done} --summary made --result hostile:HOSTILE --metadata {{"files":["a.py"],"n":1.5}}'),
    *((BOT, f"block {{{name}}} --kind needs_input FULL") for name in ("asked", "answered")),
    (ANN, "unblock {answered} --answer B"),
    (BOT, "block {waits} --kind dependency --cause environment --what waits"),
    (ANN, "forget {later} {over} {refused}"),
    (ANN, "schedule {later} --override --at 2090-01-01T00:00:00Z --reason later"),
    (ANN, "reclaim {refused}"),
    (BOT, "!heartbeat {refused}"),
    (ANN, "complete {over} --override --summary by-hand"),
    (ANN, "assign {ready} ann"),
    (ANN, "link {plain} {dropped}"),
    (ANN, "unlink {plain} {dropped}"),
    (ANN, "complete {gone} --summary first"),
    (ANN, "reopen {gone}"),
    (ANN, "archive {dropped}"),
    (ANN, "unarchive {dropped}"),
    (ANN, "archive {gone} {dropped}"),
    (ANN, "promote {held}"),
)


class Home:
    """A home under a neutral host's name, and the commands in it."""

    def __init__(self, folder: str) -> None:
        self.folder, self.home = folder, os.path.join(folder, "home")
        self.ids: dict[str, str] = {}
        os.mkdir(self.home, 0o700)
        Path(folder, "note.txt").write_text("a note\n", encoding="utf-8")
        text = "kanban:\n  external_assignees: [ann, bot, rev]\n  retry_backoff_seconds: 0\n"
        Path(self.home, "config.yaml").write_text(text, encoding="utf-8")

    def variables(self, name: str) -> dict[str, str]:
        plain = {"PATH": os.environ["PATH"], "HOME": self.folder, "HERMES_HOME": self.home, "LANG": "C.UTF-8"}
        told = {"HERMES_PROFILE": name, "HERMES_KANBAN_HOST": "host-a", "XDG_RUNTIME_DIR": self.folder}
        return plain | told | {n: os.environ[n] for n in ("PYTHONPATH",) if n in os.environ}

    def call(self, name: str, line: str) -> str:
        """Run one line of the story; one with `!` must be refused, `forget` leaves nobody the ticket of a claim."""
        if line.startswith("forget "):
            for task in line.format(**self.ids).split()[1:]:
                for ticket in Path(self.home, "kanban", "tickets").glob(f"{task}.*"):
                    ticket.unlink()
            return ""
        words: list[str] = []
        for word in line.removeprefix("!").split():
            filled = word.format(**self.ids) if "{" in word else word
            words += FULL if filled == "FULL" else [filled.replace("hostile:HOSTILE", HOSTILE)]
        argv = [sys.executable, "-m", "hermes_kanban", "kanban", *words]
        given: dict[str, Any] = {"cwd": self.folder, "env": self.variables(name), "stdin": subprocess.DEVNULL}
        done = subprocess.run(argv, capture_output=True, text=True, check=False, **given)
        assert (done.returncode == 0) is not line.startswith("!"), (line, done.stdout, done.stderr)
        return done.stdout

    def tell(self) -> None:
        """Do the whole story."""
        self.call(ANN, "init")
        for name, line in STORY:
            new = line.startswith("create ")
            printed = self.call(name, line + " -q" if new else line)
            if new:
                self.ids[line.split()[1]] = printed.strip()
        for outcome in ENDS:
            self.end(self.ids[f"end_{outcome}"], outcome)
        for _ in range(3):
            self.end(self.ids["tripped"], s.FAILED)
        for name in ("supervised", "quarantined"):
            self.dispatch(self.ids[name])
        self.call(ANN, "complete {quarantined} --override --summary by-hand")

    def board(self) -> Any:
        """Open the board as its dispatcher does (before schema 2: as anybody does)."""
        given = self.variables(BOT)
        env = compose.Environment(given, self.home, settings.load(self.home))
        place = boards.place(self.home, boards.DEFAULT, given)
        opened = getattr(compose, "open_supervision", None)
        return opened(env, place) if opened else compose.open_board(env, place, write=True)

    def dispatch(self, task: str) -> None:
        """Claim a card for a worker of a lane, and where a shim can say so let it say that the worker lives."""
        board, told = self.board(), {"ttl": 3600, "lane": "lane", "name": BOT, "caps": Caps()}
        if not hasattr(compose, "open_supervision"):
            board.claim_for_dispatch(task, **told)
            return
        supervision = import_module("hermes_kanban.kernel.supervision")
        process = import_module("hermes_kanban.kernel.supervise").Process
        _card, run = board.claim_for_dispatch(task, **told, facts=supervision.Facts())
        board.started(run.id, run.claim_lock, process((4711, "11"), (4712, "12"), "boot", "1"))

    def end(self, task: str, outcome: str) -> None:
        """Claim a card and end the run as a dispatcher books it, with the kernel's own function."""
        board = self.board()
        found = failures.End(outcome, "exit", error=f"it ended as {outcome}", exit_code=1, exit_kind="exit")
        if board.show(task).task.status == s.READY:
            board.claim(task)
            with board._store.write() as tx:
                ctx = Context(tx, Actor(s.DISPATCHER, "host-a"), settings.load(self.home))
                failures.end(ctx, find.task(tx, task), found)
        assert board.verify() == ()


def scrub(path: str, home: Home) -> None:
    """Take out of every row what only this machine knows, and what was overwritten out of the file."""
    connection = apsw.Connection(path)
    connection.create_scalar_function(sqlite.GUARD, lambda *_: None, 0)
    with connection:
        for table in tables(connection):
            for column in columns(connection, table):
                replaced = f"UPDATE {table} SET {column} = replace({column}, ?, '/srv/hermes') WHERE {column} LIKE ?"
                connection.execute(replaced, (home.folder, f"%{home.folder}%"))
        connection.execute("UPDATE task_runs SET boot_id = 'boot' WHERE boot_id IS NOT NULL")
        locks = list(connection.execute("SELECT id, claim_lock FROM task_runs WHERE claim_lock IS NOT NULL"))
        for number, lock in locks:
            neutral = f"host-a:{4000 + number}:{lock.rpartition(':')[2]}"
            connection.execute("UPDATE task_runs SET claim_lock = ? WHERE id = ?", (neutral, number))
        put = "INSERT INTO kanban_notify_subs VALUES (1, ?, 'chat', 'c1', NULL, 'u1', NULL, 'digest', 1700000000, 1)"
        connection.execute(put, (home.ids["ready"],))
    connection.pragma("journal_mode", "delete")
    connection.execute("VACUUM")
    connection.close()


def tables(connection: apsw.Connection) -> list[str]:
    """Return the tables of a board, also SQLite's own counter."""
    found = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")
    return [str(row[0]) for row in found]


def columns(connection: apsw.Connection, table: str) -> list[str]:
    """Return the columns that hold values of their own."""
    found = connection.execute(f"SELECT name FROM pragma_table_xinfo('{table}') WHERE hidden = 0")
    return [str(row[0]) for row in found]


def rows(path: str | Path) -> dict[str, list[list[Any]]]:
    """Return all rows of a board: for each table the names of its columns, then the rows in their order."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        found: dict[str, list[list[Any]]] = {}
        for table in tables(connection):
            names = columns(connection, table)
            kept = connection.execute(f"SELECT {', '.join(names)} FROM {table} ORDER BY 1, 2")
            found[table] = [names, *map(list, kept)]
        return found
    finally:
        connection.close()


def main() -> None:
    """Make both files, and print their sums."""
    with tempfile.TemporaryDirectory(prefix="hk") as folder:
        home = Home(folder)
        home.tell()
        path = os.path.join(home.home, "kanban.db")
        scrub(path, home)
        base = HERE / f"schema_{sqlite.SCHEMA_VERSION}"
        text = json.dumps(rows(path), ensure_ascii=True, indent=None, separators=(",", ":"))
        base.with_suffix(".json").write_text(text.replace("],[", "],\n[") + "\n", encoding="utf-8")
        base.with_suffix(".db.gz").write_bytes(gzip.compress(Path(path).read_bytes(), 9, mtime=0))
    for made in sorted(HERE.glob(f"{base.name}.*")):
        print(hashlib.sha256(made.read_bytes()).hexdigest(), made.stat().st_size, made.name)


if __name__ == "__main__":
    main()
