"""The demonstration's own work: what the analysts measure, what the report holds."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent

import pytest

from examples.analysis import Source, complexities, dead_imports, doc_coverage, public_names
from examples.report import ACTIONS, demands, findings, write
from examples.subjects import SUBJECTS, modules_of, read_module, stdlib


def source(text: str, name: str = "package.module", *, is_init: bool = False) -> Source:
    return Source.parse(name, dedent(text), is_init=is_init)


def complexity_of(body: str) -> int:
    """Return the complexity of a function with that body."""
    lines = "\n".join(f"    {line}" for line in dedent(body).strip().splitlines())
    (found,) = complexities(source(f"def f(a, b, c):\n{lines}\n"))
    return found.value


def dead(text: str, name: str = "package.module", *, is_init: bool = False) -> list[tuple[str, int]]:
    return [(found.name, found.line) for found in dead_imports(source(text, name, is_init=is_init))]


# --- complexity ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("body", "value"),
    [
        ("return a", 1),
        ("if a: pass", 2),
        ("if a: pass\nelif b: pass\nelse: pass", 3),
        ("for x in a: pass\nelse: pass", 2),
        ("while a: break", 2),
        ("with a: pass", 1),
        ("try: pass\nexcept KeyError: pass\nexcept OSError: pass\nfinally: pass", 3),
        ("return b if a else c", 2),
        ("return a and b and c", 3),
        ("return a and b or c", 3),
        ("return [x for x in a]", 2),
        ("return {x for x in a if x if b for y in x}", 5),
        ("return lambda x: x or a", 2),
        ("match a:\n    case 1: pass\n    case 2: pass\n    case _: pass", 3),
        ("match a:\n    case [x]: pass\n    case _ if b: pass", 3),
        ("assert a", 1),
    ],
)
def test_complexity_counts_each_branch(body: str, value: int) -> None:
    assert complexity_of(body) == value


def test_complexity_of_async_function() -> None:
    (found,) = complexities(source("async def f(a):\n    async for x in a:\n        async with x: pass\n"))
    assert found.value == 2


def test_nested_functions_are_counted_by_themselves() -> None:
    found = complexities(
        source("""
        class Outer:
            def method(self):
                if self:
                    def inner(x):
                        return x or 1 if x else 2
                return inner

        if True:
            def conditional(): pass
        """)
    )
    assert [(one.name, one.line, one.value) for one in found] == [
        ("Outer.method", 3, 2),
        ("Outer.method.inner", 5, 3),
        ("conditional", 10, 1),
    ]


def test_defaults_and_decorators_belong_to_the_surroundings() -> None:
    found = complexities(source("def f():\n    @(a or b)\n    def g(x=1 if a else 2): pass\n"))
    assert {one.name: one.value for one in found} == {"f": 1, "f.g": 1}


# --- dead imports -------------------------------------------------------------------------------------------
def test_unused_imports_are_found_with_their_lines() -> None:
    text = """
    import os
    import sys, json
    import xml.dom
    import xml.sax as sax
    from a import (
        b,
        c as d,
    )
    print(sys, b)
    """
    assert dead(text) == [("os", 2), ("json", 3), ("xml", 4), ("sax", 5), ("d", 8)]


@pytest.mark.parametrize(
    "text",
    [
        "import os\nos.path",
        "import os.path\nos.getcwd()",
        "import os\ndel os",
        "import os\ndef f():\n    return os",
        "def f():\n    import os\n    return os",
        "from a import b\nb += 1",
        "from a import T\ndef f(x: T) -> None: ...",
        'from a import T\ndef f(x: "T | None") -> None: ...',
        'from a import T\ndef f() -> "list[T]": ...',
        'from a import T\nasync def f() -> "T": ...',
        'from a import T\nx: "T"',
        'from a import T\ndef f(x: list["T"]) -> None: ...',
        "from a import f\n@f\ndef g(): ...",
        "from a import B\nclass C(B): ...",
        'from a import x\nprint(f"{x}")',
    ],
)
def test_every_way_of_reading_a_name_is_a_use(text: str) -> None:
    assert dead(text) == []


@pytest.mark.parametrize(
    "text",
    [
        'from a import b\n__all__ = ["b"]',
        'from a import b\n__all__: list[str] = ["b"]',
        'from a import b\n__all__ = ["c"]\n__all__ += ["b"]',
        'from a import b\n__all__ = []\n__all__.extend(["b"])',
        'from a import b\n__all__ = []\n__all__.append("b")',
        'from a import b\nimport c\n__all__ = c.__all__ + ("b",)',
    ],
)
def test_a_name_in_dunder_all_is_a_use(text: str) -> None:
    assert dead(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "import os  # noqa",
        "import os  # noqa: F401",
        "import os  #noqa:E501,F401",
        "import os  # NOQA: f401 - for its effect",
        "from a import (  # noqa: F401\n    b,\n    c,\n)",
        "from a import (\n    b,  # noqa: F401\n)",
        "from __future__ import annotations",
        "from a import *",
        "import os as os",
        "from a import b as b",
    ],
)
def test_what_is_meant_to_be_unused_is_left_alone(text: str) -> None:
    assert dead(text) == []


@pytest.mark.parametrize("comment", ["# noqa: E501", "# noqa-ish", "# type: ignore", "# noqable"])
def test_other_comments_do_not_silence(comment: str) -> None:
    assert dead(f"import os  {comment}") == [("os", 1)]


def test_a_noqa_line_silences_its_own_name_only() -> None:
    assert dead("from a import (\n    b,  # noqa\n    c,\n)") == [("c", 3)]


def test_an_init_re_exports_from_its_own_package_only() -> None:
    text = """
    import sys
    from . import a
    from .b import c
    from package.d import e
    from package import f
    from packaged import g
    """
    assert dead(text, "package", is_init=True) == [("sys", 2), ("g", 7)]
    assert [name for name, _ in dead(text, "package.module")] == ["sys", "a", "c", "e", "f", "g"]


def test_storing_a_name_is_no_use() -> None:
    assert dead("try:\n    import fast\nexcept ImportError:\n    fast = None\n") == [("fast", 2)]


# --- doc coverage -------------------------------------------------------------------------------------------
def test_doc_coverage_counts_public_definitions() -> None:
    found = doc_coverage(
        source('''
        """About the module."""

        def plain(): pass

        def described():
            """Do it."""
            def inner(): pass

        def _private(): pass

        class Shape:
            """A shape."""

            def __init__(self): pass

            def area(self): pass

            @property
            def size(self):
                """Its size."""

            @size.setter
            def size(self, value): pass

        class _Hidden:
            def method(self): pass

        if described:
            async def late(): pass
        ''')
    )
    missing = ("package.module.plain", "package.module.Shape.area", "package.module.late")
    assert found.missing == missing
    assert (found.total, found.documented) == (7, 4)


def test_an_empty_module_needs_no_docstring_and_another_does() -> None:
    assert doc_coverage(source("# nothing")).total == 0
    assert doc_coverage(source("x = 1")).missing == ("package.module",)


# --- public names -------------------------------------------------------------------------------------------
def test_public_names_come_from_dunder_all() -> None:
    found = public_names(source('__all__ = ["b", "a"]\n__all__ += ("_c",)\ndef d(): ...\n'))
    assert (found.names, found.declared) == (("_c", "a", "b"), True)


def test_public_names_without_dunder_all_are_the_bound_ones() -> None:
    found = public_names(
        source("""
        import os
        from a import b
        X = Y = 1
        one, (two, *_rest) = f()
        table[0] = thing.attribute = 2
        n: int
        def f(): local = 1
        class C: attribute = 1
        _hidden = 1
        try:
            maybe = 1
        except ImportError:
            maybe = 2
        """)
    )
    assert (found.names, found.declared) == (("C", "X", "Y", "f", "maybe", "n", "one", "two"), False)


def test_a_composed_dunder_all_falls_back_to_the_bound_names() -> None:
    found = public_names(source("from . import a\n__all__ = a.__all__\ndef f(): ...\n"))
    assert (found.names, found.declared) == (("f",), True)


# --- subjects -----------------------------------------------------------------------------------------------
@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A root folder with one small package in it."""
    files = {
        "p/__init__.py": "from .a import f\n",
        "p/a.py": '"""A."""\nimport os\ndef f(x):\n    return x or 1\n',
        "p/sub/b.py": "# -*- coding: latin-1 -*-\nname = 'é'\n",
        "p/test/test_a.py": "import sys\n",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="latin-1")
    return tmp_path


