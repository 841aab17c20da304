"""Multi-head attention: heads split and merged, scaled dot products, masks, and the weights of cross-attention."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

FEW_SCORES: Final = 1000  # per sentence and head; up to here plain products are faster than the fused kernel


def split_heads(projected: Tensor, parts: int, heads: int) -> Tensor:
    """Queries, keys or values side by side, [sentences, positions, parts · d_model], split into heads.

    The result is [parts, sentences, heads, positions, head size].
    """
    sentences, positions, _ = projected.shape
    return projected.view(sentences, positions, parts, heads, -1).permute(2, 0, 3, 1, 4)


def merge_heads(attended: Tensor) -> Tensor:
    """The outputs of all heads, [sentences, heads, positions, head size], as [sentences, positions, d_model]."""
    return attended.transpose(1, 2).flatten(2)


def additive_mask(visible: Tensor) -> Tensor:
    """A mask to add to attention scores: 0 where something is visible, -inf elsewhere."""
    return torch.zeros(visible.shape, device=visible.device).masked_fill_(~visible, -torch.inf)


def attend(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """The attention output of each query, [sentences, heads, lanes, head size]."""
    if query.shape[2] * keys.shape[2] > FEW_SCORES:
        return scaled_dot_product_attention(query, keys, values, mask)
    scores = (query @ keys.transpose(2, 3)).mul_(query.shape[3] ** -0.5).add_(mask)
    return scores.softmax(dim=-1) @ values


def attention_weights(query: Tensor, keys: Tensor, mask: Tensor) -> Tensor:
    """The attention that each source position receives, averaged over heads, [sentences, lanes, positions]."""
    scores = query @ keys.transpose(2, 3) / query.shape[3] ** 0.5 + mask
    received: Tensor = scores.softmax(dim=-1).mean(dim=1)
    return received
