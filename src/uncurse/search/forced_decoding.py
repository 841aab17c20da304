"""Forced decoding: what a model thinks of translations that are given to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import final

import numpy as np

from uncurse.arrays import Floats, Ints
from uncurse.errors import UncurseError
from uncurse.scoring.coverage import attended, coverage_sums
from uncurse.search.step_model import S, StepModel, checked


@final
@dataclass(frozen=True)
class ScoredTarget:
    """A given translation as the model sees it."""

    tokens: tuple[int, ...]  # with </s>
    log_probs: tuple[float, ...]
    log_prob: float
    coverage: float | None  # None if the model gives no attention


def force_decode(
    model: StepModel[S], sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
) -> list[ScoredTarget]:
    """Feed each source's given target, `</s>` added, to the model and note what it says of every token."""
    if len(sources) != len(targets):
        raise UncurseError(f"{len(sources)} sources and {len(targets)} targets are given")
    if not sources:
        return []
    wanted = [(*target, model.eos) for target in targets]
    log_probs: list[list[float]] = [[] for _ in sources]
    coverage = np.zeros(len(sources))
    rows: Ints = np.arange(len(sources))  # which pair each row of the state belongs to
    state, fed = model.start(sources), np.full(len(sources), model.bos)
    lengths = np.array([len(source) for source in sources])
    received: Floats = np.zeros((len(sources), int(lengths.max())))
    for step in range(max(map(len, wanted))):
        given, state = model.step(state, fed, model.vocab_size, model.attends)
        values = checked(given.log_probs, partial(_where, rows, step))
        fed = np.array([wanted[row][step] for row in rows])
        found = values[given.tokens == fed[:, None]]
        for row, value in zip(rows.tolist(), found.tolist(), strict=True):
            log_probs[row].append(value)
        if given.attention is not None:
            received = attended(received, given.attention)
        ended = fed == model.eos
        coverage[rows[ended]] = coverage_sums(received[ended], lengths[rows[ended]])
        going_on = np.flatnonzero(~ended)
        if not len(going_on):
            break
        state, rows, fed, received = state.select(going_on), rows[going_on], fed[going_on], received[going_on]
    return [
        ScoredTarget(tokens, tuple(each), float(np.cumsum(each)[-1]), float(covered) if model.attends else None)
        for tokens, each, covered in zip(wanted, log_probs, coverage, strict=True)
    ]


def _where(rows: Ints, step: int, row: int) -> str:
    return f"pair {rows[row]}, step {step + 1}"
