"""Where scores help: their gain over length norm by how short its outputs are against the expected length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from uncurse.arrays import Floats, Ints
from uncurse.evaluation.bootstrap import Difference, paired_bootstrap
from uncurse.study.methods import NORM
from uncurse.study.outputs import Outputs

EDGES: Final = (0.7, 0.8, 0.9, 1.0, 1.1)  # of |y| / L, y being the output of length norm
MIN_SENTENCES: Final = 10  # a smaller bin would have an interval that says nothing


@final
@dataclass(frozen=True)
class GainBin:
    """Sentences for which the outputs of length norm are equally short, and what the other methods gain there."""

    label: str
    sentences: int
    gains: Mapping[str, Difference]  # by method, against length norm


def gains_over_norm(
    outputs: Mapping[str, Outputs], expected_lengths: Sequence[float | None]
) -> tuple[GainBin, ...]:
    """The gain of each method, by its name, in each bin; every sentence must have an expected length."""
    norm = outputs[NORM]
    ratios = norm.lengths / np.array(expected_lengths, dtype=np.float64)
    return tuple(
        GainBin(
            label=label,
            sentences=len(indices),
            gains={
                method: paired_bootstrap([norm.statistics[indices]], [each.statistics[indices]])
                for method, each in outputs.items()
                if method != NORM
            },
        )
        for label, indices in bins_of(ratios)
    )


def bins_of(ratios: Floats) -> list[tuple[str, Ints]]:
    """The sentences of each bin of ratios; a bin with too few is merged with the next."""
    edges = list(EDGES)
    while edges:
        counts = np.bincount(np.digitize(ratios, edges), minlength=len(edges) + 1)
        small = int(counts.argmin())
        if counts[small] >= MIN_SENTENCES:
            break
        # Merge with the smaller neighbour, by leaving out the edge between the two.
        left = small - 1 if small and (small == len(edges) or counts[small - 1] <= counts[small + 1]) else small
        del edges[left]
    places = np.digitize(ratios, edges)
    return [(_label(edges, place), np.flatnonzero(places == place)) for place in range(len(edges) + 1)]


def _label(edges: Sequence[float], place: int) -> str:
    if not edges:
        return "any"
    if place == 0:
        return f"< {edges[0]:g}"
    return f"≥ {edges[-1]:g}" if place == len(edges) else f"{edges[place - 1]:g} – {edges[place]:g}"
