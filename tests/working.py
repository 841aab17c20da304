"""A worker for a while, what it can be asked, and time that passes when it is told to."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from served import Held, Letters

from uncurse import Decoding, parse_limit
from uncurse.length import FixedRatio
from uncurse.records import record_of
from uncurse.serving.options import Limits
from uncurse.serving.orders import Answer, TranslationOrder
from uncurse.serving.worker import Worker
from uncurse.translator import Task, Translator

LIMITS = Limits()
SOON = 30.0  # seconds that a test would wait for what should come at once
TASKS = [
    Task(Decoding.of(5, "bp-norm")),
    Task(Decoding.of(5, "bp-norm"), parse_limit("7")),  # shares the search of the first
    Task(Decoding.of(5, "bp-norm"), ratio=2.5),  # and so does this
    Task(Decoding.of(3, "gnmt:alpha=0.6,beta=0.4", n_best=3, slots="refill")),
    Task(Decoding.of(4, "adaptive-reward", "optimal", n_best=2)),
    Task(Decoding.of(4, "length-norm", "beam-full")),
]


class Silent:
    """Someone who only counts."""

    def __init__(self) -> None:
        self.sentences = 0

    def stepped(self, sentences: int, seconds: float) -> None:
        assert sentences > 0

    def ended(self, found: object, in_time: bool) -> None:
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
def working(
    translator: Translator,
    limits: Limits = LIMITS,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Worker]:
    worker = Worker(translator, limits, Silent(), clock)
    worker.start()
    try:
        yield worker
    finally:
        getattr(translator.model, "let_go", lambda: None)()
        worker.close()


def held(ending: float = 1.0) -> tuple[Held, Translator]:
    model = Held(seed=1, ending=ending)
    return model, Translator(model, Letters(), Letters(), FixedRatio(1.5))


def ask(worker: Worker, task: Task, *lines: str, seconds: float = 1e6) -> Future[list[Answer]]:
    return worker.submit(TranslationOrder(task), lines, seconds)


def alone(translator: Translator, task: Task, line: str) -> Answer:
    (translation,) = translator.stream([line], task)
    return record_of(translation) | {"in_time": True}


def until(happened: Callable[[], Any]) -> None:
    end = time.monotonic() + SOON
    while not happened():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.001)
