"""What it costs to judge one recorded sentence by 60 rules: `python benchmarks/judging.py`."""

from __future__ import annotations

import statistics
import time
from dataclasses import replace

from rich.console import Console
from rich.table import Table

from uncurse import RULES, Decoding, Sentence, judge, record
from uncurse.testing import RandomModel

SPECS = (
    "log-prob",
    "length-norm",
    "length-norm:alpha=0.6",
    "gnmt:alpha=0.2,beta=0.2",
    "word-reward:reward=0.5",
    "bounded-word-reward:reward=1.3",
    "bounded-word-reward:reward=1.3,ratio=1.2",
    "bounded-word-reward:reward=0.7",
    "adaptive-reward",
    "bp-norm",
)
REPEATS = 41


def main() -> None:
    """Print the table."""
    decodings = [Decoding(20, spec, rule) for spec in SPECS for rule in RULES]
    model = RandomModel(seed=1, vocab_size=2000, sharpness=4.0, ending=9.0, attends=True)
    table = Table(title=f"{len(decodings)} decodings judged from one sentence's trace, beam size 20")
    for column in ("source tokens", "max length", "finished", "median ms", "best", "worst"):
        table.add_column(column, justify="right")
    for tokens in (10, 25, 40):
        sentence = Sentence(tuple(range(tokens)), max_length=2 * tokens + 10)
        (recorded,) = record(model, [sentence], beam_size=20)
        times = []
        for _ in range(REPEATS):
            trace = replace(recorded)  # nothing worked out before
            start = time.perf_counter()
            judge(trace, decodings, expected_length=1.1 * tokens)
            times.append((time.perf_counter() - start) * 1e3)
        table.add_row(
            str(tokens), str(sentence.max_length), str(len(recorded.finished_sums)),
            f"{statistics.median(times):.2f}", f"{min(times):.2f}", f"{max(times):.2f}",
        )  # fmt: skip
    console = Console(width=110)
    console.print(table)
    console.print("bar: 5 ms")


if __name__ == "__main__":
    main()
