"""Reading CTranslate2 models of the Marian family: `model.bin`, binary version 6, and its vocabulary."""

from __future__ import annotations

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
from torch import Tensor

from uncurse.jsonfile import read_json
from uncurse.models.products import Matrix
from uncurse.models.transformer_weights import OUTPUT_BIAS, TransformerWeights
from uncurse.text.vocabulary import Vocabulary

VERSION: Final = 6
VOCABULARY: Final = "shared_vocabulary.json"
TYPES: Final[dict[int, np.dtype[Any]]] = {
    0: np.dtype("<f4"),
    1: np.dtype("i1"),
    2: np.dtype("<i2"),
    3: np.dtype("<i4"),
    4: np.dtype("<f2"),
    5: np.dtype("<u2"),  # bfloat16, which NumPy does not have: the upper half of a float32
}
BFLOAT16: Final = 5
DIMENSIONS: Final = 8  # more than any array has
ACTIVATIONS: Final = {0: "relu", 2: "silu", 3: "gelu"}
FLAGS: Final = {  # what this runtime does; a model that wants something else is refused
    "encoder/embeddings_merge": 0,
    "encoder/pre_norm": 0,
    "encoder/multi_query_attention": 0,
    "decoder/pre_norm": 0,
    "decoder/multi_query_attention": 0,
    "decoder/start_from_zero_embedding": 1,
    "decoder/alibi": 0,
}
IGNORED: Final = re.compile(r"decoder/(align\w+|alibi_use_positive_positions|scale_alibi)")
KNOWN: Final = re.compile(
    r"(en|de)coder/("
    r"layer_\d+/(self_attention|attention|ffn)/(linear_[012]/(weight|weight_scale|bias)|layer_norm/(gamma|beta))"
    r"|embeddings(_0)?/weight(_scale)?|position_encodings/encodings|projection/(weight|weight_scale|bias)"
    r"|num_heads|activation|scale_embeddings)"
)
EMBEDDINGS: Final = "decoder/embeddings/weight"
SHARED: Final = {  # Marian has one table of embeddings and one of positions
    "decoder/projection/weight": EMBEDDINGS,
    "encoder/embeddings_0/weight": EMBEDDINGS,
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
        if len(shape) > DIMENSIONS or kind not in TYPES or math.prod(shape) * TYPES[kind].itemsize != size:
            raise ValueError(f"{self.path} is damaged: an array {shape} of type {kind} has {size} bytes")
        array: NDArray[Any] = np.frombuffer(self.take(size), dtype=TYPES[kind]).reshape(shape)
        return (array.astype("<u4") << 16).view("<f4") if kind == BFLOAT16 else array


def read_model(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of a `model.bin` by name; of tables that Marian has once, once."""
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
        if SHARED.get(alias, name) != name:
            raise ValueError(f"{path} is of another family: its {alias} is {name}")
        if name not in arrays or alias in arrays:
            raise ValueError(f"{path} is damaged: its {alias} is {name}")
        if alias not in SHARED:  # arrays that happen to be equal, such as biases of zero, are stored once
            arrays |= {alias + part: arrays[name + part] for part in ("", "_scale") if name + part in arrays}
    if reader.at != len(reader.content):
        raise ValueError(f"{path} goes on after its end")
    return arrays


def marian_weights(arrays: Mapping[str, NDArray[Any]], path: Path, end: int) -> TransformerWeights:
    """The arrays of a model of the Marian family; one that computes something else is refused by name."""
    for name in arrays:
        if name not in FLAGS and not KNOWN.fullmatch(name) and not IGNORED.fullmatch(name):
            raise ValueError(f"{path} is of another family: it has {name}")
    try:
        for name, expected in FLAGS.items():
            if (found := _flag(arrays, name)) != expected:
                raise ValueError(f"it is of another family, {name} is {found} and not {expected}")
        for side in ("encoder", "decoder"):
            _check_scale(arrays, f"{side}/scale_embeddings")
        activation, heads = _flag(arrays, "decoder/activation"), _flag(arrays, "decoder/num_heads")
        for name, own in (("activation", activation), ("num_heads", heads)):
            if f"encoder/{name}" in arrays and (found := _flag(arrays, f"encoder/{name}")) != own:
                raise ValueError(f"its {name} is {found} in the encoder and {own} in the decoder")
        if activation not in ACTIVATIONS:
            raise ValueError(f"it is of another family, its activation is number {activation}")
        return TransformerWeights(*_parts(arrays), heads, ACTIVATIONS[activation], end)
    except ValueError as error:
        raise ValueError(f"{path} cannot be run: {error}") from error


def _flag(arrays: Mapping[str, NDArray[Any]], name: str) -> int:
    """A whole number that stands alone; 0 if it is not there."""
    array = arrays.get(name, np.zeros(()))
    if name in arrays and (array.size != 1 or array.dtype.kind != "i"):
        raise ValueError(f"{name} is not a whole number")
    return int(array.item())


def _check_scale(arrays: Mapping[str, NDArray[Any]], name: str) -> None:
    """Embeddings are multiplied by the root of their size, which is said by a 1 or in so many words."""
    size = arrays[EMBEDDINGS].shape[-1] if EMBEDDINGS in arrays and arrays[EMBEDDINGS].ndim else 0
    array = arrays.get(name, np.zeros(()))
    found = array.item() if array.size == 1 else math.nan
    expected = math.sqrt(size) if array.dtype.kind == "f" else 1
    if not math.isclose(found, expected, rel_tol=1e-2):  # half precision rounds it
        raise ValueError(f"it is of another family, {name} is {found:g} and not {expected:g}")


def _parts(arrays: Mapping[str, NDArray[Any]]) -> tuple[dict[str, Matrix], dict[str, Tensor]]:
    """Matrices and vectors by their names here."""
    matrices, vectors = {}, {}
    for name, array in arrays.items():
        if not array.ndim or name.endswith("/weight_scale"):
            continue
        whole = name.endswith("/weight") and array.dtype in (np.int8, np.int16)
        if not whole and array.dtype.kind != "f":
            raise ValueError(f"{name} has numbers of type {array.dtype}")
        tensor = torch.from_numpy(array.copy())
        if not name.endswith("/weight"):
            vectors[name.removesuffix("/encodings")] = tensor.float()
        elif not whole:
            matrices[name.removesuffix("/weight")] = Matrix(tensor.float())
        elif (scale := arrays.get(f"{name}_scale")) is None:
            raise ValueError(f"{name} has no scale")
        elif array.dtype == np.int8:
            matrices[name.removesuffix("/weight")] = Matrix(tensor, torch.from_numpy(scale.copy()).float())
        elif scale.size == 1:
            matrices[name.removesuffix("/weight")] = Matrix(tensor.float() / float(scale.item()))
        else:
            raise ValueError(f"{name} has {scale.size} scales and not one")
    if OUTPUT_BIAS not in vectors and "decoder/embeddings" in matrices:  # one of zeros is not stored
        vectors[OUTPUT_BIAS] = torch.zeros(len(matrices["decoder/embeddings"].values))
    return matrices, vectors


def read_vocabulary(folder: Path) -> Vocabulary:
    """The pieces that both sides share, in the order of their ids."""
    path = folder / VOCABULARY
    if not path.exists():
        raise ValueError(f"{path} is missing: both sides must share a vocabulary")
    pieces = read_json(path)
    if not isinstance(pieces, list) or not all(isinstance(piece, str) for piece in pieces):
        raise ValueError(f"{path} is not a list of pieces")
    try:
        return Vocabulary(pieces)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
