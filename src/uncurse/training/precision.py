"""What training computes in."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal


class Precision(StrEnum):
    """What the products are computed in; weights and the loss are float32 either way."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"

    @property
    def fabric(self) -> Literal["32-true", "bf16-mixed"]:
        """Fabric's name for it."""
        return "32-true" if self is Precision.FLOAT32 else "bf16-mixed"
