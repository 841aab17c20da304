"""How fast a translator decodes, and how much of the time is not its own: `python benchmarks/decoding.py [MODEL]`.

Without a model folder the network has the shape of recipes/zh-en-small.toml and weights nobody has trained; its
outputs run to the limit, so that every step is made.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from uncurse import Continuations, Decoding, Sentence, StepModel, beam_search
from uncurse.arrays import Ints
from uncurse.models.directory import load_folder
from uncurse.models.lstm import AttentionalLSTM, LSTMShape
from uncurse.models.lstm_steps import LSTMState, LSTMStepModel

BATCH, SENTENCES, REPEATS = 32, 64, 3
SPENT = [0.0]  # seconds inside the model


class Stopwatch:
    """Adds up the time between entering and leaving."""

    def __enter__(self) -> None:
        self._start = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        SPENT[0] += time.perf_counter() - self._start


@dataclass(frozen=True)
class TimedState:
    """A state whose selections are timed."""

    inner: LSTMState

    def select(self, rows: Ints) -> Self:
        """The given rows."""
        with Stopwatch():
            return type(self)(self.inner.select(rows))

    def append(self, other: Self) -> Self:
        """These and the others."""
        with Stopwatch():
            return type(self)(self.inner.append(other.inner))


class TimedModel:
    """A model whose work is timed."""

    def __init__(self, inner: StepModel[LSTMState]) -> None:
        self.inner = inner
        self.signature, self.vocabulary, self.attends = inner.signature, inner.vocabulary, inner.attends
        self.begin, self.end = inner.begin, inner.end

    def start(self, sources: Sequence[Sequence[int]]) -> TimedState:
        """Encode sources."""
        with Stopwatch():
            return TimedState(self.inner.start(sources))

    def step(self, state: TimedState, tokens: Ints, k: int, attention: bool) -> tuple[Continuations, TimedState]:
        """One step."""
        with Stopwatch():
            given, after = self.inner.step(state.inner, tokens, k, attention)
            return given, TimedState(after)


def main() -> None:
    """Print the table."""
    if len(sys.argv) > 1:
        inner: StepModel[LSTMState] = load_folder(Path(sys.argv[1])).model
    else:
        torch.manual_seed(1)
        inner = LSTMStepModel(AttentionalLSTM(LSTMShape(8000, 8000, 256, 384, 0.0, False, True)), "untrained")
    model = TimedModel(inner)
    random = np.random.default_rng(1)
    sentences = [
        Sentence(tuple(random.integers(3, 5000, length).tolist()), limit=40, predicted=30.0)
        for length in random.integers(10, 40, SENTENCES).tolist()
    ]
    table = Table(title=f"{SENTENCES} sentences, batch {BATCH}, BP-Norm, optimal; median of {REPEATS}")
    for column in ("beam", "sentences / s", "share of time outside the model", "bar"):
        table.add_column(column, justify="right")
    for width, bar in ((5, "10 %"), (20, ""), (40, "5 %")):
        times, shares = [], []
        for _ in range(REPEATS):
            SPENT[0] = 0.0
            start = time.perf_counter()
            beam_search(model, sentences, Decoding.of(width, "bp-norm"), batch=BATCH)
            times.append(time.perf_counter() - start)
            shares.append(1.0 - SPENT[0] / times[-1])
        table.add_row(
            str(width),
            f"{SENTENCES / statistics.median(times):.1f}",
            f"{statistics.median(shares):.1%}",
            bar,
        )
    Console().print(table)


if __name__ == "__main__":
    main()
