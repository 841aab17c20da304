"""The record of one sentence's search: everything a score or a stopping rule could ask about it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np

from uncurse.arrays import Bools, Floats, Ints
from uncurse.scoring.decoding import Slots, beam_signature
from uncurse.scoring.result import Hypothesis


@final
@dataclass(frozen=True, eq=False)
class Trace:
    """What a search of one sentence kept at each step.

    All prefixes of a step have the same length, so the beam is pruned by `S` alone, and neither the score nor the
    stopping rule changes what it holds: one exhaustive search contains the answer of every rule. Index 0 of the
    step axis is step 1; `rank` is the place of a continuation among the best of its step.
    """

    version: str  # of the software that searched
    model: str
    beam_size: int
    slots: Slots
    eos: int
    source_length: int
    max_length: int
    min_length: int
    prefix: tuple[int, ...]
    constraint: str | None  # the signature of the constraint
    tokens: Ints  # [steps, ranks] -1 where nothing was kept
    parents: Ints  # [steps, ranks] rank of the prefix at the step before
    log_probs: Floats  # [steps, ranks] of the token alone
    sums: Floats  # [steps, ranks] S of the hypothesis up to the token
    rewards: Floats  # [steps] r_t
    pruned: Floats  # [steps] the best S among continuations neither kept live nor finished
    coverage: Floats | None  # [steps, ranks] Σ_i log min(max(c_i, ε), 1) where the token is </s>

    @property
    def steps(self) -> int:
        """How many steps the search ran."""
        return len(self.tokens)

    @property
    def signature(self) -> str:
        """What decides the contents of the beam."""
        return self.signature_with(self.max_length)

    def signature_with(self, max_length: int) -> str:
        """What would have decided them with another maximum length."""
        return beam_signature(
            self.version,
            self.model,
            self.beam_size,
            self.slots,
            max_length,
            self.min_length,
            self.prefix,
            self.constraint,
        )

    @cached_property
    def is_eos(self) -> Bools:
        """Where a hypothesis finished, [steps, ranks]."""
        ends: Bools = self.tokens == self.eos
        return ends

    @cached_property
    def is_live(self) -> Bools:
        """Where a prefix lives on, [steps, ranks]."""
        return (self.tokens >= 0) & ~self.is_eos

    @cached_property
    def finished(self) -> tuple[Ints, Ints]:
        """Step index and rank of what finished, in the order that decides between equal scores, [finished]."""
        steps, ranks = np.nonzero(self.is_eos)
        return steps, ranks

    @cached_property
    def finished_sums(self) -> Floats:
        """S of what finished, [finished]."""
        return self.sums[self.finished]

    @cached_property
    def finished_coverage(self) -> Floats | None:
        """The coverage of what finished, [finished]."""
        return None if self.coverage is None else self.coverage[self.finished]

    @cached_property
    def finished_counts(self) -> Ints:
        """How many have finished by each step, [steps]."""
        return np.cumsum(self.is_eos.sum(axis=1))

    @cached_property
    def top_was_eos(self) -> Bools:
        """Whether rank 1 was `</s>` at some step so far, [steps]."""
        return np.logical_or.accumulate(self.is_eos[:, 0])

    @cached_property
    def live_counts(self) -> Ints:
        """How many prefixes live on after each step, [steps]."""
        counts: Ints = self.is_live.sum(axis=1)
        return counts

    @cached_property
    def rows_before(self) -> Ints:
        """How many prefixes the model was run on by each step, forced ones left out, [steps]."""
        return 1 + np.cumsum(self.live_counts) - self.live_counts

    @cached_property
    def best_live(self) -> Floats:
        """S of the best prefix that lives on after each step, -inf if there is none, [steps]."""
        best: Floats = np.where(self.is_live, self.sums, -np.inf).max(axis=1, initial=-np.inf)
        return best

    @cached_property
    def reward_sums(self) -> Floats:
        """`ρ_0 … ρ_steps`, [steps + 1]."""
        return np.concatenate(([0.0], np.cumsum(self.rewards)))

    def hypothesis(self, step: int, rank: int, score: float) -> Hypothesis:
        """The tokens on the way to a rank of a step index, followed back from parent to parent."""
        if (step, rank) not in self._paths:
            ranks = [rank]
            for later in range(step, 0, -1):
                ranks.append(self.parents.item(later, ranks[-1]))
            path = np.arange(step + 1), np.array(ranks[::-1])
            self._paths[step, rank] = tuple(self.tokens[path].tolist()), tuple(self.log_probs[path].tolist())
        tokens, log_probs = self._paths[step, rank]
        return Hypothesis(tokens, self.sums.item(step, rank), score, log_probs)

    @cached_property
    def _paths(self) -> dict[tuple[int, int], tuple[tuple[int, ...], tuple[float, ...]]]:
        """Paths that were followed before: different rules often choose the same."""
        return {}


def sums_along(tokens: Ints, parents: Ints, log_probs: Floats) -> Floats:
    """S of every kept continuation, added up in the order in which the search added it, [steps, ranks]."""
    sums = np.full(log_probs.shape, -np.inf)
    before = np.zeros(log_probs.shape[1])
    for step in range(len(tokens)):
        sums[step] = np.where(tokens[step] >= 0, before[parents[step]] + log_probs[step], -np.inf)
        before = sums[step]
    return sums
