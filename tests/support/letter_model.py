"""A translator from letters to letters with a model of random numbers in between."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from uncurse.arrays import Floats
from uncurse.testing import RandomModel


class LetterWords:
    """A subword model whose pieces are the words a to f; `</s>` is 6."""

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        return [[ord(word) - ord("a") for word in line.split()] for line in lines]

    def decode(self, pieces: Sequence[int]) -> str:
        return " ".join(chr(ord("a") + piece) for piece in pieces if piece != 6)


class LetterEncoder(RandomModel):  # type: ignore[misc]
    """A random model with features."""

    max_source_length: int | None = None
    max_target_length: int | None = None

    def features(self, sources: Sequence[Sequence[int]]) -> Floats:
        return np.zeros((len(sources), 1))
