"""Reader of CTranslate2 files of the families here: `model.bin`, binary version 6, and the vocabulary."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from uncurse.errors import UncurseError
from uncurse.models.loaded_model import MAX_WEIGHT_BYTES
from uncurse.models.transformer.architecture import Architecture
from uncurse.models.transformer.families.known import FAMILIES
from uncurse.models.transformer.quantization import Weight
from uncurse.models.transformer.weights import (
    EMBEDDINGS,
    OUTPUT_BIAS,
    SIDES,
    TransformerWeights,
    embedding_norm,
)
from uncurse.storage.atomic import read_regular_file
from uncurse.storage.strict_json import read_json
from uncurse.text.marian_tokenizer import Vocabulary

VERSION: Final = 6
VOCABULARY: Final = "shared_vocabulary.json"
TYPES: Final[dict[int, np.dtype[Any]]] = {
    0: np.dtype("<f4"),
    1: np.dtype("i1"),
    2: np.dtype("<i2"),
    3: np.dtype("<i4"),
    4: np.dtype("<f2"),
    5: np.dtype("<u2"),  # bfloat16, which NumPy does not have: the upper 16 bits of a float32
}
BFLOAT16: Final = 5
MAX_EXPANSION: Final = 16  # how many times the bytes of a file its arrays may have, with every alias counted
MAX_DIMENSIONS: Final = 8  # more than any array of a model has
ACTIVATIONS: Final = {0: "relu", 2: "silu", 3: "gelu"}
FLAGS: Final = {  # what this runtime implements; a model with other values is refused
    "encoder/embeddings_merge": 0,
    "encoder/multi_query_attention": 0,
    "decoder/multi_query_attention": 0,
    "decoder/alibi": 0,
}
IGNORED: Final = re.compile(r"decoder/(align\w+|alibi_use_positive_positions|scale_alibi)")
KNOWN: Final = re.compile(
    r"(en|de)coder/("
    r"layer_\d+/(self_attention|attention|ffn)/(linear_[012]/(weight|weight_scale|bias)|layer_norm/(gamma|beta))"
    r"|embeddings(_0)?/weight(_scale)?|position_encodings/encodings|projection/(weight|weight_scale|bias)"
    r"|layer_norm/(gamma|beta)|layernorm_embedding/(gamma|beta)"
    r"|num_heads|activation|scale_embeddings|pre_norm|start_from_zero_embedding)"
)
EMBEDDINGS_WEIGHT: Final = f"{EMBEDDINGS}/weight"
SHARED: Final = {  # all families have one embedding table, and some have one table of positions
    "decoder/projection/weight": EMBEDDINGS_WEIGHT,
    "encoder/embeddings_0/weight": EMBEDDINGS_WEIGHT,
    "encoder/position_encodings/encodings": "decoder/position_encodings/encodings",
}


@final
@dataclass
class _Reader:
    """A cursor over a file's bytes; every size is checked against what is left."""

    content: memoryview
    path: Path
    at: int = 0

    def take(self, count: int) -> memoryview:
        """The next `count` bytes."""
        if count > len(self.content) - self.at:
            raise UncurseError(f"{self.path} is cut off: it announces more bytes than it has")
        self.at += count
        return self.content[self.at - count : self.at]

    def integer(self, kind: str) -> int:
        """The next unsigned integer, of the `struct` format B, H or I."""
        (value,) = struct.unpack(f"<{kind}", self.take(struct.calcsize(f"<{kind}")))
        return int(value)

    def text(self) -> str:
        """The next string, which is null-terminated."""
        try:
            return bytes(self.take(self.integer("H"))).rstrip(b"\0").decode()
        except UnicodeDecodeError:
            raise UncurseError(f"{self.path} is not a CTranslate2 model") from None

    def array(self) -> NDArray[Any]:
        """The next array."""
        shape = tuple(self.integer("I") for _ in range(self.integer("B")))
        kind, size = self.integer("B"), self.integer("I")
        if len(shape) > MAX_DIMENSIONS or kind not in TYPES or math.prod(shape) * TYPES[kind].itemsize != size:
            raise UncurseError(f"{self.path} is damaged: an array {shape} of type {kind} has {size} bytes")
        array: NDArray[Any] = np.frombuffer(self.take(size), dtype=TYPES[kind]).reshape(shape)
        return (array.astype("<u4") << 16).view("<f4") if kind == BFLOAT16 else array


