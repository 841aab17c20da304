"""The best continuations of each sentence, in an order that ties cannot disturb."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from uncurse.arrays import Floats, Ints


def best(values: Floats, count: int, order: Callable[[Ints, Ints], Ints]) -> Ints:
    """Columns of the `count` highest values of each row, falling; equal values by rising `order`.

    `order(rows, columns)` is asked only about the columns that matter; where the value is -inf it may be anything.
    """
    rows = np.arange(len(values))[:, None]
    if values.shape[1] <= count:
        chosen = np.broadcast_to(np.arange(values.shape[1]), values.shape)
        return _sorted(values, chosen, order(rows, chosen))
    chosen = np.argpartition(values, -count, axis=1)[:, -count:]
    cut = np.take_along_axis(values, chosen, axis=1).min(axis=1)
    contested = ((values >= cut[:, None]).sum(axis=1) > count) & (cut > -np.inf)
    for row in np.flatnonzero(contested):
        rivals = np.flatnonzero(values[row] >= cut[row])[None]
        ranked = _sorted(values[row : row + 1], rivals, order(rows[row : row + 1], rivals))
        chosen[row] = ranked[0, :count]
    return _sorted(values, chosen, order(rows, chosen))


def _sorted(values: Floats, columns: Ints, order: Ints) -> Ints:
    falling = np.lexsort((order, -np.take_along_axis(values, columns, axis=1)), axis=1)
    return np.take_along_axis(columns, falling, axis=1)
