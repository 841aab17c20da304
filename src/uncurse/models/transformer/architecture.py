"""How the layers of a Transformer are put together: what the families of models do differently."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, final


@final
@dataclass(frozen=True)
class Architecture:
    """What weights alone do not tell of a model."""

    name: str
    pre_norm: bool  # layer norm before each sublayer, and at the end of each side; else after each sublayer
    embedding_norm: bool  # layer norm of the embeddings
    zero_start: bool  # the decoder starts from a zero embedding, and not from a token
    scaled_embeddings: bool  # by the root of their size

    def embedding_scale(self, d_model: int) -> float:
        """What token embeddings are multiplied by."""
        return math.sqrt(d_model) if self.scaled_embeddings else 1.0


MARIAN: Final = Architecture(
    name="Marian", pre_norm=False, embedding_norm=False, zero_start=True, scaled_embeddings=True
)
