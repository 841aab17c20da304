"""How fast an LSTM decodes, and the share of time outside the model: `python benchmarks/decoding.py [FOLDER]`.

Without the folder of a model the network has the shape of recipes/zh-en-small.toml and random weights; its outputs
reach the maximum length, so that every step is made.
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
from uncurse.models.lstm.folder import load_folder
from uncurse.models.lstm.network import AttentionalLSTM, LSTMShape
from uncurse.models.lstm.step_model import LSTMState, LSTMStepModel

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
        """The state of some rows."""
        with Stopwatch():
            return type(self)(self.inner.select(rows))

    def append(self, other: Self) -> Self:
        """These sentences followed by the others."""
        with Stopwatch():
            return type(self)(self.inner.append(other.inner))


class TimedModel:
    """A model whose work is timed."""

    def __init__(self, inner: StepModel[LSTMState]) -> None:
        self.inner = inner
        self.signature, self.vocab_size, self.attends = inner.signature, inner.vocab_size, inner.attends
        self.bos, self.eos = inner.bos, inner.eos

    def start(self, sources: Sequence[Sequence[int]]) -> TimedState:
        """Encode sources."""
        with Stopwatch():
            return TimedState(self.inner.start(sources))

    def step(self, state: TimedState, tokens: Ints, k: int, attention: bool) -> tuple[Continuations, TimedState]:
        """One step."""
        with Stopwatch():
            continuations, after = self.inner.step(state.inner, tokens, k, attention)
            return continuations, TimedState(after)


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
        Sentence(tuple(random.integers(3, 5000, length).tolist()), max_length=40, expected_length=30.0)
        for length in random.integers(10, 40, SENTENCES).tolist()
    ]
    table = Table(title=f"{SENTENCES} sentences, batch {BATCH}, BP-Norm, optimal; median of {REPEATS}")
    for column in ("beam size", "sentences / s", "share of time outside the model", "goal"):
        table.add_column(column, justify="right")
    for beam_size, goal in ((5, "10 %"), (20, ""), (40, "5 %")):
        times, shares = [], []
        for _ in range(REPEATS):
            SPENT[0] = 0.0
            start = time.perf_counter()
            beam_search(model, sentences, Decoding(beam_size, "bp-norm"), batch_size=BATCH)
            times.append(time.perf_counter() - start)
            shares.append(1.0 - SPENT[0] / times[-1])
        table.add_row(
            str(beam_size),
            f"{SENTENCES / statistics.median(times):.1f}",
            f"{statistics.median(shares):.1%}",
            goal,
        )
    Console().print(table)


if __name__ == "__main__":
    main()
