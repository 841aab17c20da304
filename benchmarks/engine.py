"""What the engine costs without a model: `python benchmarks/engine.py`.

Each line searches with a model whose answers lie ready. `exhaustive` records every step and chooses the best at
the end, without certificates; `optimal` tests after every step, drops hopeless prefixes and certifies. The limit
is such that `optimal` has to run to it, so both take the same steps and the test is made at all of them.
"""

from __future__ import annotations

import statistics
import time
import tracemalloc
from collections.abc import Callable

from ready import ReadyModel
from rich.console import Console
from rich.table import Table

from uncurse import Decoding, Sentence, beam_search, record
from uncurse.rescoring import BPNorm, Paths, Source

STEPS, REPEATS = 60, 7
BATCHES, WIDTHS = (1, 8, 64), (5, 20, 80)


def sentences(batch: int, limit: int = STEPS) -> list[Sentence]:
    """A batch of sentences of 20 pieces."""
    return [Sentence((1,) * 20, limit=limit, predicted=0.7 * limit) for _ in range(batch)]


def exhaustive(model: ReadyModel, batch: int, width: int) -> int:
    """Record every step, then choose the best-scoring hypothesis; return the steps taken."""
    traces = record(model, sentences(batch), width, batch=batch)
    for trace in traces:
        steps, ranks = trace.finished
        source = Source.repeated(1, 20, STEPS, 0, 0.7 * STEPS)
        scores = BPNorm().score(source, Paths(trace.finished_sums, steps + 1))
        if not len(scores):
            continue
        best = int(scores.argmax())
        trace.hypothesis(int(steps[best]), int(ranks[best]), float(scores[best]))
    return max(trace.steps for trace in traces)


def optimal(model: ReadyModel, batch: int, width: int) -> int:
    """Search with the default score and rule; return the steps taken."""
    results = beam_search(model, sentences(batch), Decoding.of(width, "bp-norm", "optimal"), batch=batch)
    return max(result.steps for result in results)


def microseconds_per_step(
    search: Callable[[ReadyModel, int, int], int], model: ReadyModel, batch: int, width: int
) -> float:
    """The time of one search, by steps."""
    start = time.perf_counter()
    steps = search(model, batch, width)
    return (time.perf_counter() - start) / steps * 1e6


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
    table = Table(title=f"Engine alone: microseconds, median of {REPEATS} interleaved runs of {STEPS} steps")
    for column in (
        "batch",
        "width",
        "exhaustive / step",
        "optimal / step",
        "optimal / live row",
        "ratio",
        "spread",
    ):
        table.add_column(column, justify="right")
    per_step: dict[tuple[int, int], float] = {}
    ratios = []
    for width in WIDTHS:
        for batch in BATCHES:
            pairs = [
                (
                    microseconds_per_step(exhaustive, model, batch, width),
                    microseconds_per_step(optimal, model, batch, width),
                )
                for _ in range(REPEATS + 1)
            ][1:]  # the first warms up
            plain, certified = (statistics.median(column) for column in zip(*pairs, strict=True))
            each = [second / first for first, second in pairs]
            per_step[batch, width] = certified
            ratios.append(statistics.median(each))
            table.add_row(
                str(batch), str(width), f"{plain:.0f}", f"{certified:.0f}", f"{certified / (batch * width):.2f}",
                f"{ratios[-1]:.2f}", f"{min(each):.2f}-{max(each):.2f}",
            )  # fmt: skip
    console = Console(width=110)
    console.print(table)
    growth = per_step[64, 5] / per_step[8, 5]
    console.print(f"a step at batch 64 costs {growth:.2f} × a step at batch 8 (width 5); bar: 4")
    console.print(f"optimal with certificates costs at most {max(ratios):.2f} × exhaustive without; bar: 1.3")
    table = Table(title="Memory of a recorded search, batch 8, width 20")
    table.add_column("steps", justify="right")
    table.add_column("peak bytes / (step · sentence · slot)", justify="right")
    for steps, used in memory_per_step(model, 8, 20):
        table.add_row(str(steps), f"{used:.0f}")
    console.print(table)


if __name__ == "__main__":
    main()
