"""What searches have proved when they stop."""

from __future__ import annotations

import numpy as np

from uncurse.arrays import Floats
from uncurse.rescoring import Paths
from uncurse.result import Optimality
from uncurse.stopping import Evidence


def certify(evidence: Evidence, pruned: Floats) -> list[tuple[Optimality, float]]:
    """What is proved of each row's n-best list, and the gap.

    `pruned` holds the best `S` that was let go at each step, [rows, steps]; steps after the row's own are void.
    """
    live, let_go = _bounds(evidence, pruned)
    return [
        _certificate(*row)
        for row in zip(
            evidence.finished.tolist(), evidence.nth_best.tolist(), live.tolist(), let_go.tolist(), strict=True
        )
    ]


def _certificate(
    finished: int, nth_best: float, live_bound: float, pruned_bound: float
) -> tuple[Optimality, float]:
    if not finished:
        return Optimality.TRUNCATED, np.inf
    if not nth_best >= live_bound:  # asked in this way, NaN proves nothing
        return Optimality.NONE, live_bound - nth_best
    return (Optimality.GLOBAL if nth_best >= pruned_bound else Optimality.BEAM), 0.0


def _bounds(evidence: Evidence, pruned: Floats) -> tuple[Floats, Floats]:
    """What live prefixes and what anything that was let go could have reached, with the rewards known now, [rows].

    The bound of a shorter prefix of higher `S` is no lower, so only those count that were the best so far. A
    continuation that was let go at step t may itself have been `</s>`, so its lengths are t … R, those of a prefix
    of t - 1 tokens.
    """
    count = len(evidence.step)
    let_go = np.where(np.arange(pruned.shape[1]) < evidence.step[:, None], pruned, -np.inf)
    best_before = np.full(let_go.shape, -np.inf)
    np.maximum.accumulate(let_go[:, :-1], axis=1, out=best_before[:, 1:])
    row, length = (let_go > best_before).nonzero()
    rows = np.concatenate((np.arange(count), row))  # the live prefixes first: all are asked at once
    prefixes = Paths(
        np.concatenate((evidence.best_live, let_go[row, length])),
        np.concatenate((evidence.step, length)),
        None if evidence.rewards is None else evidence.rewards.take(rows),
    )
    bounds = evidence.rescorer.bound(evidence.source.take(rows), prefixes)
    highest = np.full(count, -np.inf)
    np.maximum.at(highest, row, bounds[count:])
    return bounds[:count], highest
