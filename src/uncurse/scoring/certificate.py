"""What searches have proved when they stop."""

from __future__ import annotations

import numpy as np

from uncurse.arrays import Floats
from uncurse.scoring.evidence import Evidence
from uncurse.scoring.rescorer import Paths
from uncurse.scoring.result import Certificate


def certify(evidence: Evidence, pruned: Floats) -> list[tuple[Certificate, float]]:
    """What is proved of each row's n-best list, and the gap.

    `pruned` holds the best `S` pruned at each step, [rows, steps]; undefined after the row's own step.
    """
    live, pruned_sums = _bounds(evidence, pruned)
    return [
        _certificate(*row)
        for row in zip(
            evidence.finished.tolist(),
            evidence.nth_best.tolist(),
            live.tolist(),
            pruned_sums.tolist(),
            strict=True,
        )
    ]


def _certificate(
    finished: int, nth_best: float, live_bound: float, pruned_bound: float
) -> tuple[Certificate, float]:
    if not finished:
        return Certificate.TRUNCATED, np.inf
    if not nth_best >= live_bound:  # asked in this way, NaN proves nothing
        return Certificate.NONE, live_bound - nth_best
    return (Certificate.GLOBAL if nth_best >= pruned_bound else Certificate.BEAM), 0.0


def _bounds(evidence: Evidence, pruned: Floats) -> tuple[Floats, Floats]:
    """What live prefixes and pruned continuations could have reached, with the rewards known now, [rows] each.

    The bound of a shorter prefix of higher `S` is no lower, so only those count that were the best so far. A
    continuation that was pruned at step t may itself have been `</s>`, so its lengths are t … R, those of a prefix
    of t - 1 tokens.
    """
    count = len(evidence.step)
    pruned_sums = np.where(np.arange(pruned.shape[1]) < evidence.step[:, None], pruned, -np.inf)
    best_before = np.full(pruned_sums.shape, -np.inf)
    np.maximum.accumulate(pruned_sums[:, :-1], axis=1, out=best_before[:, 1:])
    row, length = (pruned_sums > best_before).nonzero()
    rows = np.concatenate((np.arange(count), row))  # the live prefixes first: all are asked at once
    prefixes = Paths(
        np.concatenate((evidence.best_live, pruned_sums[row, length])),
        np.concatenate((evidence.step, length)),
        None if evidence.rewards is None else evidence.rewards.take(rows),
    )
    bounds = evidence.rescorer.bound(evidence.source.take(rows), prefixes)
    highest = np.full(count, -np.inf)
    np.maximum.at(highest, row, bounds[count:])
    return bounds[:count], highest
