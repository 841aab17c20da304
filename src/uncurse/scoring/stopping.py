"""When a search may stop: one registered class for each rule, with its formula and its source."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final

import numpy as np

from uncurse.arrays import Bools, Floats, Ints
from uncurse.scoring.evidence import Evidence
from uncurse.scoring.registry import Registry, check_parameters, parameter
from uncurse.scoring.rescorer import Paths


class StoppingRule(ABC):
    """A rule for stopping; asked only when at least n hypotheses have finished."""

    def __post_init__(self) -> None:
        check_parameters(self)

    @abstractmethod
    def stops(self, evidence: Evidence) -> Bools:
        """Which rows stop, [rows]."""

    def hopeful(self, evidence: Evidence, sums: Floats, live: Bools) -> Ints:
        """How many of each row's best live prefixes the search keeps, [rows]; 0 stops the row.

        `sums` holds `S` where `live`, [rows, ranks]. A rule may leave out prefixes that it proves hopeless: no
        completion of them could enter the n-best list.
        """
        counts: Ints = np.where(self.stops(evidence), 0, live.sum(axis=1))
        return counts

    @property
    @final
    def drops_hopeless(self) -> bool:
        """Whether the rule drops hopeless prefixes."""
        return type(self).hopeful is not StoppingRule.hopeful

    @final
    def decide(self, evidence: Evidence) -> Bools:
        """Which rows stop: never before n have finished, except at the maximum length or with an empty beam."""
        stop = evidence.ended.copy()
        if len(evidence.asked):
            stop[evidence.asked] = self.stops(evidence.of_asked)
        return stop


RULES: Registry[StoppingRule] = Registry("stopping rule", StoppingRule)  # type: ignore[type-abstract]


@final
@RULES.register(
    "optimal", formula="the worst of the n-best list ≥ the bound of every live prefix", source="Huang et al. 2017"
)
@dataclass(frozen=True)
class Optimal(StoppingRule):
    """Stop when nothing that could still come can enter the n-best list."""

    def stops(self, evidence: Evidence) -> Bools:
        """Whether the n-th best finished score reaches the bound."""
        prefixes = Paths(evidence.best_live, evidence.step, evidence.rewards)
        return evidence.nth_best >= evidence.rescorer.bound(evidence.source, prefixes)

    def hopeful(self, evidence: Evidence, sums: Floats, live: Bools) -> Ints:
        """The prefixes whose bound beats the n-th best; the rule stops where there is none."""
        return count_hopeful(evidence, sums, live)


@final
@RULES.register("first-finished", formula="the top continuation of some step was </s>", source="OpenNMT-py")
@dataclass(frozen=True)
class FirstFinished(StoppingRule):
    """Stop when the best continuation of a step ended."""

    def stops(self, evidence: Evidence) -> Bools:
        """Whether the top continuation of some step was `</s>`."""
        return evidence.top_was_eos


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
        return evidence.finished >= max(1, math.floor(self.patience * evidence.beam_size + 0.5))


@final
@RULES.register(
    "hf-heuristic",
    formula="b finished, and the b-th best ≥ the best live prefix scored at its present length",
    source="Hugging Face, early_stopping=False",
)
@dataclass(frozen=True)
class HFHeuristic(StoppingRule):
    """Stop when the best live prefix, ended now at no cost, would not be among the b best finished."""

    def stops(self, evidence: Evidence) -> Bools:
        """Whether b have finished and the b-th best reaches the best live prefix."""
        return (evidence.finished >= evidence.beam_size) & (evidence.bth_best >= evidence.live_at(evidence.step))


@final
@RULES.register(
    "predicted-horizon",
    formula="the worst of the n-best list ≥ the best live prefix scored at length min(⌈L⌉, R)",
    source="Yang et al. 2018, in their experiments",
)
@dataclass(frozen=True)
class PredictedHorizon(StoppingRule):
    """Stop as if every output would end at the expected length: the paper's shortcut, not a proof."""

    def stops(self, evidence: Evidence) -> Bools:
        """Whether the n-th best reaches what the best live prefix would score at the expected length."""
        horizon = np.ceil(np.minimum(evidence.source.expected_length, evidence.source.max_length)).astype(np.int64)
        return evidence.nth_best >= evidence.live_at(horizon)


@final
@RULES.register("exhaustive", formula="at length R", source="baseline")
@dataclass(frozen=True)
class Exhaustive(StoppingRule):
    """Run to the maximum length."""

    def stops(self, evidence: Evidence) -> Bools:
        """Never before the maximum length."""
        return np.zeros(len(evidence.step), dtype=bool)


def count_hopeful(evidence: Evidence, sums: Floats, live: Bools) -> Ints:
    """How many of each row's live prefixes could still enter its n-best list, [rows].

    `sums` holds `S` where `live`, [rows, ranks]; no row is at its maximum length. A bound never falls when `S`
    rises, so the hopeful are the best.
    """
    # The best case at one length, the longest, most often shows that there is hope.
    longest = Paths(
        np.where(live, sums, 0.0), evidence.source.max_length[:, None], evidence.rewards, np.zeros((1, 1))
    )
    scores = evidence.rescorer.score(evidence.source.column(), longest)
    sure = live & (scores > evidence.nth_best[:, None])
    counts: Ints = sure.sum(axis=1)
    doubtful = live & ~sure
    best_doubtful = np.where(doubtful, sums, -np.inf).max(axis=1)
    rows = np.flatnonzero(best_doubtful > -np.inf)
    if len(rows):
        now = evidence.take(rows)
        prefixes = Paths(best_doubtful[rows], now.step, now.rewards)
        rows = rows[now.rescorer.bound(now.source, prefixes) > now.nth_best]
    if len(rows):  # another length than the longest is better
        index, rank = np.nonzero(doubtful[rows])
        row = rows[index]
        now = evidence.take(row)
        bound = now.rescorer.bound(now.source, Paths(sums[row, rank], now.step, now.rewards))
        counts += np.bincount(row[bound > now.nth_best], minlength=len(counts))
    return counts
