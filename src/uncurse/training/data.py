"""Sentence pairs as tokens, and the batches that training and evaluation take from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from uncurse.arrays import Ints
from uncurse.errors import UncurseError
from uncurse.models.loaded_model import TranslationModel
from uncurse.text.parallel import ParallelText
from uncurse.text.sentencepiece_tokenizer import BOS, EOS
from uncurse.text.tokenizer import Tokenizer
from uncurse.training.fit_length import LengthSample
from uncurse.training.recipe import TrainingConfig

POOL_BATCHES: Final = 100  # shuffled pairs are sorted by length within pools of so many batches
IGNORED: Final = -100  # PyTorch's label for positions without a loss


class TrainingBatch(NamedTuple):
    """Sentence pairs, padded."""

    source: Tensor  # [sentences, positions]
    lengths: Tensor  # [sentences] source tokens
    target_in: Tensor  # [sentences, steps] <s> and the tokens
    target_out: Tensor  # [sentences, steps] the tokens and </s>; IGNORED beyond

    @property
    def tokens(self) -> int:
        """The number of target tokens, `</s>` counted."""
        return int((self.target_out != IGNORED).sum())


@final
class SentencePairs:
    """Tokenized sentence pairs; a source with several targets makes a pair with each."""

    def __init__(self, text: ParallelText, source: Tokenizer, target: Tokenizer, max_tokens_per_side: int) -> None:
        self._sources = [np.array(tokens, dtype=np.int32) for tokens in source.encode(text.sources)]
        targets = [line for lines in text.targets for line in lines]
        self._targets = [np.array(tokens, dtype=np.int32) for tokens in target.encode(targets)]
        source_of = [index for index, lines in enumerate(text.targets) for _ in lines]
        pairs = [
            (source_index, target_index)
            for target_index, source_index in enumerate(source_of)
            if 0 < len(self._sources[source_index]) <= max_tokens_per_side
            and 0 < len(self._targets[target_index]) <= max_tokens_per_side
        ]
        if not pairs:
            raise UncurseError(f"no pair has between 1 and {max_tokens_per_side} tokens on both sides")
        self._pairs = np.array(pairs)  # [pairs, 2] indices into sources and targets
        # [pairs, 2] |x| and |y|, the latter with </s>
        self._lengths = np.array([(len(self._sources[x]), len(self._targets[y]) + 1) for x, y in pairs])

    def __len__(self) -> int:
        return len(self._pairs)

    @property
    def length_ratio(self) -> float:
        """Target tokens, `</s>` counted, per source token."""
        source, target = self._lengths.sum(axis=0)
        return float(target / source)

    def length_sample(self, model: TranslationModel[Any], max_pairs: int) -> LengthSample:
        """At most so many pairs, drawn at random, for fitting or testing a length predictor."""
        rows = np.random.default_rng(0).permutation(len(self._pairs))[:max_pairs]
        sources = [self._sources[self._pairs[row, 0]].tolist() for row in rows]
        return length_sample(model, sources, self._lengths[rows, 1])

    def target_tokens(self, chosen: Sequence[int]) -> int:
        """The number of target tokens in the given pairs, `</s>` counted."""
        return int(self._lengths[chosen, 1].sum())

    def sorted_batches(self, config: TrainingConfig) -> list[list[int]]:
        """Batches that have every pair once, sorted by length."""
        return self._cut(np.lexsort(self._lengths.T), config)

    def shuffled_batches(self, config: TrainingConfig, epoch: int) -> list[list[int]]:
        """The batches of an epoch: pairs of similar length, in an order that seed and epoch decide."""
        random = np.random.default_rng((config.seed, epoch))
        order = random.permutation(len(self._pairs))
        size = POOL_BATCHES * self._pairs_per_batch(config)
        batches = []
        for start in range(0, len(order), size):
            pool = order[start : start + size]
            batches.extend(self._cut(pool[np.lexsort(self._lengths[pool].T)], config))
        return [batches[index] for index in random.permutation(len(batches))]

    def _pairs_per_batch(self, config: TrainingConfig) -> int:
        if config.batch_sentences is not None:
            return config.batch_sentences
        return max(1, int((config.batch_tokens or 1) / self._lengths.max(axis=1).mean()))

    def _cut(self, order: Ints, config: TrainingConfig) -> list[list[int]]:
        """Consecutive pairs, as many to a batch as the recipe allows."""
        batches: list[list[int]] = [[]]
        longest = 0
        for index in order.tolist():
            longest = max(longest, int(self._lengths[index].max()))
            count = len(batches[-1]) + 1
            full = (
                count > config.batch_sentences
                if config.batch_sentences
                else count * longest > (config.batch_tokens or 0)
            )
            if full and batches[-1]:
                batches.append([])
                longest = int(self._lengths[index].max())
            batches[-1].append(index)
        return batches

    def batch(self, chosen: Sequence[int]) -> TrainingBatch:
        """The given pairs, padded."""
        sources = [self._sources[self._pairs[index, 0]] for index in chosen]
        targets = [self._targets[self._pairs[index, 1]] for index in chosen]
        lengths = np.array([len(source) for source in sources])
        steps = max(len(target) for target in targets) + 1
        source = np.zeros((len(chosen), lengths.max()), dtype=np.int64)
        target_in = np.full((len(chosen), steps), EOS, dtype=np.int64)
        target_out = np.full((len(chosen), steps), IGNORED, dtype=np.int64)
        for row, (x, y) in enumerate(zip(sources, targets, strict=True)):
            source[row, : len(x)] = x
            target_in[row, 0] = BOS
            target_in[row, 1 : len(y) + 1] = y
            target_out[row, : len(y)] = y
            target_out[row, len(y)] = EOS
        return TrainingBatch(*(torch.from_numpy(each) for each in (source, lengths, target_in, target_out)))


def length_sample(model: TranslationModel[Any], sources: Sequence[Sequence[int]], targets: Ints) -> LengthSample:
    """What a model's encoder makes of sources, given the lengths of their translations; by rising length."""
    lengths = np.array([len(source) for source in sources])
    rows = np.argsort(lengths, kind="stable")
    features = [
        model.features([sources[row] for row in chunk]) for chunk in np.array_split(rows, -(-len(rows) // 256))
    ]
    return LengthSample(lengths[rows], targets[rows], np.concatenate(features))


def with_batch_count(batches: list[list[int]], count: int) -> list[list[int]]:
    """The same pairs in exactly so many batches: the last are merged, or the largest are split.

    Batches bounded by tokens differ slightly in number from shuffle to shuffle; the schedule needs one number.
    """
    batches = list(batches)
    while len(batches) > count:
        last = batches.pop()
        batches[-1] = [*batches[-1], *last]
    while len(batches) < count:
        largest = max(range(len(batches)), key=lambda index: len(batches[index]))
        chosen = batches[largest]
        batches[largest : largest + 1] = [chosen[: len(chosen) // 2], chosen[len(chosen) // 2 :]]
    return batches
