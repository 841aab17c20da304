"""Signals that one part of the program handles in its own way."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def handle_signals(handler: Callable[[int], None], *numbers: signal.Signals) -> Iterator[None]:
    """Handle the given signals until the block ends. Only the main thread may do this."""
    before = {number: signal.signal(number, lambda given, _: handler(given)) for number in numbers}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)
