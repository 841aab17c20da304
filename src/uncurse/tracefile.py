"""Traces on disk: one compressed file for a corpus, without pickles, which can be judged without the model."""

from __future__ import annotations

import errno
import io
import json
import zipfile
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import IO, Any, Final, final

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from uncurse.arrays import Bools, Floats, Ints
from uncurse.coverage import COVERAGE_FLOOR
from uncurse.decoding import Slots, checked_count
from uncurse.files import write_whole
from uncurse.jsonfile import parse_json
from uncurse.trace import Trace, sums_along

FORMAT: Final = "uncurse traces 2"
UNSIGNED: Final = "uncurse traces 1"  # the same without a checksum
ARRAYS: Final = (
    "header", "source_lengths", "limits", "min_lengths", "steps", "prefix_lengths", "prefixes", "ranks", "tokens",
    "parents", "log_probs", "rewards", "pruned", "coverage",
)  # fmt: skip
METHODS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
ROOM: Final = 1 << 24  # bytes that any file may unpack to
MOST_PACKED: Final = 50  # and so many more for each of its own; numbers of a search hardly halve
CELLS: Final = 1 << 22  # places of all beams together, and four for each hypothesis that was kept
HEADERS: Final = 1 << 12  # bytes in which all arrays together say what they are
SENTENCES: Final = 10_000  # and one more for eight bytes of the file


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
    arrays = {name: _smallest(array) for name, array in arrays.items()}
    arrays["header"] = np.frombuffer(
        json.dumps({**header, "sha256": _checksum(header, arrays)}).encode(), dtype=np.uint8
    )
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)  # type: ignore[arg-type]
    _check_proportions(header, arrays, len(content.getbuffer()))  # what could not be read is not written
    write_whole(Path(path), content.getbuffer())


def load_traces(path: Path | str) -> list[Trace]:
    """Read the traces of a corpus."""
    with Path(path).open("rb") as file:
        try:
            arrays = _unpacked(file)
            header = _checked_header(arrays)
            _check_proportions(header, arrays, file.seek(0, io.SEEK_END))
            shelf = _Shelf(arrays)
            traces = [_trace(header, shelf) for _ in arrays["steps"]]
            shelf.check_empty()
            return traces
        except Exception as error:  # a damaged archive can fail in any way
            if isinstance(error, OSError) and error.errno != errno.EINVAL:  # it can send a reader out of the file
                raise
            raise ValueError(f"{path} is not a whole trace file: {error}") from error


def _unpacked(file: IO[bytes]) -> dict[str, NDArray[Any]]:
    """The arrays of a file by name; what each claims to be is checked before there is memory for it."""
    room = _room(file.seek(0, io.SEEK_END))
    arrays: dict[str, NDArray[Any]] = {}
    with zipfile.ZipFile(file) as archive:
        if sum(info.file_size for info in archive.infolist()) > room:
            raise ValueError(f"it would unpack to more than {room} bytes")
        for info in archive.infolist():
            name = info.filename.removesuffix(".npy")
            if name in arrays or name not in ARRAYS or info.compress_type not in METHODS:
                raise ValueError(f"{info.filename!r} is there twice, or does not belong there")
            with archive.open(info) as member:
                arrays[name] = _array(member, name, info.file_size)
    return arrays


def _array(member: IO[bytes], name: str, size: int) -> NDArray[Any]:
    if npy.read_magic(member) != (1, 0):
        raise ValueError(f"{name!r} is in a format of its own")
    shape, _, dtype = npy.read_array_header_1_0(member)
    if len(shape) != 1 or not np.issubdtype(dtype, np.number) or dtype.hasobject:
        raise ValueError(f"{name!r} is no row of numbers")
    content = member.read()
    if shape[0] * dtype.itemsize != len(content) or member.tell() != size:
        raise ValueError(f"{name!r} claims {shape[0]} numbers of {dtype} and has {len(content)} bytes")
    return np.frombuffer(content, dtype)


