"""Expected lengths and limits: how long an output should be, and how long it may be at most."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Protocol, final

import numpy as np

from uncurse.arrays import Floats
from uncurse.registry import check_parameters, parameter
from uncurse.rescoring import proportional_length


class LengthPredictor(Protocol):
    """Says how long the translation of a source will be."""

    def predict(self, sources: list[tuple[int, ...]]) -> Floats:
        """The expected |y| of each source, `</s>` counted, [sources]."""
        ...


@final
@dataclass(frozen=True)
class FixedRatio:
    """`L = ratio · |x|`."""

    ratio: float = parameter("target tokens per source piece", low=0.0, low_open=True)

    def __post_init__(self) -> None:
        check_parameters(self)

    def predict(self, sources: list[tuple[int, ...]]) -> Floats:
        """A fixed number of target tokens per source piece."""
        return proportional_length(self.ratio, np.array([len(source) for source in sources], dtype=np.int64))


@final
@dataclass(frozen=True)
class Limit:
    """`R`, the most tokens an output may have: a multiple of the source plus a constant."""

    per_piece: Fraction  # exact, so that 1.15x of 100 pieces is 115
    constant: int

    def tokens(self, source_length: int) -> int:
        """`R` for a source of so many pieces; at least 1, for `</s>`."""
        return max(math.floor(self.per_piece * source_length) + self.constant, 1)

    @staticmethod
    def parse(text: str) -> Limit:
        """A limit written as `100`, `2x` or `2x+10`."""
        match = _LIMIT.fullmatch(text.replace(" ", ""))
        if match is None:
            raise ValueError(f"limit {text!r} is not understood: write a number, or for example 2x or 2x+10")
        number, multiple, constant = match.groups()
        if number is not None:
            limit = Limit(Fraction(0), int(number))
        else:
            limit = Limit(Fraction(multiple or 1), int(constant or 0))
        if limit == Limit(Fraction(0), 0):
            raise ValueError(f"limit {text!r} leaves no room for a token")
        return limit


_LIMIT: Final = re.compile(r"(\d{1,6})|(\d{1,6}(?:\.\d{1,6})?)?x(?:\+(\d{1,6}))?")
DEFAULT_LIMIT: Final = Limit(Fraction(2), 10)
