"""How finished hypotheses are scored, and the bound on the unfinished that follows from each score.

A rescorer has one formula, `score`. What a live prefix could still reach is derived from it by `bound`, which
is final: a score and its stopping test cannot disagree.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple, final

import numpy as np

from uncurse.arrays import Floats, Ints
from uncurse.registry import Registry, check_parameters, parameter


class MissingEvidenceError(ValueError):
    """A score asked for something that nobody supplied."""


@final
@dataclass(frozen=True, eq=False)
class Source:
    """What a score may know of the sentence that each hypothesis translates; shapes broadcast with `Paths`."""

    length: Ints  # [rows] |x|, pieces without </s>, tags and padding
    limit: Ints  # [rows] R, the most tokens a hypothesis may have
    prefix: Ints  # [rows] p, the forced target pieces, which count neither in |y| nor in L
    prediction: Floats | None = None  # [rows] L, without the prefix

    @staticmethod
    def repeated(rows: int, length: int, limit: int, prefix: int, prediction: float | None) -> Source:
        """The same sentence in every row; the prediction is that of the whole output."""
        return Source(
            np.full(rows, length),
            np.full(rows, limit),
            np.full(rows, prefix),
            None if prediction is None else np.full(rows, without_prefix(prediction, prefix)),
        )

    @property
    def predicted(self) -> Floats:
        """`L`, the predicted length of what the search itself chooses."""
        if self.prediction is None or np.isnan(self.prediction).any():  # a batch has NaN where one has none
            raise MissingEvidenceError("a predicted length is needed: give one for each sentence, or a ratio")
        return self.prediction

    def fixed_ratio(self, ratio: float) -> Floats:
        """`L = ratio · |x|`, counted as `predicted` is."""
        return without_prefix(proportional_length(ratio, self.length), self.prefix)

    def take(self, rows: Ints | slice) -> Source:
        """The sources of some rows."""
        prediction = None if self.prediction is None else self.prediction[rows]
        return Source(self.length[rows], self.limit[rows], self.prefix[rows], prediction)

    def column(self) -> Source:
        """The same sources with an axis of one at the end, to be compared at many lengths."""
        prediction = None if self.prediction is None else self.prediction[..., None]
        return Source(self.length[..., None], self.limit[..., None], self.prefix[..., None], prediction)


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
    coverage_sum: Floats | None = None  # Σ_i log min(max(c_i, ε), 1) over the source pieces, never above 0

    @property
    def coverage(self) -> Floats:
        """How well the source pieces are covered: 0 if each received attention of at least 1 in all."""
        if self.coverage_sum is None:
            raise MissingEvidenceError("coverage is needed, and there is none: did the model give attention?")
        return self.coverage_sum

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
    def bound(self, source: Source, prefixes: Paths) -> Floats:
        """The highest score that any completion of each prefix could reach, -inf where none is possible.

        The best case at each remaining length `t + 1 … R` is that all further tokens are certain, all unseen
        rewards unbounded and all source pieces covered; the bound is the best of these.
        """
        log_prob, step = prefixes.log_prob, prefixes.length  # [rows]
        possible = log_prob > -np.inf
        remaining = np.where(possible, source.limit - step, 0)
        if not len(step) or (most := int(remaining.max())) <= 0:
            return np.full(log_prob.shape, -np.inf)
        ahead = np.arange(1, most + 1)
        best_case = Paths(
            np.where(possible, log_prob, 0.0)[:, None],
            np.minimum(step[:, None] + ahead, source.limit[:, None]),
            prefixes.rewards,
            np.zeros((1, 1)),
        )
        scores = self.score(source.column(), best_case)  # [rows, lengths]
        within: Floats = np.where(ahead <= remaining[:, None], scores, -np.inf).max(axis=1)
        return within


class Needs(NamedTuple):
    """What a score reads besides log-probability and length."""

    coverage: bool
    rewards: bool
    prediction: bool


@lru_cache(maxsize=1024)
def needs(rescorer: Rescorer) -> Needs:
    """What a score reads, found out by withholding each thing in turn: a declaration could be forgotten."""

    def misses(source: Source, paths: Paths) -> bool:
        try:
            rescorer.score(source, paths)
        except MissingEvidenceError:
            return True
        return False

    return Needs(
        coverage=misses(_SAMPLE_SOURCE, replace(_SAMPLE_PATHS, coverage_sum=None)),
        rewards=misses(_SAMPLE_SOURCE, replace(_SAMPLE_PATHS, rewards=None)),
        prediction=misses(replace(_SAMPLE_SOURCE, prediction=None), _SAMPLE_PATHS),
    )


_SAMPLE_LENGTHS = 2 ** np.arange(13)  # a score may ask for a thing at some lengths alone
_SAMPLE_SOURCE = Source(np.array([3]), np.array([4096]), np.array([0]), np.array([3.5]))
_SAMPLE_PATHS = Paths(
    np.full(13, -1.0),
    _SAMPLE_LENGTHS,
    Rewards(np.broadcast_to(np.arange(4097.0), (13, 4097)), np.full(13, 4096)),
    np.full(13, -0.5),
)

SCORES: Registry[Rescorer] = Registry("score")


@lru_cache(maxsize=64)
def _powers(start: int, unit: float, exponent: float, count: int) -> Floats:
    return np.array([((start + n) / unit) ** exponent for n in range(count)])


def power_of_length(length: Ints, exponent: float, start: int = 0, unit: float = 1.0) -> Floats:
    """`((start + n) / unit) ^ exponent` from a table.

    A vectorised power may round differently by position in the array; a table gives the same value to a score
    and to the bound on it, whatever the shapes they are computed in.
    """
    count = 1 << int(length.max(initial=0)).bit_length()
    powers: Floats = _powers(start, unit, exponent, count).take(length)
    return powers


@final
@SCORES.register("log-prob", formula="S", source="plain beam search")
@dataclass(frozen=True)
class LogProb(Rescorer):
    """The model's own log-probability."""

    def score(self, source: Source, paths: Paths) -> Floats:
        """`S`."""
        return paths.log_prob


