"""The habits of this house that a test can see: literals, doors, sizes, names that must agree."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from hermes_kanban.kernel import planning
from hermes_kanban.model import status as s
from hermes_kanban.model.event import KINDS, Event
from hermes_kanban.model.run import Run
from hermes_kanban.model.task import Task
from hermes_kanban.model.thread import Attachment, Comment, Link
from hermes_kanban.store import rows, sqlite, statements

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src" / "hermes_kanban").rglob("*.py"))
SQL = sorted((ROOT / "src" / "hermes_kanban").rglob("*.sql"))
MODULE_LINES = 400
FUNCTION_LINES = 40


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT / "src" / "hermes_kanban"))


every_module = pytest.mark.parametrize("path", SOURCES, ids=name_of)


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def literals(module: ast.Module) -> Iterator[ast.Constant]:
    """Yield the string constants that are no docstrings."""
    documents = {
        id(node.body[0].value)
        for node in ast.walk(module)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(module):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documents:
            yield node


# --- habit 1: no status literal outside the model and the SQL ------------------------------------------------
STATES_ONLY = {state for state in s.STATES if state not in KINDS}
BOTH = set(s.STATES) - STATES_ONLY  # also names of events, which may be written out


def status_literals(module: ast.Module) -> list[str]:
    """Return the states that are written out; words that name an event too count only where a state is meant."""
    keys = set(map(id, _names_of_arguments(module)))
    written = [node for node in literals(module) if node.value in STATES_ONLY and id(node) not in keys]
    found = [f"{node.lineno}: {node.value!r}" for node in written]
    for node in ast.walk(module):
        given: list[ast.expr] = []
        if isinstance(node, ast.Compare):
            given = [node.left, *node.comparators]
        elif isinstance(node, ast.Dict):
            given = [v for k, v in zip(node.keys, node.values, strict=True) if _is_status_key(k)]
        elif isinstance(node, ast.keyword) and node.arg in ("status", "outcome", "state"):
            given = [node.value]
        found += [f"{v.lineno}: {v.value!r}" for v in given if isinstance(v, ast.Constant) and v.value in BOTH]
    return found


def _names_of_arguments(module: ast.Module) -> Iterator[ast.expr]:
    """Yield what names an argument (`call["triage"]`, `Parameter("review", …)`, `given.pop("triage")`), not a state."""
    for node in ast.walk(module):
        if isinstance(node, ast.Subscript):
            yield node.slice
        elif isinstance(node, ast.Call) and node.args:
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in ("Parameter", "pop"):
                yield node.args[0]


def _is_status_key(key: ast.expr | None) -> bool:
    return isinstance(key, ast.Constant) and key.value in ("status", "outcome", "to", "from")


@pytest.mark.parametrize("path", [p for p in SOURCES if p.parent.name != "model"], ids=name_of)
def test_no_status_is_written_out(path: Path) -> None:
    assert status_literals(tree(path)) == []


def test_the_search_for_status_literals_finds_them() -> None:
    assert status_literals(ast.parse("if card.status == 'blocked': pass"))
    assert status_literals(ast.parse("x = {'status': 'archived'}"))
    assert status_literals(ast.parse("go('ready')"))
    assert not status_literals(ast.parse("move(card, kind='blocked')"))
    assert not status_literals(ast.parse("'''running'''"))
    assert not status_literals(ast.parse("call['triage']; given.pop('triage', False)"))


# --- habit 3: no SQL in Python ---
SQL_VERBS = re.compile(
    r"\b(SELECT\s.+\sFROM|INSERT\s+(OR\s+\w+\s+)?INTO|UPDATE\s+\w+\s+SET|DELETE\s+FROM|BEGIN\s+IMMEDIATE"
    r"|CREATE\s+(UNIQUE\s+)?(TABLE|INDEX|VIEW)|CREATE\s+TRIGGER\s+\w+\s+\w+|DROP\s+\w+\s+\w+|ALTER\s+TABLE"
    r"|PRAGMA\s+\w+)\b",
    re.S,
)


@every_module
def test_python_holds_no_sql(path: Path) -> None:
    assert [f"{n.lineno}: {n.value}" for n in literals(tree(path)) if SQL_VERBS.search(n.value)] == []


def test_the_search_for_sql_finds_it() -> None:
    for text in ("SELECT id\nFROM tasks", "insert into x".upper(), "UPDATE t SET a = 1", "PRAGMA journal_mode"):
        assert SQL_VERBS.search(text)


# --- habit 8: one door to time, one to the environment ---
DOORS = {"time": "base/clock.py", "os.environ": "base/settings.py"}


def doors_used(module: ast.Module) -> set[str]:
    found = set()
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            found |= {"time"} & {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {"time"} & {node.module}
            found |= {
                "os.environ" for alias in node.names if node.module == "os" and alias.name in ("environ", "getenv")
            }
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "os":
            found |= {"os.environ"} if node.attr in ("environ", "getenv", "putenv", "environb") else set()
    return found


def test_time_and_environment_have_one_door_each() -> None:
    used = {door: sorted(name_of(p) for p in SOURCES if door in doors_used(tree(p))) for door in DOORS}
    assert used == {door: [module] for door, module in DOORS.items()}


# --- habit 14: small by budget ---
@every_module
def test_a_module_fits_its_budget(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) < MODULE_LINES
    for node in ast.walk(tree(path)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            assert body_lines(node) < FUNCTION_LINES, f"{node.name} is too long"


def body_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the lines of a function without its docstring."""
    document = node.body[0] if ast.get_docstring(node) is not None else None
    length = (node.end_lineno or node.lineno) - node.lineno + 1
    return length - ((document.end_lineno or 0) - document.lineno + 1 if document else 0)


