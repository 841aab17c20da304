"""What is answered over HTTP; `/openapi.json` is made of this."""

from __future__ import annotations

from typing import Literal, final

from pydantic import BaseModel, ConfigDict, Field

Certificate = Literal["GLOBAL", "BEAM", "NONE", "TRUNCATED"]


class _Told(BaseModel):
    """Nothing is said that is not declared."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Hypothesis(_Told):
    """An output."""

    text: str
    tokens: list[int] = Field(description="With </s>.")
    log_prob: float | None = Field(description="S, what the model thinks of it.")
    score: float | None
    length: int = Field(ge=0, description="In tokens, with </s>.")


@final
class Translation(Hypothesis):
    """The best output for a sentence, with what is proved of it and what it cost."""

    predicted_length: float | None
    certificate: Certificate | None = Field(
        description="GLOBAL: no sequence within the limit scores higher; BEAM: nothing that this search could have"
        " found does; NONE: something could, by at most the gap; TRUNCATED: nothing ended, the text is cut off;"
        " null: the sentence is empty."
    )
    gap: float | None = Field(description="By how much something could have scored higher; null: no end to it.")
    steps: int = Field(ge=0)
    model_rows: int = Field(ge=0, description="Prefixes the model was run on.")
    signature: str | None = Field(description="Everything that decides this result; null if there was no search.")
    others: list[Hypothesis] = Field(description="The rest of the n-best list.")
    in_time: bool = Field(description="Whether the search came to its end; if not, the deadline ended it.")


@final
class Translations(_Told):
    """An answer for each sentence, in their order."""

    model: str
    translations: list[Translation]


@final
class Method(_Told):
    """A score or stopping rule."""

    name: str
    spec: str
    formula: str
    source: str


@final
class Candidate(_Told):
    """A hypothesis that ended."""

    text: str
    length: int = Field(ge=1)
    rank: int = Field(ge=0, description="Its place among the continuations of the step at which it ended.")
    log_prob: float
    scores: list[float | None] = Field(description="By each of the scores.")


@final
class Verdict(_Told):
    """Where a rule stops under a score."""

    score: int = Field(ge=0, description="The place among the scores.")
    rule: int = Field(ge=0, description="The place among the rules.")
    candidate: int | None = Field(description="The place of its choice among the candidates; null: none ended.")
    text: str
    length: int = Field(ge=0)
    value: float | None = Field(description="The score of its choice.")
    steps: int = Field(ge=0)
    model_rows: int = Field(ge=0)
    certificate: Certificate
    gap: float | None
    loss: float | None = Field(description="How much better the best of the whole search scores.")


@final
class Course(_Told):
    """How the search went under a score, step by step."""

    best: list[float | None] = Field(description="The best finished score; null: nothing has finished.")
    bound: list[float | None] = Field(description="What could still come; null: without end, or nothing at all.")
    hopeful: list[int] = Field(description="How many live prefixes could still beat the best.")


@final
class Beams(_Told):
    """What the search kept: for each step and rank a token, the rank of its parent a step before, and S."""

    end: int
    tokens: list[list[int]] = Field(description="-1: nothing was kept.")
    parents: list[list[int]]
    log_probs: list[list[float | None]]
    pieces: dict[str, str] = Field(description="What each token adds to a text.")


@final
class Explanation(_Told):
    """A recorded search, and what every score and stopping rule makes of it."""

    source: str
    signature: str
    beam: int
    limit: int
    steps: int
    source_length: int
    predicted_length: float
    finished: int = Field(ge=0, description="How many hypotheses ended; the likeliest are among the candidates.")
    scores: list[Method]
    rules: list[Method]
    candidates: list[Candidate]
    verdicts: list[Verdict]
    courses: list[Course]
    beams: Beams
    in_time: bool = Field(description="Whether the search came to its limit; if not, the deadline ended it.")


@final
class Parameter(_Told):
    """A number that a method takes."""

    name: str
    meaning: str
    range: str
    default: float | None
    required: bool


@final
class KnownMethod(_Told):
    """A method that can be asked for."""

    name: str
    formula: str
    source: str
    parameters: list[Parameter]


@final
class Allowed(_Told):
    """How much a request may ask for."""

    body: int = Field(description="Bytes.")
    sentences: int
    pieces: int = Field(description="Of a sentence.")
    tokens: int = Field(description="Of an output.")
    width: int
    waiting: int = Field(description="Sentences that may wait; beyond that a request is answered with 503.")
    deadline: float = Field(description="Seconds.")


@final
class Methods(_Told):
    """What can be asked for."""

    model: str
    scores: list[KnownMethod]
    stopping_rules: list[KnownMethod]
    limits: Allowed


@final
class Health(_Told):
    """How the service is."""

    status: Literal["ok"]
    version: str
    model: str
    waiting: int = Field(ge=0)
    searching: int = Field(ge=0)
