"""A service around a model of random numbers, whose every step can be held back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import uvicorn
from letters import LetterEncoder

from uncurse import Continuations
from uncurse.arrays import Floats, Ints
from uncurse.length import FixedRatio, LengthPredictor
from uncurse.rescoring import proportional_length
from uncurse.serving.app import Service
from uncurse.serving.running import address_of, listen
from uncurse.testing.models import RandomState
from uncurse.translator import Translator


class Letters:
    """A subword model for any text: a character is a piece, one of six, and a space is none; `</s>` is 6."""

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        return [[ord(letter) % 6 for letter in line if not letter.isspace()] for line in lines]

    def decode(self, pieces: Sequence[int]) -> str:
        return " ".join("abcdef"[piece] for piece in pieces if piece != 6)


class Held(LetterEncoder):  # type: ignore[misc]
    """A model that takes a step only when it is let, until it is let go; it notes how many rows share each.

    What is to happen during a step stands in `during`, by the number of the step.
    """

    def __init__(self, seed: int, ending: float = 1.0) -> None:
        LetterEncoder.__init__(self, seed=seed, vocabulary=7, ending=ending, attends=True)
        self.asked = False  # for a first step
        self.rows: list[int] = []
        self.during: dict[int, Callable[[], object]] = {}
        self._may = threading.Semaphore(0)
        self._free = threading.Event()

    def let(self, steps: int) -> None:
        """Allow so many steps."""
        self._may.release(steps)

    def let_go(self) -> None:
        """Allow all steps from now on."""
        self._free.set()
        self._may.release()

    def step(self, state: RandomState, tokens: Ints, k: int, attention: bool) -> tuple[Continuations, RandomState]:
        self.asked = True
        while not self._free.is_set() and not self._may.acquire(timeout=0.01):
            pass
        self.rows.append(len(tokens))
        self.during.get(len(self.rows), lambda: None)()
        return LetterEncoder.step(self, state, tokens, k, attention)


class Quantiles:
    """A predictor that also knows two quantiles."""

    levels = (0.8, 0.95)

    def predict(self, source_lengths: Ints, features: Floats) -> Floats:
        return proportional_length(1.4, source_lengths)

    def quantile(self, level: float, source_lengths: Ints, features: Floats) -> Floats:
        return proportional_length(2.0 * level, source_lengths) + 1.0


def letters(ending: float = 1.0, predictor: LengthPredictor | None = FixedRatio(1.5)) -> Translator:  # noqa: B008
    """A translator of no use to anybody, whose every result can be told beforehand."""
    model = LetterEncoder(seed=1, vocabulary=7, ending=ending, attends=True)
    return Translator(model, Letters(), Letters(), predictor)


@contextmanager
def serving(service: Service) -> Iterator[str]:
    """The service at an address of its own for as long as it is needed."""
    listening = listen("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(service.app(), log_level="warning", lifespan="on", ws="none"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    try:
        yield address_of(listening)
    finally:
        server.should_exit = True
        thread.join(60)
        assert not thread.is_alive()
