"""Fitting a length predictor to a model whose weights stay frozen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import softplus

from uncurse.arrays import Floats, Ints
from uncurse.errors import UncurseError
from uncurse.lengths.predictors import LinearLength, predictor_inputs

LEVELS: Final = (0.05, 0.1, 0.2, 0.5, 0.8, 0.9, 0.95, 0.99)
MIN_PAIRS: Final = 10
L2: Final = 0.1  # chosen by leaving out one kind of text at a time, as all else here
ROUNDED: Final = 0.02  # the pinball loss is smooth as near as this to its corner, for the optimizer's sake
STEPS: Final = 150
OWN_SHARE: Final = 0.5  # of the ratio's loss: the model's own translations, where they are given


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

    def split(self) -> tuple[LengthSample, LengthSample]:
        """Nine tenths of the pairs for fitting, and a tenth for testing; at least one for each."""
        order = np.random.default_rng(1).permutation(len(self.source))
        held_out = max(len(order) // 10, 1)
        return self.take(order[held_out:]), self.take(order[:held_out])


def concatenate(samples: Sequence[LengthSample]) -> LengthSample:
    """The pairs of several texts."""
    return LengthSample(
        np.concatenate([sample.source for sample in samples]),
        np.concatenate([sample.target for sample in samples]),
        np.concatenate([sample.features for sample in samples]),
    )


def fit_length(samples: Sequence[LengthSample], own: Sequence[LengthSample] = ()) -> LinearLength:
    """Fit ratio and quantiles to texts; each text counts the same, whatever its size.

    `own` has lengths of the model's own translations. They count for half of the ratio, and not for the quantiles:
    how long references are differs from text to text more than how long a model's translations are.
    """
    sample = concatenate(samples)
    if len(sample.source) < MIN_PAIRS:
        raise UncurseError(
            f"{len(sample.source)} pairs are too few for a length predictor: give {MIN_PAIRS} or more"
        )
    share = _shares(samples)
    inputs = predictor_inputs(sample.source, sample.features)
    mean = share @ inputs
    scale = np.maximum(np.sqrt(share @ (inputs - mean) ** 2), 1e-6)
    weight = torch.zeros(1 + len(LEVELS), inputs.shape[1], requires_grad=True)
    bias = torch.from_numpy(_constant(_ratio(sample))).float().requires_grad_()

    def prepared(texts: Sequence[LengthSample]) -> tuple[Tensor, Tensor, Tensor]:
        """Standardised inputs, ratios and shares of all pairs."""
        pairs = concatenate(texts)
        x = (predictor_inputs(pairs.source, pairs.features) - mean) / scale
        return _tensor(x), _tensor(_ratio(pairs)), _tensor(_shares(texts))

    x, truth, shares = prepared(samples)
    own_x, own_truth, own_shares = prepared(own or samples)
    optimizer = torch.optim.LBFGS([weight, bias], max_iter=STEPS, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        positive = softplus(x @ weight.T + bias)
        own_ratio = softplus(own_x @ weight[0] + bias[0])
        loss = shares @ _pinball(positive[:, 1:].cumsum(dim=1), truth)
        loss = loss + (1 - OWN_SHARE) * (shares @ (positive[:, 0] - truth).square())
        loss = loss + OWN_SHARE * (own_shares @ (own_ratio - own_truth).square())
        loss = loss + L2 * weight.square().sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    return LinearLength(
        levels=LEVELS,
        mean=mean,
        scale=scale,
        weight=weight.detach().double().numpy(),
        bias=bias.detach().double().numpy(),
    )


def _ratio(sample: LengthSample) -> Floats:
    """Target tokens per source token, [pairs]."""
    ratio: Floats = sample.target / np.maximum(sample.source, 1)
    return ratio


def _shares(samples: Sequence[LengthSample]) -> Floats:
    """How much each pair counts, [pairs of all texts]."""
    return np.concatenate([np.full(len(each.source), 1 / len(samples) / len(each.source)) for each in samples])


def _tensor(values: Floats) -> Tensor:
    return torch.from_numpy(values).float()


def _constant(ratio: Floats) -> Floats:
    """The outputs that give every source the same ratio and quantiles: where fitting starts, [1 + levels]."""
    steps = np.diff(np.quantile(ratio, LEVELS), prepend=0.0)
    return np.log(np.expm1(np.maximum(np.concatenate(([ratio.mean()], steps)), 1e-3)))


def _pinball(quantiles: Tensor, ratio: Tensor) -> Tensor:
    """The sum of the pinball losses of all quantiles, [pairs]."""
    missed = ratio[:, None] - quantiles
    levels = torch.tensor(LEVELS)
    size = missed.abs()
    rounded = torch.where(size < ROUNDED, size.square() / (2 * ROUNDED) + ROUNDED / 2, size)
    return ((levels - 0.5) * missed + rounded / 2).sum(dim=1)


@final
@dataclass(frozen=True)
class LengthError:
    """How far expected lengths are from the true ones, in tokens."""

    absolute: float  # the mean of |expected - true|
    bias: float  # the mean of expected - true: above 0 where too long
    relative_bias: float  # by the mean of the true lengths


@final
@dataclass(frozen=True)
class LengthReport:
    """A length predictor on one text, beside a fixed ratio and a straight line fitted to the same pairs."""

    pairs: int
    mean_length: float  # tokens, </s> counted
    predictor: LengthError
    fixed_ratio: LengthError
    straight_line: LengthError
    calibration: dict[float, float]  # quantile -> share of translations that do not exceed it


def report(predictor: LinearLength, texts: Sequence[LengthSample], test: LengthSample) -> LengthReport:
    """Measure a predictor on test pairs; ratio and line come from the pairs that it was fitted to."""
    train = concatenate(texts)
    ratio = train.target.sum() / train.source.sum()
    inputs = np.stack((train.source, np.ones(len(train.source))), axis=1)
    (slope, offset), *_ = np.linalg.lstsq(inputs, train.target, rcond=None)

    def error(expected_length: Floats) -> LengthError:
        difference = expected_length - test.target
        bias = float(difference.mean())
        return LengthError(float(np.abs(difference).mean()), bias, bias / float(test.target.mean()))

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