@every_module
def test_a_module_says_what_it_is_for(path: Path) -> None:
    document = ast.get_docstring(tree(path))
    assert document
    assert len(document.splitlines()[0]) >= 10


@pytest.mark.parametrize("path", SQL, ids=name_of)
def test_a_file_of_statements_says_what_it_is_for(path: Path) -> None:
    first = path.read_text(encoding="utf-8").splitlines()[0]
    assert first.startswith("-- ")
    assert not first.startswith("-- name:")


@every_module
def test_nothing_is_imported_inside_functions(path: Path) -> None:
    inside = [
        f"{inner.lineno}: {node.name}"
        for node in ast.walk(tree(path))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        for inner in ast.walk(node)
        if isinstance(inner, (ast.Import, ast.ImportFrom))
    ]
    assert inside == []


# --- names that must agree ---
@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[apsw.Connection]:
    location = str(tmp_path_factory.mktemp("house") / "kanban.db")
    sqlite.create(location, sqlite.SqliteOptions(), {"board_id": "house"})
    opened = apsw.Connection(location)
    opened.create_scalar_function(sqlite.GUARD, lambda *_: None, 0)
    yield opened
    opened.close()


def columns(connection: apsw.Connection, table: str, *, generated: bool = False) -> tuple[str, ...]:
    pragma = "table_xinfo" if generated else "table_info"
    return tuple(row[1] for row in connection.execute(f"PRAGMA {pragma}({table})"))


RECORDS = {
    "tasks": Task,
    "task_runs": Run,
    "task_events": Event,
    "task_comments": Comment,
    "task_attachments": Attachment,
    "task_links": Link,
}


@pytest.mark.parametrize("table", RECORDS)
def test_a_record_has_the_columns_of_its_table_in_their_order(connection: apsw.Connection, table: str) -> None:
    assert columns(connection, table) == RECORDS[table].FIELDS


def test_the_view_adds_only_what_runs_say(connection: apsw.Connection) -> None:  # P2
    view, table = columns(connection, "tasks"), columns(connection, "task_rows")
    assert set(table) - set(view) == set()
    assert set(view) - set(table) == {
        "started_at",
        "claim_lock",
        "claim_expires",
        "worker_pid",
        "last_heartbeat_at",
    }
    assert set(columns(connection, "task_runs", generated=True)) - set(Run.FIELDS) == {"worker_profile"}


