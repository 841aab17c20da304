"""Ours beside Hugging Face and CTranslate2 on the same weights: `python benchmarks/peers.py SOURCE [options]`.

SOURCE is Chinese text; sentences of 15 to 40 tokens are taken from its beginning. Every system translates the same
sentences with the same weights, beam size and maximum length, in turn, several times; ratios are of medians. With
translations of SOURCE as --reference, BLEU is computed, too.

like for like: length-norm, beam-full, refill, as in CTranslate2 and with Hugging Face's early_stopping=True.
default: F1-Norm and optimal stopping, with a certificate. no Chinese: like for like, but tokens with Chinese
characters are not computed (without_script="cjk").
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

import uncurse
from uncurse.evaluation.bleu import corpus_quality
from uncurse.lengths.limits import parse_max_length
from uncurse.models.download import download
from uncurse.models.transformer.ctranslate2_file import read_model, read_vocabulary, transformer_weights
from uncurse.models.transformer.huggingface_file import save_marian
from uncurse.models.transformer.linear import ComputeType, LinearInput, make_linear
from uncurse.models.transformer.quantization import Weight
from uncurse.scoring.decoding import Decoding
from uncurse.scoring.result import Result
from uncurse.text.marian_tokenizer import MarianTokenizer, Vocabulary
from uncurse.translation.options import TranslationOptions
from uncurse.translation.translator import Translator

MAX_LENGTH = 100  # tokens, </s> counted
BATCH = 16  # sentences, for systems that take a batch size
D_MODEL = 512
Outputs = list[tuple[int, ...]]
MATMULS = ("mkldnn::_linear_pointwise", "onednn::qlinear_pointwise", "aten::addmm", "aten::mm")


@dataclass(frozen=True)
class SharedInput:
    """The sentences, the references and the model, the same for all systems."""

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
            save_marian(folder, transformer_weights(read_model(path), path, self.vocabulary.eos))
        return folder


def read_input(source: Path, count: int, references: Sequence[Path] = ()) -> SharedInput:
    """Sentences of 15 to 40 tokens."""
    folder = download("opus-mt-zh-en")
    vocabulary = read_vocabulary(folder / "model")
    tokenizer = MarianTokenizer((folder / "sentencepiece.model").read_bytes(), vocabulary)
    lines, *others = (path.read_text(encoding="utf-8").split("\n") for path in (source, *references))
    if any(len(each) != len(lines) for each in others):
        sys.exit("the references have more or fewer lines than the source")
    ids = tokenizer.encode(lines)
    chosen = [index for index, each in enumerate(ids) if 15 <= len(each) <= 40][:count]
    return SharedInput(
        folder,
        [lines[index] for index in chosen],
        [ids[index] for index in chosen],
        [[reference[index] for index in chosen] for reference in others],
        vocabulary,
    )


def ours(
    shared: SharedInput, dtype: str, like_for_like: bool, without_script: str | None = None
) -> Callable[[int], Outputs]:
    """This library."""
    translator = uncurse.load(shared.folder, dtype=dtype, without_script=without_script)

    def run(beam_size: int) -> Outputs:
        return [
            result.hypotheses[0].tokens[:-1] for result in _results(translator, shared, beam_size, like_for_like)
        ]

    return run


def _results(translator: Translator, shared: SharedInput, beam_size: int, like_for_like: bool) -> list[Result]:
    if like_for_like:
        decoding, most = (
            Decoding(beam_size, "length-norm", "beam-full", slots="refill"),
            parse_max_length(MAX_LENGTH),
        )
    else:
        decoding, most = Decoding(beam_size), None
    options = TranslationOptions(decoding, most, batch_tokens=BATCH * 40)
    results = [each.result for each in translator.stream(shared.lines, options)]
    return [result for result in results if result is not None]


def ctranslate2_system(shared: SharedInput, kind: str, threads: int) -> Callable[[int], Outputs]:
    """CTranslate2."""
    translator = ctranslate2.Translator(
        str(shared.folder / "model"), device="cpu", compute_type=kind, intra_threads=threads, inter_threads=1
    )
    names = [[shared.vocabulary.tokens[token] for token in source] for source in shared.sources]

    def run(beam_size: int) -> Outputs:
        results = translator.translate_batch(
            names, beam_size=beam_size, length_penalty=1, patience=1, min_decoding_length=0,
            max_decoding_length=MAX_LENGTH - 1, max_batch_size=BATCH, return_scores=False,
        )  # fmt: skip
        return [tuple(shared.vocabulary.find(token) or 0 for token in each.hypotheses[0]) for each in results]

    return run


def hugging_face(shared: SharedInput, early_stopping: bool | str) -> Callable[[int], Outputs]:
    """The transformers library."""
    model: Any = MarianMTModel.from_pretrained(shared.hugging_face)
    model.eval()
    eos, pad = shared.vocabulary.eos, len(shared.vocabulary)
    order = sorted(range(len(shared.sources)), key=lambda index: len(shared.sources[index]))

    def run(beam_size: int) -> Outputs:
        found: dict[int, tuple[int, ...]] = {}
        for first in range(0, len(order), BATCH):
            chosen = order[first : first + BATCH]
            longest = max(len(shared.sources[index]) for index in chosen) + 1
            rows = [[*shared.sources[index], eos] for index in chosen]
            ids = torch.tensor([[*row, *[pad] * (longest - len(row))] for row in rows])
            with torch.inference_mode():
                given = model.generate(
                    input_ids=ids, attention_mask=(ids != pad).long(), num_beams=beam_size,
                    max_new_tokens=MAX_LENGTH, length_penalty=1.0, early_stopping=early_stopping,
                    do_sample=False, bad_words_ids=[[pad]],
                )  # fmt: skip
            for index, row in zip(chosen, given.tolist(), strict=True):
                found[index] = tuple(token for token in row if token not in (eos, pad))
        return [found[index] for index in range(len(order))]

    return run


def systems(shared: SharedInput, threads: int) -> dict[str, Callable[[], Callable[[int], Outputs]]]:
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


GOALS = (  # ours, the peer, beam size, at least
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
    shared: SharedInput, beam_sizes: list[int], repeats: int, threads: int, only: list[str], console: Console
) -> None:
    """Print the times and their ratios."""
    known = systems(shared, threads)
    if unknown := {*only} - {*known}:
        sys.exit(f"unknown system {unknown.pop()!r}; valid: {', '.join(known)}")
    running = {name: load() for name, load in known.items() if not only or name in only}
    spent: dict[tuple[str, int], list[float]] = {
        (name, beam_size): [] for name in running for beam_size in beam_sizes
    }
    outputs: dict[tuple[str, int], Outputs] = {}
    for repeat in range(repeats + 1):  # the first warms up
        for beam_size in beam_sizes:
            for name, run in running.items():
                start = time.perf_counter()
                outputs[name, beam_size] = run(beam_size)
                if repeat:
                    spent[name, beam_size].append(time.perf_counter() - start)
                console.print(f"{repeat} {beam_size} {name}: {time.perf_counter() - start:.1f} s", highlight=False)
    title = f"{len(shared.lines)} sentences, batch {BATCH}, {threads} threads, medians of {repeats} in turn"
    table = Table(title=title)
    for column in ("system", *(f"b = {beam_size}: seconds (least, most)" for beam_size in beam_sizes)):
        table.add_column(column, justify="left" if column == "system" else "right")
    for name in running:
        cells = [spent[name, beam_size] for beam_size in beam_sizes]
        table.add_row(
            name, *(f"{statistics.median(each):.1f} ({min(each):.1f}, {max(each):.1f})" for each in cells)
        )
    console.print(table)
    table = Table(title="How many times as fast, and how many outputs are the same")
    for column in ("ours", "peer", "b", "ratio", "goal", "same outputs"):
        table.add_column(column, justify="left" if column in ("ours", "peer") else "right")
    for mine, peer, beam_size, goal in GOALS:
        if beam_size in beam_sizes and mine in running and peer in running:
            ratio = statistics.median(spent[peer, beam_size]) / statistics.median(spent[mine, beam_size])
            pairs = zip(outputs[mine, beam_size], outputs[peer, beam_size], strict=True)
            same = f"{sum(one == two for one, two in pairs)} of {len(shared.lines)}"
            table.add_row(mine, peer, str(beam_size), f"{ratio:.2f}", goal, same)
    console.print(table)
    if shared.references:
        print_quality(shared, outputs, console)


def print_quality(shared: SharedInput, outputs: dict[tuple[str, int], Outputs], console: Console) -> None:
    """Print the BLEU and the length ratio of the outputs."""
    table = Table(title="Quality")
    for column in ("system", "b", "BLEU", "length ratio"):
        table.add_column(column, justify="left" if column == "system" else "right")
    for (name, beam_size), found in outputs.items():
        found_quality = corpus_quality(
            [shared.vocabulary.decode(each) for each in found], shared.references, lowercase=True
        )
        table.add_row(name, str(beam_size), f"{found_quality.bleu:.2f}", f"{found_quality.ratio:.3f}")
    console.print(table)
    console.print(found_quality.signature, highlight=False)


def profiled(shared: SharedInput, beam_sizes: list[int], console: Console) -> None:
    """Print where our time goes."""
    table = Table(title="Ours, like for like: share of time by kind of work, and the speed of matrix products")
    columns = (
        "matrix products",
        "attention",
        "other",
        "GFLOP",
        "output layer",
        "GFLOPS",
        "GFLOPS of a large product",
    )
    for column in ("dtype", "b", *columns):
        table.add_column(column, justify="right")
    for dtype in ("float32", "int8"):
        translator = uncurse.load(shared.folder, dtype=dtype)
        for beam_size in beam_sizes:
            with profile(record_shapes=True) as seen:
                results = _results(translator, shared, beam_size, True)
            events = seen.key_averages(group_by_input_shape=True)
            total = sum(event.self_cpu_time_total for event in events)
            matmuls = [event for event in events if event.key in MATMULS]
            spent = sum(event.self_cpu_time_total for event in matmuls)
            attention = sum(
                event.self_cpu_time_total for event in events if "attention" in event.key or "bmm" in event.key
            )
            operations = sum(event.count * _operations(event.input_shapes) for event in matmuls)
            output = 2 * D_MODEL * len(shared.vocabulary) * sum(result.model_rows for result in results)
            shares = [f"{part / total:.0%}" for part in (spent, attention, total - spent - attention)]
            work = [f"{operations / 1e9:,.0f}", f"{output / operations:.0%}", f"{operations / spent / 1e3:.0f}"]
            table.add_row(dtype, str(beam_size), *shares, *work, f"{_large_product(dtype):.0f}")
    console.print(table)


def _operations(shapes: list[list[int]]) -> int:
    """FLOPs of a product of rows, [n, inputs], with weights in any layout: 2 n × the number of weights."""
    rows, weights, *_ = (shape for shape in shapes if shape)
    return 2 * rows[0] * math.prod(weights)


def _large_product(dtype: str) -> float:
    """GFLOPS of a large matrix product: what the machine can do."""
    matrix = torch.nn.init.normal_(torch.empty(4096, D_MODEL))
    run, rows = make_linear(Weight(matrix), None, ComputeType(dtype)), torch.ones(4096, D_MODEL)
    spent = []
    for _ in range(7):
        start = time.perf_counter()
        run(LinearInput(rows))
        spent.append(time.perf_counter() - start)
    return 2 * 4096 * 4096 * D_MODEL / statistics.median(spent) / 1e9


def _peak(source: Path, count: int, system: str, beam_size: int, answer: Any) -> None:  # noqa: ANN401
    shared = read_input(source, count)
    run = systems(shared, 2)[system]()
    before = _peak_memory()
    run(beam_size)
    answer.put(_peak_memory() - before)


def _peak_memory() -> float:
    """Peak memory of this process in MB; `getrusage` would begin with the peak of its parent."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) / 1024


