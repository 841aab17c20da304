"""How fast an LSTM decodes, and the share of time outside the model: `python benchmarks/decoding.py [FOLDER]`.

Its output layer is computed by PyTorch and by the C++ kernels in turn.

Without the folder of a model the network has the shape of recipes/zh-en-small.toml and random weights; its outputs
reach the maximum length, so that every step is made.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from stopwatch import TimedModel

from uncurse import Decoding, Sentence, StepModel, beam_search
from uncurse.models.lstm.folder import load_folder
from uncurse.models.lstm.network import AttentionalLSTM, LSTMShape
from uncurse.models.lstm.step_model import LSTMState, LSTMStepModel
from uncurse.models.transformer.native.library import VARIABLE, WITHOUT, chosen_library

BATCH, SENTENCES, REPEATS = 32, 64, 3


def main() -> None:
    """Print the table."""
    models = {name: TimedModel(built(kernels)) for name, kernels in (("PyTorch", WITHOUT), ("kernels", ""))}
    random = np.random.default_rng(1)
    sentences = [
        Sentence(tuple(random.integers(3, 5000, length).tolist()), max_length=40, expected_length=30.0)
        for length in random.integers(10, 40, SENTENCES).tolist()
    ]
    table = Table(title=f"{SENTENCES} sentences, batch {BATCH}, BP-Norm, optimal; median of {REPEATS}")
    for column in (
        "beam size",
        "output layer",
        "sentences / s",
        "CPU ms / sentence",
        "time outside the model",
        "goal",
    ):
        table.add_column(column, justify="right")
    for beam_size, goal in ((5, "10 %"), (20, ""), (40, "5 %")):
        runs: dict[str, list[tuple[float, float, float]]] = {name: [] for name in models}
        for _ in range(REPEATS):
            for name, model in models.items():
                runs[name].append(timed(model, sentences, beam_size))
        for name, found in runs.items():
            seconds, cpu, share = (statistics.median(column) for column in zip(*found, strict=True))
            table.add_row(
                str(beam_size),
                name,
                f"{SENTENCES / seconds:.1f}",
                f"{1e3 * cpu / SENTENCES:.1f}",
                f"{share:.1%}",
                goal,
            )
    Console().print(table)


def timed(model: TimedModel, sentences: list[Sentence], beam_size: int) -> tuple[float, float, float]:
    """Seconds, seconds of CPU time, and the share of time outside the model."""
    model.seconds = 0.0
    start, cpu = time.perf_counter(), time.process_time()
    beam_search(model, sentences, Decoding(beam_size, "bp-norm"), batch_size=BATCH)
    seconds = time.perf_counter() - start
    return seconds, time.process_time() - cpu, 1.0 - model.seconds / seconds


def built(kernels: str) -> StepModel[LSTMState]:
    """The model whose output layer is computed by these kernels, if this CPU has them."""
    os.environ[VARIABLE] = kernels
    if len(sys.argv) > 1:
        return load_folder(Path(sys.argv[1])).model
    torch.manual_seed(1)
    network = AttentionalLSTM(LSTMShape(8000, 8000, 256, 384, 0.0, False, True))
    return LSTMStepModel(network, "untrained", chosen_library())


if __name__ == "__main__":
    main()
