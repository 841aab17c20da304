"""Fitting a vocabulary selector to a model whose weights stay frozen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from uncurse.arrays import Floats, Ints
from uncurse.errors import UncurseError
from uncurse.models.vocabulary_selector import Floats32, VocabularySelector

RANK: Final = 64
BATCH: Final = 64  # sentences
NEGATIVES: Final = 4096  # candidates without a target in the batch that a step looks at
FREQUENT: Final = 0.01  # tokens of so many targets are always computed
MIN_PAIRS: Final = 100  # of which a tenth is held out

Encode = Callable[[Sequence[Sequence[int]]], list[Floats32]]  # encoder states of each source


@final
@dataclass(frozen=True)
class SelectionReport:
    """What a selector does to translations that it was not fitted to."""

    recall: float  # share of their tokens that it selects
    complete: float  # share of the translations all of whose tokens it selects
    tokens: float  # how many it selects for a sentence, on average


@final
class _HighestVotes(torch.autograd.Function):
    """The highest product of each candidate with a position of each sentence, [sentences, candidates].

    PyTorch's own gradient of a maximum makes several passes over all products.
    """

    @staticmethod
    def forward(ctx: Any, positions: Tensor, candidates: Tensor, lengths: list[int]) -> Tensor:  # noqa: ANN401
        votes = positions @ candidates.T  # [positions, candidates]
        highest, where = zip(*(part.max(dim=0) for part in torch.split(votes, lengths)), strict=True)
        first = torch.tensor([0, *lengths[:-1]]).cumsum(0)
        ctx.save_for_backward(positions, candidates, torch.stack(where) + first[:, None])
        return torch.stack(highest)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:  # noqa: ANN401
        positions, candidates, where = ctx.saved_tensors
        votes = torch.zeros(len(positions), len(candidates)).scatter_(0, where, gradients[0])
        return votes @ candidates, votes.T @ positions, None


@final
class _Votes(nn.Module):
    """The votes of source positions for some candidates, and the highest of each sentence."""

    def __init__(self, d_model: int, frequency: Floats) -> None:
        nn.Module.__init__(self)
        self.projection = nn.Linear(d_model, RANK, bias=False)
        self.embeddings = nn.Embedding(len(frequency), RANK)
        nn.init.normal_(self.embeddings.weight, std=0.1)
        odds = torch.from_numpy(np.log(frequency / (1.0 - frequency)))
        self.bias = nn.Parameter(odds.float())

    def forward(self, states: Tensor, lengths: list[int], candidates: Tensor) -> Tensor:
        """Logits, [sentences, candidates]."""
        highest: Tensor = _HighestVotes.apply(  # type: ignore[no-untyped-call]
            self.projection(states), self.embeddings(candidates), lengths
        )
        return highest + self.bias[candidates]


def fit_vocabulary(
    encode: Encode,
    sources: Sequence[Sequence[int]],
    targets: Sequence[Ints],
    always: Sequence[int],
    recall: float = 0.999,
    seed: int = 1,
    epochs: int = 4,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[VocabularySelector, SelectionReport]:
    """Fit a selector; on a held-out tenth of the pairs, it selects a share `recall` of the target tokens."""
    if len(sources) < MIN_PAIRS:
        raise UncurseError(f"{len(sources)} pairs are too few for a vocabulary selector: give {MIN_PAIRS} or more")
    torch.manual_seed(seed)
    random = np.random.default_rng(seed)
    order = random.permutation(len(sources))
    held_out, train = order[: len(order) // 10], order[len(order) // 10 :]
    tokens, counts = np.unique(
        np.concatenate([np.unique(targets[row]) for row in train] + [np.array(always)]), return_counts=True
    )
    wanted = {row: np.searchsorted(tokens, np.unique(targets[row])) for row in train.tolist()}
    network = _Votes(encode([sources[0]])[0].shape[1], counts / (len(train) + 2.0))
    optimizer = torch.optim.AdamW(network.parameters(), 3e-3, weight_decay=0.0)
    steps = epochs * (-(-len(train) // BATCH))
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05, steps)
    step = 0
    for _ in range(epochs):
        for rows in np.array_split(random.permutation(train), -(-len(train) // BATCH)):
            states, lengths = _concatenated(encode([sources[row] for row in rows]))
            present = np.unique(np.concatenate([wanted[row] for row in rows]))
            absent = np.setdiff1d(random.choice(len(tokens), min(NEGATIVES, len(tokens)), replace=False), present)
            candidates = np.concatenate((present, absent))
            labels = np.zeros((len(rows), len(candidates)), dtype=np.float32)
            for index, row in enumerate(rows):
                labels[index, np.searchsorted(present, wanted[row])] = 1.0
            # The absent stand for all candidates that are not in the batch.
            weight = np.ones(len(candidates), dtype=np.float32)
            weight[len(present) :] = (len(tokens) - len(present)) / max(len(absent), 1)
            logits = network(states, lengths, torch.from_numpy(candidates))
            loss = binary_cross_entropy_with_logits(
                logits, torch.from_numpy(labels), torch.from_numpy(weight), reduction="sum"
            ) / len(rows)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
            step += 1
            progress(step, steps)
    fixed = np.isin(tokens, always) | (counts > FREQUENT * len(train))
    selector = VocabularySelector(
        tokens=tokens.astype(np.int64),
        projection=network.projection.weight.detach().numpy().T.copy(),
        embeddings=network.embeddings.weight.detach().numpy().copy(),
        bias=np.where(fixed, np.inf, network.bias.detach().numpy()).astype(np.float32),
    )
    return _calibrated(
        selector, encode, [sources[row] for row in held_out], [targets[row] for row in held_out], recall
    )


def _concatenated(states: list[Floats32]) -> tuple[Tensor, list[int]]:
    return torch.from_numpy(np.concatenate(states)), [len(each) for each in states]


def _calibrated(
    selector: VocabularySelector,
    encode: Encode,
    sources: list[Sequence[int]],
    targets: list[Ints],
    recall: float,
) -> tuple[VocabularySelector, SelectionReport]:
    """Shift the bias so that the selector finds the wanted share of target tokens, or all that it can."""
    logits = []  # of the tokens of each target; -inf: never a candidate
    for source, target in zip(sources, targets, strict=True):
        highest = selector.votes(encode([source])[0]).max(axis=0) + selector.bias
        place = np.minimum(np.searchsorted(selector.tokens, target), len(selector.tokens) - 1)
        logits.append(np.where(selector.tokens[place] == target, highest[place], -np.inf))
    every = np.sort(np.concatenate(logits))
    threshold = every[min(int((1.0 - recall) * len(every)), len(every) - 1)]
    if threshold == -np.inf:  # more tokens are unknown than may be missed: find all others
        threshold = every[every > -np.inf][0]
    if threshold < np.inf:
        selector = VocabularySelector(
            selector.tokens,
            selector.projection,
            selector.embeddings,
            (selector.bias - threshold + np.float32(1e-4)).astype(np.float32),
        )
    found = [each >= threshold for each in logits]
    sizes = [len(selector.selected(selector.votes(encode([source])[0]))) for source in sources[:1000]]
    report = SelectionReport(
        recall=float(np.concatenate(found).mean()),
        complete=float(np.mean([each.all() for each in found])),
        tokens=float(np.mean(sizes)),
    )
    return selector, report
