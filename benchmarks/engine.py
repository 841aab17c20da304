"""What the engine costs without a model: `python benchmarks/engine.py`.

Each line searches with a model whose answers are precomputed, three times in turn. `record` keeps every step and
nothing else. `exhaustive` scores what finishes and returns the best, without a certificate. `optimal` also tests
for proof after every step, drops hopeless prefixes, and certifies. The model is such that `optimal` has to run to
the maximum length, so that all take the same steps. How much of the test is needed depends on the score: where its
best case at the longest length shows that there is hope, others are not looked at. Another table has more scores.
"""

from __future__ import annotations

import statistics
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from unittest import mock

from ready import ReadyModel
from rich.console import Console
from rich.table import Table

from uncurse import SCORES, Certificate, Decoding, Evidence, Paths, Rescorer, Sentence, Source, beam_search, record
from uncurse.arrays import Floats

Search = Callable[[ReadyModel, int, int], int]

STEPS = 60
BATCHES, BEAM_SIZES = (1, 8, 64), (5, 20, 80)
SCORES_TRIED = (
    "length-norm",
    "gnmt:alpha=1",
    "bounded-word-reward:reward=1",
    "adaptive-reward",
    "gaussian-length",
)


@SCORES.register("gaussian-length", formula="S − (n − L)² / 2σ², σ = 30", source="this benchmark")
@dataclass(frozen=True)
class GaussianLength(Rescorer):
    """A score whose best case is not at the longest length, so that all lengths must be looked at."""

    def score(self, source: Source, paths: Paths) -> Floats:
        """A wide prior around the expected length."""
        return paths.log_prob - ((paths.length - source.expected_length) / 30.0) ** 2 / 2


def repeats(batch: int, beam_size: int) -> int:
    """Short runs are more at the mercy of the machine."""
    return 31 if batch * beam_size < 500 else 7


def sentences(batch: int, max_length: int = STEPS) -> list[Sentence]:
    """A batch of sentences of 20 tokens."""
    return [Sentence((1,) * 20, max_length=max_length, expected_length=0.7 * max_length) for _ in range(batch)]


def recorded(model: ReadyModel, batch: int, beam_size: int) -> int:
    """Keep every step; return how many there were."""
    return max(trace.steps for trace in record(model, sentences(batch), beam_size, batch_size=batch))


def exhaustive(model: ReadyModel, batch: int, beam_size: int) -> int:
    """Search to the maximum length without certificates."""

    with mock.patch("uncurse.search.search.certify", _uncertified):
        return _searched(model, batch, Decoding(beam_size, "f1-norm", "exhaustive"))


def optimal(model: ReadyModel, batch: int, beam_size: int) -> int:
    """Search with the default score and rule."""
    return _searched(model, batch, Decoding(beam_size, "f1-norm", "optimal"))


def live_rows_per_step(model: ReadyModel, batch: int, beam_size: int) -> float:
    """How many prefixes the model is run on in a step of `optimal`."""
    results = beam_search(model, sentences(batch), Decoding(beam_size, "f1-norm", "optimal"), batch_size=batch)
    return sum(result.model_rows for result in results) / max(result.steps for result in results)


def ratio_of(score: str, model: ReadyModel, batch: int, beam_size: int) -> list[float]:
    """The time of a step of `optimal` with a score against that of `exhaustive` without certificates, sorted."""

    def timed(stop: str) -> float:
        start = time.perf_counter()
        steps = _searched(model, batch, Decoding(beam_size, score, stop))
        return (time.perf_counter() - start) / steps

    ratios = []
    for _ in range(repeats(batch, beam_size) + 1):
        with mock.patch("uncurse.search.search.certify", _uncertified):
            plain = timed("exhaustive")
        ratios.append(timed("optimal") / plain)
    return sorted(ratios[1:])


def _uncertified(evidence: Evidence, pruned: Floats) -> list[tuple[Certificate, float]]:
    return [(Certificate.NONE, 0.0)] * len(pruned)