def test_modules_are_found_in_order_without_tests(package: Path) -> None:
    names = [read_module(path, package).name for path in modules_of("p", package)]
    assert names == ["p", "p.a", "p.sub.b"]


def test_modules_are_read_in_their_own_encoding(package: Path) -> None:
    assert "é" in read_module(package / "p/sub/b.py", package).text


@pytest.mark.parametrize("name", ["../p", "/etc", "p/sub", "", "a b", "p.sub"])
def test_a_card_cannot_lead_outside_the_library(package: Path, name: str) -> None:
    with pytest.raises(ValueError, match="not the name of a package"):
        modules_of(name, package)


def test_a_package_without_source_is_an_error(package: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        modules_of("nowhere", package)


def sums(root: Path, name: str = "p", threshold: int = 1) -> dict[str, dict[str, object]]:
    """Return the sum of each subject over one package, through JSON as on the board."""
    sources = [read_module(path, root) for path in modules_of(name, root)]
    return {
        title: subject.sum_up(json.loads(json.dumps({one.name: subject.measure(one) for one in sources})), threshold)
        for title, subject in SUBJECTS.items()
    }


def test_each_subject_sums_up_what_was_measured(package: Path) -> None:
    found = sums(package)
    assert found["complexity"]["findings"] == ["p.a.f: 2"]
    assert found["dead imports"]["findings"] == ["p.a: os (line 2)"]
    assert (found["doc coverage"]["documented"], found["doc coverage"]["total"]) == (1, 4)
    assert (found["public names"]["names"], found["public names"]["without_all"]) == (2, 3)


def test_the_threshold_decides_what_counts(package: Path) -> None:
    assert sums(package, threshold=1)["complexity"]["over"] == 1
    assert sums(package, threshold=2)["complexity"]["over"] == 0


def test_the_standard_library_of_this_python_can_be_measured() -> None:
    found = sums(stdlib(), "json", 10)
    assert found["complexity"]["functions"] > 20
    assert 0 < found["complexity"]["over"] < found["complexity"]["functions"]
    assert found["public names"]["names"] > 10


# --- report -------------------------------------------------------------------------------------------------
@pytest.fixture
def results(package: Path) -> list[dict[str, object]]:
    """What four analysts would hand over for the small package."""
    return [{"subject": title, "packages": ["p"], **found} for title, found in sums(package).items()]


def test_a_first_report_lacks_what_the_reviewer_demands_and_a_second_has_it(results: list) -> None:
    first = findings(write(results), results)
    assert len(first) == 1
    demanded = demands(f"the reviewer wrote: {first[0]}\nand again: {first[0]}")
    assert demanded == (ACTIONS,)
    assert findings(write(results, demanded), results) == ()


def test_a_reviewer_finds_a_wrong_figure_and_a_missing_package(results: list) -> None:
    good = write(results, [ACTIONS])
    headline = results[0]["headline"]
    assert [headline in wrong for wrong in findings(good.replace(headline, "0 of 0"), results)] == [True]
    assert findings(good.replace("`p`", "p"), results) == ("the package p is not named",)


def test_a_section_that_nobody_can_write_is_an_error(results: list) -> None:
    with pytest.raises(LookupError):
        write(results, ["A poem"])
