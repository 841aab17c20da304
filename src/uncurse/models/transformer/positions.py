"""Sinusoidal position encodings (Vaswani et al. 2017)."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

MAX_POSITIONS: Final = 2048  # for which they are computed; a formula has no limit, memory has


def sinusoidal_positions(positions: int, d_model: int) -> Tensor:
    """The encodings in Marian's order, first all sines and then all cosines, [positions, d_model]."""
    rates = 10000.0 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    angles = torch.arange(positions, dtype=torch.float64)[:, None] * rates
    return torch.cat((angles.sin(), angles.cos()), dim=1).float()
