"""Fitting a length predictor to a model whose weights stay frozen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import smooth_l1_loss, softplus

from uncurse.arrays import Floats, Ints
from uncurse.errors import UncurseError
from uncurse.lengths.predictors import MLPLength, predictor_inputs

LEVELS: Final = (0.5, 0.8, 0.9, 0.95, 0.99)
MIN_PAIRS: Final = 10  # of which one is held out
HIDDEN: Final = 128
BATCH: Final = 128
PATIENCE: Final = 5  # epochs without a lower loss on the held-out pairs


@final
@dataclass(frozen=True, eq=False)
class LengthSample:
    """What a model's encoder makes of sources, and the lengths of their translations as a search counts them."""

    source: Ints  # [pairs] |x|
    target: Ints  # [pairs] |y|, </s> counted
    features: Floats  # [pairs, size]

    def take(self, rows: Ints) -> LengthSample:
        """Some of the pairs."""
        return LengthSample(self.source[rows], self.target[rows], self.features[rows])


def concatenate(samples: Sequence[LengthSample]) -> LengthSample:
    """The pairs of several texts."""
    return LengthSample(
        np.concatenate([sample.source for sample in samples]),
        np.concatenate([sample.target for sample in samples]),
        np.concatenate([sample.features for sample in samples]),
    )


def fit_length(sample: LengthSample, seed: int = 1, epochs: int = 60) -> MLPLength:
    """Fit ratio and quantiles; a tenth of the pairs is held out for early stopping."""
    if len(sample.source) < MIN_PAIRS:
        raise UncurseError(
            f"{len(sample.source)} pairs are too few for a length predictor: give {MIN_PAIRS} or more"
        )
    torch.manual_seed(seed)
    random = np.random.default_rng(seed)
    order = random.permutation(len(sample.source))
    held_out, train = sample.take(order[: len(order) // 10]), sample.take(order[len(order) // 10 :])
    inputs = predictor_inputs(train.source, train.features)
    mean, scale = inputs.mean(axis=0), np.maximum(inputs.std(axis=0), 1e-6)
    network = nn.Sequential(
        nn.Linear(inputs.shape[1], HIDDEN), nn.Tanh(), nn.Dropout(0.1), nn.Linear(HIDDEN, 1 + len(LEVELS))
    )
    optimizer = torch.optim.AdamW(network.parameters(), 1e-3, weight_decay=0.01)
    x, ratio = _tensors(train, mean, scale)
    x_held_out, ratio_held_out = _tensors(held_out, mean, scale)
    best, best_loss, waited = _copied(network), float("inf"), 0
    for _ in range(epochs):
        network.train()
        for rows in np.array_split(random.permutation(len(x)), -(-len(x) // BATCH)):
            optimizer.zero_grad()
            _loss(network(x[rows]), ratio[rows]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        network.eval()
        with torch.inference_mode():
            loss = float(_loss(network(x_held_out), ratio_held_out))
        waited += 1
        if loss < best_loss:
            best, best_loss, waited = _copied(network), loss, 0
        if waited > PATIENCE:
            break
    return MLPLength(
        levels=LEVELS,
        mean=mean,
        scale=scale,
        hidden_weight=best["0.weight"],
        hidden_bias=best["0.bias"],
        output_weight=best["3.weight"],
        output_bias=best["3.bias"],
    )


def _tensors(sample: LengthSample, mean: Floats, scale: Floats) -> tuple[Tensor, Tensor]:
    inputs = (predictor_inputs(sample.source, sample.features) - mean) / scale
    ratio = sample.target / np.maximum(sample.source, 1)
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
class LengthError:
    """How far expected lengths are from the true ones, in tokens."""

    absolute: float  # the mean of |expected - true|
    bias: float  # the mean of expected - true: above 0 where too long


@final
@dataclass(frozen=True)
class LengthReport:
    """A length predictor on one text, beside a fixed ratio and a straight line fitted to the training pairs."""

    pairs: int
    mean_length: float  # tokens, </s> counted
    predictor: LengthError
    fixed_ratio: LengthError
    straight_line: LengthError
    calibration: dict[float, float]  # quantile -> share of translations that do not exceed it


def report(predictor: MLPLength, train: LengthSample, test: LengthSample) -> LengthReport:
    """Measure a predictor on test pairs; ratio and line come from the training pairs."""
    ratio = train.target.sum() / train.source.sum()
    inputs = np.stack((train.source, np.ones(len(train.source))), axis=1)
    (slope, offset), *_ = np.linalg.lstsq(inputs, train.target, rcond=None)

    def error(expected_length: Floats) -> LengthError:
        difference = expected_length - test.target
        return LengthError(float(np.abs(difference).mean()), float(difference.mean()))

    return LengthReport(
        pairs=len(test.source),
        mean_length=float(test.target.mean()),
        predictor=error(predictor.predict(test.source, test.features)),
        fixed_ratio=error(ratio * test.source),
        straight_line=error(slope * test.source + offset),
        calibration={
            level: float((test.target <= np.ceil(predictor.quantile(level, test.source, test.features))).mean())
            for level in predictor.levels
        },
    )
