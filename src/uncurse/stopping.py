"""When a search may stop.

A rule reads the evidence that a search has at the end of a step. The rows of the evidence are the sentences of a
live batch, or the steps of one recorded search: the same code decides online and afterwards.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, final

import numpy as np

from uncurse.arrays import Bools, Floats, Ints
from uncurse.registry import Registry, check_parameters, parameter
from uncurse.rescoring import MissingEvidenceError, Paths, Rescorer, Rewards, Source


@final
@dataclass(frozen=True, eq=False)
class Evidence:
    """What searches know at the end of a step, one row for each."""

    rescorer: Rescorer
    width: int
    n_best: int
    source: Source
    rewards: Rewards | None
    step: Ints  # [rows] t, from 1
    finished: Ints  # [rows] how many hypotheses have finished
    nth_best: Floats  # [rows] the score that a newcomer to the n-best list must exceed, -inf if it is not full
    width_scores: Floats | None  # [rows] the b-th best score, -inf if fewer finished; for rules that ask for it
    first_was_end: Bools  # [rows] whether rank 1 of some step so far was </s>
    best_live: Floats  # [rows] S of the best live prefix, -inf where none is left

    @property
    def width_best(self) -> Floats:
        """The b-th best score, [rows]."""
        if self.width_scores is None:
            raise MissingEvidenceError("the b-th best score is needed: set reads_width_best in the rule")
        return self.width_scores

    def live_at(self, length: Ints) -> Floats:
        """The score of the best live prefix if it ended at a length for nothing and all were covered, [rows]."""
        paths = Paths(self.best_live, length, self.rewards, np.zeros(1))
        return self.rescorer.score(self.source, paths)

    @cached_property
    def ended(self) -> Bools:
        """Which rows are over by themselves, at the limit or with an empty beam, [rows]."""
        ended: Bools = (self.step >= self.source.limit) | (self.best_live == -np.inf)
        return ended

    @cached_property
    def asked(self) -> Ints:
        """The rows that a rule may stop: not over yet, and n have finished."""
        return (~self.ended & (self.finished >= self.n_best)).nonzero()[0]

    @cached_property
    def of_asked(self) -> Evidence:
        """The evidence of those rows, if there are any."""
        if len(self.asked) == len(self.step):
            return self
        first, last = int(self.asked[0]), int(self.asked[-1])
        together = last - first < len(self.asked)  # so they lie in a trace, and need not be copied
        return self.take(slice(first, last + 1) if together else self.asked)

    def take(self, rows: Ints | slice) -> Evidence:
        """The evidence of some rows."""
        return Evidence(
            self.rescorer,
            self.width,
            self.n_best,
            self.source.take(rows),
            None if self.rewards is None else self.rewards.take(rows),
            self.step[rows],
            self.finished[rows],
            self.nth_best[rows],
            None if self.width_scores is None else self.width_scores[rows],
            self.first_was_end[rows],
            self.best_live[rows],
        )


class StoppingRule(ABC):
    """A rule for stopping; asked only when at least n hypotheses have finished."""

    reads_width_best: ClassVar[bool] = False  # whether it looks at the b-th best score, not only the n-th
    needs_prediction: ClassVar[bool] = False  # whether it looks at the predicted length, whatever the score

    def __post_init__(self) -> None:
        check_parameters(self)

    @abstractmethod
    def stops(self, evidence: Evidence) -> Bools:
        """Which rows stop, [rows]."""

    @final
    def decide(self, evidence: Evidence) -> Bools:
        """Which rows stop: never before n have finished, except at the limit or with an empty beam."""
        stop = evidence.ended.copy()
        if len(evidence.asked):
            stop[evidence.asked] = self.stops(evidence.of_asked)
        return stop


RULES: Registry[StoppingRule] = Registry("stopping rule")


@final
@RULES.register(
    "optimal", formula="the worst of the n-best list ≥ the bound of every live prefix", source="Huang et al. 2017"
)
@dataclass(frozen=True)
class Optimal(StoppingRule):
    """Stop when nothing that could still come can enter the n-best list."""

    def __init_subclass__(cls) -> None:
        raise TypeError(f"{cls.__name__} must not refine Optimal: a search may drop what it proves hopeless")

    def stops(self, evidence: Evidence) -> Bools:
        """Whether the n-th best finished score reaches the bound."""
        prefixes = Paths(evidence.best_live, evidence.step, evidence.rewards)
        return evidence.nth_best >= evidence.rescorer.bound(evidence.source, prefixes)


@final
@RULES.register("first-finished", formula="rank 1 of some step was </s>", source="OpenNMT-py")
@dataclass(frozen=True)
class FirstFinished(StoppingRule):
    """Stop when the best continuation of a step ended."""

    def stops(self, evidence: Evidence) -> Bools:
        """Whether rank 1 of some step was `</s>`."""
        return evidence.first_was_end


@final
@RULES.register(
    "beam-full",
    formula="at least round(patience·b) finished",
    source="RNNSearch, fairseq, CTranslate2; patience: Kasai et al. 2022",
)
@dataclass(frozen=True)
class BeamFull(StoppingRule):
    """Stop when as many hypotheses have finished as the beam is wide, or patience times as many."""

    patience: float = parameter(
        "how many beams of finished hypotheses to wait for", default=1.0, low=0.0, low_open=True, high=1000.0
    )

    def stops(self, evidence: Evidence) -> Bools:
        """Whether `round(patience·b)` have finished, halves rounded up and at least one."""
        return evidence.finished >= max(1, math.floor(self.patience * evidence.width + 0.5))


@final
@RULES.register(
    "hf-heuristic",
    formula="b finished, and the b-th best ≥ the best live prefix scored at its present length",
    source="Hugging Face, early_stopping=False",
)
@dataclass(frozen=True)
class HFHeuristic(StoppingRule):
    """Stop when the best live prefix, ended now and for nothing, would not be among the b best finished."""

    reads_width_best: ClassVar[bool] = True

    def stops(self, evidence: Evidence) -> Bools:
        """Whether b have finished and the b-th best reaches the best live prefix."""
        return (evidence.finished >= evidence.width) & (evidence.width_best >= evidence.live_at(evidence.step))


@final
@RULES.register(
    "predicted-horizon",
    formula="the worst of the n-best list ≥ the best live prefix scored at length min(⌈L⌉, R)",
    source="Yang et al. 2018, in their experiments",
)
@dataclass(frozen=True)
class PredictedHorizon(StoppingRule):
    """Stop as if every output would end at the predicted length: the paper's shortcut, not a proof."""

    needs_prediction: ClassVar[bool] = True

    def stops(self, evidence: Evidence) -> Bools:
        """Whether the n-th best reaches what the best live prefix would score at the predicted length."""
        horizon = np.ceil(np.minimum(evidence.source.predicted, evidence.source.limit)).astype(np.int64)
        return evidence.nth_best >= evidence.live_at(horizon)


@final
@RULES.register("exhaustive", formula="at length R", source="what the others are measured by")
@dataclass(frozen=True)
class Exhaustive(StoppingRule):
    """Run to the limit."""

    def stops(self, evidence: Evidence) -> Bools:
        """Never before the limit."""
        return np.zeros(len(evidence.step), dtype=bool)
