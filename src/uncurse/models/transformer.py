"""A Transformer for translation, as Marian trains it (Vaswani et al. 2017, post-norm): layers and encoder."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, final

import torch
from torch import Tensor
from torch.nn import functional

from uncurse.models.output_layer import OutputLayer
from uncurse.models.products import Given, Matrix, Numbers, Product, product_of
from uncurse.models.transformer_weights import TransformerWeights

ACTIVATIONS: Final[Mapping[str, Callable[[Tensor], Tensor]]] = {
    "relu": functional.relu,
    "silu": functional.silu,
    "swish": functional.silu,
    "gelu": functional.gelu,
}


@final
@dataclass(frozen=True, eq=False)
class Norm:
    """Layer normalisation."""

    gamma: Tensor
    beta: Tensor

    def __call__(self, states: Tensor) -> Tensor:
        """States of mean 0 and variance 1, scaled and moved."""
        return functional.layer_norm(states, self.gamma.shape, self.gamma, self.beta, 1e-5)


@final
@dataclass(frozen=True, eq=False)
class Closing:
    """How every part of a layer ends: a product is added to the states, and the sum is normalised."""

    outer: Product
    norm: Norm

    def __call__(self, states: Tensor, found: Tensor) -> Tensor:
        """The states after this part of a layer, given what it has found."""
        return self.norm(states + self.outer(Given(found)))


@final
@dataclass(frozen=True, eq=False)
class FeedForward:
    """Two products with an activation between them."""

    inner: Product
    activation: Callable[[Tensor], Tensor]
    close: Closing

    def __call__(self, states: Tensor) -> Tensor:
        """The states after this part of a layer."""
        return self.close(states, self.activation(self.inner(Given(states))))


@final
@dataclass(frozen=True, eq=False)
class SelfAttention:
    """Attention of a sequence to itself."""

    inputs: Product  # queries, keys and values in one product
    close: Closing


@final
@dataclass(frozen=True, eq=False)
class CrossAttention:
    """Attention of the decoder to the encoder's states."""

    query: Product
    memory: Product  # keys and values in one product
    close: Closing


@final
@dataclass(frozen=True, eq=False)
class EncoderLayer:
    """Attention and feed-forward."""

    attention: SelfAttention
    feed_forward: FeedForward


@final
@dataclass(frozen=True, eq=False)
class DecoderLayer:
    """Attention to the prefix, attention to the source, feed-forward."""

    attention: SelfAttention
    cross: CrossAttention
    feed_forward: FeedForward


@final
class Transformer:
    """Encoder and decoder layers, ready to run in some numbers on some device."""

    def __init__(
        self,
        weights: TransformerWeights,
        numbers: Numbers,
        device: torch.device,
        allowed: Sequence[int] | None = None,  # the tokens that an output may have
    ) -> None:
        self.device = device
        self.heads = weights.heads
        self.end = weights.end
        self._weights = weights
        self._numbers = numbers
        embeddings = weights.matrices["decoder/embeddings"]
        self._embeddings = embeddings.values.to(device)
        self._embedding_scale = None if embeddings.scale is None else embeddings.scale.to(device)
        self.size = embeddings.values.shape[1]
        self._positions = self._vector("decoder/position_encodings")
        self.encoder = [self._encoder_layer(index) for index in range(weights.layers("encoder"))]
        self.decoder = [self._decoder_layer(index) for index in range(weights.layers("decoder"))]
        self.output = OutputLayer(
            Matrix(self._embeddings, self._embedding_scale),
            self._vector("decoder/projection/bias"),
            numbers,
            None if allowed is None else torch.tensor(allowed, device=device),
        )

    @property
    def vocabulary(self) -> int:
        """The number of tokens, which is also the token that stands for no token: its embedding is zero."""
        return self.output.outputs

    @property
    def places(self) -> int:
        """How many places have a position of their own."""
        return len(self._positions)

    def embed(self, tokens: Tensor, first: Tensor | int = 0) -> Tensor:
        """Embeddings of tokens, [sentences, places], the first of which stand at given places."""
        known = tokens.clamp(max=self.vocabulary - 1)
        embedded = self._embeddings[known].float()
        if self._embedding_scale is not None:
            embedded /= self._embedding_scale[known][..., None]
        embedded *= ((tokens < self.vocabulary) * math.sqrt(self.size))[..., None]
        return embedded + self._positions[first + torch.arange(tokens.shape[1], device=self.device)]

    def encode(self, sources: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """States of sources, each closed by `</s>`, [sentences, positions, size], and where there is a piece."""
        longest = max(len(source) for source in sources) + 1
        if longest > self.places:
            raise ValueError(f"a source has {longest - 1} pieces, and the model knows {self.places - 1} places")
        rows = [[*source, self.end, *[self.end] * (longest - 1 - len(source))] for source in sources]
        lengths = torch.tensor([len(source) + 1 for source in sources])
        inside = (torch.arange(longest) < lengths[:, None]).to(self.device)
        states = self.embed(torch.tensor(rows, device=self.device))
        for layer in self.encoder:
            query, key, value = split(layer.attention.inputs(Given(states)), 3, self.heads)
            attended = functional.scaled_dot_product_attention(query, key, value, inside[:, None, None])
            states = layer.feed_forward(layer.attention.close(states, joined(attended)))
        return states, inside

    def _encoder_layer(self, index: int) -> EncoderLayer:
        name = f"encoder/layer_{index}"
        return EncoderLayer(self._self_attention(f"{name}/self_attention"), self._feed_forward(f"{name}/ffn"))

    def _decoder_layer(self, index: int) -> DecoderLayer:
        name = f"decoder/layer_{index}"
        cross = CrossAttention(
            self._product(f"{name}/attention/linear_0"),
            self._product(f"{name}/attention/linear_1"),
            self._closing(f"{name}/attention", "linear_2"),
        )
        own = self._self_attention(f"{name}/self_attention")
        return DecoderLayer(own, cross, self._feed_forward(f"{name}/ffn"))

    def _self_attention(self, name: str) -> SelfAttention:
        return SelfAttention(self._product(f"{name}/linear_0"), self._closing(name, "linear_1"))

    def _feed_forward(self, name: str) -> FeedForward:
        activation = ACTIVATIONS[self._weights.activation]
        return FeedForward(self._product(f"{name}/linear_0"), activation, self._closing(name, "linear_1"))

    def _product(self, name: str) -> Product:
        matrix = self._weights.matrices[name]
        scale = None if matrix.scale is None else matrix.scale.to(self.device)
        return product_of(
            Matrix(matrix.values.to(self.device), scale), self._vector(f"{name}/bias"), self._numbers
        )

    def _closing(self, name: str, outer: str) -> Closing:
        norm = Norm(self._vector(f"{name}/layer_norm/gamma"), self._vector(f"{name}/layer_norm/beta"))
        return Closing(self._product(f"{name}/{outer}"), norm)

    def _vector(self, name: str) -> Tensor:
        return self._weights.vectors[name].to(self.device)


def split(products: Tensor, parts: int, heads: int) -> Tensor:
    """Queries, keys or values that lie side by side, [sentences, places, parts · size], each by heads.

    The result is [parts, sentences, heads, places, size].
    """
    sentences, places, _ = products.shape
    return products.view(sentences, places, parts, heads, -1).permute(2, 0, 3, 1, 4)


def joined(attended: Tensor) -> Tensor:
    """What all heads saw, [sentences, places, heads · size], of [sentences, heads, places, size]."""
    return attended.transpose(1, 2).flatten(2)
