"""The ways of scoring and stopping that a study compares, by the names its tables use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, final

from uncurse.rescoring import (
    GNMT,
    AdaptiveReward,
    BoundedWordReward,
    BPNorm,
    F1Norm,
    LengthNorm,
    LogProb,
    Rescorer,
    WordReward,
)
from uncurse.stopping import BeamFull, FirstFinished, Optimal, PredictedHorizon, StoppingRule


@final
@dataclass(frozen=True)
class Way:
    """One score with one stopping rule."""

    score: Rescorer
    stop: StoppingRule


@final
@dataclass(frozen=True)
class Tuned:
    """What tuning on dev has found for one group of widths."""

    word_reward: float
    bounded_ratio_reward: float
    bounded_reward: float
    alpha: float
    beta: float


@final
@dataclass(frozen=True)
class Method:
    """A row of the tables."""

    name: str
    label: str
    stop: StoppingRule
    predicts: bool = False  # reads the predicted length
    tuned: bool = False  # has a number that was chosen on dev


RAW: Final = Method("raw", "raw score", FirstFinished())
NORM: Final = Method("length-norm", "length norm", BeamFull())
METHODS: Final = (
    RAW,
    NORM,
    Method("length-norm-optimal", "length norm, optimal stopping", Optimal()),
    Method("gnmt", "GNMT", BeamFull(), tuned=True),
    Method("word-reward", "word reward", Optimal(), tuned=True),
    Method("bounded-ratio", "bounded word reward, fixed ratio", Optimal(), tuned=True),
    Method("bounded", "bounded word reward, predicted length", Optimal(), predicts=True, tuned=True),
    Method("adaptive", "bounded adaptive reward", Optimal(), predicts=True),
    Method("bp-norm", "BP-Norm", Optimal(), predicts=True),
    Method("f1-norm", "F1-Norm", Optimal(), predicts=True),
)
# The paper's own runs put the predicted length for R into the bound.
HORIZON: Final = tuple(
    Method(f"{each.name}-horizon", each.label, PredictedHorizon(), each.predicts, each.tuned)
    for each in METHODS
    if each.name in ("bounded-ratio", "bounded", "adaptive", "bp-norm")
)


def scores_of(tuned: Tuned, ratio: float) -> Mapping[str, Rescorer]:
    """The score of each method, with the numbers that were found on dev."""
    found = {
        "raw": LogProb(),
        "length-norm": LengthNorm(),
        "length-norm-optimal": LengthNorm(),
        "gnmt": GNMT(tuned.alpha, tuned.beta),
        "word-reward": WordReward(tuned.word_reward),
        "bounded-ratio": BoundedWordReward(tuned.bounded_ratio_reward, ratio),
        "bounded": BoundedWordReward(tuned.bounded_reward),
        "adaptive": AdaptiveReward(),
        "bp-norm": BPNorm(),
        "f1-norm": F1Norm(),
    }
    return {**found, **{f"{name}-horizon": score for name, score in found.items()}}
