"""An encoder that is asked for one batch twice: first for what predicts lengths, then for the search."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar, final

T = TypeVar("T")


@final
class Once(Generic[T]):
    """Remembers what became of the last batch; a single source, soon encoded again, does not make it forget."""

    def __init__(self, encode: Callable[[Sequence[Sequence[int]]], T]) -> None:
        self._encode = encode
        self._last: tuple[list[Sequence[int]], T] | None = None

    def __call__(self, sources: Sequence[Sequence[int]]) -> T:
        """What the encoder makes of sources."""
        last = self._last  # looked at once: another thread may replace it
        if last is not None and last[0] == list(sources):
            return last[1]
        encoded = self._encode(sources)
        if len(sources) > 1:
            self._last = list(sources), encoded
        return encoded
