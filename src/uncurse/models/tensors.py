"""What several models do with tensors."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from uncurse.arrays import Floats


def doubles(values: Tensor) -> Floats:
    """The values as an array in double precision."""
    array: Floats = values.cpu().double().numpy()
    return array


def beside(mine: Tensor, theirs: Tensor, dim: int, fill: float = 0.0) -> Tensor:
    """The rows of both; along another dimension the shorter is filled up."""
    longest = max(mine.shape[dim], theirs.shape[dim])
    after = 2 * (mine.ndim - dim) - 1  # `pad` counts from the last dimension, and before comes before after

    def filled(part: Tensor) -> Tensor:
        return pad(part, [0] * after + [longest - part.shape[dim]], value=fill)

    return torch.cat((filled(mine), filled(theirs)))
