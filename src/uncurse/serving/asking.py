"""What can be asked for over HTTP, and how it becomes an order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar, final

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from uncurse.decoding import Decoding, Slots
from uncurse.length import AnyLimit, FixedRatio, LengthPredictor, PredictedLimit, QuantileLimit, parse_limit
from uncurse.rescoring import SCORES, needs
from uncurse.serving.options import Limits
from uncurse.serving.orders import ExplanationOrder, Refused, TranslationOrder
from uncurse.stopping import RULES
from uncurse.translator import Task, Translator

T = TypeVar("T")


def _whole(value: Any) -> Any:  # noqa: ANN401
    """In JSON 10.0 is a whole number."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _encodable(text: str) -> str:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ValueError("half of a surrogate pair is no text") from None
    return text


Line = Annotated[str, AfterValidator(_encodable)]
Whole = Annotated[int, Field(ge=1), BeforeValidator(_whole)]
Beam = Annotated[
    Whole | None,
    Field(default=None, description="The width of the beam; unless given 10, or the widest there is."),
]
Ratio = Annotated[
    float | None,
    Field(
        default=None,
        gt=0,
        le=1000,
        allow_inf_nan=False,
        description="Expect so many target tokens per source piece instead of predicting.",
    ),
]
MaxLength = Annotated[
    str | None,
    Field(
        default=None,
        max_length=40,
        description="The most tokens: 100, 2x+10, q0.95 or predicted; unless given q0.8, then 2x+10.",
    ),
]
Deadline = Annotated[
    float | None,
    Field(
        default=None,
        gt=0,
        allow_inf_nan=False,
        description="Seconds after which the search ends with the best so far.",
    ),
]
SlotsName = Annotated[Literal["occupy", "refill"], Field(description="What an ended hypothesis costs the beam.")]


@final
class TranslationRequest(BaseModel):
    """Sentences to translate, and how."""

    model_config = ConfigDict(extra="forbid", strict=True)

    sentences: list[Line] = Field(min_length=1, description="One or many; each is a line of text.")
    beam: Beam = None
    score: str = Field(default="bp-norm", max_length=200, description="How hypotheses are scored; see /methods.")
    stop: str = Field(default="optimal", max_length=200, description="When the search stops; see /methods.")
    n_best: Whole = Field(default=1, description="How many translations of each sentence.")
    slots: SlotsName = "occupy"
    max_length: MaxLength = None
    ratio: Ratio = None
    deadline: Deadline = None

    def order(self, translator: Translator, limits: Limits) -> TranslationOrder:
        """The order this makes, if the model and the service allow it."""
        _within("sentences", len(self.sentences), limits.sentences)
        _within("n_best", self.n_best, limits.width)
        _within("deadline", self.deadline, limits.deadline)
        decoding = Decoding(
            _width(self.beam, limits),
            _parsed("score", SCORES.parse, self.score),
            _parsed("stop", RULES.parse, self.stop),
            self.n_best,
            Slots(self.slots),
        )
        predictor = _predictor(translator, self.ratio)
        wanted = needs(decoding.score)
        if wanted.coverage and not translator.model.attends:
            raise Refused(("score",), "this score needs coverage, and this model gives no attention")
        for field, needed in (("score", wanted.prediction), ("stop", decoding.stop.needs_prediction)):
            if needed and predictor is None:
                raise Refused((field,), "this needs an expected length, and the model predicts none: give a ratio")
        limit = _limit(self.max_length, predictor)
        try:
            return TranslationOrder(Task(decoding, limit, self.ratio))
        except ValueError as error:
            raise Refused(("ratio",), str(error)) from None


@final
class ExplanationRequest(BaseModel):
    """A sentence whose search is to be seen."""

    model_config = ConfigDict(extra="forbid", strict=True)

    sentence: Line = Field(min_length=1, pattern=r"\S")
    beam: Beam = None
    reward: float = Field(
        default=1.0, ge=-1000, le=1000, allow_inf_nan=False, description="r of the scores that need one."
    )
    slots: SlotsName = "occupy"
    max_length: MaxLength = None
    ratio: Ratio = None
    deadline: Deadline = None

    def order(self, translator: Translator, limits: Limits) -> ExplanationOrder:
        """The order this makes, if the model and the service allow it."""
        _within("deadline", self.deadline, limits.deadline)
        predictor = _predictor(translator, self.ratio)
        if predictor is None:
            raise Refused(("ratio",), "an expected length is needed, and this model predicts none: give a ratio")
        decoding = Decoding(_width(self.beam, limits), slots=Slots(self.slots))
        return ExplanationOrder(Task(decoding, _limit(self.max_length, predictor), self.ratio), self.reward)


def _width(beam: int | None, limits: Limits) -> int:
    _within("beam", beam, limits.width)
    return min(Decoding().width, limits.width) if beam is None else beam


def _within(field: str, number: float | None, most: float) -> None:
    if number is not None and number > most:
        raise Refused((field,), f"{number:g} is too many: the most is {most:g}")


def _parsed(field: str, parse: Callable[[str], T], text: str) -> T:
    try:
        return parse(text)
    except ValueError as error:
        raise Refused((field,), str(error)) from None


def _predictor(translator: Translator, ratio: float | None) -> LengthPredictor | None:
    return translator.predictor if ratio is None else FixedRatio(ratio)


def _limit(text: str | None, predictor: LengthPredictor | None) -> AnyLimit | None:
    """A limit that can be worked out for every sentence."""
    if text is None:
        return None
    limit = _parsed("max_length", parse_limit, text)
    if predictor is None and isinstance(limit, QuantileLimit | PredictedLimit):
        raise Refused(("max_length",), "this needs a length predictor, and this model has none; try 2x+10")
    if predictor is not None and isinstance(limit, QuantileLimit) and limit.level not in predictor.levels:
        known = ", ".join(f"q{level:g}" for level in predictor.levels)
        told = f"known are {known}" if known else "none are known"
        raise Refused(("max_length",), f"the quantile {limit.level:g} is not known; {told}")
    return limit
