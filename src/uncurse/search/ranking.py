"""The best continuations of each sentence, in an order that ties cannot disturb."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from uncurse.arrays import Floats, Ints

Keys: TypeAlias = tuple[NDArray[Any], ...]  # the first decides, the next only where it is equal


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
