"""Is one set of translations better than another, or was it luck with the sentences? A paired bootstrap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, final

import numpy as np
from sacrebleu.metrics.bleu import BLEU, BLEUScore

from uncurse.arrays import Floats, Ints
from uncurse.errors import UncurseError

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


def paired_bootstrap(
    first: Sequence[Ints], second: Sequence[Ints], samples: int = SAMPLES, seed: int = SEED
) -> Difference:
    """Compare two systems on the same sentences by resampling the sentences (Koehn 2004).

    Each system is the statistics of one set of translations or more, for example at neighbouring beam sizes; the
    mean of their BLEU is compared. p is two-sided: the resampled differences, moved so that their mean is 0, stand
    for chance.
    """
    sizes = {statistics.shape for statistics in (*first, *second)}
    if not first or not second or len(sizes) != 1 or not len(first[0]):
        raise UncurseError("only translations of the same sentences can be compared in pairs")
    times = _times(len(first[0]), samples, seed)
    differences = _mean_bleu(second, times) - _mean_bleu(first, times)
    everything = np.ones((1, len(first[0])))
    seen = float((_mean_bleu(second, everything) - _mean_bleu(first, everything))[0])
    low, high = np.quantile(differences, (0.025, 0.975)).tolist()
    as_large = np.abs(differences - differences.mean()) >= abs(seen)
    return Difference(seen, low, high, float((as_large.sum() + 1) / (samples + 1)))


@lru_cache(maxsize=8)
def _times(count: int, samples: int, seed: int) -> Floats:
    """How often each sentence is drawn in each sample, [samples, sentences]."""
    random = np.random.default_rng(seed)
    drawn = (random.integers(count, size=count) for _ in range(samples))
    return np.stack([np.bincount(each, minlength=count) for each in drawn]).astype(np.float64)


def _mean_bleu(system: Sequence[Ints], times: Floats) -> Floats:
    """BLEU of each sample, averaged over sets of translations, [samples]."""
    means: Floats = np.mean([_bleus(times @ statistics) for statistics in system], axis=0)
    return means


def _bleus(sums: Floats) -> Floats:
    """BLEU of many sums at once, [samples]; orders without a match are smoothed as in sacreBLEU."""
    matches, totals, own, closest = sums[:, :ORDERS], sums[:, ORDERS:-2], sums[:, -2], sums[:, -1]
    unmatched = matches == 0
    smoothed = np.where(unmatched, 0.5 ** np.cumsum(unmatched, axis=1), matches)
    known = ~unmatched.all(axis=1) & (totals > 0).all(axis=1)
    bleus: Floats = np.zeros(len(sums))
    precision = np.log(smoothed[known] / totals[known]).mean(axis=1)
    brevity = np.minimum(1.0 - closest[known] / own[known], 0.0)
    bleus[known] = 100.0 * np.exp(precision + brevity)
    return bleus
