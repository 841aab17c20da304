"""Expected lengths as a call of `generate` gives them: a ratio, a predictor, or numbers of tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, final

import numpy as np
from torch import Tensor

from uncurse.arrays import Floats, Ints
from uncurse.errors import UncurseError
from uncurse.lengths.limits import DEFAULT_QUANTILE
from uncurse.lengths.predictors import FixedRatio, LengthPredictor
from uncurse.scoring.decoding import Decoding, checked_length

ExpectedLength = float | Sequence[float] | Callable[[tuple[int, ...]], float]


@final
@dataclass(frozen=True, eq=False)
class KnownLengths:
    """Expected lengths that were given, one for each sentence."""

    values: Floats  # [sentences]
    levels = ()

    def predict(self, source_lengths: Ints, features: Floats) -> Floats:
        """The lengths as given."""
        return self.values

    def quantile(self, level: float, source_lengths: Ints, features: Floats) -> Floats:
        """Unknown."""
        raise UncurseError("an expected length has no quantiles: give a length_predictor that knows them")


@final
@dataclass(frozen=True, eq=False)
class LengthOptions:
    """What a call says of lengths: at most one of three ways."""

    length_ratio: float | None
    length_predictor: LengthPredictor | None
    expected_length: ExpectedLength | None

    def __post_init__(self) -> None:
        given = [name for name, value in vars(self).items() if value is not None]
        if len(given) > 1:
            raise UncurseError(f"{' and '.join(given)} are given: give one of them")
        if self.length_ratio is not None:
            FixedRatio(self.length_ratio)
        predictor = self.length_predictor
        if predictor is not None and (isinstance(predictor, type) or not isinstance(predictor, LengthPredictor)):
            raise UncurseError(f"length_predictor = {predictor!r} is not allowed: give a LengthPredictor")

    @property
    def known(self) -> bool:
        """Whether lengths are expected."""
        return any(value is not None for value in vars(self).values())

    def predictor(self, sources: Sequence[tuple[int, ...]]) -> LengthPredictor | None:
        """What tells the expected lengths of sources."""
        if self.expected_length is not None:
            return KnownLengths(expected_lengths(self.expected_length, sources))
        return self.length_predictor if self.length_ratio is None else FixedRatio(self.length_ratio)

    def check_read(self, decoding: Decoding, default_limit: bool) -> None:
        """Raise an `UncurseError` unless a length is known if it is read, and read if it is given."""
        if decoding.needs.expected_length and not self.known:
            raise UncurseError(
                "this score or stopping rule needs an expected length: give length_ratio=1.1, say, for 1.1 target"
                " tokens per source token, or expected_length=20 for 20 tokens, or a length_predictor that was"
                " fitted to the model"
            )
        if self.known and not decoding.needs.expected_length:
            predictor = self.length_predictor
            limits = default_limit and predictor is not None and DEFAULT_QUANTILE in predictor.levels
            if not limits:
                raise UncurseError("a length is given, but neither the score nor the stopping rule reads it")


def expected_lengths(given: ExpectedLength, sources: Sequence[tuple[int, ...]]) -> Floats:
    """The expected length of each source, [sources]."""
    values: Sequence[object]
    if callable(given):
        values = [_plain(given(source)) for source in sources]
    elif isinstance(given := _plain(given), Real):
        values = [given] * len(sources)
    else:
        try:
            values = np.asarray(given, dtype=np.float64).reshape(-1).tolist()
        except (TypeError, ValueError) as error:
            raise UncurseError(
                f"expected_length = {given!r} is not allowed: give a number of tokens, or one for each sentence"
            ) from error
        if len(values) != len(sources):
            raise UncurseError(f"expected_length has {len(values)} numbers for {len(sources)} sentences")
    return np.array([checked_length("expected_length", value) for value in values])


def _plain(value: Any) -> Any:  # noqa: ANN401  (whatever a caller gives)
    """A tensor or an array as numbers of Python."""
    return value.tolist() if isinstance(value, Tensor | np.ndarray) else value
