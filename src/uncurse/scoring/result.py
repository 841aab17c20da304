"""What a search returns and what it has proved."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import final

from uncurse.scoring.decoding import Decoding


class Certificate(Enum):
    """What a search has proved about its n-best list."""

    GLOBAL = "no other sequence within the maximum length scores higher"
    BEAM = "no continuation of this search could have scored higher"
    NONE = "a continuation of this search could have scored higher"
    TRUNCATED = "nothing finished; what is given is cut off"

    @property
    def proved(self) -> bool:
        """Whether no continuation of this search could have scored higher."""
        return self in (Certificate.GLOBAL, Certificate.BEAM)


@final
@dataclass(frozen=True)
class Hypothesis:
    """One output; a truncated one has no `</s>` and is scored at the length it has."""

    tokens: tuple[int, ...]  # with </s>; without the bos token and a forced prefix
    log_prob: float  # S
    score: float
    log_probs: tuple[float, ...]  # of each token

    @property
    def length(self) -> int:
        """`n`, with `</s>`."""
        return len(self.tokens)


@final
@dataclass(frozen=True)
class Result:
    """The n best hypotheses of a sentence, best first, with a certificate and what they cost."""

    hypotheses: tuple[Hypothesis, ...]
    finished: int = field(compare=False)  # how many ended, but for what was dropped as hopeless
    certificate: Certificate
    gap: float  # by how much a continuation of this search could have beaten the n-th best; 0 if proved
    steps: int
    model_rows: int  # prefixes the model was run on, forced ones included
    decoding: Decoding
    signature: str
