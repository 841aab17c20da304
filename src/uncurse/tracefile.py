"""Traces on disk: one compressed file for a corpus, without pickles, which can be judged without the model."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from uncurse.arrays import Bools, Floats, Ints
from uncurse.coverage import COVERAGE_FLOOR
from uncurse.decoding import Slots, check_count
from uncurse.files import write_whole
from uncurse.trace import Trace, sums_along

FORMAT: Final = "uncurse traces 1"


def save_traces(path: Path | str, traces: Sequence[Trace]) -> None:
    """Write the traces of a corpus, made by one model with one width, under a temporary name and rename it."""
    if not traces:
        raise ValueError("there are no traces to save")
    header = _header(traces[0])
    for index, trace in enumerate(traces):
        if _header(trace) != header:
            raise ValueError(f"trace {index} is of another search: {_header(trace)} instead of {header}")
    kept = [_kept_columns(trace) for trace in traces]  # each [steps, ranks]
    arrays: dict[str, NDArray[Any]] = {
        "header": np.frombuffer(json.dumps(header).encode(), dtype=np.uint8),
        "source_lengths": np.array([trace.source_length for trace in traces]),
        "limits": np.array([trace.limit for trace in traces]),
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
    content = io.BytesIO()
    np.savez_compressed(content, **{name: _smallest(array) for name, array in arrays.items()})  # type: ignore[arg-type]
    write_whole(Path(path), content.getbuffer())


def load_traces(path: Path | str) -> list[Trace]:
    """Read the traces of a corpus."""
    try:
        with Path(path).open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        header = json.loads(arrays["header"].tobytes())
        if header["format"] != FORMAT:
            raise ValueError(f"the format is {header['format']!r}, not {FORMAT!r}")
        if header["coverage_floor"] != COVERAGE_FLOOR:
            raise ValueError(f"coverage was cut at {header['coverage_floor']}, not at {COVERAGE_FLOOR}")
        shelf = _Shelf(arrays)
        traces = [_trace(header, shelf) for _ in arrays["steps"]]
        shelf.check_empty()
        return traces
    except FileNotFoundError:
        raise
    except Exception as error:  # a damaged archive can fail in any way
        raise ValueError(f"{path} is not a whole trace file: {error}") from error


def _header(trace: Trace) -> dict[str, str | int | float | bool]:
    return {
        "format": FORMAT,
        "version": trace.version,
        "model": trace.model,
        "width": trace.width,
        "slots": trace.slots.value,
        "end": trace.end,
        "attention": trace.coverage is not None,
        "coverage_floor": COVERAGE_FLOOR,
    }


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
class _Shelf:
    """The joined arrays of a file, handed out piece by piece in the order in which they were joined."""

    def __init__(self, arrays: dict[str, NDArray[Any]]) -> None:
        self._arrays = arrays
        self._used = dict.fromkeys(arrays, 0)

    def ints(self, name: str, count: int) -> Ints:
        """The next whole numbers of an array."""
        return self._next(name, count).astype(np.int64)

    def floats(self, name: str, count: int) -> Floats:
        """The next real numbers of an array."""
        return self._next(name, count).astype(np.float64)

    def check_empty(self) -> None:
        """Raise a `ValueError` if anything is left."""
        for name, used in self._used.items():
            if name != "header" and used != len(self._arrays[name]):
                raise ValueError(f"{name!r} is too long")

    def _next(self, name: str, count: int) -> NDArray[Any]:
        start = self._used[name]
        self._used[name] = start + count
        piece = self._arrays[name][start : start + count]
        if count < 0 or piece.shape != (count,):
            raise ValueError(f"{name!r} is too short")
        return piece


def _trace(header: dict[str, Any], shelf: _Shelf) -> Trace:
    width, slots = header["width"], Slots(header["slots"])
    check_count("width", width)
    source_length, limit, min_length, steps, prefix_length = (
        int(shelf.ints(name, 1)[0])
        for name in ("source_lengths", "limits", "min_lengths", "steps", "prefix_lengths")
    )
    used = shelf.ints("ranks", steps)
    shape = steps, slots.ranks(width)
    if not (0 <= steps <= limit and (used >= 0).all() and (used <= shape[1]).all()):
        raise ValueError("steps or ranks are impossible")
    kept = np.arange(shape[1]) < used[:, None]
    count = int(used.sum())
    tokens, parents, log_probs = np.full(shape, -1), np.zeros(shape, dtype=np.int64), np.full(shape, -np.inf)
    tokens[kept] = shelf.ints("tokens", count)
    parents[kept] = shelf.ints("parents", count)
    log_probs[kept] = shelf.floats("log_probs", count)
    if not ((parents >= 0).all() and (parents < shape[1]).all() and (log_probs <= 0).all()):
        raise ValueError("a parent or a log-probability is impossible")
    rewards, pruned = shelf.floats("rewards", steps), shelf.floats("pruned", steps)
    if not (np.isfinite(rewards).all() and (pruned <= 0).all()):
        raise ValueError("a reward or what was pruned is impossible")
    coverage = None
    if header["attention"]:
        coverage = np.zeros(shape)
        ends = tokens == header["end"]
        coverage[ends] = shelf.floats("coverage", int(ends.sum()))
    return Trace(
        str(header["version"]),
        str(header["model"]),
        width,
        slots,
        int(header["end"]),
        source_length,
        limit,
        min_length,
        tuple(shelf.ints("prefixes", prefix_length).tolist()),
        tokens,
        parents,
        log_probs,
        sums_along(tokens, parents, log_probs),
        rewards,
        pruned,
        coverage,
    )
