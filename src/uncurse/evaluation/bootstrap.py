"""Is one set of translations better than another, or was it luck with the sentences? A paired bootstrap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np
from sacrebleu.metrics.bleu import BLEU, BLEUScore

from uncurse.arrays import Floats, Ints

SAMPLES: Final = 1000
SEED: Final = 12345
ORDERS: Final = 4


def bleu_statistics(outputs: Sequence[str], references: Sequence[Sequence[str]], lowercase: bool) -> Ints:
    """What BLEU adds up for each output: matches and n-grams of each order, its length, the closest reference's.

    The sum over sentences has everything that BLEU of the corpus needs, [outputs, 10].
    """
    metric = BLEU(lowercase=lowercase, effective_order=True)
    rows = []
    for index, output in enumerate(outputs):
        found = metric.sentence_score(output, [reference[index] for reference in references])
        assert isinstance(found, BLEUScore)
        rows.append([*found.counts, *found.totals, found.sys_len, found.ref_len])
    return np.array(rows, dtype=np.int64).reshape(len(rows), 2 * ORDERS + 2)


def bleu_of(sums: Ints) -> float:
    """BLEU of statistics that have been added up."""
    counts = [int(value) for value in sums]
    matches, totals, (own, closest) = counts[:ORDERS], counts[ORDERS:-2], counts[-2:]
    score = BLEU.compute_bleu(matches, totals, own, closest, smooth_method="exp")
    return float(score.score)


@final
@dataclass(frozen=True)
class Difference:
    """Second minus first."""

    bleu: float
    low: float  # 95 % of resampled test sets have a difference
    high: float  # between these
    p: float  # how often so large a difference would be seen if there were none


def paired_bootstrap(first: Ints, second: Ints, samples: int = SAMPLES, seed: int = SEED) -> Difference:
    """Compare two sets of translations of the same sentences by resampling the sentences (Koehn 2004).

    p is two-sided: the resampled differences, moved so that their mean is 0, stand for what chance does.
    """
    if first.shape != second.shape or not len(first):
        raise ValueError(f"{len(first)} and {len(second)} translations cannot be compared in pairs")
    random = np.random.default_rng(seed)
    differences: Floats = np.empty(samples)
    for index in range(samples):
        times = np.bincount(random.integers(len(first), size=len(first)), minlength=len(first))
        differences[index] = bleu_of(times @ second) - bleu_of(times @ first)
    seen = bleu_of(second.sum(axis=0)) - bleu_of(first.sum(axis=0))
    low, high = np.quantile(differences, (0.025, 0.975)).tolist()
    as_large = np.abs(differences - differences.mean()) >= abs(seen)
    return Difference(seen, low, high, float((as_large.sum() + 1) / (samples + 1)))
