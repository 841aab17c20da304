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
CONTINUATIONS: Final = 1 / 8  # of the vocabulary: so many of the tokens that go on with a word are always computed
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
    sample: SelectionSample,
    candidates: Ints,
    always: Sequence[int],
    continuations: Ints,
    recall: float = 0.998,
) -> VocabularySelector:
    """Fit a selector that selects a share `recall` of the target tokens.

    Only candidates (ids, rising) are ever computed: always those of `always`, the most frequent ones, and the most
    frequent of the tokens that go on with a word.
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
    going_on = np.intersect1d(candidates, continuations)
    going_on = going_on[np.argsort(-counts[going_on], kind="stable")][: int(CONTINUATIONS * vocab_size)]
    prior = PRIOR * np.log(counts + 1.0)
    needed = np.full(vocab_size, NO_VOTE)
    needed[candidates] = prior[candidates]
    needed[np.intersect1d(candidates, [*always, *frequent, *going_on])] = np.inf
    pairs = zip(sample.votes, targets, strict=True)
    scores = np.sort(np.concatenate([votes[tokens] + needed[tokens] for votes, tokens in pairs]))
    threshold = scores[min(int((1.0 - recall) * len(scores)), len(scores) - 1)]
    if threshold < NO_VOTE / 2:
        most = np.floor(np.mean(scores > NO_VOTE / 2) * 1e4) / 1e4
        raise UncurseError(
            f"recall = {recall} cannot be reached, only {most:g}: nothing votes for the other tokens"
        )
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
