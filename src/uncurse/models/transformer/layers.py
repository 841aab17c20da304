"""The layers and the encoder of a Transformer (Vaswani et al. 2017), post-norm or pre-norm."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from uncurse.arrays import Ints
from uncurse.errors import UncurseError
from uncurse.models.transformer.attention import merge_heads, split_heads
from uncurse.models.transformer.linear import ComputeType, Linear, LinearInput, make_linear
from uncurse.models.transformer.output_layer import OutputLayer
from uncurse.models.transformer.weights import (
    EMBEDDINGS,
    OUTPUT_BIAS,
    SIDES,
    TransformerWeights,
    embedding_norm,
    final_norm,
)

ACTIVATIONS: Final[Mapping[str, Callable[[Tensor], Tensor]]] = {
    "relu": functional.relu,
    "silu": functional.silu,
    "swish": functional.silu,
    "gelu": functional.gelu,
}


@final
@dataclass(frozen=True, eq=False)
class LayerNorm:
    """Layer normalisation."""

    gamma: Tensor  # [d_model]
    beta: Tensor  # [d_model]

    def __call__(self, states: Tensor) -> Tensor:
        """States, [..., d_model], of mean 0 and variance 1, then scaled by gamma and shifted by beta."""
        return functional.layer_norm(states, self.gamma.shape, self.gamma, self.beta, 1e-5)


@final
@dataclass(frozen=True, eq=False)
class ResidualNorm:
    """What every sublayer has: output projection, residual connection, layer normalisation."""

    projection: Linear
    norm: LayerNorm
    pre_norm: bool = False  # the layer norm is before the sublayer, not after it

    def input(self, states: Tensor) -> LinearInput:
        """What the sublayer reads of the states."""
        return LinearInput(self.norm(states) if self.pre_norm else states)

    def __call__(self, states: Tensor, found: Tensor) -> Tensor:
        """The states after a sublayer that turned them into `found`."""
        added = states + self.projection(LinearInput(found))
        return added if self.pre_norm else self.norm(added)


@final
@dataclass(frozen=True, eq=False)
class FeedForward:
    """The feed-forward sublayer."""

    inner: Linear
    activation: Callable[[Tensor], Tensor]
    output: ResidualNorm

    def __call__(self, states: Tensor) -> Tensor:
        """The states after this sublayer."""
        return self.output(states, self.activation(self.inner(self.output.input(states))))


@final
@dataclass(frozen=True, eq=False)
class SelfAttention:
    """The weights of self-attention."""

    query_key_value: Linear  # in one product
    output: ResidualNorm


@final
@dataclass(frozen=True, eq=False)
class CrossAttention:
    """The weights of cross-attention, from the decoder to the encoder's states."""

    query: Linear
    key_value: Linear  # in one product
    output: ResidualNorm


@final
@dataclass(frozen=True, eq=False)
class EncoderLayer:
    """Self-attention and feed-forward."""

    self_attention: SelfAttention
    feed_forward: FeedForward

    def __call__(self, states: Tensor, is_token: Tensor, heads: int) -> Tensor:
        """The states after this layer, [sentences, positions, d_model]."""
        attention = self.self_attention
        query, key, value = split_heads(attention.query_key_value(attention.output.input(states)), 3, heads)
        attended = functional.scaled_dot_product_attention(query, key, value, is_token[:, None, None])
        return self.feed_forward(attention.output(states, merge_heads(attended)))


@final
@dataclass(frozen=True, eq=False)
class DecoderLayer:
    """Self-attention over the prefix, cross-attention over the source, feed-forward."""

    self_attention: SelfAttention
    cross_attention: CrossAttention
    feed_forward: FeedForward


