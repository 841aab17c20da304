"""Tensor helpers that several model families share."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from uncurse.arrays import Floats


def to_float64(values: Tensor) -> Floats:
    """A tensor as a NumPy array in double precision."""
    array: Floats = values.cpu().double().numpy()
    return array


def mean_over_tokens(states: Tensor, is_token: Tensor) -> Floats:
    """The mean of states, [sentences, positions, size], where there is a token, [sentences, size]."""
    counted = to_float64(is_token)[:, :, None]
    mean: Floats = (to_float64(states) * counted).sum(axis=1) / counted.sum(axis=1)
    return mean


def pad_and_concat(first: Tensor, second: Tensor, dim: int, fill: float = 0.0) -> Tensor:
    """Concatenate along the first dimension, after padding the shorter tensor at the end of `dim`."""
    longest = max(first.shape[dim], second.shape[dim])
    before = 2 * (first.ndim - dim) - 1  # `pad` takes pairs from the last dimension on; this is where `dim` ends

    def padded(part: Tensor) -> Tensor:
        return pad(part, [0] * before + [longest - part.shape[dim]], value=fill)

    return torch.cat((padded(first), padded(second)))
