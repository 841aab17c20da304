"""The traces of a corpus as a few long arrays, and back, with a check that a search could have left them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from uncurse.arrays import Bools, Floats, Ints
from uncurse.errors import UncurseError
from uncurse.scoring.decoding import Slots
from uncurse.search.trace import Trace, sums_along


def arrays_of(traces: Sequence[Trace]) -> dict[str, NDArray[Any]]:
    """What traces hold, joined over sentences and steps, in the narrowest types that are exact."""
    kept = [_kept_columns(trace) for trace in traces]  # each [steps, ranks]
    arrays: dict[str, NDArray[Any]] = {
        "source_lengths": np.array([trace.source_length for trace in traces]),
        "max_lengths": np.array([trace.max_length for trace in traces]),
        "min_lengths": np.array([trace.min_length for trace in traces]),
        "steps": np.array([trace.steps for trace in traces]),
        "prefix_lengths": np.array([len(trace.prefix) for trace in traces]),
        "prefixes": np.array([token for trace in traces for token in trace.prefix], dtype=np.int64),
        "ranks": np.concatenate([columns.sum(axis=1) for columns in kept]),
        "tokens": _joined([trace.tokens for trace in traces], kept),
        "parents": _joined([trace.parents for trace in traces], kept),
        "log_probs": _joined([trace.log_probs for trace in traces], kept),
        "rewards": np.concatenate([trace.rewards for trace in traces]),
        "pruned": np.concatenate([trace.pruned for trace in traces]),
    }
    coverage = [trace.finished_coverage for trace in traces if trace.finished_coverage is not None]
    if coverage:
        arrays["coverage"] = np.concatenate(coverage)
    return {name: _smallest(array) for name, array in arrays.items()}


def _kept_columns(trace: Trace) -> Bools:
    """The ranks of each step up to the last that was kept, [steps, ranks]."""
    kept = trace.tokens >= 0
    return np.logical_or.accumulate(kept[:, ::-1], axis=1)[:, ::-1]


def _joined(arrays: Sequence[NDArray[Any]], kept: Sequence[Bools]) -> NDArray[Any]:
    return np.concatenate([array[columns] for array, columns in zip(arrays, kept, strict=True)])


def _smallest(array: NDArray[Any]) -> NDArray[Any]:
    """The same numbers in the narrowest type that holds them all exactly."""
    if array.dtype == np.float64:
        with np.errstate(over="ignore"):
            narrow = array.astype(np.float32)
        return narrow if np.array_equal(narrow.astype(np.float64), array) else array
    if array.dtype == np.int64 and array.size:
        return array.astype(np.promote_types(np.min_scalar_type(array.min()), np.min_scalar_type(array.max())))
    return array


@final
class ArrayReader:
    """Reads the arrays of a corpus, one sentence after the other."""

    def __init__(self, arrays: dict[str, NDArray[Any]]) -> None:
        self._arrays = arrays
        self._used = dict.fromkeys(arrays, 0)

    def ints(self, name: str, count: int) -> Ints:
        """The next whole numbers of an array."""
        return self._next(name, count).astype(np.int64)

    def floats(self, name: str, count: int) -> Floats:
        """The next real numbers of an array."""
        return self._next(name, count).astype(np.float64)

    def check_finished(self) -> None:
        """Raise an `UncurseError` if anything is left."""
        for name, used in self._used.items():
            if name != "header" and used != len(self._arrays[name]):
                raise UncurseError(f"{name!r} is too long")

    def _next(self, name: str, count: int) -> NDArray[Any]:
        start = self._used[name]
        self._used[name] = start + count
        piece = self._arrays[name][start : start + count]
        if count < 0 or piece.shape != (count,):
            raise UncurseError(f"{name!r} is too short")
        return piece


def read_trace(header: Mapping[str, Any], reader: ArrayReader) -> Trace:
    """The trace of the next sentence; an error if no search could have left it."""
    beam_size, slots, eos = header["beam_size"], Slots(header["slots"]), header["eos"]
    source_length, max_length, min_length, steps, prefix_length = (
        int(reader.ints(name, 1)[0])
        for name in ("source_lengths", "max_lengths", "min_lengths", "steps", "prefix_lengths")
    )
    prefix = reader.ints("prefixes", prefix_length)
    if source_length < 0 or not 0 <= min_length <= max_length or (prefix < 0).any():
        raise UncurseError("a source, a minimum length or a prefix is impossible")
    used = reader.ints("ranks", steps)
    shape = steps, slots.ranks(beam_size)
    if not (0 <= steps <= max_length and (used >= 0).all() and (used <= shape[1]).all()):
        raise UncurseError("steps or ranks are impossible")
    kept = np.arange(shape[1]) < used[:, None]
    count = int(used.sum())
    tokens, parents, log_probs = np.full(shape, -1), np.zeros(shape, dtype=np.int64), np.full(shape, -np.inf)
    tokens[kept] = reader.ints("tokens", count)
    parents[kept] = reader.ints("parents", count)
    log_probs[kept] = reader.floats("log_probs", count)
    sums = _checked_sums(tokens, parents, log_probs, eos)
    _check_beam(tokens, sums, eos, beam_size, min_length)
    rewards, pruned = reader.floats("rewards", steps), reader.floats("pruned", steps)
    if not (np.isfinite(rewards).all() and (pruned <= 0).all()):
        raise UncurseError("a reward or what was pruned is impossible")
    coverage = None
    if header["attention"]:
        coverage = np.zeros(shape)
        ends = tokens == eos
        coverage[ends] = reader.floats("coverage", int(ends.sum()))
        if not (np.isfinite(coverage).all() and (coverage <= 0).all()):
            raise UncurseError("a coverage is impossible")
    return Trace(
        version=header["version"],
        model=header["model"],
        beam_size=beam_size,
        slots=slots,
        eos=eos,
        source_length=source_length,
        max_length=max_length,
        min_length=min_length,
        prefix=tuple(prefix.tolist()),
        constraint=header.get("constraint"),
        tokens=tokens,
        parents=parents,
        log_probs=log_probs,
        sums=sums,
        rewards=rewards,
        pruned=pruned,
        coverage=coverage,
    )


def _checked_sums(tokens: Ints, parents: Ints, log_probs: Floats, eos: int) -> Floats:
    """S of every hypothesis; an error unless each continues one that was alive at the step before."""
    there, ranks = tokens >= 0, tokens.shape[1]
    if not ((tokens >= -1).all() and (parents >= 0).all() and (parents < ranks).all()):
        raise UncurseError("a parent or a log-probability is impossible")
    alive = there & (tokens != eos)
    before = np.concatenate(((np.arange(ranks) == 0)[None], alive[:-1]))[: len(tokens)]
    continued = np.take_along_axis(before, parents, axis=1)
    if not (continued[there].all() and np.isfinite(log_probs[there]).all() and (log_probs[there] <= 0).all()):
        raise UncurseError("a parent or a log-probability is impossible")
    return sums_along(tokens, parents, log_probs)


def _check_beam(tokens: Ints, sums: Floats, eos: int, beam_size: int, min_length: int) -> None:
    """An error unless a beam of this size could have kept these hypotheses, best first."""
    ends, live = tokens == eos, (tokens >= 0) & (tokens != eos)
    if (live.sum(axis=1) > beam_size).any() or ends[:, beam_size:].any():
        raise UncurseError("a step keeps more than its beam holds")
    if ends[: max(min_length - 1, 0)].any():
        raise UncurseError("a hypothesis ends before the minimum length")
    for step in range(len(tokens)):
        if (np.diff(sums[step, tokens[step] >= 0]) > 0).any():
            raise UncurseError("a step does not keep the best first")
