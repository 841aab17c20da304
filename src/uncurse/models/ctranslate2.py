"""Reading CTranslate2 models of the Marian family: `model.bin`, binary version 6, and its vocabulary."""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

import numpy as np
import torch
from numpy.typing import NDArray

from uncurse.models.products import Matrix
from uncurse.models.transformer import TransformerWeights

VERSION: Final = 6
TYPES: Final[dict[int, np.dtype[Any]]] = {
    0: np.dtype("<f4"),
    1: np.dtype("i1"),
    2: np.dtype("<i2"),
    3: np.dtype("<i4"),
    4: np.dtype("<f2"),
}
ACTIVATIONS: Final = {0: "relu", 2: "silu", 3: "gelu"}
FLAGS: Final = {  # what this runtime does; a model that wants something else is refused
    "encoder/embeddings_merge": 0,
    "encoder/pre_norm": 0,
    "encoder/scale_embeddings": 1,
    "decoder/pre_norm": 0,
    "decoder/scale_embeddings": 1,
    "decoder/start_from_zero_embedding": 1,
    "decoder/alibi": 0,
}
IGNORED: Final = re.compile(r"decoder/(align\w+|alibi_use_positive_positions|scale_alibi)")
KNOWN: Final = re.compile(
    r"(en|de)coder/("
    r"layer_\d+/(self_attention|attention|ffn)/(linear_[012]/(weight|weight_scale|bias)|layer_norm/(gamma|beta))"
    r"|embeddings(_0)?/weight(_scale)?|position_encodings/encodings|projection/(weight|weight_scale|bias)"
    r"|num_heads|activation)"
)
SHARED: Final = {  # Marian has one table of embeddings and one of positions
    "decoder/projection/weight": "decoder/embeddings/weight",
    "encoder/embeddings_0/weight": "decoder/embeddings/weight",
    "encoder/position_encodings/encodings": "decoder/position_encodings/encodings",
}


@final
@dataclass
class _Reader:
    """A file's bytes, read from the front; every size is checked against what is left."""

    content: memoryview
    path: Path
    at: int = 0

    def take(self, count: int) -> memoryview:
        """The next bytes."""
        if count > len(self.content) - self.at:
            raise ValueError(f"{self.path} ends before what it announces")
        self.at += count
        return self.content[self.at - count : self.at]

    def number(self, kind: str) -> int:
        """The next whole number: B, H or I."""
        (value,) = struct.unpack(f"<{kind}", self.take(struct.calcsize(f"<{kind}")))
        return int(value)

    def text(self) -> str:
        """The next string, which ends with a zero."""
        try:
            return bytes(self.take(self.number("H"))).rstrip(b"\0").decode()
        except UnicodeDecodeError:
            raise ValueError(f"{self.path} is not a CTranslate2 model") from None

    def array(self) -> NDArray[Any]:
        """The next array."""
        shape = tuple(self.number("I") for _ in range(self.number("B")))
        kind, size = self.number("B"), self.number("I")
        if kind not in TYPES or math.prod(shape) * TYPES[kind].itemsize != size:
            raise ValueError(f"{self.path} is damaged: an array {shape} of type {kind} has {size} bytes")
        array: NDArray[Any] = np.frombuffer(self.take(size), dtype=TYPES[kind]).reshape(shape)
        return array


def read_model(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of a `model.bin` by name, aliases included."""
    with path.open("rb") as file:
        reader = _Reader(memoryview(file.read()), path)
    version = reader.number("I")
    if version != VERSION:
        raise ValueError(f"{path} is not a CTranslate2 model of binary version {VERSION}")
    spec = reader.text()
    if spec != "TransformerSpec":
        raise ValueError(f"{path} is a {spec}; of CTranslate2's models only TransformerSpec can be read")
    reader.number("I")  # the revision of the spec
    arrays: dict[str, NDArray[Any]] = {}
    for _ in range(reader.number("I")):
        name = reader.text()
        if name in arrays:
            raise ValueError(f"{path} is damaged: it has {name} twice")
        arrays[name] = reader.array()
    for _ in range(reader.number("I")):
        alias, name = reader.text(), reader.text()
        if SHARED.get(alias) != name:
            raise ValueError(f"{path} is of another family: its {alias} is {name}")
    return arrays


def marian_weights(arrays: Mapping[str, NDArray[Any]], path: Path, end: int) -> TransformerWeights:
    """The arrays of a model of the Marian family; one that computes something else is refused by name."""
    for name, expected in FLAGS.items():
        found = int(arrays[name]) if name in arrays else 0
        if found != expected:
            raise ValueError(f"{path} is of another family: {name} is {found} and not {expected}")
    for name in arrays:
        if name not in FLAGS and not KNOWN.fullmatch(name) and not IGNORED.fullmatch(name):
            raise ValueError(f"{path} is of another family: it has {name}")
    activation = int(arrays["decoder/activation"]) if "decoder/activation" in arrays else 0
    if activation not in ACTIVATIONS:
        raise ValueError(f"{path} is of another family: its activation is number {activation}")
    for name, array in arrays.items():
        if array.dtype == np.int8 and array.ndim and f"{name}_scale" not in arrays:
            raise ValueError(f"{path} is damaged: {name} has no scale")
    tensors = {name: torch.from_numpy(array.copy()) for name, array in arrays.items() if array.ndim}
    matrices = {
        name.removesuffix("/weight"): Matrix(
            tensor if tensor.dtype == torch.int8 else tensor.float(), tensors.get(f"{name}_scale")
        )
        for name, tensor in tensors.items()
        if name.endswith("/weight")
    }
    vectors = {
        name.removesuffix("/encodings"): tensor.float() for name, tensor in tensors.items() if "weight" not in name
    }
    try:
        return TransformerWeights(
            matrices, vectors, int(arrays["decoder/num_heads"]), ACTIVATIONS[activation], end
        )
    except KeyError as error:
        raise ValueError(f"{path} lacks {error}") from error


def read_vocabulary(folder: Path) -> list[str]:
    """The pieces that both sides share, in the order of their ids."""
    path = folder / "shared_vocabulary.json"
    if not path.exists():
        raise ValueError(f"{path} is missing: both sides must share a vocabulary")
    try:
        pieces = json.loads(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
    if not isinstance(pieces, list) or not all(isinstance(piece, str) for piece in pieces):
        raise ValueError(f"{path} is not a list of pieces")
    if len(set(pieces)) != len(pieces):
        raise ValueError(f"{path} has a piece twice")
    return pieces
