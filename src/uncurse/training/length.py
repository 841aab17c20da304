"""Fitting a length predictor to a model whose weights stay as they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import smooth_l1_loss, softplus

from uncurse.arrays import Floats, Ints
from uncurse.length import MLPLength, predictor_inputs

LEVELS: Final = (0.5, 0.8, 0.9, 0.95, 0.99)
FEWEST: Final = 10  # pairs, of which one is held out
HIDDEN: Final = 128
BATCH: Final = 128
PATIENCE: Final = 5  # epochs without a better result on the held-out part


@final
@dataclass(frozen=True, eq=False)
class Lengths:
    """Sources as a model sees them, with the lengths of their translations counted as a search counts."""

    source: Ints  # [pairs] |x|
    target: Ints  # [pairs] |y|, </s> counted
    features: Floats  # [pairs, size]

    def take(self, rows: Ints) -> Lengths:
        """Some of the pairs."""
        return Lengths(self.source[rows], self.target[rows], self.features[rows])


def joined(parts: Sequence[Lengths]) -> Lengths:
    """The pairs of several texts."""
    source, target = (
        np.concatenate([part.source for part in parts]),
        np.concatenate([part.target for part in parts]),
    )
    return Lengths(source, target, np.concatenate([part.features for part in parts]))


def fit_length(lengths: Lengths, seed: int = 1, epochs: int = 60) -> MLPLength:
    """Fit ratio and quantiles; a tenth of the pairs is held out and decides when to stop."""
    if len(lengths.source) < FEWEST:
        raise ValueError(f"{len(lengths.source)} pairs are too few for a length predictor: give {FEWEST} or more")
    torch.manual_seed(seed)
    random = np.random.default_rng(seed)
    order = random.permutation(len(lengths.source))
    held_out, train = lengths.take(order[: len(order) // 10]), lengths.take(order[len(order) // 10 :])
    inputs = predictor_inputs(train.source, train.features)
    mean, scale = inputs.mean(axis=0), np.maximum(inputs.std(axis=0), 1e-6)
    network = nn.Sequential(
        nn.Linear(inputs.shape[1], HIDDEN), nn.Tanh(), nn.Dropout(0.1), nn.Linear(HIDDEN, 1 + len(LEVELS))
    )
    optimizer = torch.optim.AdamW(network.parameters(), 1e-3, weight_decay=0.01)
    x, ratio = _tensors(train, mean, scale)
    x_out, ratio_out = _tensors(held_out, mean, scale)
    best, best_loss, waited = _copied(network), float("inf"), 0
    for _ in range(epochs):
        network.train()
        for rows in np.array_split(random.permutation(len(x)), -(-len(x) // BATCH)):
            optimizer.zero_grad()
            _loss(network(x[rows]), ratio[rows]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        network.eval()
        with torch.inference_mode():
            loss = float(_loss(network(x_out), ratio_out))
        waited += 1
        if loss < best_loss:
            best, best_loss, waited = _copied(network), loss, 0
        if waited > PATIENCE:
            break
    return MLPLength(LEVELS, mean, scale, best["0.weight"], best["0.bias"], best["3.weight"], best["3.bias"])


def _tensors(lengths: Lengths, mean: Floats, scale: Floats) -> tuple[Tensor, Tensor]:
    inputs = (predictor_inputs(lengths.source, lengths.features) - mean) / scale
    ratio = lengths.target / np.maximum(lengths.source, 1)
    return torch.from_numpy(inputs).float(), torch.from_numpy(ratio).float()


def _loss(outputs: Tensor, ratio: Tensor) -> Tensor:
    """A robust squared error for the ratio and the pinball loss for each quantile."""
    positive = softplus(outputs)
    quantiles = positive[:, 1:].cumsum(dim=1)
    missed = ratio[:, None] - quantiles
    levels = torch.tensor(LEVELS)
    pinball = torch.maximum(levels * missed, (levels - 1) * missed).sum(dim=1).mean()
    return smooth_l1_loss(positive[:, 0], ratio, beta=0.5) + pinball


def _copied(network: nn.Module) -> dict[str, Floats]:
    return {name: tensor.double().numpy().copy() for name, tensor in network.state_dict().items()}


@final
@dataclass(frozen=True)
class LengthReport:
    """How far off predictions are, in tokens, and how often a translation stays below each quantile."""

    pairs: int
    mean_length: float
    predictor_error: float  # mean absolute error
    ratio_error: float  # of a fixed ratio
    linear_error: float  # of a straight line
    calibration: dict[float, float]  # quantile -> share of translations that do not exceed it


def report(predictor: MLPLength, train: Lengths, test: Lengths) -> LengthReport:
    """Compare a predictor with a fixed ratio and a straight line, both taken from the training pairs."""
    ratio = train.target.sum() / train.source.sum()
    known = np.stack((train.source, np.ones(len(train.source))), axis=1)
    (slope, offset), *_ = np.linalg.lstsq(known, train.target, rcond=None)

    def error(predicted: Floats) -> float:
        return float(np.abs(predicted - test.target).mean())

    return LengthReport(
        len(test.source),
        float(test.target.mean()),
        error(predictor.predict(test.source, test.features)),
        error(ratio * test.source),
        error(slope * test.source + offset),
        {
            level: float((test.target <= np.ceil(predictor.quantile(level, test.source, test.features))).mean())
            for level in predictor.levels
        },
    )
