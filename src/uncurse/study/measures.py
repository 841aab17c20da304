"""Numbers about one set of outputs, for tables and figures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import final

import numpy as np

from uncurse.arrays import Ints
from uncurse.evaluation.bleu import bleu_of
from uncurse.scoring.result import Certificate
from uncurse.study.outputs import Outputs


@final
@dataclass(frozen=True)
class Measures:
    """What one decoding makes of a test set."""

    bleu: float
    brevity_penalty: float
    ratio: float  # output words to those of the closest references
    empty: float  # shares of outputs, here and below
    repeating: float
    proved: float  # with the certificate BEAM or GLOBAL
    proved_global: float
    steps: float  # means per sentence, here and below
    saved_steps: float  # of those that an exhaustive search makes
    model_rows: float
    search_errors: float
    model_errors: float


@final
@dataclass(frozen=True)
class Decile:
    """A tenth of the sentences of a set, by the length of their sources."""

    source_length: float
    sentences: int
    bleu: float
    ratio: float


def measures_of(outputs: Outputs, exhaustive: Ints) -> Measures:
    """Measure outputs; `exhaustive` are the steps of each sentence's recorded search, [sentences]."""
    sums = outputs.statistics.sum(axis=0)
    return Measures(
        bleu=bleu_of(sums),
        brevity_penalty=brevity_penalty(sums),
        ratio=length_ratio(sums),
        empty=fmean(not text.strip() for text in outputs.texts),
        repeating=float(outputs.repeating.mean()),
        proved=fmean(each.proved for each in outputs.certificates),
        proved_global=fmean(each is Certificate.GLOBAL for each in outputs.certificates),
        steps=float(outputs.steps.mean()),
        saved_steps=float((exhaustive - outputs.steps).mean()),
        model_rows=float(outputs.model_rows.mean()),
        search_errors=float(outputs.search_errors.mean()),
        model_errors=float(outputs.model_errors.mean()),
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
    """BLEU, averaged over beam sizes."""
    return fmean(bleu_of(each.sum(axis=0)) for each in statistics)


def mean_ratio(statistics: Sequence[Ints]) -> float:
    """The length ratio, averaged over beam sizes."""
    return fmean(length_ratio(each.sum(axis=0)) for each in statistics)


def deciles_of(statistics: Ints, source_lengths: Ints) -> list[Decile]:
    """From the shortest to the longest tenth; sources of equal length stay in the order of the set."""
    order = np.argsort(source_lengths, kind="stable")
    found = []
    for part in np.array_split(order, 10):
        if len(part):
            sums = statistics[part].sum(axis=0)
            mean = float(source_lengths[part].mean())
            found.append(Decile(mean, len(part), bleu_of(sums), length_ratio(sums)))
    return found
