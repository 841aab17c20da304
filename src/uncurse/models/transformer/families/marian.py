"""Marian (Junczys-Dowmunt et al. 2018), as OPUS-MT trains it: post-norm, sinusoidal positions."""

from __future__ import annotations

from typing import Final

from uncurse.models.transformer.architecture import MARIAN as ARCHITECTURE
from uncurse.models.transformer.families.family import Family

MARIAN: Final = Family(
    model_type="marian",
    architecture=ARCHITECTURE,
    required={
        "scale_embedding": True,
        "normalize_before": False,
        "normalize_embedding": False,
        "add_final_layer_norm": False,
        "share_encoder_decoder_embeddings": True,
        "tie_word_embeddings": True,
    },
    output_bias=True,
    positions=lambda _config, _tensors, _d_model: {},
)
