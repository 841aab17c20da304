"""A service around a random model whose steps can be held back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from support.letter_model import LetterEncoder
from uncurse import Continuations
from uncurse.arrays import Floats, Ints
from uncurse.lengths.predictors import FixedRatio, LengthPredictor
from uncurse.scoring.rescorer import proportional_length
from uncurse.serving.app import Service
from uncurse.serving.server import listen, server_of, url_of
from uncurse.testing.models import RandomState
from uncurse.translation.translator import Translator


class CharacterTokenizer:
    """Tokenizes any text: a character is one of six tokens, spaces are dropped; `</s>` is 6."""

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        return [[ord(letter) % 6 for letter in line if not letter.isspace()] for line in lines]

    def decode(self, tokens: Sequence[int]) -> str:
        return " ".join("abcdef"[token] for token in tokens if token != 6)


class HeldModel(LetterEncoder):  # type: ignore[misc]
    """A model that waits before each step for permission; it notes how many rows share each step.

    `during` holds what is to happen during a step, by the number of the step.
    """

    def __init__(self, seed: int, ending: float = 1.0) -> None:
        LetterEncoder.__init__(self, seed=seed, vocab_size=7, ending=ending, attends=True)
        self.started = False  # whether a first step was asked for
        self.rows: list[int] = []
        self.during: dict[int, Callable[[], object]] = {}
        self._permits = threading.Semaphore(0)
        self._free = threading.Event()

    def allow(self, steps: int) -> None:
        """Allow so many steps."""
        self._permits.release(steps)

    def allow_all(self) -> None:
        """Allow all steps from now on."""
        self._free.set()
        self._permits.release()

    def step(self, state: RandomState, tokens: Ints, k: int, attention: bool) -> tuple[Continuations, RandomState]:
        self.started = True
        while not self._free.is_set() and not self._permits.acquire(timeout=0.01):
            pass
        self.rows.append(len(tokens))
        self.during.get(len(self.rows), lambda: None)()
        return LetterEncoder.step(self, state, tokens, k, attention)


class QuantilePredictor:
    """A predictor that also knows two quantiles."""

    levels = (0.8, 0.95)

    def predict(self, source_lengths: Ints, features: Floats) -> Floats:
        return proportional_length(1.4, source_lengths)

    def quantile(self, level: float, source_lengths: Ints, features: Floats) -> Floats:
        return proportional_length(2.0 * level, source_lengths) + 1.0


def letter_translator(
    ending: float = 1.0,
    predictor: LengthPredictor | None = FixedRatio(1.5),  # noqa: B008  (it is immutable)
    attends: bool = True,
) -> Translator:
    """A translator whose results are always the same."""
    model = LetterEncoder(seed=1, vocab_size=7, ending=ending, attends=attends)
    return Translator(model, CharacterTokenizer(), CharacterTokenizer(), predictor)


@contextmanager
def serving(service: Service) -> Iterator[str]:
    """Run the service at a free port; its URL."""
    listening = listen("127.0.0.1", 0)
    server = server_of(service)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    try:
        yield url_of(listening)
    finally:
        server.should_exit = True
        thread.join(60)
        assert not thread.is_alive()
