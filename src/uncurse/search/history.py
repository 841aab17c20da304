"""The history of a batch of searches: the back-pointers of every step, from which hypotheses are rebuilt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from uncurse.arrays import Floats, Ints


@final
@dataclass(frozen=True, eq=False)
class StepRecord:
    """What a step of a batch leaves in the history; `ranks` are the places among the best of the step."""

    tokens: Ints  # [batch, ranks] -1 where nothing was kept
    parents: Ints  # [batch, ranks] rank of the prefix at the step before
    log_probs: Floats  # [batch, ranks] of the token alone
    sums: Floats  # [batch, ranks] S
    rewards: Floats  # [batch] r_t
    pruned: Floats  # [batch] the best S that was pruned
    coverage: Floats | None  # [batch, ranks]

    def take(self, positions: Ints) -> StepRecord:
        """The record of some of the sentences."""
        return StepRecord(
            tokens=self.tokens[positions],
            parents=self.parents[positions],
            log_probs=self.log_probs[positions],
            sums=self.sums[positions],
            rewards=self.rewards[positions],
            pruned=self.pruned[positions],
            coverage=None if self.coverage is None else self.coverage[positions],
        )


@final
class BeamHistory:
    """Arrays with a slot for each sentence; slots are reused, and grow with the number of steps."""

    def __init__(self, ranks: int, coverage: bool) -> None:
        self._ranks = ranks
        self._keeps_coverage = coverage
        self._clear()

    def _clear(self) -> None:
        """Free all memory: a history without sentences holds none, however long the outputs were."""
        ranks = self._ranks
        self._free: list[int] = []
        self._tokens = np.empty((0, 0, ranks), dtype=np.int64)
        self._parents = np.empty((0, 0, ranks), dtype=np.int64)
        self._log_probs = np.empty((0, 0, ranks))
        self._sums = np.empty((0, 0, ranks))
        self._rewards = np.empty((0, 0))
        self._pruned = np.empty((0, 0))
        self._reward_sums = np.empty((0, 1))
        self._coverage = np.empty((0, 0, ranks)) if self._keeps_coverage else None

    def open(self, count: int) -> Ints:
        """Slots for sentences that join."""
        slots = self._rewards.shape[0]
        if len(self._free) < count:
            self._resize(max(2 * slots, slots + count - len(self._free)), self._rewards.shape[1])
            self._free.extend(range(self._rewards.shape[0] - 1, slots - 1, -1))
        opened = np.array([self._free.pop() for _ in range(count)], dtype=np.int64)
        self._reward_sums[opened, 0] = 0.0
        return opened

    def write(self, slots: Ints, step: Ints, kept: StepRecord) -> None:
        """Add a step, counted from 1 for each sentence, to the slots."""
        last = int(step.max())
        if last > self._rewards.shape[1]:
            self._resize(self._rewards.shape[0], max(16, 2 * last))
        index = step - 1
        self._tokens[slots, index] = kept.tokens
        self._parents[slots, index] = kept.parents
        self._log_probs[slots, index] = kept.log_probs
        self._sums[slots, index] = kept.sums
        self._rewards[slots, index] = kept.rewards
        self._pruned[slots, index] = kept.pruned
        self._reward_sums[slots, step] = self._reward_sums[slots, index] + kept.rewards
        if self._coverage is not None and kept.coverage is not None:
            self._coverage[slots, index] = kept.coverage

    def best_pruned(self, slots: Ints, steps: int) -> Floats:
        """The best S pruned at each step, [batch, steps]; undefined past a sentence's own step."""
        return self._pruned[slots, :steps]

    def reward_sums(self, slots: Ints, steps: int) -> Floats:
        """`ρ_0 … ρ_steps` of the sentences, [batch, steps + 1]; undefined past a sentence's own step."""
        return self._reward_sums[slots, : steps + 1]

    def prefixes(self, slot: int, step: int, ranks: Ints) -> Ints:
        """The tokens on the way to some ranks of a sentence's step, [ranks, step]."""
        tokens = np.empty((len(ranks), step), dtype=np.int64)
        for index in range(step - 1, -1, -1):
            tokens[:, index] = self._tokens[slot, index, ranks]
            ranks = self._parents[slot, index, ranks]
        return tokens

    def has(self, slot: int, steps: int, token: int) -> bool:
        """Whether a token was kept at any of a sentence's steps."""
        return bool((self._tokens[slot, :steps] == token).any())

    def close(self, slot: int, steps: int) -> StepRecord:
        """Remove a sentence; its record has the steps in place of the batch."""
        coverage = None if self._coverage is None else self._coverage[slot, :steps].copy()
        kept = StepRecord(
            tokens=self._tokens[slot, :steps].copy(),
            parents=self._parents[slot, :steps].copy(),
            log_probs=self._log_probs[slot, :steps].copy(),
            sums=self._sums[slot, :steps].copy(),
            rewards=self._rewards[slot, :steps].copy(),
            pruned=self._pruned[slot, :steps].copy(),
            coverage=coverage,
        )
        self._free.append(slot)
        if len(self._free) == len(self._rewards):
            self._clear()
        return kept

    def _resize(self, slots: int, steps: int) -> None:
        cells = (slots, steps, self._ranks)
        self._tokens = _grown(self._tokens, cells)
        self._parents = _grown(self._parents, cells)
        self._log_probs = _grown(self._log_probs, cells)
        self._sums = _grown(self._sums, cells)
        self._rewards = _grown(self._rewards, (slots, steps))
        self._pruned = _grown(self._pruned, (slots, steps))
        self._reward_sums = _grown(self._reward_sums, (slots, steps + 1))
        if self._coverage is not None:
            self._coverage = _grown(self._coverage, cells)


def _grown(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    larger = np.empty(shape, dtype=array.dtype)
    larger[tuple(slice(size) for size in array.shape)] = array
    return larger
