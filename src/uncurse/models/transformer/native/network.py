"""The weights of a Transformer, packed for the kernels, and the calls that run it."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from uncurse.arrays import Floats, Ints
from uncurse.errors import UncurseError
from uncurse.models.transformer.linear import ComputeType
from uncurse.models.transformer.native.library import Found, Library, Step
from uncurse.models.transformer.quantization import Weight
from uncurse.models.transformer.weights import (
    EMBEDDINGS,
    OUTPUT_BIAS,
    SIDES,
    TransformerWeights,
    embedding_norm,
    final_norm,
)
from uncurse.search.step_model import Continuations

ACTIVATIONS: Final[Mapping[str, int]] = {"relu": 1, "silu": 2, "swish": 2, "gelu": 3}
ENCODER_LINEARS: Final = ("self_attention/linear_0", "self_attention/linear_1", "ffn/linear_0", "ffn/linear_1")
SUBLAYERS: Final[Mapping[str, tuple[str, ...]]] = {  # in the order in which they run
    "encoder": ("self_attention", "ffn"),
    "decoder": ("self_attention", "attention", "ffn"),
}
CROSS_LINEARS: Final = ("attention/linear_0", "attention/linear_1", "attention/linear_2")
Array = NDArray[Any]


def address(array: Array) -> int:
    """Where the values of a contiguous array begin."""
    place: int = array.__array_interface__["data"][0]
    return place


@final
class PackedLayer:
    """A linear layer packed for the kernels, with all outputs or some of them."""

    def __init__(
        self, library: Library, weight: Weight, bias: Tensor | None, int8: bool, rows: Tensor | None = None
    ) -> None:
        values, step = weight.quantize() if int8 else (weight.dequantize(), None)
        given = [None if part is None else part.contiguous() for part in (values, step, bias, rows)]
        pointers = [None if part is None else part.data_ptr() for part in given]
        self._library, self._delete = library, library.linear_delete
        self.outputs, self.inputs = len(values) if rows is None else len(rows), values.shape[1]
        self.pointer = library.linear_new(self.outputs, self.inputs, *pointers)

    def __del__(self) -> None:
        self._delete(self.pointer)

    def top_k(self, rows: NDArray[np.float32], k: int) -> tuple[Ints, Floats]:
        """As an output layer: ids and log-probabilities of the k most likely tokens, [rows, k]."""
        every = 4 * k > self.outputs  # most of them, as in forced decoding
        given = np.ascontiguousarray(rows, dtype=np.float32)
        ids, log_probs = np.empty((len(rows), k), np.int64), np.empty((len(rows), self.outputs if every else k))
        pointers = address(given), 0 if every else k, address(ids), address(log_probs)
        self._library.top_k(self.pointer, torch.get_num_threads(), len(rows), *pointers)
        if every:
            ids = _best(log_probs, k)
            log_probs = np.take_along_axis(log_probs, ids, axis=1)
        return ids, log_probs


@final
@dataclass(frozen=True, eq=False)
class EncodedSources:
    """Encoder states of sources, one after the other."""

    states: NDArray[np.float32]  # [tokens, d_model]
    first: NDArray[np.int32]  # [sources + 1] where each begins, and where the last one ends


@final
class SelectedOutput:
    """The output layer for the tokens that were selected for a sentence."""

    def __init__(self, layer: PackedLayer, tokens: Ints, common: SelectedOutput | None) -> None:
        self.layer = layer
        self.tokens = tokens  # [outputs] rising
        self.common = common  # for other tokens, which all sentences have
        self.address = address(tokens)

    @property
    def size(self) -> int:
        """The number of tokens."""
        return len(self.tokens) + (0 if self.common is None else self.common.size)


@final
class SelectableOutput:
    """An output layer from which rows are taken for each sentence."""

    def __init__(self, library: Library, weight: Weight, bias: Tensor, int8: bool) -> None:
        if int8 and weight.scale is None:  # once, and not for every sentence
            values, step = weight.quantize()
            weight = Weight(values, 1.0 / step)
        elif not int8:
            weight = Weight(weight.dequantize())
        self._library, self._weight, self._bias, self._int8 = library, weight, bias, int8

    def rows(self, tokens: Ints, common: SelectedOutput | None = None) -> SelectedOutput:
        """The output layer for some tokens, ids, rising, and for those that all sentences have."""
        chosen = torch.from_numpy(tokens)
        layer = PackedLayer(self._library, self._weight, self._bias, self._int8, chosen)
        return SelectedOutput(layer, tokens, common)


@final
class NativeNetwork:
    """Encoder, decoder and output layer as the kernels run them, in float32 or int8 on a CPU."""

    def __init__(
        self,
        weights: TransformerWeights,
        compute_type: ComputeType,
        library: Library,
        allowed: Sequence[int] | None = None,  # the tokens that an output may have; None: all
    ) -> None:
        self._library = library
        self._int8 = compute_type is ComputeType.INT8
        embeddings = weights.matrices[EMBEDDINGS]
        self.vocab_size, self.d_model = embeddings.values.shape
        self.eos = weights.eos
        self.layers = weights.layers("decoder")
        self._positions = [weights.positions(side).contiguous() for side in SIDES]
        chosen = None if allowed is None else torch.tensor(allowed)
        self._linears, self._norms = self._pack(weights, chosen)
        self._computed = self._linears[-1].outputs
        self.allowed = None if allowed is None else np.array(allowed)
        self._output_weights = embeddings, weights.vectors[OUTPUT_BIAS]
        self._tables = [
            None if table is None else table.contiguous()  # the kernels read them where they are
            for table in (embeddings.values, embeddings.scale, chosen)
        ]
        layers = weights.layers("encoder"), self.layers
        config = (
            *(self.d_model, weights.heads, *layers, self.vocab_size, ACTIVATIONS[weights.activation]),
            weights.architecture.pre_norm,
        )
        self._delete = library.network_delete
        self._pointer = library.network_new(
            (ctypes.c_int32 * len(config))(*config),
            weights.architecture.embedding_scale(self.d_model),
            (ctypes.c_void_p * len(self._linears))(*(linear.pointer for linear in self._linears)),
            (ctypes.c_void_p * len(self._norms))(
                *(None if norm is None else norm.data_ptr() for norm in self._norms)
            ),
            (ctypes.c_void_p * len(SIDES))(*(table.data_ptr() for table in self._positions)),
            *(None if table is None else table.data_ptr() for table in self._tables),
        )
        self.cache_stride: int = library.cache_stride(self._pointer)  # floats of a node or position in a KV cache

    def __del__(self) -> None:
        self._delete(self._pointer)

    @property
    def signature(self) -> str:
        """The compute type, the bits of quantised inputs and the instruction set: all can change results."""
        bits = f"int8x{self._library.max_quantized.bit_length()}" if self._int8 else "float32"
        return f"{bits}-{self._library.instruction_set}"

    def max_positions(self, side: str) -> int:
        """The most tokens of a sequence, special ones counted: so many have a position encoding."""
        return len(self._positions[SIDES.index(side)])

    @cached_property
    def output(self) -> SelectableOutput:
        """The output layer as vocabulary selection needs it."""
        return SelectableOutput(self._library, *self._output_weights, self._int8)

    def encode(self, sources: Sequence[Sequence[int]]) -> EncodedSources:
        """Encode sources, which have all special tokens that the model expects."""
        longest = max(len(source) for source in sources)
        if longest > (most := self.max_positions("encoder")):
            raise UncurseError(f"a source has {longest} tokens, special ones counted; this model can read {most}")
        first = np.zeros(len(sources) + 1, dtype=np.int32)
        np.cumsum([len(source) for source in sources], out=first[1:])
        tokens = self._checked(np.concatenate(sources))
        states = np.empty((len(tokens), self.d_model), dtype=np.float32)
        threads = torch.get_num_threads()
        pointers = [address(array) for array in (tokens, first, states)]
        self._library.encode(self._pointer, threads, len(sources), *pointers)
        return EncodedSources(states, first)

    def cross_attention_cache(self, states: NDArray[np.float32]) -> NDArray[np.float32]:
        """Keys and values of encoder states, [tokens, d_model], for every layer, [layers, tokens, stride]."""
        cache = np.empty((self.layers, len(states), self.cache_stride), dtype=np.float32)
        threads = torch.get_num_threads()
        self._library.cross_attention_cache(self._pointer, threads, len(states), address(states), address(cache))
        return cache

    def decode(
        self,
        tokens: Ints,
        step: Step,
        source_lengths: NDArray[np.int32],
        outputs: Sequence[SelectedOutput | None],
        k: int,
        attention: bool,
    ) -> Continuations:
        """Feed each row its token; `step` has all else. The k best next tokens; if k is 0, none are computed."""
        fed = self._checked(tokens)
        step.tokens, step.source_lengths = address(fed), address(source_lengths)
        received = None
        if attention:
            received = np.zeros((len(fed), int(source_lengths.max())), dtype=np.float32)
        selected = [output for output in outputs if output is not None]
        if selected:
            layers = np.array([output.layer.pointer for output in selected], dtype=np.uint64)
            allowed = np.array([output.address for output in selected], dtype=np.uint64)
            step.outputs, step.allowed = address(layers), address(allowed)
            if (common := selected[0].common) is not None:
                step.common, step.common_allowed = common.layer.pointer, common.address
        computed = min((output.size for output in selected), default=self._computed)
        every = 4 * k > computed  # most of them, as in forced decoding
        ids = np.empty((len(fed), k), dtype=np.int64)
        log_probs = np.empty((len(fed), self.vocab_size if every else k))
        found = Found(
            k=0 if every else k,
            received_stride=0 if received is None else received.shape[1],
            tokens=address(ids),
            log_probs=address(log_probs) if k else None,
            received=None if received is None else address(received),
        )
        threads = torch.get_num_threads()
        self._library.decode(self._pointer, threads, ctypes.byref(step), len(source_lengths), ctypes.byref(found))
        if every:
            ids = _best(log_probs, k)
            log_probs = np.take_along_axis(log_probs, ids, axis=1)
        return Continuations(ids, log_probs, None if received is None else received.astype(np.float64))

    def _checked(self, tokens: Ints) -> Ints:
        if (lowest := int(tokens.min())) < 0:
            raise UncurseError(f"{lowest} is no token: the lowest id is 0")
        return np.ascontiguousarray(tokens, dtype=np.int64)

    def _pack(
        self, weights: TransformerWeights, allowed: Tensor | None
    ) -> tuple[list[PackedLayer], list[Tensor | None]]:
        """Linear layers and layer norms in the order in which the kernels take them."""
        linears = []
        for side in SIDES:
            cross = side == "decoder"
            for index in range(weights.layers(side)):
                name = f"{side}/layer_{index}"
                for part in (*ENCODER_LINEARS, *(CROSS_LINEARS if cross else ())):
                    weight, bias = weights.matrices[f"{name}/{part}"], weights.vectors[f"{name}/{part}/bias"]
                    linears.append(PackedLayer(self._library, weight, bias, self._int8))
        weight, bias = weights.matrices[EMBEDDINGS], weights.vectors[OUTPUT_BIAS]
        if allowed is not None:
            weight, bias = weight.rows(allowed), bias[allowed]
        linears.append(PackedLayer(self._library, weight, bias, self._int8))
        return linears, [None if norm is None else norm.contiguous() for norm in _norms(weights)]


def _norms(weights: TransformerWeights) -> list[Tensor | None]:
    """The layer norms as the kernels take them: those of the embeddings, then the ones after each sublayer."""
    starts: list[Tensor | None] = []
    layers: list[Tensor | None] = []
    architecture = weights.architecture
    for side in SIDES:
        count, parts = weights.layers(side), SUBLAYERS[side]
        own = [f"{side}/layer_{index}/{part}/layer_norm" for index in range(count) for part in parts]
        starts += weights.norm(embedding_norm(side)) if architecture.embedding_norm else (None, None)
        starts += weights.norm(own[0]) if architecture.pre_norm else (None, None)
        after = [*own[1:], final_norm(side)] if architecture.pre_norm else own
        for index in range(count):
            of_layer = dict(zip(parts, after[index * len(parts) :], strict=False))
            for part in ("self_attention", "ffn", "attention"):  # as in the layers of `network.h`
                layers += weights.norm(of_layer[part]) if part in of_layer else ()
    return [*starts, *layers]


def _best(log_probs: Floats, k: int) -> Ints:
    """The ids of the k best of all tokens, [rows, k]; in order of id if k is all: nobody needs them sorted."""
    rows, vocab_size = log_probs.shape
    if k == vocab_size:
        return np.broadcast_to(np.arange(k), (rows, k))
    return np.argsort(-log_probs, axis=1, kind="stable")[:, :k]
