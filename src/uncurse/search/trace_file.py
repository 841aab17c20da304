"""Traces on disk: one compressed file for a corpus, without pickles, which can be judged without the model."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from uncurse.errors import UncurseError
from uncurse.scoring.coverage import COVERAGE_FLOOR
from uncurse.scoring.decoding import Slots, checked_count
from uncurse.search.trace import Trace
from uncurse.search.trace_arrays import ArrayReader, arrays_of, read_trace
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
    arrays = arrays_of(traces)
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
        reader = ArrayReader(arrays)
        traces = [read_trace(header, reader) for _ in arrays["steps"]]
        reader.check_finished()
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
