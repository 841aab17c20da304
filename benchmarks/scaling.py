"""What a second Ray worker brings, and what limits a hundred: `python benchmarks/scaling.py SOURCE [options]`.

SOURCE is text for the model. One process and clusters of one and two workers translate the same lines, in turn;
each has one thread. The last line is the work that the driver does for each shard.
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

from uncurse.executors.local import Executor, LocalExecutor
from uncurse.executors.ray_cluster import RayExecutor
from uncurse.models.loaded_model import ModelOptions
from uncurse.scoring.decoding import Decoding
from uncurse.text.corpus_formats import CorpusFormat, read_sentences
from uncurse.translation.options import TranslationOptions
from uncurse.translation.records import Style
from uncurse.translation.resumable_output import ResumableOutput
from uncurse.translation.shards import Shard, shards_of
from uncurse.translation.translate_corpus import ShardJob, translate_corpus
from uncurse.translation.translator import load_translator


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("--model", default="zh-en-small")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--beam-size", type=int, default=5)
    parser.add_argument("--lines", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    lines = [line for line, _ in zip(read_sentences([options.source]), range(options.lines), strict=False)]
    shards = list(shards_of(lines))
    setup = partial(load_translator, ModelOptions(options.model, dtype=options.dtype))
    signature = setup().signature
    translation = TranslationOptions(decoding=Decoding(options.beam_size))
    jobs = [ShardJob(shard, translation, Style.TEXT, signature) for shard in shards]
    executors: dict[str, Executor] = {
        "one process": LocalExecutor(), "1 worker": RayExecutor(workers=1), "2 workers": RayExecutor(workers=2)
    }  # fmt: skip
    console = Console(width=140)
    spent: dict[str, list[tuple[float, float]]] = {name: [] for name in executors}
    outputs: dict[str, bytes] = {}
    for repeat in range(options.repeats):
        for name, executor in executors.items():
            ends: list[float] = []
            with tempfile.TemporaryDirectory() as scratch:
                start = time.perf_counter()
                report = partial(_append_time, ends)
                with ResumableOutput(Path(scratch) / "out", {}, resume=False) as output:
                    translate_corpus(executor, setup, jobs, output, CorpusFormat.TEXT, report)
                outputs[name] = (Path(scratch) / "out").read_bytes()
            spent[name].append((ends[0] - start, ends[-1] - start))
            console.print(f"{repeat} {name}: {ends[-1] - start:.1f} s", highlight=False)
    table = Table(title=f"{len(lines)} lines in {len(shards)} shards, {options.model}, b = {options.beam_size}")
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
    console.print(driver_costs(lines, jobs, outputs["one process"], base / len(shards)), highlight=False)


def _append_time(ends: list[float], lines: int) -> None:
    del lines
    ends.append(time.perf_counter())


def driver_costs(lines: list[str], jobs: list[ShardJob], translations: bytes, seconds: float) -> str:
    """The driver's work for each shard, and how many workers it can keep busy."""
    start = time.perf_counter()
    shards: list[Shard] = list(shards_of(lines))
    cutting = (time.perf_counter() - start) / len(shards)
    start = time.perf_counter()
    sent = [len(pickle.dumps(job)) for job in jobs]
    sending = (time.perf_counter() - start) / len(jobs)
    content = translations[: len(translations) // len(shards)]
    with tempfile.TemporaryDirectory() as scratch:
        start = time.perf_counter()
        with ResumableOutput(Path(scratch) / "out", {}, resume=False) as output:
            for shard in shards:
                output.add(shard, content)
        keeping = (time.perf_counter() - start) / len(shards)
    whole = cutting + sending + keeping
    return (
        f"a shard takes a worker {seconds:.1f} s; the driver {1000 * cutting:.2f} ms to cut,"
        f" {1000 * sending:.2f} ms to pickle ({statistics.mean(sent) / 1024:.0f} KB), {1000 * keeping:.2f} ms to"
        f" write ({len(content) / 1024:.0f} KB, synced to disk): it can keep {seconds / whole:.0f} workers busy"
    )


if __name__ == "__main__":
    main()
