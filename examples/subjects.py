"""What an analyst can be asked: a subject measures one module at a time and sums the modules up.

Measures and sums are plain JSON: measures are kept in the workspace after each module, so that whoever takes a card
over goes on where the last one stopped, and the sum becomes the metadata that the synthesiser reads.
"""

from __future__ import annotations

import sysconfig
import tokenize
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from examples.analysis import Source, complexities, dead_imports, doc_coverage, public_names

Measures = dict[str, Any]  # module name -> what was measured there
Sum = dict[str, Any]
NOT_THE_PACKAGE = {"test", "tests", "__pycache__"}
SHOWN = 8


@dataclass(frozen=True)
class Subject:
    """One kind of analysis.

    Args:
        title: its name on the card.
        measure: one module to JSON.
        sum_up: the measures of all modules (and the threshold, where one is needed) to one JSON object, whose
            `headline` is a sentence and whose `findings` are the worst cases.
        needs_threshold: whether a person must say from where on a value counts.
    """

    title: str
    measure: Callable[[Source], Any]
    sum_up: Callable[[Measures, int], Sum]
    needs_threshold: bool = False


# --- the modules of a package -------------------------------------------------------------------------------
def stdlib() -> Path:
    """Return the folder of the standard library's source."""
    return Path(sysconfig.get_paths()["stdlib"])


def modules_of(package: str, root: Path) -> tuple[Path, ...]:
    """Return the source files of a package without its tests, in a fixed order.

    Raises:
        ValueError: the name is not a package's name (it may come from a card, so it must not lead anywhere else).
        FileNotFoundError: there is no source of it here.
    """
    if not package.isidentifier():
        raise ValueError(f"not the name of a package: {package!r}")
    files = (path for path in sorted((root / package).rglob("*.py")))
    found = tuple(path for path in files if not NOT_THE_PACKAGE & set(path.relative_to(root).parts))
    if not found:
        raise FileNotFoundError(f"no source of the package {package} in {root}")
    return found


def read_module(path: Path, root: Path) -> Source:
    """Parse one file below the root.

    Raises:
        OSError, SyntaxError, UnicodeDecodeError: it cannot be read or parsed.
    """
    is_init = path.name == "__init__.py"
    parts = path.relative_to(root).with_suffix("").parts
    with tokenize.open(path) as file:
        return Source.parse(".".join(parts[:-1] if is_init else parts), file.read(), is_init=is_init)


# --- complexity ---------------------------------------------------------------------------------------------
def _measure_complexity(source: Source) -> Any:
    return [asdict(found) for found in complexities(source)]


def _sum_complexity(measures: Measures, threshold: int) -> Sum:
    functions = [
        (found["value"], f"{module}.{found['name']}") for module, founds in measures.items() for found in founds
    ]
    over = sorted((pair for pair in functions if pair[0] > threshold), key=lambda pair: (-pair[0], pair[1]))
    middle = median(value for value, _ in functions) if functions else 0
    return {
        "headline": f"{len(over)} of {len(functions)} functions are more complex than {threshold} (median {middle:g})",
        "functions": len(functions),
        "threshold": threshold,
        "over": len(over),
        "findings": [f"{name}: {value}" for value, name in over[:SHOWN]],
        "advice": "Split the functions at the top of the list, the most complex first.",
    }


# --- dead imports -------------------------------------------------------------------------------------------
def _measure_imports(source: Source) -> Any:
    return [asdict(found) for found in dead_imports(source)]


def _sum_imports(measures: Measures, _threshold: int) -> Sum:
    dead = [f"{module}: {found['name']} (line {found['line']})" for module, all_ in measures.items() for found in all_]
    return {
        "headline": f"{len(dead)} imported names in {len(measures)} modules are never used",
        "dead": len(dead),
        "findings": dead[:SHOWN],
        "advice": "Remove each name, or mark the line with `# noqa: F401` where the import is made for its effect.",
    }


# --- doc coverage -------------------------------------------------------------------------------------------
def _measure_docs(source: Source) -> Any:
    return asdict(doc_coverage(source))


def _sum_docs(measures: Measures, _threshold: int) -> Sum:
    total = sum(found["total"] for found in measures.values())
    documented = sum(found["documented"] for found in measures.values())
    poorest = sorted(measures.items(), key=lambda item: (-len(item[1]["missing"]), item[0]))
    return {
        "headline": f"{documented} of {total} public definitions have a docstring ({_percent(documented, total)} %)",
        "total": total,
        "documented": documented,
        "findings": [f"{module}: {len(found['missing'])} without" for module, found in poorest if found["missing"]][
            :SHOWN
        ],
        "advice": "Describe the public definitions of the modules at the top of the list.",
    }


def _percent(part: int, whole: int) -> int:
    return round(100 * part / whole) if whole else 100


# --- public names -------------------------------------------------------------------------------------------
def _measure_names(source: Source) -> Any:
    return asdict(public_names(source))


def _sum_names(measures: Measures, _threshold: int) -> Sum:
    names = sum(len(found["names"]) for found in measures.values())
    silent = {module: len(found["names"]) for module, found in measures.items() if not found["declared"]}
    largest = sorted(silent.items(), key=lambda item: (-item[1], item[0]))
    return {
        "headline": f"{names} public names in {len(measures)} modules, {len(silent)} of which have no `__all__`",
        "names": names,
        "without_all": len(silent),
        "findings": [f"{module}: {count} names, no `__all__`" for module, count in largest if count][:SHOWN],
        "advice": "Declare `__all__` in the modules at the top of the list.",
    }


SUBJECTS = {
    subject.title: subject
    for subject in (
        Subject("complexity", _measure_complexity, _sum_complexity, needs_threshold=True),
        Subject("dead imports", _measure_imports, _sum_imports),
        Subject("doc coverage", _measure_docs, _sum_docs),
        Subject("public names", _measure_names, _sum_names),
    )
}
