"""CPU time with and without vocabulary selection, in turn: `python benchmarks/selection.py SOURCE [--rounds N]`.

One thread and CPU time, so that a busy machine does no harm. SOURCE is as for `peers.py`, and so are the sentences
and the search, like for like.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import torch
from peers import ours, read_input
from rich.console import Console
from rich.table import Table

from uncurse.models.transformer.native.library import describe

CASES = [(16, 5, 32), (16, 20, 32), (1, 1, 8), (1, 5, 8), (1, 20, 8)]  # sentences in a batch, beam size, sentences


def main() -> None:
    """Print a row for each case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    torch.set_num_threads(1)
    console, shared = Console(), read_input(given.source, 32)
    table = Table(title=f"seconds of CPU time, medians of {given.rounds} in turn (least, most); {describe()}")
    for column in ("batch", "b", "without", "with", "times as fast"):
        table.add_column(column, justify="right")
    for batch, beam_size, count in CASES:
        some = shared.first(count)
        runs = [ours(some, batch, "int8", True, selection=selection) for selection in (False, True)]
        spent: list[list[float]] = [[], []]
        for _ in range(given.rounds + 1):
            for run, times in zip(runs, spent, strict=True):
                start = time.process_time()
                run(beam_size)
                times.append(time.process_time() - start)
        without, selecting = (times[1:] for times in spent)  # the first one warms up
        cells = [
            f"{statistics.median(each):.2f} ({min(each):.2f}, {max(each):.2f})" for each in (without, selecting)
        ]
        ratio = statistics.median(without) / statistics.median(selecting)
        table.add_row("one sentence" if batch == 1 else str(batch), str(beam_size), *cells, f"{ratio:.2f}")
    console.print(table)


if __name__ == "__main__":
    main()
