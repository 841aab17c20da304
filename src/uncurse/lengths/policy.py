"""The one policy for lengths: expected lengths, maximum lengths, and retries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np

from uncurse.arrays import Floats
from uncurse.errors import UncurseError
from uncurse.lengths.limits import (
    DEFAULT_MAX_LENGTH,
    DEFAULT_QUANTILE,
    FALLBACK_MAX_LENGTH,
    MaxLength,
    max_lengths_of,
    stable_lengths,
)
from uncurse.lengths.predictors import LengthPredictor
from uncurse.scoring.decoding import MAX_COUNT, Sentence
from uncurse.scoring.result import Result
from uncurse.search.trace import Trace


@final
@dataclass(frozen=True)
class LengthPolicy:
    """How long outputs are expected to be and how long they may be, the same for all sentences of a task."""

    predictor: LengthPredictor | None
    max_length: MaxLength | None = None  # None: the default
    min_length: int = 0
    model_limit: int | None = None  # the most tokens that the model can output, prefix and </s> counted

    def sentences(
        self,
        sources: Sequence[tuple[int, ...]],
        prefixes: Sequence[tuple[int, ...]],
        features: Floats,
        alone: Callable[[int], Floats] | None = None,
    ) -> list[Sentence]:
        """Build the `Sentence` of each source, given a vector for each, [sources, size]; see `stable_lengths`."""
        lengths = np.array([len(source) for source in sources])
        expected: list[float | None] = [None] * len(sources)
        if self.predictor is not None:
            expected = list(stable_lengths(self.predictor.predict, lengths, features, alone).tolist())
        allowed = max_lengths_of(self._max_length, self.predictor, lengths, features, alone)
        return [
            Sentence(
                source=source,
                max_length=self._within(most, prefix),
                prefix=prefix,
                expected_length=length,
                min_length=self.min_length,
            )
            for source, most, prefix, length in zip(sources, allowed, prefixes, expected, strict=True)
        ]

    def retry(self, sentence: Sentence, found: Result | Trace) -> Sentence | None:
        """The sentence with a larger maximum length if it must be searched again, else None.

        It must if the default maximum length was too short: nothing ended within it, or nothing but the empty
        translation, which a wide beam always holds.
        """
        if self.max_length is not None or not hit_max_length(found, sentence.max_length):
            return None
        most = min(FALLBACK_MAX_LENGTH.tokens(len(sentence.source)), self.model_limit or MAX_COUNT) - len(
            sentence.prefix
        )
        return replace(sentence, max_length=most) if most > sentence.max_length else None

    @property
    def _max_length(self) -> MaxLength:
        if self.max_length is not None:
            return self.max_length
        known = self.predictor is not None and DEFAULT_QUANTILE in self.predictor.levels
        return DEFAULT_MAX_LENGTH if known else FALLBACK_MAX_LENGTH

    def _within(self, most: int, prefix: tuple[int, ...]) -> int:
        """`R` without the prefix: what the model can do and at least what `min_length` asks for."""
        least = max(self.min_length, 1)
        room = MAX_COUNT
        if self.model_limit is not None:
            room = self.model_limit - len(prefix)
            if least > room:
                raise UncurseError(
                    f"an output would have {len(prefix) + least} tokens or more, target prefix and </s> counted;"
                    f" this model can output {self.model_limit}"
                )
        if self.max_length is None and self.min_length:
            least = min(self.min_length + FALLBACK_MAX_LENGTH.constant, room)  # they must have room to end, too
        return max(min(most - len(prefix), room), least)


def hit_max_length(found: Result | Trace, max_length: int) -> bool:
    """Whether a search came to its maximum length before anything ended but, at most, the empty translation."""
    if isinstance(found, Trace):
        ended_at, _ = found.finished  # steps are counted from 0: there the empty translation ends
        return not ended_at[ended_at < max_length].any() and found.steps >= max_length
    only_empty = found.finished == 1 and found.hypotheses[0].length == 1
    return (not found.finished or only_empty) and found.steps >= max_length
