"""Request bodies, and the jobs that they become."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Annotated, Any, Literal, final

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from uncurse.errors import UncurseError
from uncurse.lengths.limits import MaxLength, PredictedLimit, QuantileLimit, parse_max_length
from uncurse.lengths.predictors import FixedRatio, LengthPredictor
from uncurse.scoring.decoding import DEFAULT_BEAM_SIZE, MAX_COUNT, Decoding, check_attends
from uncurse.scoring.needs import needs
from uncurse.scoring.rescorer import Rescorer
from uncurse.scoring.scores import SCORES
from uncurse.scoring.stopping import RULES, StoppingRule
from uncurse.serving.errors import InvalidFieldError
from uncurse.serving.jobs import ExplanationJob, TranslationJob
from uncurse.serving.limits import ServiceLimits
from uncurse.translation.options import TranslationOptions
from uncurse.translation.output_constraints import OutputConstraints
from uncurse.translation.translator import Translator


def _integer(value: Any) -> Any:  # noqa: ANN401
    """In JSON 10.0 is an integer."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _real(value: Any) -> Any:  # noqa: ANN401
    """A whole number can be too large for a float, of which pydantic says that it is no number."""
    try:
        return float(value) if type(value) is int else value
    except OverflowError:
        raise UncurseError("it must be a finite number") from None


def _number_or_text(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:  # noqa: ANN401
    """One reason for what is neither, where pydantic has one for each, under names that no field has."""
    try:
        return validate(value)
    except ValidationError:
        raise UncurseError(
            f"it must be a whole number in 1 … {MAX_COUNT}, or a short text: 2x+10, q0.95 or predicted"
        ) from None


def _encodable(text: str) -> str:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise UncurseError("it contains an unpaired surrogate, so it is not valid Unicode") from None
    return text


Line = Annotated[str, AfterValidator(_encodable)]
NonEmptyLine = Annotated[str, Field(pattern=r"\S"), AfterValidator(_encodable)]
Count = Annotated[int, Field(ge=1, le=MAX_COUNT), BeforeValidator(_integer)]
# Bounds stand before the validator: pydantic leaves those behind it out of the schema.
Ratio = Annotated[float, Field(gt=0, le=100, allow_inf_nan=False), BeforeValidator(_real)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False), BeforeValidator(_real)]
Reward = Annotated[float, Field(ge=-1000, le=1000, allow_inf_nan=False), BeforeValidator(_real)]
BeamSizeField = Annotated[
    Count | None,
    Field(
        default=None, description=f"The beam size; by default {DEFAULT_BEAM_SIZE}, or the most that is allowed."
    ),
]
LengthRatioField = Annotated[
    Ratio | None,
    Field(default=None, description="Expected target tokens per source token, instead of a predicted length."),
]
MaxLengthField = Annotated[
    Count | Annotated[str, Field(max_length=40)] | None,
    WrapValidator(_number_or_text),
    Field(
        default=None,
        description="Maximum output tokens: 100, 2x+10, q0.95 or predicted; by default q0.8, and 2x+10"
        " where nothing ends within that.",
    ),
]
DeadlineField = Annotated[
    Seconds | None,
    Field(default=None, description="Seconds after which the search ends with the best so far."),
]
SlotsField = Annotated[
    Literal["occupy", "refill"], Field(description="Whether a hypothesis that ends uses a slot of the beam.")
]


@final
class TranslationRequest(BaseModel):
    """Sentences to translate, and how."""

    model_config = ConfigDict(extra="forbid", strict=True)

    sentences: list[Line] = Field(min_length=1, description="One line of text each.")
    beam_size: BeamSizeField = None
    score: str | None = Field(
        default=None, max_length=200, description="How hypotheses are scored; see /methods, also for the default."
    )
    stop: str = Field(default="optimal", max_length=200, description="When the search stops; see /methods.")
    n_best: Count = Field(default=1, description="How many translations of each sentence.")
    distinct: bool = Field(default=False, description="No text twice in an n-best list.")
    slots: SlotsField = "occupy"
    max_length: MaxLengthField = None
    min_length: Annotated[int, Field(ge=0, le=MAX_COUNT), BeforeValidator(_integer)] = Field(
        default=0, description="The fewest tokens of an output, </s> included."
    )
    length_ratio: LengthRatioField = None
    target_prefix: Line = Field(default="", description="How each translation must begin.")
    only: Annotated[list[NonEmptyLine], Field(min_length=1)] | None = Field(
        default=None, description="The translations that are allowed; null: all."
    )
    ban: list[NonEmptyLine] = Field(default=[], description="Texts that no translation contains as whole words.")
    no_repeat_ngram: Annotated[int, Field(ge=0, le=MAX_COUNT), BeforeValidator(_integer)] = Field(
        default=0, description="No translation has so many tokens in a row twice; 0: any may."
    )
    deadline: DeadlineField = None

    def job(self, translator: Translator, limits: ServiceLimits) -> TranslationJob:
        """The job, if the model and the service allow it."""
        _check_most("sentences", len(self.sentences), limits.sentences)
        _check_most("n_best", self.n_best, limits.beam_size)
        _check_most("deadline", self.deadline, limits.deadline)
        predictor = _predictor(translator, self.length_ratio)
        options = TranslationOptions(
            decoding=Decoding(
                beam_size=_beam_size(self.beam_size, limits),
                score=_score(self.score, translator, predictor),
                stop=_stop(self.stop, predictor),
                n_best=self.n_best,
                slots=self.slots,
            ),
            max_length=_max_length(self.max_length, predictor),
            target_prefix=self.target_prefix,
        )
        with _blaming("only"):
            only = OutputConstraints(only=None if self.only is None else tuple(self.only))
            translator.constraint(only)
        with _blaming("ban"):
            constraints = replace(only, ban=tuple(self.ban), no_repeat_ngram=self.no_repeat_ngram)
            translator.constraint(constraints)
        options = replace(options, constraints=constraints)
        with _blaming("min_length"):
            options = replace(options, min_length=self.min_length)
        with _blaming("length_ratio"):
            options = replace(options, length_ratio=self.length_ratio)
        with _blaming("distinct"):
            options = replace(options, distinct=self.distinct)
        return TranslationJob.of(options.resolved(translator.predictor))