def _searched(model: ReadyModel, batch: int, decoding: Decoding) -> int:
    return max(result.steps for result in beam_search(model, sentences(batch), decoding, batch_size=batch))


def microseconds_per_step(search: Search, model: ReadyModel, batch: int, beam_size: int) -> float:
    """The time of one search, by steps."""
    start = time.perf_counter()
    steps = search(model, batch, beam_size)
    return (time.perf_counter() - start) / steps * 1e6


SEARCHES: tuple[Search, ...] = (recorded, exhaustive, optimal)


def bytes_per_step(model: ReadyModel, batch: int, beam_size: int) -> float:
    """What each further step of a long search adds to the memory in use, by sentence and slot of the beam."""

    def peak(steps: int) -> int:
        tracemalloc.start()
        record(model, sentences(batch, steps), beam_size, batch_size=batch)
        _, used = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return used

    return (peak(4000) - peak(2000)) / (2000 * batch * beam_size)


def main() -> None:
    """Print the tables."""
    model = ReadyModel(max(BATCHES) * max(BEAM_SIZES), max(BEAM_SIZES) + 1)
    console = Console(width=110)
    table = Table(title=f"Engine alone: microseconds, medians of 7 to 31 interleaved runs of {STEPS} steps")
    for column in ("batch", "beam size", *(f"{search.__name__} / step" for search in SEARCHES)):
        table.add_column(column, justify="right")
    for column in ("optimal / live row", "optimal : exhaustive", "spread", "optimal : record"):
        table.add_column(column, justify="right")
    per_step: dict[tuple[int, int], float] = {}
    worst = 0.0
    for beam_size in BEAM_SIZES:
        for batch in BATCHES:
            runs = [
                [microseconds_per_step(search, model, batch, beam_size) for search in SEARCHES]
                for _ in range(repeats(batch, beam_size) + 1)
            ][1:]  # the first warms up
            medians = [statistics.median(column) for column in zip(*runs, strict=True)]
            to_exhaustive = sorted(certified / plain for _, plain, certified in runs)
            to_record = statistics.median(certified / bare for bare, _, certified in runs)
            per_step[batch, beam_size] = medians[-1]
            worst = max(worst, statistics.median(to_exhaustive))
            table.add_row(
                str(batch),
                str(beam_size),
                *(f"{median:.0f}" for median in medians),
                f"{medians[-1] / live_rows_per_step(model, batch, beam_size):.2f}",
                f"{statistics.median(to_exhaustive):.2f}",
                f"{to_exhaustive[0]:.2f}-{to_exhaustive[-1]:.2f}",
                f"{to_record:.2f}",
            )
    console.print(table)
    growth = per_step[64, 5] / per_step[8, 5]
    console.print(f"a step at batch 64 costs {growth:.2f} × a step at batch 8 (beam size 5); bar: 4")
    console.print(f"optimal with certificates costs at most {worst:.2f} × exhaustive without; bar: 1.3")
    table = Table(title="Other scores, batch 8, beam size 20")
    for column in ("score", "optimal : exhaustive", "spread"):
        table.add_column(column, justify="left" if column == "score" else "right")
    for score in SCORES_TRIED:
        ratios = ratio_of(score, model, 8, 20)
        table.add_row(score, f"{statistics.median(ratios):.2f}", f"{ratios[0]:.2f}-{ratios[-1]:.2f}")
    console.print(table)
    table = Table(title="Memory that each step of a long search adds (steps 2000 to 4000)")
    for column in ("batch", "beam size", "bytes / (step · sentence · slot)"):
        table.add_column(column, justify="right")
    for batch, beam_size in ((1, 5), (4, 5), (16, 5), (4, 20), (1, 80)):
        table.add_row(str(batch), str(beam_size), f"{bytes_per_step(model, batch, beam_size):.0f}")
    console.print(table)


if __name__ == "__main__":
    main()
