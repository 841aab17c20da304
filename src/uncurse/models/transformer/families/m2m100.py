"""M2M100 (Fan et al. 2020) and NLLB (NLLB Team 2022): pre-norm, sinusoidal positions from an offset on."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import torch
from torch import Tensor

from uncurse.errors import UncurseError
from uncurse.models.transformer.architecture import Architecture
from uncurse.models.transformer.families.family import Config, Family
from uncurse.models.transformer.positions import MAX_POSITIONS


def _positions(config: Config, _: Mapping[str, Tensor], d_model: int) -> dict[str, Tensor]:
    """The encodings of tensor2tensor, whose lowest rate is 1 / 10000; the first is that after padding's."""
    most, padding = config.get("max_position_embeddings", 1024), config.get("pad_token_id", 1)
    for name, value in (("max_position_embeddings", most), ("pad_token_id", padding)):
        if type(value) is not int or value < 0 or (name == "max_position_embeddings" and value < 1):
            raise UncurseError(f"{name} = {value!r} is not allowed")
    if d_model < 4 or d_model % 2:
        raise UncurseError(f"a model of size {d_model} cannot have sinusoidal positions")
    half = d_model // 2
    rates = torch.exp(torch.arange(half, dtype=torch.float32) * -(math.log(10000) / (half - 1)))
    numbers = torch.arange(min(most, MAX_POSITIONS), dtype=torch.float32) + (padding + 1)
    angles = numbers[:, None] * rates
    return {"decoder": torch.cat((angles.sin(), angles.cos()), dim=1)}


M2M100: Final = Family(
    model_type="m2m_100",
    architecture=Architecture(
        name="M2M100", pre_norm=True, embedding_norm=False, zero_start=False, scaled_embeddings=True
    ),
    required={"tie_word_embeddings": True},
    output_bias=False,
    positions=_positions,
)
