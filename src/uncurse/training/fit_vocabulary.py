"""Fitting a vocabulary selector to a model whose weights stay frozen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from uncurse.arrays import Ints
from uncurse.errors import UncurseError
from uncurse.models.vocabulary_selector import NO_VOTE, VocabularySelector
from uncurse.training.selection_sample import SelectionSample

ALWAYS: Final = 1000  # most frequent tokens, which are always computed
PRIOR: Final = 0.2  # how much the frequency of a token counts beside the votes for it
MIN_SENTENCES: Final = 100


@final
@dataclass(frozen=True)
class SelectionReport:
    """What a selector does to translations."""

    recall: float  # share of their tokens that it selects
    complete: float  # share of the translations all of whose tokens it selects
    tokens: float  # how many it selects for a sentence, on average


def fit_vocabulary(
    sample: SelectionSample, candidates: Ints, always: Sequence[int], recall: float = 0.99
) -> VocabularySelector:
    """Fit a selector that selects a share `recall` of the target tokens.

    Only candidates (ids, rising) are ever computed, those of `always` and the most frequent ones always.
    """
    if not 0.0 < recall <= 1.0:
        raise UncurseError(f"recall = {recall} is not allowed: it must be in (0, 1]")
    if (count := len(sample.votes)) < MIN_SENTENCES:
        raise UncurseError(
            f"{count} sentences are too few for a vocabulary selector: give {MIN_SENTENCES} or more"
        )
    vocab_size = len(sample.votes[0])
    targets = [np.unique(target) for target in sample.targets]
    counts = np.bincount(np.concatenate(targets), minlength=vocab_size)
    frequent = np.argsort(-counts, kind="stable")[: min(ALWAYS, vocab_size // 10)]
    prior = PRIOR * np.log(counts + 1.0)
    needed = np.full(vocab_size, NO_VOTE)
    needed[candidates] = prior[candidates]
    needed[np.intersect1d(candidates, [*always, *frequent])] = np.inf
    pairs = zip(sample.votes, targets, strict=True)
    scores = np.sort(np.concatenate([votes[tokens] + needed[tokens] for votes, tokens in pairs]))
    threshold = scores[min(int((1.0 - recall) * len(scores)), len(scores) - 1)]
    if threshold < NO_VOTE / 2:
        raise UncurseError(f"recall = {recall} cannot be reached: nothing votes for too many of the tokens")
    if threshold == np.inf:  # those that are always computed are enough
        threshold = 0.0
    bias = needed[candidates] - threshold + 1e-3  # so that the token at the threshold is selected
    return VocabularySelector(candidates, bias.astype(np.float32))


def report(selector: VocabularySelector, sample: SelectionSample) -> SelectionReport:
    """What a selector does to some sentences."""
    found, sizes = [], []
    for votes, target in zip(sample.votes, sample.targets, strict=True):
        selected = selector.selected(votes.astype(np.float32))
        found.append(np.isin(np.unique(target), selected))
        sizes.append(len(selected))
    return SelectionReport(
        recall=float(np.concatenate(found).mean()),
        complete=float(np.mean([each.all() for each in found])),
        tokens=float(np.mean(sizes)),
    )
