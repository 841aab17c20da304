"""Tensor helpers that several model families share."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor
from torch.nn.functional import pad

from uncurse.arrays import Floats

MAX_WEIGHT_BYTES: Final = 1 << 35  # of a file of weights; the translation models that this is for have up to 7 GB


def to_float64(values: Tensor) -> Floats:
    """A tensor as a NumPy array in double precision."""
    array: Floats = values.cpu().double().numpy()
    return array


def pad_and_concat(first: Tensor, second: Tensor, dim: int, fill: float = 0.0) -> Tensor:
    """Concatenate along the first dimension, after padding the shorter tensor at the end of `dim`."""
    longest = max(first.shape[dim], second.shape[dim])
    before = 2 * (first.ndim - dim) - 1  # `pad` takes pairs from the last dimension on; this is where `dim` ends

    def padded(part: Tensor) -> Tensor:
        return pad(part, [0] * before + [longest - part.shape[dim]], value=fill)

    return torch.cat((padded(first), padded(second)))
