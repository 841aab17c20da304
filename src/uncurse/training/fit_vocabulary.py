"""Fitting a vocabulary selector to a model whose weights stay frozen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, normalize

from uncurse.arrays import Ints
from uncurse.errors import UncurseError
from uncurse.models.vocabulary_selector import Floats32, TokenSpace, VocabularySelector
from uncurse.training.selection_sample import SelectionSample, concatenate

BATCH: Final = 8  # sentences
NEGATIVES: Final = 1000  # candidates without a target in the batch that a step looks at
FREQUENT: Final = 0.01  # tokens of so many targets are always computed
MAX_HELD_OUT: Final = 500  # sentences
PRUNING: Final = 500  # sentences; a token that none of them comes near to selecting is no candidate
NEAR: Final = 1.0  # logits below the threshold
MIN_SENTENCES: Final = 100  # of which a tenth is held out


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
        ctx.save_for_backward(candidates, torch.stack(where) + first[:, None])
        ctx.positions = len(positions)
        return torch.stack(highest)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:  # noqa: ANN401
        candidates, where = ctx.saved_tensors
        votes = torch.zeros(ctx.positions, len(candidates)).scatter_(0, where, gradients[0])
        return votes @ candidates, None, None  # candidates stay as they are


@final
class _Votes(nn.Module):
    """The votes of source positions for some candidates, and the highest of each sentence.

    Training begins at what the last layer's cross-attention makes of a position, in which the output layer already
    finds words that translate it. Candidates are the model's own embeddings, so that those which no target has are
    judged, too.
    """

    def __init__(self, given: TokenSpace, frequency: NDArray[np.floating[Any]], scale: float) -> None:
        nn.Module.__init__(self)
        self._embeddings = torch.from_numpy(np.ascontiguousarray(given.embeddings))
        self._unit = normalize(self._embeddings, dim=1)
        self._start, self._scale = torch.from_numpy(given.start).float(), scale
        self._change = nn.Parameter(torch.zeros_like(self._start))
        odds = torch.from_numpy(np.log(frequency / (1.0 - frequency)))
        self._kind = nn.Parameter(torch.zeros(len(self._start)))  # tells tokens of the source language apart
        self._bias = nn.Parameter(odds.float() - 2.0)

    @property
    def projection(self) -> Tensor:
        """What states are multiplied with, [d_model, d_model]."""
        return (self._start + self._start.std() * self._change) * self._scale

    def bias(self, candidates: Tensor) -> Tensor:
        """What is added to the votes, [candidates]."""
        return self._bias[candidates] + 10.0 * self._unit[candidates] @ self._kind

    def forward(self, states: Tensor, lengths: list[int], candidates: Tensor) -> Tensor:
        """Logits, [sentences, candidates]."""
        highest: Tensor = _HighestVotes.apply(  # type: ignore[no-untyped-call]
            states @ self.projection, self._embeddings[candidates], lengths
        )
        return highest + self.bias(candidates)

    def optimizer(self) -> torch.optim.Optimizer:
        """Steps are small: larger ones first undo what the start knows, and few sentences do not bring it back."""
        groups = [{"params": [self._change], "lr": 0.01}, {"params": [self._kind, self._bias], "lr": 0.003}]
        return torch.optim.AdamW(groups, weight_decay=0.0)


def fit_vocabulary(
    sample: SelectionSample,
    given: TokenSpace,
    candidates: Ints,
    always: Sequence[int],
    recall: float = 0.999,
    seed: int = 1,
    epochs: int = 3,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[VocabularySelector, SelectionReport]:
    """Fit a selector; on a held-out tenth of the sentences, it selects a share `recall` of the target tokens.

    Only candidates (ids, rising) are ever computed, and those of `always` always.
    """
    if not 0.0 < recall <= 1.0:
        raise UncurseError(f"recall = {recall} is not allowed: it must be in (0, 1]")
    if (count := len(sample.states)) < MIN_SENTENCES:
        raise UncurseError(
            f"{count} sentences are too few for a vocabulary selector: give {MIN_SENTENCES} or more"
        )
    torch.manual_seed(seed)
    random = np.random.default_rng(seed)
    order = random.permutation(count)
    cut = min(count // 10, MAX_HELD_OUT)
    held_out, train = sample.take(order[:cut]), sample.take(order[cut:])
    vocab_size = len(given.embeddings)
    allowed = np.isin(np.arange(vocab_size), candidates)
    wanted = [tokens[allowed[tokens]] for tokens in map(np.unique, train.targets)]
    counts = np.bincount(np.concatenate(wanted), minlength=vocab_size)
    some = np.concatenate(train.states[:20]).astype(np.float32) @ given.start @ given.embeddings[::50].T
    network = _Votes(given, (counts + 0.1) / (len(wanted) + 2.0), 1.0 / float(some.std()))
    optimizer = network.optimizer()
    batches = -(-len(wanted) // BATCH)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05, epochs * batches)
    for epoch in range(epochs):
        for index, rows in enumerate(np.array_split(random.permutation(len(wanted)), batches)):
            states, tokens = [train.states[row] for row in rows], [wanted[row] for row in rows]
            loss = _loss(network, candidates, states, tokens, random)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
            progress(epoch * batches + index + 1, epochs * batches)
    fixed = np.isin(candidates, always) | (counts[candidates] > FREQUENT * len(wanted))
    with torch.inference_mode():
        selector = VocabularySelector(
            tokens=candidates,
            projection=network.projection.numpy().astype(np.float16).astype(np.float32),  # as it is saved
            bias=np.where(fixed, np.inf, network.bias(torch.from_numpy(candidates)).numpy()).astype(np.float32),
        )
    selector = _calibrated(selector, given.embeddings, held_out, recall)
    seen = concatenate([held_out, train.take(np.arange(min(PRUNING, len(wanted))))])
    selector = _pruned(selector, given.embeddings, seen)
    return selector, report(selector, given.embeddings, held_out)


def _loss(
    network: _Votes,
    candidates: Ints,
    states: list[NDArray[Any]],
    wanted: list[Ints],
    random: np.random.Generator,
) -> Tensor:
    """How badly a batch is predicted; of the candidates that it does not want, some stand for all."""
    present = np.unique(np.concatenate(wanted))
    drawn = random.choice(candidates, min(NEGATIVES, len(candidates)), replace=False)
    absent = np.setdiff1d(drawn, present)
    labels = np.zeros((len(wanted), len(present) + len(absent)), dtype=np.float32)
    for label, tokens in zip(labels, wanted, strict=True):
        label[np.searchsorted(present, tokens)] = 1.0
    weight = np.ones(labels.shape[1], dtype=np.float32)
    weight[len(present) :] = (len(candidates) - len(present)) / max(len(absent), 1)
    given = torch.from_numpy(np.concatenate(states).astype(np.float32))
    looked_at = torch.from_numpy(np.concatenate((present, absent)))
    logits = network(given, [len(each) for each in states], looked_at)
    return binary_cross_entropy_with_logits(
        logits, torch.from_numpy(labels), torch.from_numpy(weight), reduction="sum"
    ) / len(wanted)


def _logits(selector: VocabularySelector, chosen: Floats32, states: NDArray[Any]) -> Floats32:
    """The logit of every candidate for a sentence, [candidates]; it is selected if that is above 0."""
    votes = states.astype(np.float32) @ selector.projection @ chosen.T
    highest: Floats32 = votes.max(axis=0) + selector.bias
    return highest


def _calibrated(
    selector: VocabularySelector, embeddings: Floats32, held_out: SelectionSample, recall: float
) -> VocabularySelector:
    """Shift the bias so that the selector finds the wanted share of target tokens."""
    logits, chosen = [], embeddings[selector.tokens]
    for states, target in zip(held_out.states, held_out.targets, strict=True):
        found = np.full(len(embeddings), -np.inf, dtype=np.float32)
        found[selector.tokens] = _logits(selector, chosen, states)
        logits.append(found[target])
    every = np.sort(np.concatenate(logits))
    threshold = every[min(int((1.0 - recall) * len(every)), len(every) - 1)]
    if threshold == np.inf:  # those that are always computed are enough
        return selector
    if threshold == -np.inf:
        raise UncurseError(f"recall = {recall} cannot be reached: translations have tokens that are no candidates")
    return replace(selector, bias=(selector.bias - threshold + np.float32(1e-4)).astype(np.float32))


def _pruned(selector: VocabularySelector, embeddings: Floats32, sample: SelectionSample) -> VocabularySelector:
    """Without the candidates that no sentence comes near to selecting."""
    near, chosen = selector.bias == np.inf, embeddings[selector.tokens]
    for states in sample.states:
        near |= _logits(selector, chosen, states) > -NEAR
    return VocabularySelector(selector.tokens[near], selector.projection, selector.bias[near])


def report(selector: VocabularySelector, embeddings: Floats32, sample: SelectionSample) -> SelectionReport:
    """What a selector does to some sentences."""
    found, sizes, chosen = [], [], embeddings[selector.tokens]
    for states, target in zip(sample.states, sample.targets, strict=True):
        selected = selector.tokens[_logits(selector, chosen, states) > 0]
        found.append(np.isin(target, selected))
        sizes.append(len(selected))
    return SelectionReport(
        recall=float(np.concatenate(found).mean()),
        complete=float(np.mean([each.all() for each in found])),
        tokens=float(np.mean(sizes)),
    )
