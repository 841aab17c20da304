"""The weights of a Transformer by name; weights that do not fit together are refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, final

import torch
from torch import Tensor

from uncurse.errors import UncurseError
from uncurse.models.transformer.architecture import MARIAN, Architecture
from uncurse.models.transformer.positions import MAX_POSITIONS, sinusoidal_positions
from uncurse.models.transformer.quantization import Weight

EMBEDDINGS: Final = "decoder/embeddings"
POSITIONS: Final = "decoder/position_encodings"
OUTPUT_BIAS: Final = "decoder/projection/bias"
SIDES: Final = ("encoder", "decoder")


@final
@dataclass(frozen=True, eq=False)
class TransformerWeights:
    """Weights by name, and what their shapes do not tell.

    The names are those of CTranslate2: `encoder/layer_0/self_attention/linear_0` has the rows of queries, keys and
    values one after the other, `decoder/layer_0/attention/linear_1` those of keys and values. Both sides and the
    output layer share `decoder/embeddings`; the output bias is `decoder/projection/bias`. Without
    `encoder/position_encodings` the encoder has those of the decoder; without `decoder/position_encodings`
    positions are sinusoidal.
    """

    matrices: Mapping[str, Weight]
    vectors: Mapping[str, Tensor]
    heads: int
    activation: str
    eos: int  # `</s>`
    architecture: Architecture = MARIAN

    def __post_init__(self) -> None:
        """Refuse weights that are missing, unknown, of the wrong shape or type, or not finite."""
        vocab_size, d_model = _two_dimensions(self._matrix(EMBEDDINGS).values, EMBEDDINGS)
        if self.heads < 1 or d_model % self.heads:
            raise UncurseError(f"a model of size {d_model} cannot have {self.heads} attention heads")
        if d_model % 2 and POSITIONS not in self.vectors:
            raise UncurseError(f"a model of odd size {d_model} cannot have sinusoidal positions")
        if not 0 <= self.eos < vocab_size:
            raise UncurseError(f"</s> is token {self.eos}, outside the vocabulary of {vocab_size} tokens")
        linears, norms = dict(self._linears(d_model)), set(self._norms())
        matrices = {**linears, EMBEDDINGS: (vocab_size, d_model)}
        vectors: dict[str, tuple[int, ...]] = {
            f"{name}/bias": (outputs,) for name, (outputs, _) in linears.items()
        }
        vectors |= {f"{name}/{part}": (d_model,) for name in norms for part in ("gamma", "beta")}
        vectors[OUTPUT_BIAS] = (vocab_size,)
        for name in (_positions_of(side) for side in SIDES):
            if name in self.vectors:
                positions, _ = _two_dimensions(self.vectors[name], name)
                vectors[name] = (positions, d_model)
        for name in (*self.matrices, *self.vectors):
            if name not in matrices and name not in vectors:
                raise UncurseError(f"it has {name!r}, which a {self.architecture.name} model does not have")
        for name, shape in matrices.items():
            _check_matrix(self._matrix(name), name, shape)
        for name, expected in vectors.items():
            _check_vector(self._vector(name), name, expected)

    def layers(self, side: str) -> int:
        """The number of layers of the encoder or the decoder."""
        count = 0
        while f"{side}/layer_{count}/ffn/linear_0" in self.matrices:
            count += 1
        return count

    def without_output(self, tokens: Sequence[int]) -> TransformerWeights:
        """The same weights, but these tokens are never output."""
        bias = self.vectors[OUTPUT_BIAS].clone()
        bias[list(tokens)] = -torch.inf
        return replace(self, vectors={**self.vectors, OUTPUT_BIAS: bias})

    def positions(self, side: str) -> Tensor:
        """The position encodings of the encoder or the decoder, [positions, d_model]."""
        found = self.vectors.get(_positions_of(side), self.vectors.get(POSITIONS))
        return (
            sinusoidal_positions(MAX_POSITIONS, self.matrices[EMBEDDINGS].values.shape[1])
            if found is None
            else found
        )

    def norm(self, name: str) -> tuple[Tensor, Tensor]:
        """Gamma and beta of a layer norm, each [d_model]."""
        return self.vectors[f"{name}/gamma"], self.vectors[f"{name}/beta"]

    def _linears(self, d_model: int) -> Iterator[tuple[str, tuple[int, int]]]:
        """The linear layers with their numbers of outputs and inputs."""
        for name in self._layer_names():
            inner = len(self._matrix(f"{name}/ffn/linear_0").values)
            yield f"{name}/self_attention/linear_0", (3 * d_model, d_model)
            yield f"{name}/self_attention/linear_1", (d_model, d_model)
            yield f"{name}/ffn/linear_0", (inner, d_model)
            yield f"{name}/ffn/linear_1", (d_model, inner)
            if name.startswith("decoder"):
                yield f"{name}/attention/linear_0", (d_model, d_model)
                yield f"{name}/attention/linear_1", (2 * d_model, d_model)
                yield f"{name}/attention/linear_2", (d_model, d_model)

    def _norms(self) -> Iterator[str]:
        for name in self._layer_names():
            parts = ("self_attention", "ffn", *(("attention",) if name.startswith("decoder") else ()))
            yield from (f"{name}/{part}/layer_norm" for part in parts)
        for side in SIDES:
            if self.architecture.embedding_norm:
                yield embedding_norm(side)
            if self.architecture.pre_norm:
                yield final_norm(side)

    def _layer_names(self) -> Iterator[str]:
        for side in SIDES:
            if not self.layers(side):
                raise UncurseError(f"its {side} has no layers")
            yield from (f"{side}/layer_{index}" for index in range(self.layers(side)))

    def _matrix(self, name: str) -> Weight:
        if name not in self.matrices:
            raise UncurseError(f"{name!r} is missing")
        return self.matrices[name]

    def _vector(self, name: str) -> Tensor:
        if name not in self.vectors:
            raise UncurseError(f"{name!r} is missing")
        return self.vectors[name]


def embedding_norm(side: str) -> str:
    """The name of the layer norm of the embeddings."""
    return f"{side}/layernorm_embedding"


def final_norm(side: str) -> str:
    """The name of the layer norm at the end of a side."""
    return f"{side}/layer_norm"


def _positions_of(side: str) -> str:
    return f"{side}/position_encodings"


def _two_dimensions(tensor: Tensor, name: str) -> tuple[int, int]:
    if tensor.ndim != 2:
        raise UncurseError(f"{name!r} has the shape {tuple(tensor.shape)}; expected two dimensions")
    return tensor.shape[0], tensor.shape[1]


def _check_matrix(weight: Weight, name: str, shape: tuple[int, int]) -> None:
    _check_shape(weight.values, name, shape)
    _check_dtype(weight.values, name, torch.float32 if weight.scale is None else torch.int8)
    if weight.scale is None:
        _check_finite(weight.values, name)
        return
    _check_shape(weight.scale, f"{name} scale", shape[:1])
    _check_finite(weight.scale, f"{name} scale")
    if not bool((weight.scale > 0).all()):
        raise UncurseError(f"'{name} scale' has a value that is not above 0")


def _check_vector(vector: Tensor, name: str, shape: tuple[int, ...]) -> None:
    _check_shape(vector, name, shape)
    _check_dtype(vector, name, torch.float32)
    # A token that must never be output has a bias of -inf.
    _check_finite(vector.clamp(min=torch.finfo(torch.float32).min) if name == OUTPUT_BIAS else vector, name)


def _check_shape(tensor: Tensor, name: str, shape: tuple[int, ...]) -> None:
    if tuple(tensor.shape) != shape or 0 in shape:
        raise UncurseError(f"{name!r} has the shape {tuple(tensor.shape)}; expected {shape}")


def _check_dtype(tensor: Tensor, name: str, dtype: torch.dtype) -> None:
    if tensor.dtype != dtype:
        raise UncurseError(f"{name!r} is of type {tensor.dtype}; expected {dtype}")


def _check_finite(tensor: Tensor, name: str) -> None:
    if not bool(tensor.isfinite().all()):
        raise UncurseError(f"{name!r} has a value that is not finite")
