"""Signals that a part of the program answers in its own way."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def answered(answer: Callable[[int], None], *numbers: signal.Signals) -> Iterator[None]:
    """Until this ends, such signals are answered like that; it must be the main thread's."""
    before = {number: signal.signal(number, lambda given, _: answer(given)) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
