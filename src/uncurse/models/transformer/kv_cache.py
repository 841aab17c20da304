"""KV caches of the decoder: self-attention over the tree of a beam's prefixes, and cross-attention.

The prefixes of a beam form a tree, since most share their beginnings. Keys and values are stored once per node of
the tree, however many prefixes go through it, and those of the source once per sentence. A prefix is the list of
its nodes: selecting prefixes copies lists of small integers, not keys and values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self, final

import torch
from torch import Tensor

from uncurse.models.tensors import pad_and_concat
from uncurse.models.transformer.attention import split_heads


@final
class PrefixTreeCache:
    """The KV cache of self-attention: keys and values of the nodes of every sentence's prefix tree.

    Nodes are only ever added, so states that branch from one another can share a cache.
    """

    def __init__(self, keys: list[Tensor], values: list[Tensor], nodes: int) -> None:
        self.keys = keys  # of each layer, [sentences, heads, capacity, head size]
        self.values = values
        self.nodes = nodes  # in use in each sentence; some may be dead, that is, in no live prefix

    @property
    def capacity(self) -> int:
        """How many nodes of each sentence memory is allocated for."""
        return self.keys[0].shape[2]

    def take(self, sentences: Tensor, chosen: Tensor, nodes: int) -> PrefixTreeCache:
        """Copy the chosen nodes, [sentences, capacity], of some sentences; only the first `nodes` are in use."""
        heads, head_size = self.keys[0].shape[1], self.keys[0].shape[3]
        rows = sentences[:, None] * heads + torch.arange(heads, device=sentences.device)
        indices = (rows[:, :, None] * self.capacity + chosen[:, None]).flatten()
        shape = len(sentences), heads, chosen.shape[1], head_size

        def taken(layers: list[Tensor]) -> list[Tensor]:
            return [layer.reshape(-1, head_size).index_select(0, indices).view(shape) for layer in layers]

        return PrefixTreeCache(taken(self.keys), taken(self.values), nodes)

    def append(self, other: PrefixTreeCache) -> PrefixTreeCache:
        """These sentences followed by the others."""
        nodes = max(self.nodes, other.nodes)
        return PrefixTreeCache(_concat(self.keys, other.keys), _concat(self.values, other.values), nodes)


@final
@dataclass(frozen=True, eq=False)
class CrossAttentionCache:
    """The KV cache of cross-attention: keys and values of the source, once per sentence."""

    keys: list[Tensor]  # of each layer, [sentences, heads, positions, head size]
    values: list[Tensor]
    is_token: Tensor  # [sentences, positions] False for padding

    @classmethod
    def of(cls, projected: Sequence[Tensor], heads: int, is_token: Tensor) -> Self:
        """Split the keys and values of each layer, [sentences, positions, 2 · d_model], into heads."""
        pairs = [split_heads(each, 2, heads) for each in projected]
        return cls([key.contiguous() for key, _ in pairs], [value.contiguous() for _, value in pairs], is_token)

    def take(self, sentences: Tensor) -> Self:
        """Some of the sentences, with as many positions as the longest of them has."""
        is_token = self.is_token[sentences]
        is_token = is_token[:, : int(is_token.sum(dim=1).max())]
        keys = [layer[sentences, :, : is_token.shape[1]] for layer in self.keys]
        return type(self)(keys, [layer[sentences, :, : is_token.shape[1]] for layer in self.values], is_token)

    def split(self) -> Self:
        """Every token as a sentence of its own."""
        keys, values = (
            [layer.transpose(1, 2)[self.is_token].unsqueeze(2) for layer in layers]
            for layers in (self.keys, self.values)
        )
        return type(self)(keys, values, self.is_token[self.is_token].unsqueeze(1))

    def append(self, other: Self) -> Self:
        """These sentences followed by the others."""
        keys, values = _concat(self.keys, other.keys), _concat(self.values, other.values)
        return type(self)(keys, values, pad_and_concat(self.is_token, other.is_token, 1))


def _concat(first: list[Tensor], second: list[Tensor]) -> list[Tensor]:
    """The sentences of both in every layer, [sentences, heads, nodes or positions, head size]."""
    return [pad_and_concat(one, two, 2) for one, two in zip(first, second, strict=True)]
