"""Ours beside Hugging Face and CTranslate2 on the same weights: `python benchmarks/peers.py SOURCE [options]`.

SOURCE is Chinese text; sentences of 15 to 40 pieces are taken from its beginning. Every system translates the same
sentences with the same weights, width and cap, in turn, several times; a ratio is that of the medians. With
translations of SOURCE as --reference, outputs are judged by BLEU, too.

like for like: length-norm, stop when as many as the beam is wide have finished, ended hypotheses make room; so do
CTranslate2 and Hugging Face's early_stopping=True. default: BP-Norm, optimal, with a certificate. no Chinese: like
for like with --without-script cjk, so that pieces which no English sentence has are not computed.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import re
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import ctranslate2
import torch
from rich.console import Console
from rich.table import Table
from torch.profiler import profile
from transformers import MarianMTModel

from uncurse.catalogue import get
from uncurse.decoding import Decoding
from uncurse.evaluation.quality import quality
from uncurse.length import parse_limit
from uncurse.loading import load
from uncurse.models.ctranslate2 import marian_weights, read_model, read_vocabulary
from uncurse.models.marian import save_marian
from uncurse.models.products import Given, Matrix, Numbers, product_of
from uncurse.result import Result
from uncurse.text.vocabulary import SentencePieces, Vocabulary
from uncurse.translator import Task, Translator

CAP = 100  # tokens, </s> counted
BATCH = 16  # sentences, where a system wants to be told
SIZE = 512  # of the model's states
Outputs = list[tuple[int, ...]]
PRODUCTS = ("mkldnn::_linear_pointwise", "onednn::qlinear_pointwise", "aten::addmm", "aten::mm")


@dataclass(frozen=True)
class Material:
    """What all systems share."""

    folder: Path
    lines: list[str]
    sources: list[list[int]]
    references: list[list[str]]  # [files, lines]
    vocabulary: Vocabulary

    @property
    def hugging_face(self) -> Path:
        """The same weights as Hugging Face has them, written once."""
        folder = Path("runs/peers/opus-mt-zh-en")
        if not (folder / "config.json").exists():
            path = self.folder / "model" / "model.bin"
            save_marian(folder, marian_weights(read_model(path), path, self.vocabulary.end))
        return folder


def material(source: Path, count: int, references: Sequence[Path] = ()) -> Material:
    """Sentences of 15 to 40 pieces."""
    folder = get("opus-mt-zh-en")
    vocabulary = read_vocabulary(folder / "model")
    pieces = SentencePieces((folder / "sentencepiece.model").read_bytes(), vocabulary)
    lines, *others = (path.read_text(encoding="utf-8").split("\n") for path in (source, *references))
    if any(len(each) != len(lines) for each in others):
        sys.exit("the references have more or fewer lines than the source")
    ids = pieces.encode(lines)
    chosen = [index for index, each in enumerate(ids) if 15 <= len(each) <= 40][:count]
    return Material(
        folder,
        [lines[index] for index in chosen],
        [ids[index] for index in chosen],
        [[reference[index] for index in chosen] for reference in others],
        vocabulary,
    )


def ours(
    shared: Material, dtype: str, like_for_like: bool, without_script: str | None = None
) -> Callable[[int], Outputs]:
    """This library."""
    translator = load(shared.folder, dtype=dtype, without_script=without_script)

    def run(width: int) -> Outputs:
        return [result.hypotheses[0].tokens[:-1] for result in _results(translator, shared, width, like_for_like)]

    return run


def _results(translator: Translator, shared: Material, width: int, like_for_like: bool) -> list[Result]:
    decoding = Decoding.of(width, "length-norm", "beam-full", 1, "refill") if like_for_like else Decoding.of(width)
    task = Task(decoding, parse_limit(str(CAP)) if like_for_like else None, batch_tokens=BATCH * 40)
    results = [each.result for each in translator.stream(shared.lines, task)]
    return [result for result in results if result is not None]


def ctranslate2_system(shared: Material, kind: str, threads: int) -> Callable[[int], Outputs]:
    """CTranslate2."""
    translator = ctranslate2.Translator(
        str(shared.folder / "model"), device="cpu", compute_type=kind, intra_threads=threads, inter_threads=1
    )
    names = [[shared.vocabulary.pieces[piece] for piece in source] for source in shared.sources]

    def run(width: int) -> Outputs:
        results = translator.translate_batch(
            names, beam_size=width, length_penalty=1, patience=1, min_decoding_length=0,
            max_decoding_length=CAP - 1, max_batch_size=BATCH, return_scores=False,
        )  # fmt: skip
        return [tuple(shared.vocabulary.find(piece) or 0 for piece in each.hypotheses[0]) for each in results]

    return run


def hugging_face(shared: Material, early_stopping: bool | str) -> Callable[[int], Outputs]:
    """The transformers library."""
    model: Any = MarianMTModel.from_pretrained(shared.hugging_face)
    model.eval()
    end, pad = shared.vocabulary.end, len(shared.vocabulary)
    order = sorted(range(len(shared.sources)), key=lambda index: len(shared.sources[index]))

    def run(width: int) -> Outputs:
        found: dict[int, tuple[int, ...]] = {}
        for first in range(0, len(order), BATCH):
            chosen = order[first : first + BATCH]
            longest = max(len(shared.sources[index]) for index in chosen) + 1
            rows = [[*shared.sources[index], end] for index in chosen]
            ids = torch.tensor([[*row, *[pad] * (longest - len(row))] for row in rows])
            with torch.inference_mode():
                given = model.generate(
                    input_ids=ids, attention_mask=(ids != pad).long(), num_beams=width, max_new_tokens=CAP,
                    length_penalty=1.0, early_stopping=early_stopping, do_sample=False, bad_words_ids=[[pad]],
                )  # fmt: skip
            for index, row in zip(chosen, given.tolist(), strict=True):
                found[index] = tuple(token for token in row if token not in (end, pad))
        return [found[index] for index in range(len(order))]

    return run


def systems(shared: Material, threads: int) -> dict[str, Callable[[], Callable[[int], Outputs]]]:
    """Everything that is compared, to be loaded when it is called."""
    return {
        "HF float32, early_stopping=True": partial(hugging_face, shared, True),
        "HF float32, early_stopping='never'": partial(hugging_face, shared, "never"),
        "CTranslate2 float32": partial(ctranslate2_system, shared, "float32", threads),
        "CTranslate2 int8": partial(ctranslate2_system, shared, "int8", threads),
        "ours float32, like for like": partial(ours, shared, "float32", True),
        "ours int8, like for like": partial(ours, shared, "int8", True),
        "ours float32, no Chinese": partial(ours, shared, "float32", True, "cjk"),
        "ours int8, no Chinese": partial(ours, shared, "int8", True, "cjk"),
        "ours float32, default": partial(ours, shared, "float32", False),
        "ours int8, default": partial(ours, shared, "int8", False),
    }


BARS = (  # ours, the peer, width, at least
    ("ours float32, like for like", "HF float32, early_stopping=True", 5, "2.5"),
    ("ours float32, like for like", "HF float32, early_stopping=True", 20, "3"),
    ("ours float32, like for like", "CTranslate2 float32", 5, ""),
    ("ours float32, like for like", "CTranslate2 float32", 20, "0.9"),
    ("ours int8, like for like", "CTranslate2 int8", 5, "0.8"),
    ("ours int8, like for like", "CTranslate2 int8", 20, "1"),
    ("ours float32, no Chinese", "HF float32, early_stopping=True", 5, ""),
    ("ours float32, no Chinese", "HF float32, early_stopping=True", 20, ""),
    ("ours int8, no Chinese", "CTranslate2 int8", 5, ""),
    ("ours int8, no Chinese", "CTranslate2 int8", 20, ""),
    ("ours float32, default", "HF float32, early_stopping='never'", 5, "3"),
    ("ours float32, default", "HF float32, early_stopping='never'", 20, "4"),
    ("ours float32, default", "CTranslate2 float32", 20, "1 (goal)"),
    ("ours int8, default", "CTranslate2 int8", 20, "1 (goal)"),
)


def timed(
    shared: Material, widths: list[int], repeats: int, threads: int, only: list[str], console: Console
) -> None:
    """Print the times and their ratios."""
    known = systems(shared, threads)
    if unknown := {*only} - {*known}:
        sys.exit(f"there is no system {unknown.pop()!r}; there are {', '.join(known)}")
    running = {name: loaded() for name, loaded in known.items() if not only or name in only}
    spent: dict[tuple[str, int], list[float]] = {(name, width): [] for name in running for width in widths}
    outputs: dict[tuple[str, int], Outputs] = {}
    for repeat in range(repeats + 1):  # the first warms up
        for width in widths:
            for name, run in running.items():
                start = time.perf_counter()
                outputs[name, width] = run(width)
                if repeat:
                    spent[name, width].append(time.perf_counter() - start)
                console.print(f"{repeat} {width} {name}: {time.perf_counter() - start:.1f} s", highlight=False)
    title = f"{len(shared.lines)} sentences, batch {BATCH}, {threads} threads, medians of {repeats} in turn"
    table = Table(title=title)
    for column in ("system", *(f"b = {width}: seconds (least, most)" for width in widths)):
        table.add_column(column, justify="left" if column == "system" else "right")
    for name in running:
        cells = [spent[name, width] for width in widths]
        table.add_row(
            name, *(f"{statistics.median(each):.1f} ({min(each):.1f}, {max(each):.1f})" for each in cells)
        )
    console.print(table)
    table = Table(title="How many times as fast, and how many outputs are the same")
    for column in ("ours", "peer", "b", "ratio", "bar", "same outputs"):
        table.add_column(column, justify="left" if column in ("ours", "peer") else "right")
    for mine, peer, width, bar in BARS:
        if width in widths and mine in running and peer in running:
            ratio = statistics.median(spent[peer, width]) / statistics.median(spent[mine, width])
            pairs = zip(outputs[mine, width], outputs[peer, width], strict=True)
            same = f"{sum(one == two for one, two in pairs)} of {len(shared.lines)}"
            table.add_row(mine, peer, str(width), f"{ratio:.2f}", bar, same)
    console.print(table)
    if shared.references:
        judged(shared, outputs, console)


def judged(shared: Material, outputs: dict[tuple[str, int], Outputs], console: Console) -> None:
    """Print what the outputs are worth."""
    table = Table(title="Quality")
    for column in ("system", "b", "BLEU", "length ratio"):
        table.add_column(column, justify="left" if column == "system" else "right")
    for (name, width), found in outputs.items():
        worth = quality([shared.vocabulary.text(each) for each in found], shared.references, lowercase=True)
        table.add_row(name, str(width), f"{worth.bleu:.2f}", f"{worth.ratio:.3f}")
    console.print(table)
    console.print(worth.signature, highlight=False)


def profiled(shared: Material, widths: list[int], console: Console) -> None:
    """Print where our time goes."""
    table = Table(title="Ours, like for like: share of time by kind of work, and how fast the products are")
    columns = ("products", "attention", "the rest", "GFLOP", "for the output", "GFLOPS", "a large product")
    for column in ("dtype", "b", *columns):
        table.add_column(column, justify="right")
    for dtype in ("float32", "int8"):
        translator = load(shared.folder, dtype=dtype)
        for width in widths:
            with profile(record_shapes=True) as seen:
                results = _results(translator, shared, width, True)
            events = seen.key_averages(group_by_input_shape=True)
            total = sum(event.self_cpu_time_total for event in events)
            products = [event for event in events if event.key in PRODUCTS]
            spent = sum(event.self_cpu_time_total for event in products)
            attention = sum(
                event.self_cpu_time_total for event in events if "attention" in event.key or "bmm" in event.key
            )
            operations = sum(event.count * _operations(event.input_shapes) for event in products)
            output = 2 * SIZE * len(shared.vocabulary) * sum(result.rows for result in results)
            shares = [f"{part / total:.0%}" for part in (spent, attention, total - spent - attention)]
            work = [f"{operations / 1e9:,.0f}", f"{output / operations:.0%}", f"{operations / spent / 1e3:.0f}"]
            table.add_row(dtype, str(width), *shares, *work, f"{_large_product(dtype):.0f}")
    console.print(table)


def _operations(shapes: list[list[int]]) -> int:
    """Of a product of rows, [n, inputs], with weights of any layout: 2 n × the weights."""
    rows, weights, *_ = (shape for shape in shapes if shape)
    return 2 * rows[0] * math.prod(weights)


def _large_product(dtype: str) -> float:
    """GFLOPS of a product large enough to be at its best: what the machine can do."""
    matrix = torch.nn.init.normal_(torch.empty(4096, SIZE))
    run, rows = product_of(Matrix(matrix), None, Numbers(dtype)), torch.ones(4096, SIZE)
    spent = []
    for _ in range(7):
        start = time.perf_counter()
        run(Given(rows))
        spent.append(time.perf_counter() - start)
    return 2 * 4096 * 4096 * SIZE / statistics.median(spent) / 1e9


def _peak(source: Path, count: int, system: str, width: int, answer: Any) -> None:  # noqa: ANN401
    shared = material(source, count)
    run = ours(shared, "float32", True) if system == "ours" else hugging_face(shared, True)
    before = _peak_so_far()
    run(width)
    answer.put(_peak_so_far() - before)


def _peak_so_far() -> float:
    """In MB, of this program alone; what `getrusage` says begins with the peak of the process that started it."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) / 1024


