"""The best continuations of each sentence, in an order that ties cannot disturb."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from uncurse.arrays import Floats, Ints
from uncurse.search.batch import Rows

Keys: TypeAlias = tuple[NDArray[Any], ...]  # the first decides, the next only where it is equal


@final
@dataclass(frozen=True, eq=False)
class Ranked:
    """The best continuations of each sentence, the best first."""

    sums: Floats  # [batch, count] S, -inf where there are no more
    parents: Ints  # [batch, count] the row that is extended
    tokens: Ints  # [batch, count]
    log_probs: Floats  # [batch, count] of the token alone


def rank_continuations(rows: Rows, counts: Ints, tokens: Ints, log_probs: Floats, count: int) -> Ranked:
    """The `count` best of the continuations that the model gave for each row, [rows, k], by sentence.

    `counts` are the rows of each sentence, [batch].
    """
    k = tokens.shape[1]
    first = np.cumsum(counts) - counts  # [batch] each sentence's first row

    def cell(sentence: Ints, column: Ints) -> tuple[Ints, Ints]:
        """Row and column of what the model gave; past the last row only where there is nothing."""
        return np.minimum(first[sentence] + column // k, len(rows) - 1), column % k

    def among_equals(sentence: Ints, column: Ints) -> Keys:
        """Better parents first; sums may be equal by rounding alone, so likelier tokens before others."""
        row, place = cell(sentence, column)
        return row, -log_probs[row, place], tokens[row, place]

    grid = _by_sentence(rows, counts, rows.log_prob[:, None] + log_probs, count)
    column = top_k(grid, count, among_equals)
    row, place = cell(np.arange(len(first))[:, None], column)
    return Ranked(np.take_along_axis(grid, column, axis=1), row, tokens[row, place], log_probs[row, place])


def _by_sentence(rows: Rows, counts: Ints, sums: Floats, count: int) -> Floats:
    """Sums as [batch, lanes · k], with at least `count` columns; -inf where there is nothing."""
    batch, k = len(counts), sums.shape[1]
    lanes = max(int(counts.max()), -(-count // k))
    if len(sums) == batch * lanes:
        return sums.reshape(batch, lanes * k)
    grid = np.full((batch, lanes, k), -np.inf)
    grid[rows.sentence, rows.lane] = sums
    return grid.reshape(batch, lanes * k)


def top_k(values: Floats, count: int, keys: Callable[[Ints, Ints], Keys]) -> Ints:
    """Columns of the `count` highest values of each row, falling; equal values by rising `keys`.

    `keys(rows, columns)` is asked only about the columns that matter; where the value is -inf it may be anything.
    """
    rows = np.arange(len(values))[:, None]
    if values.shape[1] <= count:
        chosen = np.broadcast_to(np.arange(values.shape[1]), values.shape)
        return _sorted(values, chosen, keys(rows, chosen))
    chosen = np.argpartition(values, -count, axis=1)[:, -count:]
    cut = np.take_along_axis(values, chosen, axis=1).min(axis=1)
    contested = ((values >= cut[:, None]).sum(axis=1) > count) & (cut > -np.inf)
    for row in np.flatnonzero(contested):
        rivals = np.flatnonzero(values[row] >= cut[row])[None]
        ranked = _sorted(values[row : row + 1], rivals, keys(rows[row : row + 1], rivals))
        chosen[row] = ranked[0, :count]
    return _sorted(values, chosen, keys(rows, chosen))


def _sorted(values: Floats, columns: Ints, keys: Keys) -> Ints:
    falling = np.lexsort((*reversed(keys), -np.take_along_axis(values, columns, axis=1)), axis=1)
    return np.take_along_axis(columns, falling, axis=1)
