"""What a stopping rule may know: the state of searches at the end of a step."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np

from uncurse.arrays import Bools, Floats, Ints
from uncurse.scoring.rescorer import MissingEvidenceError, Paths, Rescorer, Rewards, Source


@final
@dataclass(frozen=True, eq=False)
class Evidence:
    """What searches know at the end of a step.

    The rows are the sentences of a live batch, or the steps of one recorded search: the same rule decides online
    and afterwards.
    """

    rescorer: Rescorer
    beam_size: int
    n_best: int
    source: Source
    rewards: Rewards | None
    step: Ints  # [rows] t, from 1
    finished: Ints  # [rows] how many hypotheses have finished
    nth_best: Floats  # [rows] the score that a newcomer to the n-best list must exceed, -inf if it is not full
    bth_best_or_none: Floats | None  # [rows] the b-th best score, -inf if fewer finished; only if a rule reads it
    top_was_eos: Bools  # [rows] whether the top continuation of some step so far was </s>
    best_live: Floats  # [rows] S of the best live prefix, -inf where none is left

    @property
    def bth_best(self) -> Floats:
        """The b-th best finished score, [rows]."""
        if self.bth_best_or_none is None:
            raise MissingEvidenceError("the b-th best score is needed, and only the n-th best is known")
        return self.bth_best_or_none

    def live_at(self, length: Ints) -> Floats:
        """The score of the best live prefix if it ended at a length, at no cost and fully covered, [rows]."""
        paths = Paths(self.best_live, length, self.rewards, np.zeros(1))
        return self.rescorer.score(self.source, paths)

    @cached_property
    def ended(self) -> Bools:
        """Which rows are over by themselves, at the maximum length or with an empty beam, [rows]."""
        ended: Bools = (self.step >= self.source.max_length) | (self.best_live == -np.inf)
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
            rescorer=self.rescorer,
            beam_size=self.beam_size,
            n_best=self.n_best,
            source=self.source.take(rows),
            rewards=None if self.rewards is None else self.rewards.take(rows),
            step=self.step[rows],
            finished=self.finished[rows],
            nth_best=self.nth_best[rows],
            bth_best_or_none=None if self.bth_best_or_none is None else self.bth_best_or_none[rows],
            top_was_eos=self.top_was_eos[rows],
            best_live=self.best_live[rows],
        )
