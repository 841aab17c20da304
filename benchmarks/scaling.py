"""What a second worker brings, and what limits a hundred: `python benchmarks/scaling.py SOURCE [options]`.

SOURCE is text for the model. The same lines are translated by one process and by clusters of one and two workers,
in turn; each has one thread. The last line is what the driver does for a shard besides, for all workers.
"""

from __future__ import annotations

import argparse
import pickle
import statistics
import tempfile
import time
from functools import partial
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from uncurse.corpus import Opening, Work, translate_corpus
from uncurse.decoding import Decoding
from uncurse.engines.cluster import Cluster
from uncurse.engines.local import Engine, Local
from uncurse.parts import Parts
from uncurse.records import Style
from uncurse.shards import Shard, shards_of
from uncurse.text.corpora import Form, sentences_of
from uncurse.translator import Task


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("--model", default="zh-en-small")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--lines", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    lines = [line for line, _ in zip(sentences_of([options.source]), range(options.lines), strict=False)]
    shards = list(shards_of(lines))
    opening = Opening(options.model, dtype=options.dtype)
    signature = opening().signature
    works = [Work(shard, Task(Decoding.of(options.beam)), Style.TEXT, signature) for shard in shards]
    engines: dict[str, Engine] = {
        "one process": Local(), "1 worker": Cluster(workers=1), "2 workers": Cluster(workers=2)
    }  # fmt: skip
    console = Console(width=140)
    spent: dict[str, list[tuple[float, float]]] = {name: [] for name in engines}
    outputs: dict[str, bytes] = {}
    for repeat in range(options.repeats):
        for name, engine in engines.items():
            ends: list[float] = []
            with tempfile.TemporaryDirectory() as scratch:
                parts = Parts(Path(scratch) / "out", "a benchmark", resume=False)
                start = time.perf_counter()
                report = partial(_note_time, ends)
                translate_corpus(engine, opening, works, parts, Form.TEXT, report)
                outputs[name] = (Path(scratch) / "out").read_bytes()
            spent[name].append((ends[0] - start, ends[-1] - start))
            console.print(f"{repeat} {name}: {ends[-1] - start:.1f} s", highlight=False)
    table = Table(title=f"{len(lines)} lines in {len(shards)} shards, {options.model}, b = {options.beam}")
    for column in (
        "",
        "seconds (least, most)",
        "until the first shard",
        "lines / s",
        "× one process",
        "same bytes",
    ):
        table.add_column(column, justify="right")
    base = statistics.median(total for _, total in spent["one process"])
    for name, times in spent.items():
        totals = [total for _, total in times]
        median = statistics.median(totals)
        table.add_row(
            name,
            f"{median:.1f} ({min(totals):.1f}, {max(totals):.1f})",
            f"{statistics.median(first for first, _ in times):.1f}",
            f"{len(lines) / median:.1f}",
            f"{base / median:.2f}",
            "yes" if outputs[name] == outputs["one process"] else "no",
        )
    console.print(table)
    console.print(driver_costs(lines, works, outputs["one process"], base / len(shards)), highlight=False)


def _note_time(ends: list[float], shard: Shard) -> None:
    del shard
    ends.append(time.perf_counter())


def driver_costs(lines: list[str], works: list[Work], output: bytes, seconds: float) -> str:
    """What the driver does for each shard, and how many workers it can feed."""
    start = time.perf_counter()
    shards: list[Shard] = list(shards_of(lines))
    cutting = (time.perf_counter() - start) / len(shards)
    start = time.perf_counter()
    sent = [len(pickle.dumps(work)) for work in works]
    sending = (time.perf_counter() - start) / len(works)
    content = output[: len(output) // len(shards)]
    with tempfile.TemporaryDirectory() as scratch:
        parts = Parts(Path(scratch) / "out", "a benchmark", resume=False)
        start = time.perf_counter()
        for shard in shards:
            parts.add(shard, content)
        keeping = (time.perf_counter() - start) / len(shards)
    whole = cutting + sending + keeping
    return (
        f"a shard: {seconds:.1f} s of a worker; of the driver {1000 * cutting:.2f} ms to cut,"
        f" {1000 * sending:.2f} ms to pickle ({statistics.mean(sent) / 1024:.0f} KB), {1000 * keeping:.2f} ms to"
        f" write ({len(content) / 1024:.0f} KB, synced to disk): {seconds / whole:.0f} workers keep it busy"
    )


if __name__ == "__main__":
    main()
