"""BLEU, length ratios, and degenerate outputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np
from sacrebleu.metrics.bleu import BLEU, BLEUScore

from uncurse.arrays import Floats, Ints
from uncurse.errors import UncurseError

ORDERS: Final = 4  # of n-grams


@final
@dataclass(frozen=True)
class Quality:
    """What can be said of a set of translations against its references."""

    bleu: float
    brevity_penalty: float
    ratio: float  # output words to those of the closest references
    empty: float  # share of outputs without a word
    repeating: float  # share of outputs with a 4-gram that occurs three times or more
    signature: str  # of BLEU


def corpus_quality(outputs: Sequence[str], references: Sequence[Sequence[str]], lowercase: bool) -> Quality:
    """Measure outputs against reference files, each with a line for each output."""
    if not outputs:
        raise UncurseError("there are no outputs to measure")
    for index, reference in enumerate(references):
        if len(reference) != len(outputs):
            raise UncurseError(
                f"reference {index} has {len(reference)} lines and there are {len(outputs)} outputs"
            )
    metric = BLEU(lowercase=lowercase)
    score = metric.corpus_score(list(outputs), [list(reference) for reference in references])
    assert isinstance(score, BLEUScore)
    return Quality(
        bleu=score.score,
        brevity_penalty=score.bp,
        ratio=score.sys_len / max(score.ref_len, 1),
        empty=sum(not output.strip() for output in outputs) / len(outputs),
        repeating=sum(repeats(output) for output in outputs) / len(outputs),
        signature=str(metric.get_signature()),
    )


def repeats(text: str, order: int = 4, times: int = 3) -> bool:
    """Whether some run of `order` words occurs `times` times or more."""
    words = text.split()
    counts = Counter(tuple(words[start : start + order]) for start in range(len(words) - order + 1))
    return max(counts.values(), default=0) >= times


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


def bleu_of_samples(sums: Floats) -> Floats:
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
