"""Expected lengths and limits: how long an output should be, and how long it may be at most."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise
from typing import Protocol, final, runtime_checkable

import numpy as np

from uncurse.arrays import Floats, Ints
from uncurse.errors import UncurseError
from uncurse.scoring.registry import Parameter, check_parameters, parameter
from uncurse.scoring.rescorer import proportional_length


@runtime_checkable
class LengthPredictor(Protocol):
    """Predicts the lengths of translations."""

    @property
    def levels(self) -> tuple[float, ...]:
        """The levels of the quantiles that it can predict, in rising order."""
        ...

    def predict(self, source_lengths: Ints, features: Floats) -> Floats:
        """The expected |y| of each source, `</s>` counted, [sources].

        `features` describe each source, as computed by the model, [sources, size].
        """
        ...

    def quantile(self, level: float, source_lengths: Ints, features: Floats) -> Floats:
        """The length that a share `level` of translations does not exceed, [sources]."""
        ...


@final
@dataclass(frozen=True)
class FixedRatio:
    """`L = length_ratio · |x|`."""

    length_ratio: float = parameter("target tokens per source piece", low=0.0, low_open=True, high=1000.0)
    levels = ()

    def __post_init__(self) -> None:
        check_parameters(self)

    def predict(self, source_lengths: Ints, features: Floats) -> Floats:
        """A fixed number of target tokens per source token."""
        return proportional_length(self.length_ratio, source_lengths)

    def quantile(self, level: float, source_lengths: Ints, features: Floats) -> Floats:
        """Unknown."""
        raise UncurseError(
            "a fixed ratio knows no quantiles: fit a length predictor, or give a limit such as 2x+10"
        )


@final
@dataclass(frozen=True, eq=False)
class LinearLength:
    """`L = gr*(x) · |x|`: a linear layer on the mean of the source states gives the ratio and its quantiles.

    The ratio is the mean of what each source token adds, so the layer says how many target tokens a source token
    becomes in its context. The inputs are standardised; the logarithm of the source's length is one more of them.
    """

    levels: tuple[float, ...]
    mean: Floats  # [size + 1]
    scale: Floats  # [size + 1]
    weight: Floats  # [1 + levels, size + 1]
    bias: Floats  # [1 + levels]

    def __post_init__(self) -> None:
        for level in self.levels:
            Parameter("a quantile", 0.0, 1.0, low_open=True).checked("level", level)
        if any(low >= high for low, high in pairwise(self.levels)):
            raise UncurseError(f"levels = {self.levels} is not allowed: they must rise")
        inputs, outputs = self.mean.size, 1 + len(self.levels)
        shapes = {"mean": (inputs,), "scale": (inputs,), "weight": (outputs, inputs), "bias": (outputs,)}
        for name, shape in shapes.items():
            array = getattr(self, name)
            if array.shape != shape or not np.isfinite(array).all() or inputs < 2:
                raise UncurseError(f"{name} has the shape {array.shape} and not {shape}, or is not finite")
        if not (self.scale > 0).all():
            raise UncurseError("scale is not allowed: it must be above 0")

    def predict(self, source_lengths: Ints, features: Floats) -> Floats:
        """The expected length."""
        return np.maximum(self._ratios(source_lengths, features)[:, 0] * source_lengths, 1.0)

    def quantile(self, level: float, source_lengths: Ints, features: Floats) -> Floats:
        """The length that a share of translations does not exceed."""
        if level not in self.levels:
            known = ", ".join(f"q{each:g}" for each in self.levels)
            raise UncurseError(f"quantile {level:g} is not known to this predictor: it knows {known}")
        column = 1 + self.levels.index(level)
        return np.maximum(self._ratios(source_lengths, features)[:, column] * source_lengths, 1.0)

    def _ratios(self, source_lengths: Ints, features: Floats) -> Floats:
        """The expected ratio and its quantiles, [sources, 1 + levels]."""
        if features.shape[1] + 1 != len(self.mean):
            raise UncurseError(
                f"this length predictor is for states of {len(self.mean) - 1} numbers, and this model's have"
                f" {features.shape[1]}"
            )
        inputs = (predictor_inputs(source_lengths, features) - self.mean) / self.scale
        return ratios_of(inputs @ self.weight.T + self.bias)


def fingerprint_of(predictor: LengthPredictor | None) -> str:
    """Identify what a predictor was given or has learnt."""
    digest = sha256(type(predictor).__name__.encode())
    for name, value in sorted(vars(predictor).items() if predictor is not None else ()):
        digest.update(name.encode() + (value.tobytes() if isinstance(value, np.ndarray) else repr(value).encode()))
    return digest.hexdigest()[:16]


def predictor_inputs(source_lengths: Ints, features: Floats) -> Floats:
    """What a predictor sees: the mean of the states and the logarithm of the length, [sources, size + 1]."""
    return np.concatenate((features, np.log(np.maximum(source_lengths, 1))[:, None]), axis=1)


def ratios_of(outputs: Floats) -> Floats:
    """The ratio is positive, and so is the step from each quantile to the next: they never cross."""
    positive = np.logaddexp(outputs, 0.0)
    return np.concatenate((positive[:, :1], np.cumsum(positive[:, 1:], axis=1)), axis=1)
