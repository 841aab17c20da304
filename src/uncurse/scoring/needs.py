"""What a score or a stopping rule reads besides log-probability and length, found out by withholding it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from uncurse.errors import UncurseError
from uncurse.scoring.evidence import Evidence
from uncurse.scoring.registry import class_name
from uncurse.scoring.rescorer import MissingEvidenceError, Paths, Rescorer, Rewards, Source
from uncurse.scoring.scores import LogProb
from uncurse.scoring.stopping import StoppingRule


class Needs(NamedTuple):
    """What a score or a stopping rule reads."""

    coverage: bool = False
    rewards: bool = False
    expected_length: bool = False
    bth_best: bool = False  # the b-th best score, not only the n-th


@lru_cache(maxsize=1024)
def needs(method: Rescorer | StoppingRule) -> Needs:
    """What a method reads: each thing is withheld in turn, since a declaration could be forgotten."""
    if isinstance(method, Rescorer):
        _check_score(method)
        return Needs(
            coverage=_misses(method.score, _SOURCE, replace(_PATHS, coverage_or_none=None)),
            rewards=_misses(method.score, _SOURCE, replace(_PATHS, rewards=None)),
            expected_length=_misses(method.score, replace(_SOURCE, expected_length_or_none=None), _PATHS),
        )
    _check_rule(method)
    blind = replace(_EVIDENCE, source=replace(_EVIDENCE.source, expected_length_or_none=None))
    return Needs(
        expected_length=_misses(method.stops, blind),
        bth_best=_misses(method.stops, replace(_EVIDENCE, bth_best_or_none=None)),
    )


def _check_score(method: Rescorer) -> None:
    """Refuse a score that breaks what bounds and certificates rest on; `check_rescorer` tries much harder."""
    name = class_name(method)
    low, high = (
        np.asarray(method.score(_SOURCE, replace(_PATHS, log_prob=np.full(13, total)))) for total in (-2.0, -1.0)
    )
    if low.shape != _LENGTHS.shape or low.dtype != np.float64:
        raise UncurseError(f"{name}.score must return a float64 for each hypothesis, in an array of their shape")
    if np.isnan(low).any() or np.isnan(high).any():
        raise UncurseError(f"{name}.score is NaN for some hypotheses: it cannot rank them")
    if (high < low).any():
        raise UncurseError(f"{name}.score falls when the log-probability rises: nothing could be proved with it")


def _check_rule(method: StoppingRule) -> None:
    stops = np.asarray(method.stops(_EVIDENCE))
    if stops.shape != _LENGTHS.shape or stops.dtype != np.bool_:
        raise UncurseError(
            f"{class_name(method)}.stops must return a bool for each row, in an array of their shape"
        )


def _misses(ask: Callable[..., object], *evidence: object) -> bool:
    try:
        ask(*evidence)
    except MissingEvidenceError:
        return True
    return False


_LENGTHS = 2 ** np.arange(13)  # a method may ask for a thing at some lengths alone
_SOURCE = Source(np.array([3]), np.array([4096]), np.array([0]), np.array([3.5]))
_PATHS = Paths(
    np.full(13, -1.0),
    _LENGTHS,
    Rewards(np.broadcast_to(np.arange(4097.0), (13, 4097)), np.full(13, 4096)),
    np.full(13, -0.5),
)
_EVIDENCE = Evidence(
    rescorer=LogProb(),  # which reads nothing: what is missed is missed by the rule
    beam_size=2,
    n_best=1,
    source=Source.repeated(13, 3, 8192, 0, 3.5),
    rewards=_PATHS.rewards,
    step=_LENGTHS,
    finished=_LENGTHS,
    nth_best=np.full(13, -2.0),
    bth_best_or_none=np.full(13, -3.0),
    top_was_eos=np.arange(13) % 2 == 0,
    best_live=np.full(13, -1.0),
)