@final
class TransformerNetwork:
    """Encoder, decoder layers and output layer, in a compute type and on a device."""

    def __init__(
        self,
        weights: TransformerWeights,
        compute_type: ComputeType,
        device: torch.device,
        allowed: Sequence[int] | None = None,  # the tokens that an output may have; None: all
    ) -> None:
        self.device = device
        self.signature = compute_type.signature
        self.heads = weights.heads
        self.eos = weights.eos
        self._embeddings = weights.matrices[EMBEDDINGS].to(device)
        self.d_model = self._embeddings.values.shape[1]
        self.architecture = weights.architecture
        self._embedding_scale = weights.architecture.embedding_scale(self.d_model)
        self._positions = {side: weights.positions(side).to(device) for side in SIDES}
        build = _LayerBuilder(weights, compute_type, device)
        self._embedding_norm, self._final_norm = (
            {side: build.norm(name(side)) for side in SIDES if has_norm}
            for name, has_norm in (
                (embedding_norm, self.architecture.embedding_norm),
                (final_norm, self.architecture.pre_norm),
            )
        )
        self.encoder = [build.encoder_layer(index) for index in range(weights.layers("encoder"))]
        self.decoder = [build.decoder_layer(index) for index in range(weights.layers("decoder"))]
        self._compute_type, self._output_bias = compute_type, build.vector(OUTPUT_BIAS)
        self.allowed = None if allowed is None else np.array(allowed)
        self.output = self.output_for(self.allowed)

    def output_for(self, tokens: Ints | None) -> OutputLayer:
        """The output layer for some tokens, ids, rising; None: all."""
        chosen = None if tokens is None else torch.from_numpy(tokens).to(self.device)
        return OutputLayer(self._embeddings, self._output_bias, self._compute_type, chosen)

    @property
    def vocab_size(self) -> int:
        """The number of tokens; as a token id it stands for no token, whose embedding is zero."""
        return self.output.vocab_size

    def max_positions(self, side: str) -> int:
        """The most tokens of a sequence, special ones counted: so many have a position encoding."""
        return len(self._positions[side])

    def embed(self, side: str, tokens: Tensor, first: Tensor | int = 0) -> Tensor:
        """Embed tokens, [rows, tokens], at positions from `first` on; the result is [rows, tokens, d_model]."""
        known = tokens.clamp(max=self.vocab_size - 1)
        embedded = self._embeddings.values[known].float()
        if self._embeddings.scale is not None:
            embedded /= self._embeddings.scale[known][..., None]
        embedded *= ((tokens < self.vocab_size) * self._embedding_scale)[..., None]
        embedded += self._positions[side][first + torch.arange(tokens.shape[1], device=self.device)]
        return self._embedding_norm[side](embedded) if side in self._embedding_norm else embedded

    def finished(self, side: str, states: Tensor) -> Tensor:
        """The states after the last layer of a side, [..., d_model]."""
        return self._final_norm[side](states) if side in self._final_norm else states

    def encode(self, sources: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """Encoder states of sources, [sentences, positions, d_model], and where there is a token.

        The sources have all special tokens that the model expects.
        """
        longest = max(len(source) for source in sources)
        if longest > (most := self.max_positions("encoder")):
            raise UncurseError(f"a source has {longest} tokens, special ones counted; this model can read {most}")
        rows = [[*source, *[self.eos] * (longest - len(source))] for source in sources]
        lengths = torch.tensor([len(source) for source in sources])
        is_token = (torch.arange(longest) < lengths[:, None]).to(self.device)
        states = self.embed("encoder", torch.tensor(rows, device=self.device))
        for layer in self.encoder:
            states = layer(states, is_token, self.heads)
        return self.finished("encoder", states), is_token


@final
@dataclass(frozen=True, eq=False)
class _LayerBuilder:
    """Makes layers of weights by name."""

    weights: TransformerWeights
    compute_type: ComputeType
    device: torch.device

    def encoder_layer(self, index: int) -> EncoderLayer:
        name = f"encoder/layer_{index}"
        return EncoderLayer(self._self_attention(f"{name}/self_attention"), self._feed_forward(f"{name}/ffn"))

    def decoder_layer(self, index: int) -> DecoderLayer:
        name = f"decoder/layer_{index}"
        cross_attention = CrossAttention(
            self._linear(f"{name}/attention/linear_0"),
            self._linear(f"{name}/attention/linear_1"),
            self._residual_norm(f"{name}/attention", "linear_2"),
        )
        self_attention = self._self_attention(f"{name}/self_attention")
        return DecoderLayer(self_attention, cross_attention, self._feed_forward(f"{name}/ffn"))

    def vector(self, name: str) -> Tensor:
        return self.weights.vectors[name].to(self.device)

    def norm(self, name: str) -> LayerNorm:
        gamma, beta = self.weights.norm(name)
        return LayerNorm(gamma.to(self.device), beta.to(self.device))

    def _self_attention(self, name: str) -> SelfAttention:
        return SelfAttention(self._linear(f"{name}/linear_0"), self._residual_norm(name, "linear_1"))

    def _feed_forward(self, name: str) -> FeedForward:
        activation = ACTIVATIONS[self.weights.activation]
        return FeedForward(self._linear(f"{name}/linear_0"), activation, self._residual_norm(name, "linear_1"))

    def _residual_norm(self, name: str, projection: str) -> ResidualNorm:
        pre_norm = self.weights.architecture.pre_norm
        return ResidualNorm(self._linear(f"{name}/{projection}"), self.norm(f"{name}/layer_norm"), pre_norm)

    def _linear(self, name: str) -> Linear:
        weight = self.weights.matrices[name].to(self.device)
        return make_linear(weight, self.vector(f"{name}/bias"), self.compute_type)
