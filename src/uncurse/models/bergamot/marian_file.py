"""Reader of Marian's binary format, version 1, with float32 and intgemm8 arrays: every size is checked first."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

import numpy as np
import torch
from torch import Tensor

from uncurse.errors import UncurseError
from uncurse.models.loaded_model import MAX_WEIGHT_BYTES
from uncurse.models.transformer.quantization import Weight
from uncurse.storage.atomic import read_regular_file

VERSION: Final = 1
INT8: Final = 0x0101
FLOAT32: Final = 0x0404
INTGEMM8: Final = 0x4101
CONFIG: Final = "special:model.yml"
ALPHA: Final = "_QuantMultA"  # how Marian quantises the input of a product; it is quantised otherwise here
HEADER: Final = struct.Struct("<4Q")  # bytes of the name, type, dimensions, bytes of the data
MAX_DIMENSIONS: Final = 8  # more than any array of a model has


@final
@dataclass(frozen=True, eq=False)
class MarianFile:
    """The content of a Marian model."""

    matrices: dict[str, Weight]  # quantised ones; all but the embeddings are stored transposed, as they are here
    vectors: dict[str, Tensor]  # float32
    config: dict[str, str]  # the settings that the model was trained with


@final
@dataclass(frozen=True)
class _Item:
    """The header of an array."""

    name: str
    kind: int
    shape: tuple[int, ...]
    size: int  # of the data in bytes

    @property
    def count(self) -> int:
        return math.prod(self.shape)


@final
@dataclass
class _Cursor:
    """A position in the bytes of a file."""

    content: memoryview
    at: int = 0

    def take(self, count: int) -> memoryview:
        """The next `count` bytes."""
        if count > len(self.content) - self.at:
            raise UncurseError("it is cut off: it announces more bytes than it has")
        self.at += count
        return self.content[self.at - count : self.at]

    def integer(self) -> int:
        """The next unsigned integer of 64 bits."""
        return int.from_bytes(self.take(8), "little")


def read_marian_file(path: Path) -> MarianFile:
    """The arrays and the settings of a Marian model."""
    cursor = _Cursor(memoryview(read_regular_file(path, MAX_WEIGHT_BYTES)))
    try:
        return _read(cursor)
    except UncurseError as error:
        raise UncurseError(f"{path}: {error}") from error


def _read(cursor: _Cursor) -> MarianFile:
    if cursor.integer() != VERSION:
        raise UncurseError(f"it is not a Marian model of binary version {VERSION}")
    items = _read_items(cursor)
    cursor.take(cursor.integer())  # so that the data is aligned
    found = MarianFile({}, {}, {})
    for item in items:
        data = cursor.take(item.size)
        if item.name == CONFIG:
            found.config.update(_settings(data))
        elif item.name.endswith(ALPHA):
            continue
        elif item.kind == FLOAT32:
            found.vectors[item.name] = _vector(item, data)
        elif item.kind == INTGEMM8:
            found.matrices[item.name] = _matrix(item, data)
        else:
            raise UncurseError(f"{item.name!r} has the type {item.kind:#x}; float32 and intgemm8 are supported")
    if cursor.at != len(cursor.content):
        raise UncurseError("it is damaged: it has bytes after its end")
    return found


def _read_items(cursor: _Cursor) -> list[_Item]:
    count = cursor.integer()
    if count * HEADER.size > len(cursor.content) - cursor.at:
        raise UncurseError("it is cut off: it announces more arrays than it has")
    headers = list(HEADER.iter_unpack(cursor.take(count * HEADER.size)))
    try:
        names = [bytes(cursor.take(size)).rstrip(b"\0").decode() for size, _, _, _ in headers]
    except UnicodeDecodeError:
        raise UncurseError("it is damaged: the name of an array is not text") from None
    if len(set(names)) < count:
        raise UncurseError("it is damaged: it has two arrays of one name")
    items = []
    for name, (_, kind, dimensions, size) in zip(names, headers, strict=True):
        if dimensions > MAX_DIMENSIONS:
            raise UncurseError(f"it is damaged: {name!r} has {dimensions} dimensions")
        shape = struct.unpack(f"<{dimensions}i", cursor.take(4 * dimensions))
        if min(shape, default=1) < 1:
            raise UncurseError(f"it is damaged: {name!r} has the shape {shape}")
        items.append(_Item(name, kind, shape, size))
    return items


def _settings(data: memoryview) -> dict[str, str]:
    """The scalar settings of a YAML file, which Marian writes without nesting, but for lists."""
    try:
        lines = bytes(data).rstrip(b"\0").decode().splitlines()
    except UnicodeDecodeError:
        raise UncurseError(f"it is damaged: {CONFIG} is not text") from None
    pairs = (line.partition(":") for line in lines if not line.startswith((" ", "-", "#")))
    return {key.strip(): value.strip().strip("\"'") for key, _, value in pairs}


def _vector(item: _Item, data: memoryview) -> Tensor:
    if 4 * item.count > item.size:
        raise UncurseError(f"it is damaged: {item.name!r} {item.shape} has {item.size} bytes")
    return torch.from_numpy(np.frombuffer(data, "<f4", item.count).copy())


def _matrix(item: _Item, data: memoryview) -> Weight:
    """An array of int8 with one scale, `w = int8 / scale`, behind it; the rest is padding."""
    if len(item.shape) != 2 or item.count + 4 > item.size:
        raise UncurseError(f"it is damaged: {item.name!r} {item.shape} has {item.size} bytes")
    rows, columns = item.shape
    (scale,) = struct.unpack_from("<f", data, item.count)
    values = torch.from_numpy(np.frombuffer(data, np.int8, item.count).copy())
    outputs, inputs = (rows, columns) if item.name.endswith("Wemb") else (columns, rows)
    return Weight(values.view(outputs, inputs), torch.full((outputs,), scale))
