"""A model that is ready to translate, whatever family it is of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

from uncurse.length import LengthPredictor
from uncurse.translator import Encoding, Pieces


@final
@dataclass(frozen=True, eq=False)
class OpenModel:
    """A step model with its subword models and, if there is one, the length predictor that was fitted to it."""

    model: Encoding[Any]
    source: Pieces
    target: Pieces
    fingerprint: str  # of weights and subword models
    predictor: LengthPredictor | None
    ratio: float | None = None  # gr: target tokens to source pieces in the training text, where it is known