def read_model(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of a `model.bin` by name; tables that both sides share are there once."""
    reader = _Reader(memoryview(read_regular_file(path, MAX_WEIGHT_BYTES)), path)
    version = reader.integer("I")
    if version != VERSION:
        raise UncurseError(f"{path} is not a CTranslate2 model of binary version {VERSION}")
    spec = reader.text()
    if spec != "TransformerSpec":
        raise UncurseError(f"{path} is a {spec}; of CTranslate2's models only TransformerSpec is supported")
    reader.integer("I")  # the revision of the spec
    arrays: dict[str, NDArray[Any]] = {}
    for _ in range(reader.integer("I")):
        name = reader.text()
        if name in arrays:
            raise UncurseError(f"{path} is damaged: it has {name} twice")
        arrays[name] = reader.array()
    for _ in range(reader.integer("I")):
        alias, name = reader.text(), reader.text()
        if SHARED.get(alias, name) != name:
            raise UncurseError(f"{path} is not supported: its {alias} is {name}")
        if name not in arrays or alias in arrays:
            raise UncurseError(f"{path} is damaged: its {alias} is an alias of {name}")
        if alias not in SHARED:  # CTranslate2 stores equal arrays, such as biases of zero, once
            arrays |= {alias + part: arrays[name + part] for part in ("", "_scale") if name + part in arrays}
    if reader.at != len(reader.content):
        raise UncurseError(f"{path} is damaged: it has bytes after its end")
    if sum(array.nbytes for array in arrays.values()) > MAX_EXPANSION * len(reader.content):
        raise UncurseError(f"{path} is refused: its aliases stand for more than {MAX_EXPANSION} times its bytes")
    return arrays


def transformer_weights(arrays: Mapping[str, NDArray[Any]], path: Path, eos: int) -> TransformerWeights:
    """The weights of a model of a known family; an error names what other models have or do otherwise."""
    for name in arrays:
        if name not in FLAGS and not KNOWN.fullmatch(name) and not IGNORED.fullmatch(name):
            raise UncurseError(f"{path} is not supported: it has {name}")
    try:
        for name, expected in FLAGS.items():
            if (found := _flag(arrays, name)) != expected:
                raise UncurseError(f"it is not supported: {name} is {found}, not {expected}")
        architecture = _architecture(arrays)
        activation, heads = _flag(arrays, "decoder/activation"), _flag(arrays, "decoder/num_heads")
        for name, own in (("activation", activation), ("num_heads", heads)):
            if f"encoder/{name}" in arrays and (found := _flag(arrays, f"encoder/{name}")) != own:
                raise UncurseError(f"{name} is {found} in the encoder and {own} in the decoder")
        if activation not in ACTIVATIONS:
            raise UncurseError(f"it is not supported: its activation function is number {activation}")
        return TransformerWeights(*_tensors(arrays), heads, ACTIVATIONS[activation], eos, architecture)
    except UncurseError as error:
        raise UncurseError(f"{path}: {error}") from error


def _flag(arrays: Mapping[str, NDArray[Any]], name: str) -> int:
    """An integer setting; 0 if it is missing."""
    array = arrays.get(name, np.zeros(()))
    if name in arrays and (array.size != 1 or array.dtype.kind != "i"):
        raise UncurseError(f"{name} is not an integer")
    return int(array.item())


def _architecture(arrays: Mapping[str, NDArray[Any]]) -> Architecture:
    """The architecture of the family that has these settings."""
    settings = [
        (
            bool(_flag(arrays, f"{side}/pre_norm")),
            f"{embedding_norm(side)}/gamma" in arrays,
            _scales_embeddings(arrays, f"{side}/scale_embeddings"),
        )
        for side in SIDES
    ]
    if settings[0] != settings[1]:
        raise UncurseError("it is not supported: its encoder is built otherwise than its decoder")
    pre_norm, norm, scaled = settings[0]
    zero_start = bool(_flag(arrays, "decoder/start_from_zero_embedding"))
    for known in (family.architecture for family in FAMILIES):
        if (known.pre_norm, known.embedding_norm, known.zero_start) == (pre_norm, norm, zero_start):
            if zero_start and not scaled:
                raise UncurseError(f"it is not supported: {known.name} models scale their embeddings")
            return replace(known, scaled_embeddings=scaled)
    raise UncurseError(
        f"it is none of {', '.join(family.architecture.name for family in FAMILIES)}: pre_norm is {pre_norm},"
        f" layernorm_embedding {norm}, start_from_zero_embedding {zero_start}"
    )


def _scales_embeddings(arrays: Mapping[str, NDArray[Any]], name: str) -> bool:
    """Whether embeddings are scaled by the root of their size: a flag, or as a float that root or 1."""
    embeddings = arrays.get(EMBEDDINGS_WEIGHT, np.zeros(()))
    size = embeddings.shape[-1] if embeddings.ndim else 0
    array = arrays.get(name, np.zeros((), dtype=np.int8))
    found = array.item() if array.size == 1 else math.nan
    no, yes = (1.0, math.sqrt(size)) if array.dtype.kind == "f" else (0, 1)
    for value, meaning in ((yes, True), (no, False)):
        if math.isclose(found, value, rel_tol=1e-2):  # half precision rounds it
            return meaning
    raise UncurseError(f"it is not supported: {name} is {found:g}, neither {yes:g} nor {no:g}")


def _tensors(arrays: Mapping[str, NDArray[Any]]) -> tuple[dict[str, Weight], dict[str, Tensor]]:
    """Weight matrices and vectors by the names of `TransformerWeights`."""
    matrices, vectors = {}, {}
    for name, array in arrays.items():
        if not array.ndim or name.endswith("/weight_scale"):
            continue
        quantized = name.endswith("/weight") and array.dtype in (np.int8, np.int16)
        if not quantized and array.dtype.kind != "f":
            raise UncurseError(f"{name} is of type {array.dtype}")
        tensor = torch.from_numpy(array.copy())
        if not name.endswith("/weight"):
            vectors[name.removesuffix("/encodings")] = tensor.float()
        elif not quantized:
            matrices[name.removesuffix("/weight")] = Weight(tensor.float())
        elif (scale := arrays.get(f"{name}_scale")) is None:
            raise UncurseError(f"{name} has no scale")
        elif array.dtype == np.int8:
            matrices[name.removesuffix("/weight")] = Weight(tensor, torch.from_numpy(scale.copy()).float())
        elif scale.size == 1:
            matrices[name.removesuffix("/weight")] = Weight(tensor.float() / float(scale.item()))
        else:
            raise UncurseError(f"{name} has {scale.size} scales; int16 has one")
    if OUTPUT_BIAS not in vectors and EMBEDDINGS in matrices:  # CTranslate2 does not store a bias of zeros
        vectors[OUTPUT_BIAS] = torch.zeros(len(matrices[EMBEDDINGS].values))
    return matrices, vectors


def read_vocabulary(folder: Path) -> Vocabulary:
    """The shared vocabulary of both sides."""
    path = folder / VOCABULARY
    if not path.exists():
        raise UncurseError(f"{path} is missing: source and target must share a vocabulary")
    tokens = read_json(path)
    if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
        raise UncurseError(f"{path} is not a list of tokens")
    try:
        return Vocabulary(tokens)
    except UncurseError as error:
        raise UncurseError(f"{path}: {error}") from error
