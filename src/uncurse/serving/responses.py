"""Response bodies; `/openapi.json` is made from them."""

from __future__ import annotations

from typing import Literal, final

from pydantic import BaseModel, ConfigDict, Field

CertificateName = Literal["GLOBAL", "BEAM", "NONE", "TRUNCATED"]


class _StrictModel(BaseModel):
    """Nothing is sent that is not declared."""

    model_config = ConfigDict(extra="forbid", strict=True)


class HypothesisResponse(_StrictModel):
    """An output."""

    text: str
    tokens: list[int] = Field(description="With </s>, without a target prefix.")
    log_prob: float | None = Field(description="S, the log-probability that the model gives it.")
    token_log_probs: list[float] = Field(description="The log-probability of each token.")
    score: float | None
    length: int = Field(ge=0, description="In tokens, with </s>.")


@final
class TranslationResponse(HypothesisResponse):
    """The best output for a sentence, its certificate, and what the search cost."""

    expected_length: float | None
    certificate: CertificateName | None = Field(
        description="GLOBAL: no sequence of at most max_length tokens scores higher; BEAM: no continuation of this"
        " search could have scored higher; NONE: one could have, by at most the gap; TRUNCATED: nothing ended, the"
        " text is cut off; null: the sentence is empty."
    )
    gap: float | None = Field(description="By how much something could have scored higher; null: without bound.")
    steps: int = Field(ge=0)
    model_rows: int = Field(ge=0, description="Prefixes the model was run on.")
    signature: str | None = Field(description="Everything that decides this result; null if there was no search.")
    others: list[HypothesisResponse] = Field(description="The rest of the n-best list.")
    in_time: bool = Field(description="Whether the search came to its end; if not, the deadline ended it.")


@final
class TranslationsResponse(_StrictModel):
    """A translation for each sentence, in the order of the request."""

    model: str
    translations: list[TranslationResponse]


@final
class MethodSpec(_StrictModel):
    """A score or a stopping rule with its parameters."""

    name: str
    spec: str
    formula: str
    source: str


@final
class CandidateResponse(_StrictModel):
    """A hypothesis that ended."""

    text: str
    length: int = Field(ge=1)
    rank: int = Field(ge=0, description="Its place among the continuations of the step at which it ended.")
    log_prob: float
    scores: list[float | None] = Field(description="By each of the scores.")


@final
class OutcomeResponse(_StrictModel):
    """Where a stopping rule stops under a score."""

    score: int = Field(ge=0, description="An index into scores.")
    rule: int = Field(ge=0, description="An index into rules.")
    candidate: int | None = Field(description="Its choice, an index into candidates; null: none ended.")
    text: str
    length: int = Field(ge=0)
    value: float | None = Field(description="The score of its choice.")
    steps: int = Field(ge=0)
    model_rows: int = Field(ge=0)
    certificate: CertificateName
    gap: float | None
    loss: float | None = Field(description="How much higher the best of the whole search scores.")


@final
class BoundCurveResponse(_StrictModel):
    """How a search went under a score, step by step."""

    best: list[float | None] = Field(description="The best finished score; null: nothing has finished.")
    bound: list[float | None] = Field(
        description="The bound on what could still come; null: without bound, or no prefix can go on."
    )
    hopeful: list[int] = Field(description="How many live prefixes could still beat the best.")


@final
class BeamsResponse(_StrictModel):
    """What the search kept: for each step and rank a token, the rank of its parent a step before, and S."""

    eos: int
    tokens: list[list[int]] = Field(description="-1: nothing was kept.")
    parents: list[list[int]]
    log_probs: list[list[float | None]]
    token_texts: dict[str, str] = Field(description="What each token adds to a text.")


@final
class ExplanationResponse(_StrictModel):
    """A recorded search, and what every score and stopping rule makes of it."""

    source: str
    signature: str
    beam_size: int
    max_length: int
    steps: int
    source_length: int
    expected_length: float | None = Field(
        description="null: the model has no length predictor; scores and rules that need a length are left out."
    )
    finished: int = Field(ge=0, description="How many hypotheses ended; the likeliest are among the candidates.")
    scores: list[MethodSpec]
    rules: list[MethodSpec]
    candidates: list[CandidateResponse]
    outcomes: list[OutcomeResponse]
    bound_curves: list[BoundCurveResponse] = Field(description="For each of the scores.")
    beams: BeamsResponse
    in_time: bool = Field(description="Whether the search came to max_length; if not, the deadline ended it.")


@final
class ParameterInfo(_StrictModel):
    """A number that a method takes."""

    name: str
    meaning: str
    range: str
    default: float | None
    required: bool


@final
class MethodInfo(_StrictModel):
    """A score or a stopping rule that a request can name."""

    name: str
    formula: str
    source: str
    parameters: list[ParameterInfo]


@final
class DefaultsInfo(_StrictModel):
    """What a request gets if it does not say."""

    beam_size: int
    score: str = Field(description="Of requests without a length_ratio.")
    stop: str


@final
class LimitsInfo(_StrictModel):
    """How much a request may ask for."""

    body: int = Field(description="Bytes.")
    sentences: int
    source_length: int = Field(description="Tokens of a sentence.")
    max_length: int = Field(description="Tokens of an output.")
    beam_size: int
    waiting: int = Field(description="Sentences in the queue; beyond that a request is answered with 503.")
    deadline: float = Field(description="Seconds.")


@final
class MethodsResponse(_StrictModel):
    """What a request can ask for."""

    model: str
    scores: list[MethodInfo]
    rules: list[MethodInfo]
    defaults: DefaultsInfo
    limits: LimitsInfo


@final
class HealthResponse(_StrictModel):
    """How the service is."""

    status: Literal["ok"]
    version: str
    model: str
    waiting: int = Field(ge=0, description="Sentences in the queue.")
    searching: int = Field(ge=0, description="Sentences that are being searched for.")
