"""What is known about a family of models: its architecture, and what its files look like."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, final

from torch import Tensor

from uncurse.models.transformer.architecture import Architecture

Config = Mapping[str, Any]  # the content of config.json
Positions = Callable[[Config, Mapping[str, Tensor], int], dict[str, Tensor]]


@final
@dataclass(frozen=True)
class Family:
    """A family of models in the files of Hugging Face."""

    model_type: str  # in config.json
    architecture: Architecture
    required: Mapping[str, object]  # settings; models with other values run in transformers
    output_bias: bool  # whether there is one, `final_logits_bias`
    positions: Positions  # the position encodings of each side, [positions, d_model]; none: Marian's formula

    def architecture_of(self, config: Config) -> Architecture:
        """The architecture of one model: some families leave it to the model whether embeddings are scaled."""
        default = self.architecture.scaled_embeddings
        return replace(self.architecture, scaled_embeddings=config.get("scale_embedding", default) is True)
