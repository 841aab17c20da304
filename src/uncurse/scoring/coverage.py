"""Coverage: how much attention the pieces of a source have received."""

from __future__ import annotations

from typing import Final

import numpy as np

from uncurse.arrays import Floats, Ints

COVERAGE_FLOOR: Final = 1e-6  # ε: attention below it counts as this much, so that no logarithm is of 0


def attended(before: Floats, attention: Floats) -> Floats:
    """The attention that source positions have received once a step's is added, [rows, positions].

    A model pads its attention to the sentences it has now; positions past that are padding.
    """
    total = before.copy()
    positions = min(before.shape[1], attention.shape[1])
    total[:, :positions] += attention[:, :positions]
    return total


def coverage_sums(received: Floats, lengths: Ints) -> Floats:
    """`Σ_i log min(max(c_i, ε), 1)` over the first `lengths` positions, padding left out, [rows]."""
    if not received.size:
        return np.zeros(len(received))
    padding = np.arange(received.shape[1]) >= lengths[:, None]
    logs = np.log(np.where(padding, 1.0, np.clip(received, COVERAGE_FLOOR, 1.0)))
    sums: Floats = np.add.accumulate(logs, axis=1)[:, -1]  # in order: padding at the end changes nothing
    return sums
