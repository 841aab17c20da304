"""A batcher under test, what it is asked, and a clock that advances when told to."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from support.service import CharacterTokenizer, HeldModel
from uncurse import Decoding, Sentence, parse_max_length
from uncurse.lengths.predictors import FixedRatio
from uncurse.serving.batcher import Batcher
from uncurse.serving.jobs import Answer, TranslationJob
from uncurse.serving.limits import ServiceLimits
from uncurse.translation.options import TranslationOptions
from uncurse.translation.records import record_of
from uncurse.translation.translator import Translator

LIMITS = ServiceLimits()
SOON = 30.0  # seconds that a test waits for what should happen at once
OPTIONS = [
    TranslationOptions(Decoding(5, "bp-norm")),
    TranslationOptions(Decoding(5, "bp-norm"), parse_max_length("7")),  # shares the search of the first
    TranslationOptions(Decoding(5, "bp-norm"), length_ratio=2.5),  # and so does this
    TranslationOptions(Decoding(5, "bp-norm"), min_length=9, target_prefix="ab"),  # and this
    TranslationOptions(Decoding(3, "gnmt:alpha=0.6,beta=0.4", n_best=3, slots="refill")),
    TranslationOptions(Decoding(4, "adaptive-reward", "optimal", n_best=2)),
    TranslationOptions(Decoding(4, "length-norm", "beam-full")),
]


class CountingObserver:
    """Counts the sentences that ended."""

    def __init__(self) -> None:
        self.sentences = 0

    def observe_step(self, sentences: int, seconds: float) -> None:
        assert sentences > 0

    def observe_end(self, found: object, in_time: bool) -> None:
        self.sentences += 1


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def advance(self) -> None:
        self.now += 11.0


@contextmanager
def running_batcher(
    translator: Translator,
    limits: ServiceLimits = LIMITS,
    clock: Callable[[], float] = time.monotonic,
    cpu_threads: int = 1,
) -> Iterator[Batcher]:
    batcher = Batcher(translator, limits, CountingObserver(), clock, cpu_threads)
    batcher.start()
    try:
        yield batcher
    finally:
        getattr(translator.model, "allow_all", lambda: None)()
        batcher.close()


def held_translator(ending: float = 1.0) -> tuple[HeldModel, Translator]:
    model = HeldModel(seed=1, ending=ending)
    return model, Translator(model, CharacterTokenizer(), CharacterTokenizer(), FixedRatio(1.5))


def submit(
    batcher: Batcher, options: TranslationOptions, *lines: str, deadline: float = 1e6
) -> Future[list[Answer]]:
    resolved = options.resolved(batcher.translator.predictor)
    return batcher.submit(TranslationJob.of(resolved), lines, deadline)


def alone(translator: Translator, options: TranslationOptions, line: str) -> Answer:
    """The answer for a line without a batcher."""
    (translation,) = translator.stream([line], options)
    return record_of(translation) | {"in_time": True}


def sentence_of(translator: Translator, line: str, options: TranslationOptions) -> Sentence:
    (sentence,) = translator.sentences([translator.encode(line)], options)
    return sentence


def wait_until(happened: Callable[[], Any]) -> None:
    end = time.monotonic() + SOON
    while not happened():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.001)