@final
@SCORES.register("length-norm", formula="S / n^α", source="Bahdanau et al. 2014")
@dataclass(frozen=True)
class LengthNorm(Rescorer):
    """The log-probability per token."""

    alpha: float = parameter("α, the exponent of the length", default=1.0, low=0.0, high=10.0)

    def score(self, source: Source, paths: Paths) -> Floats:
        """`S / n^α`."""
        return paths.log_prob / power_of_length(paths.length, self.alpha)


@final
@SCORES.register("gnmt", formula="S / ((5+n)/6)^α + β Σ_i log min(max(c_i, ε), 1)", source="Wu et al. 2016")
@dataclass(frozen=True)
class GNMT(Rescorer):
    """Google's length normalisation and coverage penalty."""

    alpha: float = parameter("α, the exponent of the length", default=0.2, low=0.0, high=10.0)
    beta: float = parameter(
        "β, the weight of the coverage; above 0 the model must give attention", default=0.0, low=0.0, high=1000.0
    )

    def score(self, source: Source, paths: Paths) -> Floats:
        """`S / ((5+n)/6)^α + β Σ_i log min(max(c_i, ε), 1)`."""
        normalised = paths.log_prob / power_of_length(paths.length, self.alpha, start=5, unit=6.0)
        return normalised + self.beta * paths.coverage if self.beta else normalised


@final
@SCORES.register("word-reward", formula="S + r n", source="He et al. 2016")
@dataclass(frozen=True)
class WordReward(Rescorer):
    """A constant reward for each token."""

    reward: float = parameter("r, given for each token", low=-1000.0, high=1000.0)

    def score(self, source: Source, paths: Paths) -> Floats:
        """`S + r n`."""
        return paths.log_prob + self.reward * paths.length


@final
@SCORES.register(
    "bounded-word-reward",
    formula="S + r min(n, L), L = ratio·|x| or predicted",
    source="Huang et al. 2017; Yang et al. 2018",
)
@dataclass(frozen=True)
class BoundedWordReward(Rescorer):
    """A constant reward for each token up to the expected length."""

    reward: float = parameter("r, given for each token up to L", low=-1000.0, high=1000.0)
    ratio: float | None = parameter(
        "target tokens per source piece; without it L is predicted",
        default=None,
        low=0.0,
        low_open=True,
        high=1000.0,
    )

    def score(self, source: Source, paths: Paths) -> Floats:
        """`S + r min(n, L)`."""
        expected = source.predicted if self.ratio is None else source.fixed_ratio(self.ratio)
        return paths.log_prob + self.reward * np.minimum(paths.length, expected)


@final
@SCORES.register("adaptive-reward", formula="S + ρ_min(n, ⌊L⌋), ρ_n = r_1 + … + r_n", source="Yang et al. 2018")
@dataclass(frozen=True)
class AdaptiveReward(Rescorer):
    """For each token up to the predicted length, the mean cost of the step's best continuations."""

    def score(self, source: Source, paths: Paths) -> Floats:
        """`S + ρ_min(n, ⌊L⌋)`."""
        rewarded = np.minimum(paths.length, np.floor(source.predicted)).astype(np.int64)
        return paths.log_prob + paths.reward_until(rewarded)


@final
@SCORES.register("bp-norm", formula="min(1 − L/n, 0) + S/n", source="Yang et al. 2018")
@dataclass(frozen=True)
class BPNorm(Rescorer):
    """The log-probability per token and the logarithm of BLEU's brevity penalty."""

    def score(self, source: Source, paths: Paths) -> Floats:
        """`min(1 − L/n, 0) + S/n`."""
        return np.minimum(1.0 - source.predicted / paths.length, 0.0) + paths.log_prob / paths.length


@final
@SCORES.register(
    "f1-norm", formula="1 − 1/F + S/m, F = 2m/(n + L), m = (n + L − √((n − L)² + L))/2", source="this project"
)
@dataclass(frozen=True)
class F1Norm(Rescorer):
    """BP-Norm that is also against what is too long, and knows that `L` is not certain.

    The brevity penalty is `1 − 1/recall` in the logarithm, `n/L` being how much of the expected length is there.
    This is the same penalty for the F₁ of the recall `m/L` and the precision `m/n`. Here `m` is how many of the
    `n` tokens the true length N leaves room for, `min(n, N) = (n + N − |n − N|)/2`, with the root mean square of
    `n − N` for a count N whose mean and variance are `L`. What exceeds `m` does not dilute the log-probability.
    """

    def score(self, source: Source, paths: Paths) -> Floats:
        """`1 − 1/F + S/m`, as one fraction."""
        length, expected = paths.length, np.maximum(source.predicted, 1.0)  # every output has its </s>
        apart: Floats = np.sqrt(np.square(length - expected) + expected)
        matched = expected * (4 * length - 1) / (2.0 * (length + expected + apart))  # m, with nothing cancelled
        return 1.0 + (paths.log_prob - 0.5 * (length + expected)) / matched
