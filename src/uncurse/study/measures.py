"""Numbers about one set of outputs, for tables and figures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import final

import numpy as np

from uncurse.arrays import Ints
from uncurse.evaluation.bootstrap import bleu_of
from uncurse.result import Optimality
from uncurse.study.judged import Judged


@final
@dataclass(frozen=True)
class Measures:
    """What one way makes of a test set at one width."""

    bleu: float
    brevity_penalty: float
    ratio: float
    empty: float
    repeating: float
    proved: float  # share with BEAM or GLOBAL
    proved_global: float
    steps: float
    saved_steps: float  # of those an exhaustive search makes
    rows: float
    search_errors: float
    model_errors: float


def measures_of(judged: Judged, exhaustive: Ints) -> Measures:
    """Measure outputs; `exhaustive` are the steps of each sentence's recorded search, [sentences]."""
    sums = judged.statistics.sum(axis=0)
    return Measures(
        bleu_of(sums),
        brevity_penalty(sums),
        length_ratio(sums),
        fmean(not text.strip() for text in judged.texts),
        float(judged.repeating.mean()),
        fmean(each.proved for each in judged.optimality),
        fmean(each is Optimality.GLOBAL for each in judged.optimality),
        float(judged.steps.mean()),
        float((exhaustive - judged.steps).mean()),
        float(judged.rows.mean()),
        float(judged.search_errors.mean()),
        float(judged.model_errors.mean()),
    )


def length_ratio(sums: Ints) -> float:
    """Output words to those of the closest references."""
    return float(sums[-2] / max(sums[-1], 1))


def brevity_penalty(sums: Ints) -> float:
    """BLEU's factor for outputs that are too short (Papineni et al. 2002)."""
    own, closest = int(sums[-2]), int(sums[-1])
    if own >= closest:
        return 1.0
    return math.exp(1 - closest / own) if own else 0.0


def mean_bleu(statistics: Sequence[Ints]) -> float:
    """BLEU, averaged over widths."""
    return fmean(bleu_of(each.sum(axis=0)) for each in statistics)


def mean_ratio(statistics: Sequence[Ints]) -> float:
    """The length ratio, averaged over widths."""
    return fmean(length_ratio(each.sum(axis=0)) for each in statistics)


def deciles(lengths: Ints) -> list[Ints]:
    """The sentences from the shortest to the longest tenth; equal lengths stay in the order of the set."""
    order = np.argsort(lengths, kind="stable")
    return [part for part in np.array_split(order, 10) if len(part)]
