"""A cache of the encoder's last batch: the length predictor needs its output first, then the search does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar, final

T = TypeVar("T")


@final
class CachedEncoder(Generic[T]):
    """An encoder that keeps its output for the last batch.

    A single source does not replace a batch: it is quickly encoded again, and often asked for between the two uses
    of a batch.
    """

    def __init__(self, encode: Callable[[Sequence[Sequence[int]]], T]) -> None:
        self._encode = encode
        self._last: tuple[list[Sequence[int]], T] | None = None

    def __call__(self, sources: Sequence[Sequence[int]]) -> T:
        """The encoder's output for sources."""
        last = self._last  # read once: another thread may replace it
        if last is not None and last[0] == list(sources):
            return last[1]
        encoded = self._encode(sources)
        if len(sources) > 1:
            self._last = list(sources), encoded
        return encoded