@pytest.mark.parametrize(
    ("table", "column", "words"),
    [
        ("task_rows", "status", s.STATES),
        ("task_rows", "block_kind", s.BLOCK_KINDS),
        ("task_rows", "workspace_kind", s.WORKSPACE_KINDS),
        ("task_rows", "phase", (s.WORK, s.REVIEWING)),
        ("task_rows", "hold_release", (s.BY_PERSON, s.BY_TIME, s.BY_PARENTS, s.BY_REVIEWER)),
        ("task_runs", "role", (s.IMPLEMENTER, s.REVIEWER, s.MANUAL)),
        ("task_runs", "outcome", s.OUTCOMES),
        ("task_runs", "process_state", (s.STARTING, s.ALIVE, s.CLOSING, s.ENDED, s.UNKNOWN)),
    ],
)
def test_the_databases_checks_hold_the_models_words(
    connection: apsw.Connection, table: str, column: str, words: tuple[str, ...]
) -> None:
    query = "SELECT sql FROM sqlite_schema WHERE name = ?"
    text = next(iter(connection.execute(query, (table,))))[0]
    match = re.search(rf"\b{column}\s+TEXT[^,]*?CHECK \({column} IN \((.*?)\)\)", text, re.S)
    assert match
    assert tuple(re.findall(r"'(\w+)'", match[1])) == words


# --- the statements ------------------------------------------------------------------------------------------
def named() -> list[tuple[str, str]]:
    found = []
    for path in SQL:
        if "migrations" not in path.parts:
            found += list(statements.parse(path.read_text(encoding="utf-8")).items())
    return found


SOME_COLUMN = {"tasks": "title", "runs": "summary"}
QUEUED = tuple(f"dispatch.{queue}_{what}" for queue in planning.QUEUES for what in ("names", "of"))
FRAGMENTS = {name for name, text in named() if name.startswith("list.") and not re.match(r"SELECT|WITH", text)}


@pytest.mark.parametrize(("name", "text"), named(), ids=[name for name, _ in named()])
def test_a_statement_is_understood_by_the_database(connection: apsw.Connection, name: str, text: str) -> None:
    if name in FRAGMENTS:
        text = statements.filtered("list.by_seq", (name,))
    text = text.replace("{filters}", "TRUE")
    if "{assignments}" in text:
        column = SOME_COLUMN[name.partition(".")[0]]
        text = text.replace("{assignments}", f"{column} = :{column}")
    assert "{" not in text
    connection.execute(f"EXPLAIN {text}", dict.fromkeys(re.findall(r":([a-z_]+)", text)))


def test_statements_carry_the_name_of_their_file() -> None:
    for path in SQL:
        if "migrations" not in path.parts:
            names = statements.parse(path.read_text(encoding="utf-8"))
            assert names
            assert {name.partition(".")[0] for name in names} == {path.stem}
            assert all(statements.statement(name) == text for name, text in names.items())


def test_every_statement_is_used_and_every_name_exists() -> None:
    source = "\n".join(
        path.read_text(encoding="utf-8") for path in (*SOURCES, *(ROOT / "tests" / "store").glob("*.py"))
    )
    known = {name for name, _ in named()}
    dynamic = ("list.by_", "list.of_", "claims.next_", "runs.running_of_", *QUEUED)
    unused = {name for name in known if f'"{name}"' not in source and not name.startswith(dynamic)}
    assert unused == set()
    files = {path.stem for path in SQL}
    asked = {m for m in re.findall(r'"([a-z]+\.[a-z_]+)"', source) if m.partition(".")[0] in files}
    assert {name for name in asked if name not in known and not name.endswith(("_", ".sql"))} == set()


def test_rows_come_back_as_they_went() -> None:
    assert rows.to_columns({"skills": ("a",), "sticky": True, "block_fields": {"x": 1}, "title": "t"}) == {
        "skills": '["a"]',
        "sticky": 1,
        "block_fields": '{"x":1}',
        "title": "t",
    }
