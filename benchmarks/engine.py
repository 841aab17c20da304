"""What the engine costs without a model: `python benchmarks/engine.py`.

Each line searches with a model whose answers lie ready, three times in turn: `record` keeps every step and nothing
else; `exhaustive` scores what finishes and returns the best, with the certificate taken out; `optimal` also tests
for proof after every step, drops hopeless prefixes, and certifies. The model is such that `optimal` has to run to
the limit: all take the same steps, and the test is made at every one.
"""

from __future__ import annotations

import statistics
import time
import tracemalloc
from collections.abc import Callable
from unittest import mock

from ready import ReadyModel
from rich.console import Console
from rich.table import Table

from uncurse import Decoding, Evidence, Optimality, Sentence, beam_search, record
from uncurse.arrays import Floats

Search = Callable[[ReadyModel, int, int], int]

STEPS, REPEATS = 60, 7
BATCHES, WIDTHS = (1, 8, 64), (5, 20, 80)


def sentences(batch: int, limit: int = STEPS) -> list[Sentence]:
    """A batch of sentences of 20 pieces."""
    return [Sentence((1,) * 20, limit=limit, predicted=0.7 * limit) for _ in range(batch)]


def recorded(model: ReadyModel, batch: int, width: int) -> int:
    """Keep every step; return how many there were."""
    return max(trace.steps for trace in record(model, sentences(batch), width, batch=batch))


def exhaustive(model: ReadyModel, batch: int, width: int) -> int:
    """Search to the limit without certificates."""

    def uncertified(evidence: Evidence, pruned: Floats) -> list[tuple[Optimality, float]]:
        return [(Optimality.NONE, 0.0)] * len(pruned)

    with mock.patch("uncurse.search.certify", uncertified):
        return _searched(model, batch, Decoding.of(width, "bp-norm", "exhaustive"))


def optimal(model: ReadyModel, batch: int, width: int) -> int:
    """Search with the default score and rule."""
    return _searched(model, batch, Decoding.of(width, "bp-norm", "optimal"))


def _searched(model: ReadyModel, batch: int, decoding: Decoding) -> int:
    return max(result.steps for result in beam_search(model, sentences(batch), decoding, batch=batch))


def microseconds_per_step(search: Search, model: ReadyModel, batch: int, width: int) -> float:
    """The time of one search, by steps."""
    start = time.perf_counter()
    steps = search(model, batch, width)
    return (time.perf_counter() - start) / steps * 1e6


SEARCHES: tuple[Search, ...] = (recorded, exhaustive, optimal)


def memory_per_step(model: ReadyModel, batch: int, width: int) -> list[tuple[int, float]]:
    """Peak bytes per step, sentence and slot of the beam, for searches of growing length."""
    found = []
    for steps in (250, 500, 1000, 2000):
        tracemalloc.start()
        record(model, sentences(batch, steps), width, batch=batch)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        found.append((steps, peak / (steps * batch * width)))
    return found


def main() -> None:
    """Print the tables."""
    model = ReadyModel(max(BATCHES) * max(WIDTHS), max(WIDTHS) + 1)
    console = Console(width=110)
    table = Table(title=f"Engine alone: microseconds, medians of {REPEATS} interleaved runs of {STEPS} steps")
    for column in ("batch", "width", *(f"{search.__name__} / step" for search in SEARCHES)):
        table.add_column(column, justify="right")
    for column in ("optimal / live row", "optimal : exhaustive", "spread", "optimal : record"):
        table.add_column(column, justify="right")
    per_step: dict[tuple[int, int], float] = {}
    worst = 0.0
    for width in WIDTHS:
        for batch in BATCHES:
            runs = [
                [microseconds_per_step(search, model, batch, width) for search in SEARCHES]
                for _ in range(REPEATS + 1)
            ][1:]  # the first warms up
            medians = [statistics.median(column) for column in zip(*runs, strict=True)]
            to_exhaustive = sorted(certified / plain for _, plain, certified in runs)
            to_record = statistics.median(certified / bare for bare, _, certified in runs)
            per_step[batch, width] = medians[-1]
            worst = max(worst, statistics.median(to_exhaustive))
            table.add_row(
                str(batch),
                str(width),
                *(f"{median:.0f}" for median in medians),
                f"{medians[-1] / (batch * width):.2f}",
                f"{statistics.median(to_exhaustive):.2f}",
                f"{to_exhaustive[0]:.2f}-{to_exhaustive[-1]:.2f}",
                f"{to_record:.2f}",
            )
    console.print(table)
    growth = per_step[64, 5] / per_step[8, 5]
    console.print(f"a step at batch 64 costs {growth:.2f} × a step at batch 8 (width 5); bar: 4")
    console.print(f"optimal with certificates costs at most {worst:.2f} × exhaustive without; bar: 1.3")
    table = Table(title="Memory of a recorded search, batch 8, width 20")
    table.add_column("steps", justify="right")
    table.add_column("peak bytes / (step · sentence · slot)", justify="right")
    for steps, used in memory_per_step(model, 8, 20):
        table.add_row(str(steps), f"{used:.0f}")
    console.print(table)


if __name__ == "__main__":
    main()
