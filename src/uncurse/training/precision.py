"""What training computes in."""

from __future__ import annotations

from enum import StrEnum


class Precision(StrEnum):
    """The dtype of matrix products; weights, loss and optimizer state are float32 either way."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
