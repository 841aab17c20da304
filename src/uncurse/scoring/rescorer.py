"""How finished hypotheses are scored, and the bound on the unfinished that follows from each score.

A rescorer has one formula, `score`. What a live prefix could still reach is derived from it by `bound`, which
is final: a score and its stopping test cannot disagree.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from uncurse.arrays import Floats, Ints
from uncurse.errors import UncurseError
from uncurse.scoring.registry import check_parameters, class_name

MAX_CELLS: Final = 1 << 18  # prefixes times lengths that are scored at once, so that memory stays bounded


class MissingEvidenceError(UncurseError):
    """A score or a stopping rule read something that was not supplied."""


@final
@dataclass(frozen=True, eq=False)
class Source:
    """What a score may know of the sentence that each hypothesis translates; shapes broadcast with `Paths`."""

    length: Ints  # [rows] |x|, pieces without </s>, tags and padding
    max_length: Ints  # [rows] R, the most tokens a hypothesis may have
    prefix: Ints  # [rows] p, the forced target pieces, which count neither in |y| nor in L
    expected_length_or_none: Floats | None = None  # [rows] L, without the prefix

    @staticmethod
    def repeated(rows: int, length: int, max_length: int, prefix: int, expected_length: float | None) -> Source:
        """The same sentence in every row; the expected length is that of the whole output."""
        return Source(
            np.full(rows, length),
            np.full(rows, max_length),
            np.full(rows, prefix),
            None if expected_length is None else np.full(rows, without_prefix(expected_length, prefix)),
        )

    @property
    def expected_length(self) -> Floats:
        """`L`, the expected length of what the search itself chooses."""
        if (
            self.expected_length_or_none is None or np.isnan(self.expected_length_or_none).any()
        ):  # a batch has NaN where one has none
            raise MissingEvidenceError("an expected length is needed: give one for each sentence, or a ratio")
        return self.expected_length_or_none

    def fixed_ratio(self, ratio: float) -> Floats:
        """`L = ratio · |x|`, counted as `expected_length` is."""
        return without_prefix(proportional_length(ratio, self.length), self.prefix)

    def take(self, rows: Ints | slice) -> Source:
        """The sources of some rows."""
        expected = None if self.expected_length_or_none is None else self.expected_length_or_none[rows]
        return Source(self.length[rows], self.max_length[rows], self.prefix[rows], expected)

    def column(self) -> Source:
        """The same sources with an axis of one at the end, to be compared at many lengths."""
        expected = None if self.expected_length_or_none is None else self.expected_length_or_none[..., None]
        return Source(self.length[..., None], self.max_length[..., None], self.prefix[..., None], expected)


@final
@dataclass(frozen=True, eq=False)
class Rewards:
    """The adaptive rewards of each row's search, as sums `ρ_0 … ρ_steps`, of which the first `seen` are known."""

    sums: Floats  # [rows, steps + 1]
    seen: Ints  # [rows]

    def until(self, length: Ints) -> Floats:
        """`ρ_length`, and +inf where a reward is not known yet: no bound may count on its being small."""
        rows = np.arange(len(self.seen)).reshape((-1,) + (1,) * (length.ndim - 1))
        seen = self.seen.reshape(rows.shape)
        return np.where(length > seen, np.inf, self.sums[rows, np.minimum(length, seen)])

    def take(self, rows: Ints | slice) -> Rewards:
        """The rewards of some rows."""
        return Rewards(self.sums[rows], self.seen[rows])


@final
@dataclass(frozen=True, eq=False)
class Paths:
    """Hypotheses as a score sees them; all fields broadcast to one shape."""

    log_prob: Floats  # [rows] or [rows, lengths] S
    length: Ints  # [rows] or [rows, lengths] n = |y|, with </s>
    rewards: Rewards | None = None
    coverage_or_none: Floats | None = None  # Σ_i log min(max(c_i, ε), 1) over the source pieces, never above 0

    @property
    def coverage(self) -> Floats:
        """How well the source pieces are covered: 0 if each received attention of at least 1 in all."""
        if self.coverage_or_none is None:
            raise MissingEvidenceError("coverage is needed, and there is none: did the model give attention?")
        return self.coverage_or_none

    def take(self, rows: slice) -> Paths:
        """Some of the rows of prefixes."""
        rewards = None if self.rewards is None else self.rewards.take(rows)
        return Paths(self.log_prob[rows], self.length[rows], rewards)

    def reward_until(self, length: Ints) -> Floats:
        """`ρ` at the given lengths, which have the shape of `self.length`."""
        if self.rewards is None:
            raise MissingEvidenceError("adaptive rewards are needed: give the rewards of a search")
        return self.rewards.until(length)


def proportional_length(ratio: float, source_length: Ints) -> Floats:
    """`ratio · |x|`, and at least 1: every output has its `</s>`."""
    return np.maximum(np.float64(ratio) * source_length, 1.0)


def without_prefix(length: Floats | float, prefix: Ints | int) -> Floats:
    """The expected length of what the search chooses, when that of the whole output is given."""
    return np.where(np.asarray(prefix) > 0, np.maximum(length - prefix, 1.0), length)


class Rescorer(ABC):
    """A score for finished hypotheses; subclasses are frozen dataclasses with `score` and nothing else.

    `score` must be elementwise and, at a fixed length, must never fall when the log-probability, an adaptive
    reward or the coverage rises; where it depends on a reward it must be unbounded in it.
    `uncurse.testing.check_rescorer` tries to refute this.
    """

    def __init_subclass__(cls) -> None:
        if cls.bound is not Rescorer.bound:
            raise TypeError(f"{cls.__name__} must not define bound: it is derived from score")

    def __post_init__(self) -> None:
        check_parameters(self)

    @abstractmethod
    def score(self, source: Source, paths: Paths) -> Floats:
        """The score of each hypothesis; higher is better."""

    @final
    def checked_score(self, source: Source, paths: Paths) -> Floats:
        """`score`, refused where it is NaN: nothing could be ranked by it."""
        scores = self.score(source, paths)
        if np.isnan(scores).any():
            raise UncurseError(f"{class_name(self)}.score is NaN for some hypotheses: it cannot rank them")
        return scores

    @final
    def bound(self, source: Source, prefixes: Paths) -> Floats:
        """The highest score that any completion of each prefix could reach, -inf where none is possible.

        The best case at each remaining length `t + 1 … R` is that all further tokens are certain, all unseen
        rewards unbounded and all source pieces covered; the bound is the best of these.
        """
        log_prob, step = prefixes.log_prob, prefixes.length  # [rows]
        possible = log_prob > -np.inf
        remaining = np.where(possible, source.max_length - step, 0)
        if not len(step) or (longest := int(remaining.max())) <= 0:
            return np.full(log_prob.shape, -np.inf)
        at_once = max(1, MAX_CELLS // longest)
        if len(step) > at_once:
            parts = (slice(first, first + at_once) for first in range(0, len(step), at_once))
            return np.concatenate([self.bound(source.take(part), prefixes.take(part)) for part in parts])
        ahead = np.arange(1, longest + 1)
        best_case = Paths(
            np.where(possible, log_prob, 0.0)[:, None],
            np.minimum(step[:, None] + ahead, source.max_length[:, None]),
            prefixes.rewards,
            np.zeros((1, 1)),
        )
        scores = self.checked_score(source.column(), best_case)  # [rows, lengths]
        within: Floats = np.where(ahead <= remaining[:, None], scores, -np.inf).max(axis=1)
        return within
