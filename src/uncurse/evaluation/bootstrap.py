"""Is one set of translations better than another, or was it luck with the sentences? A paired bootstrap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, final

import numpy as np

from uncurse.arrays import Floats, Ints
from uncurse.errors import UncurseError
from uncurse.evaluation.bleu import bleu_of_samples

SAMPLES: Final = 1000
SEED: Final = 12345


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


def mean_interval(values: Floats, samples: int = SAMPLES, seed: int = SEED) -> tuple[float, float]:
    """Between which values 95 % of the means of resampled sentences lie; `values` has one for each sentence."""
    low, high = np.quantile(_times(len(values), samples, seed) @ values / len(values), (0.025, 0.975)).tolist()
    return low, high


@lru_cache(maxsize=8)
def _times(count: int, samples: int, seed: int) -> Floats:
    """How often each sentence is drawn in each sample, [samples, sentences]."""
    random = np.random.default_rng(seed)
    drawn = (random.integers(count, size=count) for _ in range(samples))
    return np.stack([np.bincount(each, minlength=count) for each in drawn]).astype(np.float64)


def _mean_bleu(system: Sequence[Ints], times: Floats) -> Floats:
    """BLEU of each sample, averaged over sets of translations, [samples]."""
    means: Floats = np.mean([bleu_of_samples(times @ statistics) for statistics in system], axis=0)
    return means
