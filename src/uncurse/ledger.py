"""The record of a batch of searches: back-pointers of every step, from which hypotheses are rebuilt at the end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from uncurse.arrays import Floats, Ints


@final
@dataclass(frozen=True, eq=False)
class Kept:
    """What one step of a batch leaves in the record; `ranks` are the places among the best of the step."""

    tokens: Ints  # [batch, ranks] -1 where nothing was kept
    parents: Ints  # [batch, ranks] rank of the prefix at the step before
    log_probs: Floats  # [batch, ranks] of the token alone
    sums: Floats  # [batch, ranks] S
    rewards: Floats  # [batch] r_t
    pruned: Floats  # [batch] the best S that was let go
    coverage: Floats | None  # [batch, ranks]

    def take(self, positions: Ints) -> Kept:
        """What was kept of some of the sentences."""
        return Kept(
            self.tokens[positions],
            self.parents[positions],
            self.log_probs[positions],
            self.sums[positions],
            self.rewards[positions],
            self.pruned[positions],
            None if self.coverage is None else self.coverage[positions],
        )


@final
class Ledger:
    """Arrays with a page for each sentence; pages are used again, and grow with the steps that are taken."""

    def __init__(self, ranks: int, coverage: bool) -> None:
        self._ranks = ranks
        self._keeps_coverage = coverage
        self._clear()

    def _clear(self) -> None:
        """No pages at all: so it begins, and so it is again when nobody is left, however long outputs were."""
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
        """Pages for sentences that join."""
        pages = self._rewards.shape[0]
        if len(self._free) < count:
            self._resize(max(2 * pages, pages + count - len(self._free)), self._rewards.shape[1])
            self._free.extend(range(self._rewards.shape[0] - 1, pages - 1, -1))
        opened = np.array([self._free.pop() for _ in range(count)], dtype=np.int64)
        self._reward_sums[opened, 0] = 0.0
        return opened

    def write(self, pages: Ints, step: Ints, kept: Kept) -> None:
        """Add a step, counted from 1 for each sentence, to the pages."""
        last = int(step.max())
        if last > self._rewards.shape[1]:
            self._resize(self._rewards.shape[0], max(16, 2 * last))
        index = step - 1
        self._tokens[pages, index] = kept.tokens
        self._parents[pages, index] = kept.parents
        self._log_probs[pages, index] = kept.log_probs
        self._sums[pages, index] = kept.sums
        self._rewards[pages, index] = kept.rewards
        self._pruned[pages, index] = kept.pruned
        self._reward_sums[pages, step] = self._reward_sums[pages, index] + kept.rewards
        if self._coverage is not None and kept.coverage is not None:
            self._coverage[pages, index] = kept.coverage

    def pruned(self, pages: Ints, steps: int) -> Floats:
        """The best S let go at each step, [batch, steps]; what lies past a sentence's own step is void."""
        return self._pruned[pages, :steps]

    def reward_sums(self, pages: Ints, steps: int) -> Floats:
        """`ρ_0 … ρ_steps` of the sentences, [batch, steps + 1]; what lies past a sentence's own step is void."""
        return self._reward_sums[pages, : steps + 1]

    def close(self, page: int, steps: int) -> Kept:
        """A sentence's record, with its steps in place of the batch; the page is free again."""
        coverage = None if self._coverage is None else self._coverage[page, :steps].copy()
        kept = Kept(
            self._tokens[page, :steps].copy(),
            self._parents[page, :steps].copy(),
            self._log_probs[page, :steps].copy(),
            self._sums[page, :steps].copy(),
            self._rewards[page, :steps].copy(),
            self._pruned[page, :steps].copy(),
            coverage,
        )
        self._free.append(page)
        if len(self._free) == len(self._rewards):
            self._clear()
        return kept

    def _resize(self, pages: int, steps: int) -> None:
        cells = (pages, steps, self._ranks)
        self._tokens = _grown(self._tokens, cells)
        self._parents = _grown(self._parents, cells)
        self._log_probs = _grown(self._log_probs, cells)
        self._sums = _grown(self._sums, cells)
        self._rewards = _grown(self._rewards, (pages, steps))
        self._pruned = _grown(self._pruned, (pages, steps))
        self._reward_sums = _grown(self._reward_sums, (pages, steps + 1))
        if self._coverage is not None:
            self._coverage = _grown(self._coverage, cells)


def _grown(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    larger = np.empty(shape, dtype=array.dtype)
    larger[tuple(slice(size) for size in array.shape)] = array
    return larger
