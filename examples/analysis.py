"""What can be measured in Python source without running it: four pure functions on a syntax tree.

`complexities` (cyclomatic complexity per function), `dead_imports` (imported names that are never used),
`doc_coverage` (public definitions with and without a docstring) and `public_names` (what a module offers).
They read the tree alone, so the source of any package can be measured without importing it.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = Function | ast.ClassDef
BLOCKS = ("body", "orelse", "handlers", "finalbody", "cases")
NOQA = re.compile(r"#\s*noqa(?![\w-])(?::\s*(?P<codes>[A-Z][0-9A-Z, ]*))?", re.IGNORECASE)
UNUSED_IMPORT = "F401"


@dataclass(frozen=True)
class Source:
    """The parsed text of one module.

    Args:
        name: its dotted name (`email.mime.text`).
        text: the source.
        tree: the syntax tree of the source.
        is_init: whether it is a package's `__init__`, where imports may be re-exports.
    """

    name: str
    text: str
    tree: ast.Module
    is_init: bool

    @classmethod
    def parse(cls, name: str, text: str, *, is_init: bool = False) -> Source:
        """Parse a module's text.

        Raises:
            SyntaxError: this Python cannot parse it.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # about the code read, not about ours
            return cls(name, text, ast.parse(text), is_init)


@dataclass(frozen=True)
class Complexity:
    """One function: its dotted name inside the module, its line, its cyclomatic complexity."""

    name: str
    line: int
    value: int


@dataclass(frozen=True)
class DeadImport:
    """A name bound by an import and never used, and the line that binds it."""

    name: str
    line: int


@dataclass(frozen=True)
class DocCoverage:
    """How many public definitions have a docstring, and the names of those that have none."""

    total: int
    documented: int
    missing: tuple[str, ...]


@dataclass(frozen=True)
class PublicNames:
    """What a module offers, in alphabetical order, and whether its `__all__` says so."""

    names: tuple[str, ...]
    declared: bool


# --- complexity ---------------------------------------------------------------------------------------------
def complexities(source: Source) -> tuple[Complexity, ...]:
    """Return every function and method, in the order of the text, with its cyclomatic complexity.

    It is 1, plus 1 for each `if`, loop, `except`, conditional expression, comprehension and condition in one, each
    further operand of `and` / `or`, and each `case` that can fail to match. A function inside another is
    counted by itself and not in its surroundings; a lambda belongs to the function it stands in.
    """
    return tuple(
        Complexity(name, node.lineno, 1 + sum(map(_branches, _own_nodes(node))))
        for name, node in _definitions(source.tree, "")
        if isinstance(node, Function)
    )


def _definitions(parent: ast.AST, prefix: str) -> Iterator[tuple[str, Definition]]:
    """Yield each function and class below a node, however deep, with its dotted name."""
    for node in ast.iter_child_nodes(parent):
        if isinstance(node, Definition):
            yield prefix + node.name, node
            yield from _definitions(node, f"{prefix}{node.name}.")
        else:
            yield from _definitions(node, prefix)


def _own_nodes(function: Function) -> Iterator[ast.AST]:
    """Yield the nodes of a function's body without those of definitions inside it."""
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        if not isinstance(node, Definition):
            yield node
            waiting.extend(ast.iter_child_nodes(node))


def _branches(node: ast.AST) -> int:
    match node:
        case ast.If() | ast.IfExp() | ast.For() | ast.AsyncFor() | ast.While() | ast.ExceptHandler():
            return 1
        case ast.BoolOp():
            return len(node.values) - 1
        case ast.comprehension():
            return 1 + len(node.ifs)
        case ast.match_case(pattern=ast.MatchAs(pattern=None), guard=None):
            return 0
        case ast.match_case():
            return 1
    return 0


# --- dead imports -------------------------------------------------------------------------------------------
def dead_imports(source: Source) -> tuple[DeadImport, ...]:
    """Return the imported names that nothing in the module uses, in the order of the text.

    A name counts as used wherever it is read in the module, in an annotation (a quoted one too) or in `__all__`.
    Left alone are `from __future__`, star imports, `# noqa` lines, explicit re-exports (`import x as x`) and,
    in an `__init__`, what it takes from its own package.
    """
    used = _used_names(source.tree) | set(_declared_names(source.tree) or ())
    lines = source.text.splitlines()
    return tuple(
        DeadImport(bound, alias.lineno)
        for statement, alias, bound in _imports(source)
        if bound not in used and not _silenced(statement, alias, lines)
    )


