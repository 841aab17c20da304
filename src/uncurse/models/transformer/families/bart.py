"""BART (Lewis et al. 2019), post-norm, and mBART and mBART-50 (Liu et al. 2020), pre-norm: learned positions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from torch import Tensor

from uncurse.models.transformer.architecture import Architecture
from uncurse.models.transformer.families.family import Config, Family

FIRST_POSITION: Final = 2  # of the table; the rows before it are not used


def _positions(_: Config, tensors: Mapping[str, Tensor], __: int) -> dict[str, Tensor]:
    sides = ("encoder", "decoder")
    return {side: tensors[f"model.{side}.embed_positions.weight"][FIRST_POSITION:].float() for side in sides}


BART: Final = Family(
    model_type="bart",
    architecture=Architecture(
        name="BART", pre_norm=False, embedding_norm=True, zero_start=False, scaled_embeddings=False
    ),
    required={"tie_word_embeddings": True},
    output_bias=True,
    positions=_positions,
)
MBART: Final = Family(
    model_type="mbart",
    architecture=Architecture(
        name="mBART", pre_norm=True, embedding_norm=True, zero_start=False, scaled_embeddings=False
    ),
    required={"tie_word_embeddings": True},
    output_bias=True,
    positions=_positions,
)
