"""Mistakes to be made on purpose, one at a time: `UNCURSE_MUTANT=name pytest -p support.mutants`."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from uncurse.arrays import Bools, Floats, Ints
from uncurse.scoring import stopping
from uncurse.scoring.evidence import Evidence
from uncurse.scoring.rescorer import Paths, Rescorer, Source
from uncurse.search import history, ranking


def bound_one_length_short() -> None:
    """The longest outputs are left out of the bound."""
    right = Rescorer.bound

    def bound(self: Rescorer, source: Source, prefixes: Paths) -> Floats:
        return right(self, replace(source, max_length=source.max_length - 1), prefixes)

    Rescorer.bound = bound  # type: ignore[method-assign, misc]


def bound_one_length_late() -> None:
    """The shortest outputs are left out of the bound."""
    right = Rescorer.bound

    def bound(self: Rescorer, source: Source, prefixes: Paths) -> Floats:
        return right(self, source, replace(prefixes, length=prefixes.length + 1))

    Rescorer.bound = bound  # type: ignore[method-assign, misc]


def pruned_forgotten() -> None:
    """What was let go is not remembered."""
    right = history.BeamHistory.write

    def write(self: history.BeamHistory, slots: Ints, step: Ints, kept: history.StepRecord) -> None:
        right(self, slots, step, replace(kept, pruned=np.full(len(slots), -np.inf)))

    history.BeamHistory.write = write  # type: ignore[method-assign]


def hope_lost_early() -> None:
    """One hopeful prefix too many is dropped."""
    right = stopping.count_hopeful

    def hopeful(evidence: Evidence, sums: Floats, live: Bools) -> Ints:
        left = right(evidence, sums, live)
        return np.where(left > 1, left - 1, left)

    stopping.count_hopeful = hopeful


def ties_reversed() -> None:
    """Equal continuations are taken in the wrong order."""
    right = ranking.top_k

    def top_k(values: Floats, count: int, keys: Callable[[Ints, Ints], ranking.Keys]) -> Ints:
        return right(values, count, lambda rows, columns: tuple(-key for key in keys(rows, columns)))

    ranking.top_k = top_k


CAUGHT_BY = {  # where to look first, to save time: others catch them too
    bound_one_length_short: "test_bound.py",
    bound_one_length_late: "test_bound.py",
    pruned_forgotten: "test_certificates.py",
    hope_lost_early: "test_optimal_stopping.py",
    ties_reversed: "test_search.py",
}
MUTANTS = {mutant.__name__: mutant for mutant in CAUGHT_BY}

if chosen := os.environ.get("UNCURSE_MUTANT"):
    MUTANTS[chosen]()
