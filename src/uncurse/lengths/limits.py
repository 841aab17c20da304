"""Maximum lengths: `R` as users write it, and what it is for each source."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Final, final

import numpy as np

from uncurse.arrays import Floats, Ints
from uncurse.errors import UncurseError
from uncurse.lengths.predictors import LengthPredictor


@final
@dataclass(frozen=True)
class LinearLimit:
    """`R` as a multiple of the source plus a constant."""

    per_token: Fraction  # exact, so that 1.15x of 100 tokens is 115
    constant: int

    def tokens(self, source_length: int) -> int:
        """`R` for a source of so many tokens; at least 1, for `</s>`."""
        return max(math.floor(self.per_token * source_length) + self.constant, 1)


@final
@dataclass(frozen=True)
class QuantileLimit:
    """`R` as the length that a share of translations does not exceed, rounded up."""

    level: float


@final
@dataclass(frozen=True)
class PredictedLimit:
    """`R := ⌈L⌉`, as in the paper's own runs."""


MaxLength = LinearLimit | QuantileLimit | PredictedLimit

DEFAULT_QUANTILE: Final = 0.8
DEFAULT_MAX_LENGTH: Final = QuantileLimit(DEFAULT_QUANTILE)  # where a predictor knows this quantile …
FALLBACK_MAX_LENGTH: Final = LinearLimit(Fraction(2), 10)  # … else this, which is also what a retry gets

_LINEAR: Final = re.compile(r"(\d{1,6})|(\d{1,6}(?:\.\d{1,6})?)x(?:\+(\d{1,6}))?")
_QUANTILE: Final = re.compile(r"q(0\.\d+)")
# A vector that was made beside others differs in its last bits from one that was made alone. This is more than the
# share of a length by which that moves it.
_MARGIN: Final = 1e-4


def parse_max_length(text: str | int) -> MaxLength:
    """A maximum length written as `100`, `2x`, `2x+10`, `q0.95` or `predicted`."""
    plain = str(text).replace(" ", "")
    if plain == "predicted":
        return PredictedLimit()
    if match := _QUANTILE.fullmatch(plain):
        return QuantileLimit(float(match[1]))
    match = _LINEAR.fullmatch(plain)
    if match is None:
        raise UncurseError(
            f"max_length = {str(text)[:40]!r} is not allowed: write a number, a multiple of the source such as"
            " 2x+10, a quantile such as q0.95, or predicted"
        )
    number, multiple, constant = match.groups()
    if number is not None:
        parsed = LinearLimit(Fraction(0), int(number))
    else:
        parsed = LinearLimit(Fraction(multiple), int(constant or 0))
    if parsed == LinearLimit(Fraction(0), 0):
        raise UncurseError(f"max_length = {text!r} leaves no room for a token")
    return parsed


def max_lengths_of(
    max_length: MaxLength,
    predictor: LengthPredictor | None,
    source_lengths: Ints,
    features: Floats,
    alone: Callable[[int], Floats] | None = None,
) -> list[int]:
    """`R` for each source, given a vector for each, [sources, size]; see `stable_lengths` for `alone`."""
    if isinstance(max_length, LinearLimit):
        return [max_length.tokens(length) for length in source_lengths.tolist()]
    if predictor is None:
        raise UncurseError("this max_length needs a length predictor: fit one, or give a max_length such as 2x+10")
    if isinstance(max_length, PredictedLimit):
        lengths_of = predictor.predict
    else:
        lengths_of = partial(predictor.quantile, max_length.level)
    return [math.ceil(length) for length in stable_lengths(lengths_of, source_lengths, features, alone).tolist()]


def stable_lengths(
    lengths_of: Callable[[Ints, Floats], Floats],
    source_lengths: Ints,
    features: Floats,
    alone: Callable[[int], Floats] | None,
) -> Floats:
    """What a predictor says of sources, [sources], in such a way that no rounded length depends on the batch.

    Where the neighbours of a source could move its length over a whole number, `alone` is asked for the vector of
    the source by itself, [1, size].
    """
    lengths = lengths_of(source_lengths, features)
    if alone is not None:
        doubtful = np.ceil(lengths * (1.0 - _MARGIN)) != np.ceil(lengths * (1.0 + _MARGIN))
        for index in np.flatnonzero(doubtful).tolist():
            lengths[index] = lengths_of(source_lengths[index : index + 1], alone(index))[0]
    return lengths
