"""Parallel text as batches of pieces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from uncurse.text.lines import read_lines
from uncurse.text.subwords import BEGIN, END
from uncurse.training.length import Lengths
from uncurse.training.recipe import Corpus, TrainingPlan
from uncurse.translator import Encoding, Pieces

POOL = 100  # batches that are sorted by length together


@final
@dataclass(frozen=True)
class ParallelText:
    """Source lines, each with its translations."""

    sources: list[str]
    targets: list[tuple[str, ...]]

    @property
    def fingerprint(self) -> str:
        """A checksum of every line."""
        digest = sha256()
        for source, targets in zip(self.sources, self.targets, strict=True):
            digest.update("\n".join((source, *targets, "\n")).encode())
        return digest.hexdigest()


def read_parallel(corpora: Sequence[Corpus], root: Path) -> ParallelText:
    """Read corpora whose files are aligned line by line."""
    sources: list[str] = []
    targets: list[tuple[str, ...]] = []
    for corpus in corpora:
        lines = read_lines(root / corpus.source)
        columns = []
        for name in corpus.targets:
            column = read_lines(root / name)
            if len(column) != len(lines):
                raise ValueError(
                    f"{root / corpus.source} has {len(lines)} lines and {root / name} has {len(column)}"
                )
            columns.append(column)
        sources.extend(lines)
        targets.extend(zip(*columns, strict=True))
    if not sources:
        raise ValueError(f"there is not one line in {', '.join(corpus.source for corpus in corpora)}")
    return ParallelText(sources, targets)


class Batch(NamedTuple):
    """Sentence pairs, padded."""

    source: Tensor  # [sentences, positions]
    lengths: Tensor  # [sentences]
    target_in: Tensor  # [sentences, steps] <s> and the pieces
    target_out: Tensor  # [sentences, steps] the pieces and </s>, -100 beyond

    @property
    def tokens(self) -> int:
        """How many target tokens are predicted."""
        return int((self.target_out >= 0).sum())


@final
class Pairs:
    """Sentence pairs as pieces; a source with several targets makes a pair with each."""

    def __init__(self, text: ParallelText, source: Pieces, target: Pieces, max_length: int) -> None:
        self._sources = [np.array(pieces, dtype=np.int32) for pieces in source.encode(text.sources)]
        flat = [line for targets in text.targets for line in targets]
        self._targets = [np.array(pieces, dtype=np.int32) for pieces in target.encode(flat)]
        owner = [index for index, targets in enumerate(text.targets) for _ in targets]
        pairs = [
            (source_index, target_index)
            for target_index, source_index in enumerate(owner)
            if 0 < len(self._sources[source_index]) <= max_length
            and 0 < len(self._targets[target_index]) <= max_length
        ]
        if not pairs:
            raise ValueError(f"no pair of lines has between 1 and {max_length} pieces on both sides")
        self.dropped = len(flat) - len(pairs)
        self._pairs = np.array(pairs)
        self._lengths = np.array([(len(self._sources[one]), len(self._targets[two]) + 1) for one, two in pairs])

    def __len__(self) -> int:
        return len(self._pairs)

    @property
    def ratio(self) -> float:
        """Target tokens, `</s>` counted, per source piece."""
        source, target = self._lengths.sum(axis=0)
        return float(target / source)

    def lengths(self, model: Encoding[Any], at_most: int) -> Lengths:
        """A sample of the pairs as a length predictor sees them."""
        rows = np.random.default_rng(0).permutation(len(self._pairs))[:at_most]
        rows = rows[np.argsort(self._lengths[rows, 0], kind="stable")]
        features = [
            model.features([self._sources[self._pairs[row, 0]].tolist() for row in chunk])
            for chunk in np.array_split(rows, -(-len(rows) // 256))
        ]
        return Lengths(self._lengths[rows, 0], self._lengths[rows, 1], np.concatenate(features))

    def tokens(self, chosen: Sequence[int]) -> int:
        """How many target tokens are predicted in the given pairs."""
        return int(self._lengths[chosen, 1].sum())

    def in_order(self, plan: TrainingPlan) -> list[list[int]]:
        """The pairs of batches that have every pair once, by length."""
        return self._cut(np.lexsort(self._lengths.T), plan)

    def shuffled(self, plan: TrainingPlan, epoch: int) -> list[list[int]]:
        """The pairs of each batch of an epoch: of like length, in an order that seed and epoch decide."""
        random = np.random.default_rng((plan.seed, epoch))
        order = random.permutation(len(self._pairs))
        size = POOL * self._pairs_per_batch(plan)
        batches = []
        for start in range(0, len(order), size):
            pool = order[start : start + size]
            batches.extend(self._cut(pool[np.lexsort(self._lengths[pool].T)], plan))
        return [batches[index] for index in random.permutation(len(batches))]

    def _pairs_per_batch(self, plan: TrainingPlan) -> int:
        if plan.batch_sentences is not None:
            return plan.batch_sentences
        return max(1, int((plan.batch_tokens or 1) / self._lengths.max(axis=1).mean()))

    def _cut(self, order: np.ndarray, plan: TrainingPlan) -> list[list[int]]:
        """Consecutive pairs, as many together as the plan allows."""
        batches: list[list[int]] = [[]]
        longest = 0
        for index in order.tolist():
            longest = max(longest, int(self._lengths[index].max()))
            count = len(batches[-1]) + 1
            full = (
                count > plan.batch_sentences
                if plan.batch_sentences
                else count * longest > (plan.batch_tokens or 0)
            )
            if full and batches[-1]:
                batches.append([])
                longest = int(self._lengths[index].max())
            batches[-1].append(index)
        return batches

    def batch(self, chosen: Sequence[int]) -> Batch:
        """The given pairs, padded."""
        sources = [self._sources[self._pairs[index, 0]] for index in chosen]
        targets = [self._targets[self._pairs[index, 1]] for index in chosen]
        lengths = np.array([len(source) for source in sources])
        steps = max(len(target) for target in targets) + 1
        source = np.zeros((len(chosen), lengths.max()), dtype=np.int64)
        target_in = np.full((len(chosen), steps), END, dtype=np.int64)
        target_out = np.full((len(chosen), steps), -100, dtype=np.int64)
        for row, (one, two) in enumerate(zip(sources, targets, strict=True)):
            source[row, : len(one)] = one
            target_in[row, 0] = BEGIN
            target_in[row, 1 : len(two) + 1] = two
            target_out[row, : len(two)] = two
            target_out[row, len(two)] = END
        return Batch(*(torch.from_numpy(each) for each in (source, lengths, target_in, target_out)))