def _imports(source: Source) -> Iterator[tuple[ast.Import | ast.ImportFrom, ast.alias, str]]:
    """Yield the imports to judge: the statement, its alias and the name that it binds."""
    statements = [node for node in ast.walk(source.tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    for statement in sorted(statements, key=lambda node: node.lineno):
        if isinstance(statement, ast.ImportFrom) and _is_exempt(statement, source):
            continue
        for alias in statement.names:
            if alias.name not in ("*", alias.asname):
                yield statement, alias, alias.asname or alias.name.partition(".")[0]


def _is_exempt(statement: ast.ImportFrom, source: Source) -> bool:
    if statement.module == "__future__":
        return True
    own = statement.level > 0 or f"{statement.module}.".startswith(f"{source.name}.")
    return source.is_init and own


def _silenced(statement: ast.Import | ast.ImportFrom, alias: ast.alias, lines: list[str]) -> bool:
    numbers = {alias.lineno, statement.lineno, statement.end_lineno or statement.lineno}
    comments = (NOQA.search(lines[number - 1]) for number in numbers)
    return any(found and UNUSED_IMPORT in (found["codes"] or UNUSED_IMPORT).upper() for found in comments)


def _used_names(tree: ast.AST) -> set[str]:
    used: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Load() | ast.Del()) | ast.AugAssign(target=ast.Name(id=name)):
                used.add(name)
            case ast.arg(annotation=ast.expr() as annotation) | ast.AnnAssign(annotation=annotation):
                used |= _quoted_names(annotation)
            case ast.FunctionDef(returns=ast.expr() as annotation):
                used |= _quoted_names(annotation)
            case ast.AsyncFunctionDef(returns=ast.expr() as annotation):
                used |= _quoted_names(annotation)
    return used


def _quoted_names(annotation: ast.expr) -> set[str]:
    """Return the names inside the string parts of an annotation (`"Path | None"`)."""
    texts = [node.value for node in ast.walk(annotation) if isinstance(node, ast.Constant)]
    used: set[str] = set()
    for text in texts:
        if isinstance(text, str):
            try:
                parsed = ast.parse(text.strip(), mode="eval")
            except SyntaxError:
                continue  # `Literal["a b"]`: words, no annotation
            used |= {node.id for node in ast.walk(parsed) if isinstance(node, ast.Name)}
    return used


# --- doc coverage -------------------------------------------------------------------------------------------
def doc_coverage(source: Source) -> DocCoverage:
    """Count the module, its public classes and functions, and their public methods, with and without a docstring.

    A name that starts with an underscore is private, with all that is in it. Setters, deleters and overloads share the
    docstring of their first definition, so they are not counted; an empty module has nothing to describe.
    """
    if not source.tree.body:
        return DocCoverage(0, 0, ())
    nodes: list[tuple[str, ast.Module | Definition]] = [(source.name, source.tree)]
    nodes.extend((f"{source.name}.{name}", node) for name, node in _public_definitions(source.tree, ""))
    missing = tuple(name for name, node in nodes if ast.get_docstring(node, clean=False) is None)
    return DocCoverage(len(nodes), len(nodes) - len(missing), missing)


def _public_definitions(parent: ast.Module | ast.ClassDef, prefix: str) -> Iterator[tuple[str, Definition]]:
    for node in _statements(parent):
        if isinstance(node, Definition) and not node.name.startswith("_") and not _shares_docstring(node):
            yield prefix + node.name, node
            if isinstance(node, ast.ClassDef):
                yield from _public_definitions(node, f"{prefix}{node.name}.")


def _shares_docstring(node: Definition) -> bool:
    names = {getattr(decorator, "attr", getattr(decorator, "id", "")) for decorator in node.decorator_list}
    return bool(names & {"setter", "deleter", "overload"})


def _statements(parent: ast.AST) -> Iterator[ast.stmt]:
    """Yield the statements of a module or class, also those inside its `if`, `try`, `with` and loops."""
    for field in BLOCKS:
        for node in getattr(parent, field, ()):
            if isinstance(node, ast.stmt):
                yield node
            if not isinstance(node, Definition):
                yield from _statements(node)


# --- public names -------------------------------------------------------------------------------------------
def public_names(source: Source) -> PublicNames:
    """Return what a module offers.

    That is its `__all__`, or, where it has none or one put together from other modules', every class, function and
    variable of its top level whose name has no leading underscore. Imported names are not counted then.
    """
    declared = _declared_names(source.tree)
    names = declared or (name for name in _bound_names(source.tree) if not name.startswith("_"))
    return PublicNames(tuple(sorted(set(names))), declared is not None)


def _declared_names(tree: ast.Module) -> tuple[str, ...] | None:
    """Return the strings that `__all__` holds, as far as the text shows them; None where there is no `__all__`."""
    values = [value for node in _statements(tree) for value in _additions(node)]
    if not values:
        return None
    constants = [node.value for value in values for node in ast.walk(value) if isinstance(node, ast.Constant)]
    return tuple(text for text in constants if isinstance(text, str))


def _additions(node: ast.stmt) -> list[ast.expr]:
    """Return the values that a statement puts into `__all__`."""
    match node:
        case ast.Assign(targets=targets, value=value):
            return [value] if any(map(_is_dunder_all, targets)) else []
        case ast.AugAssign(target=target, value=value) | ast.AnnAssign(target=target, value=ast.expr() as value):
            return [value] if _is_dunder_all(target) else []
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=target, attr="extend" | "append"), args=args)):
            return args if _is_dunder_all(target) else []
    return []


def _is_dunder_all(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "__all__"


def _bound_names(tree: ast.Module) -> Iterator[str]:
    for node in _statements(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Assign(targets=targets):
                for target in targets:
                    yield from _stored(target)
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name


def _stored(target: ast.expr) -> Iterator[str]:
    """Yield the names that an assignment's target binds (`a, (b, *c) = ...`)."""
    for node in ast.walk(target):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