def memory(source: Path, count: int, beam_size: int, console: Console) -> None:
    """Print the peak memory above that of the loaded model, each system in a process of its own."""
    context = multiprocessing.get_context("spawn")
    theirs, ours_alike = "HF float32, early_stopping=True", "ours float32, like for like"
    found = {}
    for system in (theirs, "CTranslate2 float32", "CTranslate2 int8", ours_alike, "ours int8, like for like"):
        answer: Any = context.Queue()
        process = context.Process(target=_peak, args=(source, count, system, beam_size, answer))
        process.start()
        found[system] = answer.get()
        process.join()
    console.print(f"peak memory above the loaded model, {count} sentences, b = {beam_size}:", highlight=False)
    for system, megabytes in found.items():
        console.print(f"  {system}: {megabytes:.0f} MB", highlight=False)
    console.print(f"  ours : HF, float32: {found[ours_alike] / found[theirs]:.2f} (goal: 0.33)", highlight=False)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("--lines", type=int, default=32)
    parser.add_argument("--beam-sizes", default="5,20")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--reference", action="append", default=[], type=Path, metavar="FILE")
    parser.add_argument("--only", action="append", default=[], metavar="SYSTEM", help="only these systems")
    options = parser.parse_args()
    for path in (options.source, *options.reference):
        if not path.exists():
            sys.exit(f"{path} does not exist: give a file of Chinese sentences, and translations of them")
    torch.set_num_threads(options.threads)
    console = Console(width=140)
    shared = read_input(options.source, options.lines, options.reference)
    beam_sizes = [int(beam_size) for beam_size in options.beam_sizes.split(",")]
    if not options.only:
        memory(options.source, BATCH, 50, console)
        profiled(shared, beam_sizes, console)
    timed(shared, beam_sizes, options.repeats, options.threads, options.only, console)


if __name__ == "__main__":
    main()
