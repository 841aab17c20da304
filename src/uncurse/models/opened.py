"""A model that is ready to translate, whatever family it is of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

from uncurse.length import LengthPredictor
from uncurse.translator import Encoding, Pieces


@final
@dataclass(frozen=True, eq=False)
class OpenModel:
    """A step model with its subword models and, if there is one, the length predictor that was fitted to it.

    The predictor is looked for when it is asked for, so that a damaged one can be fitted anew.
    """

    model: Encoding[Any]
    source: Pieces
    target: Pieces
    fingerprint: str  # of weights and subword models
    find_predictor: Callable[[], LengthPredictor | None]
    ratio: float | None = None  # gr: target tokens to source pieces in the training text, where it is known

    @cached_property
    def predictor(self) -> LengthPredictor | None:
        """What was fitted to this model."""
        return self.find_predictor()