def memory(source: Path, count: int, width: int, console: Console) -> None:
    """Print the peak of memory above what the loaded model takes, each system in a process of its own."""
    context = multiprocessing.get_context("spawn")
    found = {}
    for system in ("ours", "HF"):
        answer: Any = context.Queue()
        process = context.Process(target=_peak, args=(source, count, system, width, answer))
        process.start()
        found[system] = answer.get()
        process.join()
    ratio = found["ours"] / found["HF"]
    console.print(
        f"peak memory above the loaded model, b = {width}, float32: ours {found['ours']:.0f} MB,"
        f" HF {found['HF']:.0f} MB, ratio {ratio:.2f} (bar: 0.33)",
        highlight=False,
    )


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("--lines", type=int, default=32)
    parser.add_argument("--widths", default="5,20")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--reference", action="append", default=[], type=Path, metavar="FILE")
    parser.add_argument("--only", action="append", default=[], metavar="SYSTEM", help="leave the others out")
    options = parser.parse_args()
    for path in (options.source, *options.reference):
        if not path.exists():
            sys.exit(f"{path} is not there: name a file of Chinese sentences, and translations of them")
    torch.set_num_threads(options.threads)
    console = Console(width=140)
    shared = material(options.source, options.lines, options.reference)
    widths = [int(width) for width in options.widths.split(",")]
    if not options.only:
        memory(options.source, BATCH, 50, console)
        profiled(shared, widths, console)
    timed(shared, widths, options.repeats, options.threads, options.only, console)


if __name__ == "__main__":
    main()
