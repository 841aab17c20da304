"""What a search asks of a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, Self, TypeVar, final, runtime_checkable

import numpy as np

from uncurse.arrays import Floats, Ints
from uncurse.errors import UncurseError


@final
@dataclass(frozen=True, eq=False)
class Continuations:
    """The best next tokens of each row."""

    tokens: Ints  # [rows, k] distinct within a row
    log_probs: Floats  # [rows, k] log p(token | source, prefix) <= 0, in any order; -inf: not possible
    attention: Floats | None = None  # [rows, positions] what each source piece received at this step


class State(Protocol):
    """The state of a model for live prefixes, one row each; the rows of a sentence are adjacent.

    What belongs to a sentence and not to a prefix, such as encoder states, is best kept once per sentence.
    """

    def select(self, rows: Ints) -> Self:
        """An independent state of the given rows; rows may be repeated, reordered or left out."""
        ...

    def append(self, other: Self) -> Self:
        """This state's rows followed by those of sentences that join."""
        ...


S = TypeVar("S", bound=State)


class StepModel(Protocol[S]):
    """A model that gives the most likely next tokens of prefixes."""

    @property
    def signature(self) -> str:
        """What identifies weights and vocabulary; without `|`."""
        ...

    @property
    def vocab_size(self) -> int:
        """The number of target tokens."""
        ...

    @property
    def bos(self) -> int:
        """The token fed before the first; it belongs to no hypothesis."""
        ...

    @property
    def eos(self) -> int:
        """The token that finishes a hypothesis, `</s>`."""
        ...

    @property
    def attends(self) -> bool:
        """Whether the model can return the attention that the source tokens received."""
        ...

    def start(self, sources: Sequence[Sequence[int]]) -> S:
        """A state with one row for each source, given as pieces without `</s>`, tags and padding."""
        ...

    def step(self, state: S, tokens: Ints, k: int, attention: bool) -> tuple[Continuations, S]:
        """Feed each row its token; return its k best continuations and the new state.

        Among continuations of equal log-probability at the cut, those of lower token id are given. With
        `attention` the continuations tell what the source pieces received, else they need not. The given state
        may be used up.
        """
        ...


@runtime_checkable
class CandidateModel(Protocol[S]):
    """A step model that can be asked about given tokens; others are asked about their whole vocabulary."""

    def step_among(self, state: S, tokens: Ints, candidates: Ints, attention: bool) -> tuple[Continuations, S]:
        """Feed each row its token; return its candidates, [rows, k], with their log-probabilities.

        A candidate may be given twice; each is a token of the vocabulary.
        """
        ...


ROUNDING: Final = 1e-5  # how far above 0 a log-probability may come to lie by rounding alone


class ModelError(UncurseError):
    """A model returned values that it must not return."""


def checked(log_probs: Floats, where: Callable[[int], str]) -> Floats:
    """The log-probabilities in double precision; one that is NaN or above 0 is an error that says where."""
    values = np.asarray(log_probs, dtype=np.float64)
    highest = values.max(initial=-np.inf)
    if highest <= 0.0:
        return values
    if highest <= ROUNDING:
        return np.minimum(values, 0.0)
    wrong = ~(values <= ROUNDING)
    row = int(np.flatnonzero(wrong.any(axis=1))[0])
    raise ModelError(f"{where(row)}: the model gave {values[wrong][0]}, and no log-probability is above 0")
