"""Traces on disk: one compressed file for a corpus, without pickles, which can be judged without the model."""

from __future__ import annotations

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
from uncurse.errors import UncurseError
from uncurse.scoring.coverage import COVERAGE_FLOOR
from uncurse.scoring.decoding import Slots, checked_count
from uncurse.search.trace import Trace, sums_along
from uncurse.storage.atomic import atomic_write, read_regular_file
from uncurse.storage.strict_json import parse_json

FORMAT: Final = "uncurse traces 1"
ARRAYS: Final = (
    "header", "source_lengths", "max_lengths", "min_lengths", "steps", "prefix_lengths", "prefixes", "ranks",
    "tokens", "parents", "log_probs", "rewards", "pruned", "coverage",
)  # fmt: skip
FLOATS: Final = ("log_probs", "rewards", "pruned", "coverage")  # the others are whole numbers
METHODS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
ROOM: Final = 1 << 24  # bytes that any file may unpack to
MAX_RATIO: Final = 50  # and so many more for each of its own; numbers of a search hardly halve
CELLS: Final = 1 << 22  # places of all beams together, and four for each hypothesis that was kept
MAX_FILE: Final = 1 << 33  # bytes
MAX_HEADER: Final = 1 << 16  # bytes of JSON about the search
HEADERS: Final = 1 << 12  # bytes in which all arrays together say what they are
SENTENCES: Final = 10_000  # and one more for eight bytes of the file


def save_traces(path: Path | str, traces: Sequence[Trace]) -> None:
    """Write the traces of a corpus, made by one model with one beam size, under a temporary name and rename it."""
    if not traces:
        raise UncurseError("there are no traces to save")
    header = _header(traces[0])
    for index, trace in enumerate(traces):
        if _header(trace) != header:
            raise UncurseError(f"trace {index} is of another search: {_header(trace)} instead of {header}")
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
    arrays = {name: _smallest(array) for name, array in arrays.items()}
    arrays["header"] = np.frombuffer(
        json.dumps({**header, "sha256": _checksum(header, arrays)}).encode(), dtype=np.uint8
    )
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)  # type: ignore[arg-type]
    _check_proportions(header, arrays, len(content.getbuffer()))  # what could not be read is not written
    atomic_write(Path(path), content.getbuffer())


def load_traces(path: Path | str) -> list[Trace]:
    """Read the traces of a corpus."""
    file = io.BytesIO(read_regular_file(Path(path), MAX_FILE))
    try:
        arrays = _unpacked(file)
        header = _checked_header(arrays)
        _check_proportions(header, arrays, file.seek(0, io.SEEK_END))
        shelf = _Shelf(arrays)
        traces = [_trace(header, shelf) for _ in arrays["steps"]]
        shelf.check_empty()
    except Exception as error:  # a damaged archive can fail in any way
        raise UncurseError(f"{path} is not a whole trace file: {error}") from error
    return traces


def _unpacked(file: IO[bytes]) -> dict[str, NDArray[Any]]:
    """The arrays of a file by name; what each claims to be is checked before there is memory for it."""
    room = _room(file.seek(0, io.SEEK_END))
    arrays: dict[str, NDArray[Any]] = {}
    with zipfile.ZipFile(file) as archive:
        if sum(info.file_size for info in archive.infolist()) > room:
            raise UncurseError(f"it would unpack to more than {room} bytes")
        for info in archive.infolist():
            name = info.filename.removesuffix(".npy")
            if name in arrays or name not in ARRAYS or info.compress_type not in METHODS:
                raise UncurseError(f"{info.filename!r} is there twice, or does not belong there")
            with archive.open(info) as member:
                arrays[name] = _array(member, name, info.file_size)
    return arrays


def _array(member: IO[bytes], name: str, size: int) -> NDArray[Any]:
    if npy.read_magic(member) != (1, 0):
        raise UncurseError(f"{name!r} is in a format of its own")
    shape, _, dtype = npy.read_array_header_1_0(member)
    if len(shape) != 1 or dtype.kind not in ("f" if name in FLOATS else "iu"):
        raise UncurseError(f"{name!r} is not a row of {'real' if name in FLOATS else 'whole'} numbers")
    content = member.read()
    if shape[0] * dtype.itemsize != len(content) or member.tell() != size:
        raise UncurseError(f"{name!r} claims {shape[0]} numbers of {dtype} and has {len(content)} bytes")
    return np.frombuffer(content, dtype)


