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
    live_bound = evidence.rescorer.bound(
        evidence.source, Paths(evidence.best_live, evidence.step, evidence.rewards)
    )
    pruned_bound = _pruned_bound(evidence, pruned)
    return [
        _certificate(*row)
        for row in zip(
            evidence.finished.tolist(),
            evidence.nth_best.tolist(),
            live_bound.tolist(),
            pruned_bound.tolist(),
            strict=True,
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


def _pruned_bound(evidence: Evidence, pruned: Floats) -> Floats:
    """What anything that was let go could have reached, with the rewards known at the end, [rows].

    The bound of a shorter prefix of higher `S` is no lower, so only those count that were the best so far. A
    continuation that was let go at step t may itself have been `</s>`, so its lengths are t … R, those of a prefix
    of t - 1 tokens.
    """
    steps_before = np.arange(pruned.shape[1])
    let_go = np.where(steps_before < evidence.step[:, None], pruned, -np.inf)
    best_before = np.full(let_go.shape, -np.inf)
    np.maximum.accumulate(let_go[:, :-1], axis=1, out=best_before[:, 1:])
    row, length = np.nonzero(let_go > best_before)
    rewards = None if evidence.rewards is None else evidence.rewards.take(row)
    bounds = evidence.rescorer.bound(evidence.source.take(row), Paths(let_go[row, length], length, rewards))
    highest = np.full(len(pruned), -np.inf)
    np.maximum.at(highest, row, bounds)
    return highest
