"""Pieces of work, and the engine that does them here and now."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar, final

K = TypeVar("K")  # names a piece of work
O = TypeVar("O")  # noqa: E741  what a worker opens once, such as a model
R = TypeVar("R")  # what comes of a piece


@final
@dataclass(frozen=True)
class Failed:
    """What came of a piece that could not be done."""

    reason: str


class Engine(ABC):
    """Does pieces of work with something that each worker opens once."""

    @abstractmethod
    def done(
        self, opening: Callable[[], O], pieces: Iterable[tuple[K, Callable[[O], R]]]
    ) -> Iterator[tuple[K, R | Failed]]:
        """Give what comes of each piece, in any order; pieces are taken as workers are free.

        A `ValueError` of a piece is raised: what is wrong with it will be wrong wherever it is done.
        """


@final
class Local(Engine):
    """This process does one piece after the other."""

    def done(
        self, opening: Callable[[], O], pieces: Iterable[tuple[K, Callable[[O], R]]]
    ) -> Iterator[tuple[K, R | Failed]]:
        """Give what comes of each piece, in order."""
        opened: O | None = None
        for key, piece in pieces:
            if opened is None:
                opened = opening()
            yield key, piece(opened)
