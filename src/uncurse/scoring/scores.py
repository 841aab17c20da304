"""The scores: one registered class each, with the formula and its source."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final, final

import numpy as np

from uncurse.arrays import Floats, Ints
from uncurse.scoring.registry import Registry, parameter
from uncurse.scoring.rescorer import Paths, Rescorer, Source

SCORES: Registry[Rescorer] = Registry("score", Rescorer)  # type: ignore[type-abstract]
REWARDS: Final = tuple(round(0.1 * step, 1) for step in range(26))  # what a study tries on its dev set


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
@SCORES.register("log-prob", formula="S", source="plain beam search", label="raw score", stops=("first-finished",))
@dataclass(frozen=True)
class LogProb(Rescorer):
    """The model's own log-probability."""

    def score(self, source: Source, paths: Paths) -> Floats:
        """`S`."""
        return paths.log_prob


@final
@SCORES.register("length-norm", formula="S / n^α", source="Bahdanau et al. 2014", stops=("beam-full", "optimal"))
@dataclass(frozen=True)
class LengthNorm(Rescorer):
    """The log-probability per token."""

    alpha: float = parameter("α, the exponent of the length", default=1.0, low=0.0, high=10.0)

    def score(self, source: Source, paths: Paths) -> Floats:
        """`S / n^α`."""
        return paths.log_prob / power_of_length(paths.length, self.alpha)


@final
@SCORES.register(
    "gnmt",
    formula="S / ((5+n)/6)^α + β Σ_i log min(max(c_i, ε), 1)",
    source="Wu et al. 2016",
    label="GNMT",
    stops=("beam-full",),
)
@dataclass(frozen=True)
class GNMT(Rescorer):
    """Google's length normalisation and coverage penalty."""

    alpha: float = parameter(
        "α, the exponent of the length",
        default=0.2,
        low=0.0,
        high=10.0,
        grid=(0.0, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0),
    )
    beta: float = parameter(
        "β, the weight of the coverage; above 0 the model must give attention",
        default=0.0,
        low=0.0,
        high=1000.0,
        grid=(0.0, 0.1, 0.2, 0.4, 0.6),
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

    reward: float = parameter("r, given for each token", low=-1000.0, high=1000.0, grid=REWARDS)

    def score(self, source: Source, paths: Paths) -> Floats:
        """`S + r n`."""
        return paths.log_prob + self.reward * paths.length


@final
@SCORES.register(
    "bounded-word-reward",
    formula="S + r min(n, L), L = ratio·|x| or expected",
    source="Huang et al. 2017; Yang et al. 2018",
)
@dataclass(frozen=True)
class BoundedWordReward(Rescorer):
    """A constant reward for each token up to the expected length."""

    reward: float = parameter("r, given for each token up to L", low=-1000.0, high=1000.0, grid=REWARDS)
    ratio: float | None = parameter(
        "target tokens per source piece; without it L is the expected length",
        default=None,
        low=0.0,
        low_open=True,
        high=1000.0,
    )

    def score(self, source: Source, paths: Paths) -> Floats:
        """`S + r min(n, L)`."""
        expected = source.expected_length if self.ratio is None else source.fixed_ratio(self.ratio)
        return paths.log_prob + self.reward * np.minimum(paths.length, expected)


@final
@SCORES.register(
    "adaptive-reward",
    formula="S + ρ_min(n, ⌊L⌋), ρ_n = r_1 + … + r_n",
    source="Yang et al. 2018",
    label="bounded adaptive reward",
)
@dataclass(frozen=True)
class AdaptiveReward(Rescorer):
    """For each token up to the expected length, the mean cost of the step's best continuations."""

    def score(self, source: Source, paths: Paths) -> Floats:
        """`S + ρ_min(n, ⌊L⌋)`."""
        rewarded = np.minimum(paths.length, np.floor(source.expected_length)).astype(np.int64)
        return paths.log_prob + paths.reward_until(rewarded)


@final
@SCORES.register("bp-norm", formula="min(1 − L/n, 0) + S/n", source="Yang et al. 2018", label="BP-Norm")
@dataclass(frozen=True)
class BPNorm(Rescorer):
    """The log-probability per token and the logarithm of BLEU's brevity penalty."""

    def score(self, source: Source, paths: Paths) -> Floats:
        """`min(1 − L/n, 0) + S/n`."""
        return np.minimum(1.0 - source.expected_length / paths.length, 0.0) + paths.log_prob / paths.length


@final
@SCORES.register(
    "f1-norm",
    formula="1 − 1/F + S/m, F = 2m/(n + L), m = (n + L − √((n − L)² + L))/2, L at least 1",
    source="this project",
    label="F1-Norm",
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
        length, expected = paths.length, np.maximum(source.expected_length, 1.0)  # every output has its </s>
        apart: Floats = np.sqrt(np.square(length - expected) + expected)
        matched = expected * (4 * length - 1) / (2.0 * (length + expected + apart))  # m, with nothing cancelled
        return 1.0 + (paths.log_prob - 0.5 * (length + expected)) / matched
