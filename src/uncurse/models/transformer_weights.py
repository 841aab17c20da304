"""The weights of a Transformer by name, which fit together or are refused before anything is computed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, final

import torch
from torch import Tensor

from uncurse.models.products import Matrix

EMBEDDINGS: Final = "decoder/embeddings"
POSITIONS: Final = "decoder/position_encodings"
OUTPUT_BIAS: Final = "decoder/projection/bias"


@final
@dataclass(frozen=True, eq=False)
class TransformerWeights:
    """Weights by name, and what their shapes do not tell.

    Names are those of CTranslate2: `encoder/layer_0/self_attention/linear_0` has queries, keys and values one
    above the other, `decoder/layer_0/attention/linear_1` keys and values; `decoder/embeddings` serve both sides
    and the output, whose bias is `decoder/projection/bias`.
    """

    matrices: Mapping[str, Matrix]
    vectors: Mapping[str, Tensor]
    heads: int
    activation: str
    end: int  # `</s>`, which also closes every source

    def __post_init__(self) -> None:
        """Refuse weights of which some are missing, too many, of the wrong shape or no numbers."""
        vocabulary, size = _two(self._matrix(EMBEDDINGS).values, EMBEDDINGS)
        if self.heads < 1 or size % self.heads:
            raise ValueError(f"states of {size} numbers cannot be shared by {self.heads} heads")
        if not 0 <= self.end < vocabulary:
            raise ValueError(f"</s> is token {self.end} of {vocabulary}")
        products, norms = dict(self._products(size)), set(self._norms())
        vectors = {f"{name}/bias": (outputs,) for name, (outputs, _) in products.items()}
        vectors |= {f"{name}/{part}": (size,) for name in norms for part in ("gamma", "beta")}
        vectors[OUTPUT_BIAS] = (vocabulary,)
        places, _ = _two(self._vector(POSITIONS), POSITIONS)
        for name, shape in {**products, EMBEDDINGS: (vocabulary, size)}.items():
            _check_matrix(self._matrix(name), name, shape)
        for name, expected in {**vectors, POSITIONS: (places, size)}.items():
            _check_vector(self._vector(name), name, expected)
        for name in (*self.matrices, *self.vectors):
            if name not in products and name not in vectors and name not in (EMBEDDINGS, POSITIONS):
                raise ValueError(f"it has {name!r}, for which there is no place")

    def layers(self, side: str) -> int:
        """How many layers the encoder or the decoder has."""
        count = 0
        while f"{side}/layer_{count}/ffn/linear_0" in self.matrices:
            count += 1
        return count

    def _products(self, size: int) -> Iterator[tuple[str, tuple[int, int]]]:
        """The products of every layer with their outputs and inputs."""
        for name in self._layers():
            inner = len(self._matrix(f"{name}/ffn/linear_0").values)
            yield f"{name}/self_attention/linear_0", (3 * size, size)
            yield f"{name}/self_attention/linear_1", (size, size)
            yield f"{name}/ffn/linear_0", (inner, size)
            yield f"{name}/ffn/linear_1", (size, inner)
            if name.startswith("decoder"):
                yield f"{name}/attention/linear_0", (size, size)
                yield f"{name}/attention/linear_1", (2 * size, size)
                yield f"{name}/attention/linear_2", (size, size)

    def _norms(self) -> Iterator[str]:
        for name in self._layers():
            parts = ("self_attention", "ffn", *(("attention",) if name.startswith("decoder") else ()))
            yield from (f"{name}/{part}/layer_norm" for part in parts)

    def _layers(self) -> Iterator[str]:
        for side in ("encoder", "decoder"):
            if not self.layers(side):
                raise ValueError(f"its {side} has no layers")
            yield from (f"{side}/layer_{index}" for index in range(self.layers(side)))

    def _matrix(self, name: str) -> Matrix:
        if name not in self.matrices:
            raise ValueError(f"it lacks {name!r}")
        return self.matrices[name]

    def _vector(self, name: str) -> Tensor:
        if name not in self.vectors:
            raise ValueError(f"it lacks {name!r}")
        return self.vectors[name]


def _two(tensor: Tensor, name: str) -> tuple[int, int]:
    if tensor.ndim != 2:
        raise ValueError(f"{name!r} has the shape {tuple(tensor.shape)} and not two dimensions")
    return tensor.shape[0], tensor.shape[1]


def _check_matrix(matrix: Matrix, name: str, shape: tuple[int, int]) -> None:
    _check_shape(matrix.values, name, shape)
    if matrix.values.dtype != (torch.float32 if matrix.scale is None else torch.int8):
        raise ValueError(f"{name!r} has numbers of type {matrix.values.dtype}")
    if matrix.scale is None:
        _check_finite(matrix.values, name)
        return
    _check_shape(matrix.scale, f"{name} scale", shape[:1])
    _check_finite(matrix.scale, f"{name} scale")
    if not bool((matrix.scale > 0).all()):
        raise ValueError(f"'{name} scale' has a scale that is not above 0")


def _check_vector(vector: Tensor, name: str, shape: tuple[int, ...]) -> None:
    _check_shape(vector, name, shape)
    if vector.dtype != torch.float32:
        raise ValueError(f"{name!r} has numbers of type {vector.dtype}")
    # What can never be said has a bias of -inf.
    _check_finite(vector.clamp(min=torch.finfo(torch.float32).min) if name == OUTPUT_BIAS else vector, name)


def _check_shape(tensor: Tensor, name: str, shape: tuple[int, ...]) -> None:
    if tuple(tensor.shape) != shape or 0 in shape:
        raise ValueError(f"{name!r} has the shape {tuple(tensor.shape)} and not {shape}")


def _check_finite(tensor: Tensor, name: str) -> None:
    if not bool(tensor.isfinite().all()):
        raise ValueError(f"{name!r} has a number that is not finite")
