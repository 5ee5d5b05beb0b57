"""The catalogue of mutants fits the source: each replaces what is there, once, by something else that compiles."""

from __future__ import annotations

import ast

import pytest

from tests.mutants.catalogue import MUTANTS
from tests.mutants.checks import CHECKS
from tests.mutants.mutant import PACKAGE, Mutant, Unfit
from tests.mutants.workshop import ROOT


def text_of(mutant: Mutant) -> str:
    return (ROOT / PACKAGE / mutant.file).read_text(encoding="utf-8")


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_fits(mutant: Mutant) -> None:
    broken = mutant.of(text_of(mutant))
    if mutant.file.endswith(".py"):
        assert ast.dump(ast.parse(broken)) != ast.dump(ast.parse(text_of(mutant)))
    assert mutant.check in CHECKS
    assert mutant.what


def test_no_two_are_alike() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    assert len({(mutant.file, mutant.of(text_of(mutant))) for mutant in MUTANTS}) == len(MUTANTS)


def test_a_mutant_that_fits_no_more_is_refused() -> None:
    mutant = Mutant("any", "kernel/any.py", "a = 1", "a = 2", "P1", "race", "it counts wrongly")
    assert mutant.of("a = 1\nb = 3\n") == "a = 2\nb = 3\n"
    for source in ("a = 3\n", "a = 1\na = 1\n"):
        with pytest.raises(Unfit, match="any"):
            mutant.of(source)
    with pytest.raises(Unfit, match="changes nothing"):
        Mutant("any", "kernel/any.py", "a", "a", "P1", "race", "nothing").of("a = 1\n")
