"""The paired bootstrap."""

from __future__ import annotations

import random

import numpy as np
import pytest
import sacrebleu

from uncurse.errors import UncurseError
from uncurse.evaluation.bleu import bleu_of, bleu_of_samples, bleu_statistics
from uncurse.evaluation.bootstrap import _times, paired_bootstrap

WORDS = ["the", "cat", "dog", "sat", "ran", "on", "under", "a", "mat", "rug", "and", "then", "slept", "all", "day"]


def sentences(count: int, seed: int) -> list[str]:
    chance = random.Random(seed)
    return [" ".join(chance.choices(WORDS, k=chance.randint(5, 15))) for _ in range(count)]


def spoilt(lines: list[str], share: float, seed: int) -> list[str]:
    chance = random.Random(seed)
    return [" ".join("oops" if chance.random() < share else word for word in line.split()) for line in lines]


REFERENCES = [sentences(200, 1), sentences(200, 2)]


def test_statistics_add_up_to_the_bleu_of_the_corpus() -> None:
    outputs = ["", *spoilt(REFERENCES[0], 0.2, 3)[1:]]
    expected = sacrebleu.corpus_bleu(outputs, REFERENCES, lowercase=True)
    assert bleu_of(bleu_statistics(outputs, REFERENCES, lowercase=True).sum(axis=0)) == expected.score


def test_a_clear_difference_is_seen_and_none_is_not() -> None:
    good = bleu_statistics(spoilt(REFERENCES[0], 0.1, 4), REFERENCES, lowercase=True)
    alike = bleu_statistics(spoilt(REFERENCES[0], 0.1, 5), REFERENCES, lowercase=True)
    worse = bleu_statistics(spoilt(REFERENCES[0], 0.3, 6), REFERENCES, lowercase=True)
    found = paired_bootstrap([good], [worse])
    assert found.p < 0.01
    assert found.low < found.bleu < found.high < 0.0
    found = paired_bootstrap([good], [alike])
    assert found.p > 0.05
    assert found.low < 0.0 < found.high
    same = paired_bootstrap([good], [good])
    assert (same.bleu, same.low, same.high, same.p) == (0.0, 0.0, 0.0, 1.0)


def test_only_pairs_can_be_compared() -> None:
    found = bleu_statistics(REFERENCES[0], REFERENCES, lowercase=True)
    with pytest.raises(UncurseError, match="translations of the same sentences"):
        paired_bootstrap([found], [found[1:]])


def test_several_beam_sizes_are_compared_by_their_mean() -> None:
    good = bleu_statistics(REFERENCES[0], REFERENCES, lowercase=True)
    worse = bleu_statistics([line[: len(line) // 2] for line in REFERENCES[0]], REFERENCES, lowercase=True)
    alone = paired_bootstrap([good], [worse])
    mixed = paired_bootstrap([good, good], [worse, good])
    assert mixed.bleu == pytest.approx(alone.bleu / 2)
    assert mixed.low == pytest.approx(alone.low / 2)


@pytest.mark.parametrize("share", [1.0, 0.5, 0.02])
def test_many_samples_at_once_have_the_bleu_of_sacrebleu(share: float) -> None:
    outputs = [
        line if index < share * len(REFERENCES[0]) else "nothing" for index, line in enumerate(REFERENCES[0])
    ]
    found = bleu_statistics(outputs, REFERENCES, lowercase=True)
    times = _times(len(outputs), 50, 1)
    assert (times.sum(axis=1) == len(outputs)).all()
    expected = [bleu_of((row @ found).astype(np.int64)) for row in times]
    assert np.allclose(bleu_of_samples(times @ found), expected, rtol=1e-12)
    nothing = bleu_statistics([""] * len(outputs), REFERENCES, lowercase=True)
    assert (bleu_of_samples(times @ nothing) == 0).all()
