"""The network of a Bergamot model: a Transformer encoder, and a decoder with an SSRU for self-attention."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor
from torch.nn import functional

from uncurse.errors import UncurseError
from uncurse.models.bergamot.weights import EMBEDDINGS, OUTPUT_BIAS, BergamotWeights, norm_name
from uncurse.models.transformer.layers import (
    ACTIVATIONS,
    CrossAttention,
    EncoderLayer,
    FeedForward,
    LayerNorm,
    ResidualNorm,
    SelfAttention,
)
from uncurse.models.transformer.linear import ComputeType, Linear, LinearInput, make_linear
from uncurse.models.transformer.output_layer import OutputLayer
from uncurse.models.transformer.positions import MAX_POSITIONS
from uncurse.models.transformer.quantization import Weight


@final
@dataclass(frozen=True, eq=False)
class SSRU:
    """The simpler simple recurrent unit (Kim et al., From Research to Production and Back, 2019).

    `f = sigmoid(Wf x + bf)`, `c' = f c + (1 − f) W x`; the output is `relu(c')`.
    """

    input_and_gate: Linear  # W and Wf in one product
    norm: LayerNorm

    def __call__(self, states: Tensor, cells: Tensor) -> tuple[Tensor, Tensor]:
        """The states after this sublayer and the new cells, both [rows, d_model]."""
        projected, gate = self.input_and_gate(LinearInput(states)).chunk(2, dim=1)
        cells = torch.lerp(projected, cells, gate.sigmoid())
        return self.norm(states + cells.relu()), cells


@final
@dataclass(frozen=True, eq=False)
class SSRUDecoderLayer:
    """SSRU over the prefix, cross-attention over the source, feed-forward."""

    ssru: SSRU
    cross_attention: CrossAttention
    feed_forward: FeedForward


@final
class BergamotNetwork:
    """Encoder, decoder layers and output layer, in a compute type and on a device."""

    def __init__(
        self,
        weights: BergamotWeights,
        compute_type: ComputeType,
        device: torch.device,
        allowed: Sequence[int] | None = None,  # the tokens that an output may have; None: all
    ) -> None:
        self.device = device
        self.heads = weights.heads
        self.eos = weights.eos
        self.d_model = weights.d_model
        self.vocab_size = weights.vocab_size
        embeddings = weights.matrices[EMBEDDINGS].to(device)
        # One row more, of zeros: the decoder starts from no token.
        self._embeddings = functional.pad(embeddings.dequantize() * math.sqrt(self.d_model), (0, 0, 0, 1))
        self._positions = marian_positions(MAX_POSITIONS, self.d_model).to(device)
        build = _BergamotLayerBuilder(weights, compute_type, device)
        self.encoder = [build.encoder_layer(index + 1) for index in range(weights.encoder_layers)]
        self.decoder = [build.decoder_layer(index + 1) for index in range(weights.decoder_layers)]
        self.output = OutputLayer(
            embeddings,
            weights.vectors[OUTPUT_BIAS].to(device),
            compute_type,
            None if allowed is None else torch.tensor(allowed, device=device),
        )

    def embed(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """Embed tokens at positions of the same shape; the result has d_model as one more dimension."""
        return self._embeddings[tokens] + self._positions[positions]

    def encode(self, sources: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """Encoder states of sources with `</s>`, [sentences, positions, d_model], and where there is a token."""
        longest = max(len(source) for source in sources) + 1
        if longest > MAX_POSITIONS:
            raise UncurseError(f"a source has {longest - 1} tokens; this model can read {MAX_POSITIONS - 1}")
        tokens = torch.full((len(sources), longest), self.eos)
        for row, source in zip(tokens, sources, strict=True):
            row[: len(source)] = torch.tensor(source, dtype=torch.long)
        positions = torch.arange(longest)
        is_token = (positions <= torch.tensor([len(source) for source in sources])[:, None]).to(self.device)
        states = self.embed(tokens.to(self.device), positions.to(self.device))
        for layer in self.encoder:
            states = layer(states, is_token, self.heads)
        return states, is_token


def marian_positions(positions: int, d_model: int) -> Tensor:
    """Marian's own position encodings, all sines and then all cosines, [positions, d_model].

    The slowest rate is exactly 1 / 10000; that of Vaswani et al. is a little faster.
    """
    rates = 10000.0 ** -torch.linspace(0.0, 1.0, d_model // 2, dtype=torch.float64)
    angles = torch.arange(positions, dtype=torch.float64)[:, None] * rates
    return torch.cat((angles.sin(), angles.cos()), dim=1).float()


@final
@dataclass(frozen=True, eq=False)
class _BergamotLayerBuilder:
    """Makes layers of weights by name."""

    weights: BergamotWeights
    compute_type: ComputeType
    device: torch.device

    def encoder_layer(self, number: int) -> EncoderLayer:
        name = f"encoder_l{number}"
        attention = SelfAttention(self._linear(f"{name}_self", "q", "k", "v"), self._output(f"{name}_self"))
        return EncoderLayer(attention, self._feed_forward(f"{name}_ffn"))

    def decoder_layer(self, number: int) -> SSRUDecoderLayer:
        name = f"decoder_l{number}"
        context = f"{name}_context"
        return SSRUDecoderLayer(
            SSRU(self._linear(f"{name}_rnn", "", "f"), self._norm(f"{name}_rnn")),
            CrossAttention(self._linear(context, "q"), self._linear(context, "k", "v"), self._output(context)),
            self._feed_forward(f"{name}_ffn"),
        )

    def _output(self, name: str) -> ResidualNorm:
        return ResidualNorm(self._linear(name, "o"), self._norm(name))

    def _feed_forward(self, name: str) -> FeedForward:
        output = ResidualNorm(self._linear(name, "2"), self._norm(name))
        return FeedForward(self._linear(name, "1"), ACTIVATIONS[self.weights.activation], output)

    def _norm(self, name: str) -> LayerNorm:
        norm = norm_name(name)
        return LayerNorm(self._vector(f"{norm}_scale"), self._vector(f"{norm}_bias"))

    def _vector(self, name: str) -> Tensor:
        return self.weights.vectors[name].to(self.device)

    def _linear(self, name: str, *parts: str) -> Linear:
        """Linear layers with the same input as one."""
        matrices = [self.weights.matrices[f"{name}_W{part}"] for part in parts]
        biases = [
            self.weights.vectors.get(
                f"{name}_b{part}", torch.zeros(len(matrix.values))
            )  # only W of an SSRU has none
            for part, matrix in zip(parts, matrices, strict=True)
        ]
        weight = Weight.stack(matrices).to(self.device)
        return make_linear(weight, torch.cat(biases).to(self.device), self.compute_type)
