"""All mutants, by the layer that they break."""

from __future__ import annotations

from tests.mutants import dispatcher, endings, kernel, shim, store, supervision
from tests.mutants.mutant import Mutant

_PARTS = (kernel, endings, supervision, store, dispatcher, shim)
MUTANTS: tuple[Mutant, ...] = tuple(mutant for part in _PARTS for mutant in part.MUTANTS)
