"""A model whose work is timed, so that the rest is the search's."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from uncurse import Continuations, StepModel
from uncurse.arrays import Ints


class TimedModel:
    """Adds up the seconds that are spent in a model and in its states."""

    def __init__(self, inner: StepModel[Any]) -> None:
        self._inner = inner
        self.seconds = 0.0
        self.signature, self.vocab_size, self.attends = inner.signature, inner.vocab_size, inner.attends
        self.bos, self.eos = inner.bos, inner.eos

    def __enter__(self) -> None:
        self._start = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.perf_counter() - self._start

    def start(self, sources: Sequence[Sequence[int]]) -> TimedState:
        """Encode sources."""
        with self:
            return TimedState(self, self._inner.start(sources))

    def step(self, state: TimedState, tokens: Ints, k: int, attention: bool) -> tuple[Continuations, TimedState]:
        """One step."""
        with self:
            continuations, after = self._inner.step(state.inner, tokens, k, attention)
            return continuations, TimedState(self, after)


@dataclass(frozen=True)
class TimedState:
    """A state whose selections are timed."""

    model: TimedModel
    inner: Any

    def select(self, rows: Ints) -> Self:
        """The state of some rows."""
        with self.model:
            return type(self)(self.model, self.inner.select(rows))

    def append(self, other: Self) -> Self:
        """These sentences followed by the others."""
        with self.model:
            return type(self)(self.model, self.inner.append(other.inner))
