"""Constraints that forbid little: phrases, and n-grams that an output already has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from uncurse.arrays import Ints
from uncurse.constraints.constraint import Constraint, NextTokens, checked_tokens, digest
from uncurse.errors import UncurseError


@final
@dataclass(frozen=True, init=False)
class BannedPhrases(Constraint):
    """No output contains any of the given token sequences."""

    phrases: tuple[tuple[int, ...], ...]

    def __init__(self, phrases: Sequence[Sequence[int]]) -> None:
        """Take token ids; the order of the phrases does not matter."""
        checked = {checked_tokens("a banned phrase", phrase) for phrase in phrases}
        if not checked or () in checked:
            raise UncurseError("a banned phrase must have at least one token, and there must be one")
        object.__setattr__(self, "phrases", tuple(sorted(checked)))

    @property
    def signature(self) -> str:
        """The kind and a digest of the phrases."""
        return f"ban-{digest(self.phrases)}"

    def after(self, prefixes: Ints) -> NextTokens:
        """All but the tokens that would complete a banned phrase."""
        found = []
        for size in self._lengths:
            if size <= prefixes.shape[1]:
                ends = prefixes[:, prefixes.shape[1] - size :].tolist()
                found += [(row, token) for row, end in enumerate(ends) for token in self._last.get(tuple(end), ())]
        return NextTokens.of(dict.fromkeys(found), excluded=True)

    def shortest(self, prefix: tuple[int, ...]) -> float:
        """Whether the prefix has a banned phrase; how short an output can be is not known."""
        lengths = {len(phrase) for phrase in self.phrases}
        return np.inf if any(ngrams(prefix, size) & set(self.phrases) for size in lengths) else 1

    @cached_property
    def _last(self) -> dict[tuple[int, ...], list[int]]:
        """The last tokens of phrases, by the rest of the phrase."""
        last: dict[tuple[int, ...], list[int]] = {}
        for phrase in self.phrases:
            last.setdefault(phrase[:-1], []).append(phrase[-1])
        return last

    @cached_property
    def _lengths(self) -> list[int]:
        return sorted({len(rest) for rest in self._last})


@final
@dataclass(frozen=True)
class NoRepeatNgram(Constraint):
    """No n-gram occurs twice in an output."""

    size: int

    def __post_init__(self) -> None:
        if isinstance(self.size, bool) or not isinstance(self.size, int) or self.size < 1:
            raise UncurseError(f"size = {self.size!r} is not allowed: an n-gram has 1 token or more")

    @property
    def signature(self) -> str:
        """The kind and n."""
        return f"no-repeat-ngram-{self.size}"

    def after(self, prefixes: Ints) -> NextTokens:
        """All but the tokens that would complete an n-gram that a prefix already has."""
        if prefixes.shape[1] < self.size:
            return NextTokens.of((), excluded=True)
        ngrams = sliding_window_view(prefixes, self.size, axis=1)  # [prefixes, places, n]
        last = prefixes[:, prefixes.shape[1] - self.size + 1 :]  # [prefixes, n - 1]
        row, place = np.nonzero((ngrams[:, :, :-1] == last[:, None]).all(axis=2))
        pairs = dict.fromkeys(zip(row.tolist(), ngrams[row, place, -1].tolist(), strict=True))
        return NextTokens.of(pairs, excluded=True)

    def shortest(self, prefix: tuple[int, ...]) -> float:
        """Whether the prefix has an n-gram twice; how short an output can be is not known."""
        return np.inf if len(ngrams(prefix, self.size)) < len(prefix) - self.size + 1 else 1


def ngrams(tokens: tuple[int, ...], size: int) -> set[tuple[int, ...]]:
    """The different n-grams of a sequence."""
    return {tokens[first : first + size] for first in range(len(tokens) - size + 1)}