@final
class ExplanationRequest(BaseModel):
    """A sentence, and the search for it that is to be seen."""

    model_config = ConfigDict(extra="forbid", strict=True)

    sentence: Line = Field(min_length=1, pattern=r"\S")
    beam_size: BeamSizeField = None
    reward: Reward = Field(default=1.0, description="r, for the scores that need a reward.")
    slots: SlotsField = "occupy"
    max_length: MaxLengthField = None
    length_ratio: LengthRatioField = None
    deadline: DeadlineField = None

    def job(self, translator: Translator, limits: ServiceLimits) -> ExplanationJob:
        """The job, if the model and the service allow it."""
        _check_most("deadline", self.deadline, limits.deadline)
        predictor = _predictor(translator, self.length_ratio)
        options = TranslationOptions(
            decoding=Decoding(_beam_size(self.beam_size, limits), slots=self.slots),
            max_length=_max_length(self.max_length, predictor),
            length_ratio=self.length_ratio,
        )
        return ExplanationJob(options, self.reward)


@contextmanager
def _blaming(field: str) -> Iterator[None]:
    """Tell the client that this field is at fault if there is an error."""
    try:
        yield
    except UncurseError as error:
        raise InvalidFieldError((field,), str(error)) from None


def _check_most(field: str, number: float | None, most: float) -> None:
    if number is not None and number > most:
        raise InvalidFieldError((field,), f"{number:g} is too large: the maximum is {most:g}")


def _beam_size(beam_size: int | None, limits: ServiceLimits) -> int:
    _check_most("beam_size", beam_size, limits.beam_size)
    return min(DEFAULT_BEAM_SIZE, limits.beam_size) if beam_size is None else beam_size


def _predictor(translator: Translator, length_ratio: float | None) -> LengthPredictor | None:
    return translator.predictor if length_ratio is None else FixedRatio(length_ratio)


def _score(text: str | None, translator: Translator, predictor: LengthPredictor | None) -> Rescorer | None:
    """The score of that name, if the model can give all it needs."""
    if text is None:
        return None
    with _blaming("score"):
        score = SCORES.parse(text)
        if needs(score).coverage:
            check_attends(translator.model.attends)
        _check_predictor(needs(score).expected_length, predictor)
        return score


def _stop(text: str, predictor: LengthPredictor | None) -> StoppingRule:
    with _blaming("stop"):
        stop = RULES.parse(text)
        _check_predictor(needs(stop).expected_length, predictor)
        return stop


def _check_predictor(needed: bool, predictor: LengthPredictor | None) -> None:
    if needed and predictor is None:
        raise UncurseError(
            "it needs an expected length, but the model has no length predictor: give a length_ratio"
        )


def _max_length(value: int | str | None, predictor: LengthPredictor | None) -> MaxLength | None:
    """A maximum length that can be worked out for every sentence."""
    if value is None:
        return None
    with _blaming("max_length"):
        max_length = parse_max_length(value)
        if predictor is None and isinstance(max_length, QuantileLimit | PredictedLimit):
            raise UncurseError("it needs a length predictor, but the model has none: try 2x+10")
        levels = () if predictor is None else predictor.levels
        if isinstance(max_length, QuantileLimit) and max_length.level not in levels:
            known = ", ".join(f"q{level:g}" for level in levels) or "none"
            raise UncurseError(
                f"the length predictor does not have the quantile {max_length.level:g}; it has {known}"
            )
        return max_length