def _checked_header(arrays: dict[str, NDArray[Any]]) -> dict[str, Any]:
    header = parse_json(arrays["header"].tobytes())
    if header["format"] not in (FORMAT, UNSIGNED):
        raise ValueError(f"the format is {header['format']!r}, not {FORMAT!r}")
    if header["format"] == FORMAT and header.pop("sha256") != _checksum(header, arrays):
        raise ValueError("it is damaged, its checksum is not that of what it holds")
    if header["coverage_floor"] != COVERAGE_FLOOR:
        raise ValueError(f"coverage was cut at {header['coverage_floor']}, not at {COVERAGE_FLOOR}")
    checked_count("width", header["width"])
    for name, kind in (("version", str), ("model", str), ("end", int), ("attention", bool)):
        if type(header[name]) is not kind:
            raise ValueError(f"{name} is {header[name]!r}")
    return dict(header)


def _checksum(header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> str:
    digest = sha256(json.dumps({**header, "sha256": None}, sort_keys=True).encode())
    for name in sorted(arrays.keys() - {"header"}):
        digest.update(f"{name} {arrays[name].dtype.str} {arrays[name].shape} ".encode())
        digest.update(arrays[name].tobytes())
    return digest.hexdigest()


def _check_proportions(header: dict[str, Any], arrays: dict[str, NDArray[Any]], size: int) -> None:
    """Refuse a file of few bytes whose traces would fill the memory.

    Beams that are next to empty at nearly every step come near to it: of those a file can hold fewer.
    """
    if sum(array.nbytes for array in arrays.values()) + HEADERS > _room(size):
        raise ValueError(f"it would unpack to more than {_room(size)} bytes")
    cells = len(arrays["ranks"]) * Slots(header["slots"]).ranks(header["width"])
    if cells > CELLS + 4 * len(arrays["tokens"]) or len(arrays["steps"]) > SENTENCES + size // 8:
        raise ValueError(
            f"{len(arrays['steps'])} sentences and {cells} places are too many for {len(arrays['tokens'])} tokens"
        )


def _room(size: int) -> int:
    """How many bytes a file of some size may unpack to."""
    return ROOM + MOST_PACKED * size


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
    width, slots, end = header["width"], Slots(header["slots"]), header["end"]
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
    _check_paths(tokens, parents, log_probs, end)
    rewards, pruned = shelf.floats("rewards", steps), shelf.floats("pruned", steps)
    if not (np.isfinite(rewards).all() and (pruned <= 0).all()):
        raise ValueError("a reward or what was pruned is impossible")
    prefix = shelf.ints("prefixes", prefix_length)
    if source_length < 0 or not 0 <= min_length <= limit or (prefix < 0).any():
        raise ValueError("a source, a least length or a prefix is impossible")
    coverage = None
    if header["attention"]:
        coverage = np.zeros(shape)
        ends = tokens == end
        coverage[ends] = shelf.floats("coverage", int(ends.sum()))
        if not (np.isfinite(coverage).all() and (coverage <= 0).all()):
            raise ValueError("a coverage is impossible")
    return Trace(
        header["version"],
        header["model"],
        width,
        slots,
        end,
        source_length,
        limit,
        min_length,
        tuple(prefix.tolist()),
        tokens,
        parents,
        log_probs,
        sums_along(tokens, parents, log_probs),
        rewards,
        pruned,
        coverage,
    )


def _check_paths(tokens: Ints, parents: Ints, log_probs: Floats, end: int) -> None:
    """Raise a `ValueError` unless every hypothesis continues one that was alive at the step before."""
    there, ranks = tokens >= 0, tokens.shape[1]
    if not ((tokens >= -1).all() and (parents >= 0).all() and (parents < ranks).all()):
        raise ValueError("a parent or a log-probability is impossible")
    alive = there & (tokens != end)
    before = np.concatenate(((np.arange(ranks) == 0)[None], alive[:-1]))[: len(tokens)]
    continued = np.take_along_axis(before, parents, axis=1)
    if not (continued[there].all() and np.isfinite(log_probs[there]).all() and (log_probs[there] <= 0).all()):
        raise ValueError("a parent or a log-probability is impossible")
