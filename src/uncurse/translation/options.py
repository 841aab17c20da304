"""Everything that decides how lines are translated, besides the model."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import final

from uncurse.errors import UncurseError
from uncurse.lengths.limits import LinearLimit, MaxLength, PredictedLimit
from uncurse.lengths.policy import LengthPolicy
from uncurse.lengths.predictors import FixedRatio, LengthPredictor
from uncurse.scoring.decoding import Decoding, checked_count
from uncurse.translation.output_constraints import OutputConstraints


@final
@dataclass(frozen=True)
class TranslationOptions:
    """How lines are translated; what is not given has the same default everywhere."""

    decoding: Decoding = field(default_factory=Decoding)
    max_length: MaxLength | None = None  # None: the 0.8 quantile where the predictor knows it, else 2x+10
    min_length: int = 0
    length_ratio: float | None = None  # expect this many target tokens per source token, instead of predicting
    target_prefix: str = ""
    constraints: OutputConstraints = field(default_factory=OutputConstraints)
    distinct: bool = False  # no text twice in an n-best list
    batch_tokens: int = 1500  # source tokens that are searched for together
    truncate: bool = False  # cut lines that are too long instead of refusing them

    def __post_init__(self) -> None:
        checked_count("batch_tokens", self.batch_tokens)
        checked_count("min_length", self.min_length, low=0)
        if self.distinct and self.decoding.n_best == 1:
            raise UncurseError("distinct is not allowed: it needs an n_best above 1")
        if self.length_ratio is not None:
            FixedRatio(self.length_ratio)  # checks it
            read = self.decoding.score is None or self.decoding.needs.expected_length
            if not read and not isinstance(self.max_length, PredictedLimit):
                raise UncurseError(
                    f"length_ratio = {self.length_ratio:g} is not allowed: neither the score nor the stopping rule"
                    " reads an expected length"
                )
        most = self.max_length
        if isinstance(most, LinearLimit) and not most.per_token and self.min_length > most.constant:
            raise UncurseError(f"min_length = {self.min_length} is not allowed: max_length is {most.constant}")

    def predictor(self, fitted: LengthPredictor | None) -> LengthPredictor | None:
        """What tells expected lengths: a ratio that was given, else what was fitted to the model."""
        return fitted if self.length_ratio is None else FixedRatio(self.length_ratio)

    def resolved(self, fitted: LengthPredictor | None) -> TranslationOptions:
        """The same with the default score filled in; an error if a length is needed and nothing tells it."""
        known = self.predictor(fitted) is not None
        decoding = self.decoding.with_score(knows_length=known)
        if decoding.needs.expected_length and not known:
            raise UncurseError(
                "this score or stopping rule needs an expected length, and the model has no length predictor: give"
                " a length_ratio (such as 1.1 target tokens per source token), or fit a predictor"
            )
        return replace(self, decoding=decoding)

    def policy(self, fitted: LengthPredictor | None, model_limit: int | None) -> LengthPolicy:
        """Expected and maximum lengths, and second searches."""
        return LengthPolicy(self.predictor(fitted), self.max_length, self.min_length, model_limit)