def _checked_header(arrays: dict[str, NDArray[Any]]) -> dict[str, Any]:
    if arrays["header"].nbytes > MAX_HEADER:  # JSON takes many times its size when it is parsed
        raise UncurseError(f"its header has more than {MAX_HEADER} bytes")
    header = parse_json(arrays["header"].tobytes())
    if header["format"] != FORMAT:
        raise UncurseError(f"the format is {header['format']!r}, not {FORMAT!r}")
    if header.pop("sha256") != _checksum(header, arrays):
        raise UncurseError("it is damaged, its checksum is not that of what it holds")
    if header["coverage_floor"] != COVERAGE_FLOOR:
        raise UncurseError(f"coverage was cut at {header['coverage_floor']}, not at {COVERAGE_FLOOR}")
    checked_count("beam_size", header["beam_size"])
    for name, kind in (("version", str), ("model", str), ("eos", int), ("attention", bool)):
        if type(header[name]) is not kind:
            raise UncurseError(f"{name} is {header[name]!r}")
    if type(header.get("constraint", "")) is not str:
        raise UncurseError(f"constraint is {header['constraint']!r}")
    if header["eos"] < 0:
        raise UncurseError(f"eos is {header['eos']}")
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
        raise UncurseError(f"it would unpack to more than {_room(size)} bytes")
    cells = len(arrays["ranks"]) * Slots(header["slots"]).ranks(header["beam_size"])
    if cells > CELLS + 4 * len(arrays["tokens"]) or len(arrays["steps"]) > SENTENCES + size // 8:
        raise UncurseError(
            f"{len(arrays['steps'])} sentences and {cells} places are too many for {len(arrays['tokens'])} tokens"
        )


def _room(size: int) -> int:
    """How many bytes a file of some size may unpack to."""
    return ROOM + MAX_RATIO * size


def _header(trace: Trace) -> dict[str, str | int | float | bool]:
    constraint = {} if trace.constraint is None else {"constraint": trace.constraint}
    return {
        "format": FORMAT,
        "version": trace.version,
        "model": trace.model,
        "beam_size": trace.beam_size,
        "slots": trace.slots.value,
        "eos": trace.eos,
        "attention": trace.coverage is not None,
        "coverage_floor": COVERAGE_FLOOR,
        **constraint,
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


def _trace(header: dict[str, Any], shelf: _Shelf) -> Trace:
    beam_size, slots, eos = header["beam_size"], Slots(header["slots"]), header["eos"]
    source_length, max_length, min_length, steps, prefix_length = (
        int(shelf.ints(name, 1)[0])
        for name in ("source_lengths", "max_lengths", "min_lengths", "steps", "prefix_lengths")
    )
    prefix = shelf.ints("prefixes", prefix_length)
    if source_length < 0 or not 0 <= min_length <= max_length or (prefix < 0).any():
        raise UncurseError("a source, a minimum length or a prefix is impossible")
    used = shelf.ints("ranks", steps)
    shape = steps, slots.ranks(beam_size)
    if not (0 <= steps <= max_length and (used >= 0).all() and (used <= shape[1]).all()):
        raise UncurseError("steps or ranks are impossible")
    kept = np.arange(shape[1]) < used[:, None]
    count = int(used.sum())
    tokens, parents, log_probs = np.full(shape, -1), np.zeros(shape, dtype=np.int64), np.full(shape, -np.inf)
    tokens[kept] = shelf.ints("tokens", count)
    parents[kept] = shelf.ints("parents", count)
    log_probs[kept] = shelf.floats("log_probs", count)
    sums = _checked_sums(tokens, parents, log_probs, eos)
    _check_beam(tokens, sums, eos, beam_size, min_length)
    rewards, pruned = shelf.floats("rewards", steps), shelf.floats("pruned", steps)
    if not (np.isfinite(rewards).all() and (pruned <= 0).all()):
        raise UncurseError("a reward or what was pruned is impossible")
    coverage = None
    if header["attention"]:
        coverage = np.zeros(shape)
        ends = tokens == eos
        coverage[ends] = shelf.floats("coverage", int(ends.sum()))
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
