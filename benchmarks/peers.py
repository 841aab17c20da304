"""Ours beside Hugging Face and CTranslate2 on the same weights: `python benchmarks/peers.py SOURCE [options]`.

SOURCE is Chinese text; sentences of 15 to 40 tokens are taken from its beginning. Every system translates the same
sentences with the same weights, beam size and maximum length, in turn, several times; ratios are of medians. With
translations of SOURCE as --reference, BLEU is computed, too. --profile prints the engine's share of the time and
the peak memory instead.

like for like: length-norm, beam-full, refill, as in CTranslate2 and with Hugging Face's early_stopping=True.
default: F1-Norm and optimal stopping, with a certificate. selected: like for like, with vocabulary selection.
"""

from __future__ import annotations

import argparse
import multiprocessing
import re
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ctranslate2
import torch
from rich.console import Console
from rich.table import Table
from stopwatch import TimedModel
from transformers import MarianMTModel

import uncurse
from uncurse.evaluation.bleu import corpus_quality
from uncurse.lengths.limits import parse_max_length
from uncurse.models.download import download
from uncurse.models.load import load_model
from uncurse.models.loaded_model import ModelOptions
from uncurse.models.transformer.ctranslate2_file import read_model, read_vocabulary, transformer_weights
from uncurse.models.transformer.huggingface_file import save_marian
from uncurse.models.transformer.native.library import describe
from uncurse.scoring.decoding import Decoding, Sentence
from uncurse.scoring.result import Result
from uncurse.search.search import beam_search
from uncurse.text.marian_tokenizer import MarianTokenizer, Vocabulary
from uncurse.translation.options import TranslationOptions
from uncurse.translation.translator import Translator

MAX_LENGTH = 100  # tokens, </s> counted
BATCH = 16  # sentences
Outputs = list[tuple[int, ...]]


@dataclass(frozen=True)
class SharedInput:
    """The sentences, the references and the model, the same for all systems."""

    folder: Path
    lines: list[str]
    sources: list[list[int]]
    references: list[list[str]]  # [files, lines]
    vocabulary: Vocabulary

    def first(self, count: int) -> SharedInput:
        """So many of the sentences."""
        references = [each[:count] for each in self.references]
        return replace(self, lines=self.lines[:count], sources=self.sources[:count], references=references)

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
    shared: SharedInput, batch: int, dtype: str, like_for_like: bool, selection: bool = False
) -> Callable[[int], Outputs]:
    """This library."""
    translator = uncurse.load(shared.folder, dtype=dtype, vocabulary_selection=selection)

    def run(beam_size: int) -> Outputs:
        results = _results(translator, shared, batch, beam_size, like_for_like)
        return [result.hypotheses[0].tokens[:-1] for result in results]

    return run


def decoding_of(beam_size: int, like_for_like: bool) -> Decoding:
    """How ours searches."""
    return (
        Decoding(beam_size, "length-norm", "beam-full", slots="refill") if like_for_like else Decoding(beam_size)
    )


def _results(
    translator: Translator, shared: SharedInput, batch: int, beam_size: int, like_for_like: bool
) -> list[Result]:
    decoding, most = decoding_of(beam_size, like_for_like), parse_max_length(MAX_LENGTH) if like_for_like else None
    if batch == 1:  # each sentence waits for the one before it
        options = TranslationOptions(decoding, most)
        results = [each.result for line in shared.lines for each in translator.stream([line], options)]
    else:
        options = TranslationOptions(decoding, most, batch_tokens=batch * 40)
        results = [each.result for each in translator.stream(shared.lines, options)]
    return [result for result in results if result is not None]


def ctranslate2_system(
    shared: SharedInput, batch: int, kind: str, threads: int | None = None
) -> Callable[[int], Outputs]:
    """CTranslate2, with as many threads as PyTorch unless told otherwise."""
    translator = ctranslate2.Translator(
        str(shared.folder / "model"),
        device="cpu",
        compute_type=kind,
        intra_threads=threads or torch.get_num_threads(),
        inter_threads=1,
    )
    names = [[shared.vocabulary.tokens[token] for token in source] for source in shared.sources]

    def run(beam_size: int) -> Outputs:
        calls = [[name] for name in names] if batch == 1 else [names]
        results = [
            each
            for call in calls
            for each in translator.translate_batch(
                call, beam_size=beam_size, length_penalty=1, patience=1, min_decoding_length=0,
                max_decoding_length=MAX_LENGTH - 1, max_batch_size=batch, return_scores=False,
            )
        ]  # fmt: skip
        return [tuple(shared.vocabulary.find(token) or 0 for token in each.hypotheses[0]) for each in results]

    return run


def hugging_face(shared: SharedInput, batch: int, early_stopping: bool | str) -> Callable[[int], Outputs]:
    """The transformers library."""
    model: Any = MarianMTModel.from_pretrained(shared.hugging_face)
    model.eval()
    eos, pad = shared.vocabulary.eos, len(shared.vocabulary)
    order = sorted(range(len(shared.sources)), key=lambda index: len(shared.sources[index]))

    def run(beam_size: int) -> Outputs:
        found: dict[int, tuple[int, ...]] = {}
        for first in range(0, len(order), batch):
            chosen = order[first : first + batch]
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


LOADERS: Mapping[str, Callable[[SharedInput, int], Callable[[int], Outputs]]] = {
    "HF float32, early_stopping=True": lambda shared, batch: hugging_face(shared, batch, True),
    "HF float32, never": lambda shared, batch: hugging_face(shared, batch, "never"),
    "CTranslate2 float32": lambda shared, batch: ctranslate2_system(shared, batch, "float32"),
    "CTranslate2 int8": lambda shared, batch: ctranslate2_system(shared, batch, "int8"),
    # with few rows, the threads of CTranslate2 can cost more than they bring
    "CTranslate2 int8, one thread": lambda shared, batch: ctranslate2_system(shared, batch, "int8", threads=1),
    "ours float32, like for like": lambda shared, batch: ours(shared, batch, "float32", True),
    "ours float32, default": lambda shared, batch: ours(shared, batch, "float32", False),
    "ours int8, like for like": lambda shared, batch: ours(shared, batch, "int8", True),
    "ours int8, default": lambda shared, batch: ours(shared, batch, "int8", False),
    "ours int8, selected": lambda shared, batch: ours(shared, batch, "int8", True, selection=True),
}


@dataclass(frozen=True)
class Comparison:
    """Systems that translate the same sentences in turn, and how many times as fast ours should be."""

    name: str
    lines: int
    batch: int  # sentences
    beam_sizes: tuple[int, ...]
    bars: Mapping[tuple[str, str], Mapping[int, float]]  # by ours and peer, and by beam size

    @property
    def systems(self) -> list[str]:
        """Those that are compared, each once."""
        return list(dict.fromkeys(name for pair in self.bars for name in pair))


COMPARISONS = (
    Comparison(
        name="batch",
        lines=32,
        batch=16,
        beam_sizes=(5, 20),
        bars={
            ("ours int8, like for like", "CTranslate2 int8"): {5: 1.8, 20: 2.2},
            ("ours int8, default", "CTranslate2 int8"): {5: 1.5, 20: 2.0},
            ("ours float32, like for like", "CTranslate2 float32"): {5: 1.7, 20: 1.4},
            ("ours int8, selected", "ours int8, like for like"): {20: 1.4},
        },
    ),
    Comparison(
        name="single",
        lines=8,
        batch=1,
        beam_sizes=(1, 5, 20),
        bars={
            ("ours int8, like for like", "CTranslate2 int8"): {1: 1.2, 5: 1.4, 20: 1.5},
            ("ours int8, like for like", "CTranslate2 int8, one thread"): {1: 1.2, 5: 1.4, 20: 1.5},
            ("ours int8, selected", "ours int8, like for like"): {1: 1.4, 5: 1.4, 20: 1.4},
        },
    ),
    Comparison(
        name="proof",
        lines=16,
        batch=16,
        beam_sizes=(5, 20),
        bars={("ours float32, default", "HF float32, never"): {5: 5.0, 20: 8.0}},
    ),
)


def compare(shared: SharedInput, comparison: Comparison, rounds: int, console: Console) -> None:
    """Print the times and their ratios."""
    shared, few = shared.first(comparison.lines), shared.first(2)
    for name in comparison.systems:
        try:
            LOADERS[name](few, comparison.batch)(2)  # warms up
        except uncurse.UncurseError as error:  # there may be no vocabulary selector
            console.print(f"{name} is left out: {error}", highlight=False)
            kept = {pair: each for pair, each in comparison.bars.items() if name not in pair}
            comparison = replace(comparison, bars=kept)
    running = {name: LOADERS[name](shared, comparison.batch) for name in comparison.systems}
    spent: dict[tuple[str, int], list[float]] = {}
    outputs: dict[tuple[str, int], Outputs] = {}
    for _ in range(rounds):
        for beam_size in comparison.beam_sizes:
            for name, run in running.items():
                start = time.perf_counter()
                outputs[name, beam_size] = run(beam_size)
                spent.setdefault((name, beam_size), []).append(time.perf_counter() - start)
    medians = {key: statistics.median(each) for key, each in spent.items()}
    how = "one sentence at a time" if comparison.batch == 1 else f"batch {comparison.batch}"
    table = Table(title=f"{comparison.lines} sentences, {how}: seconds, medians of {rounds} in turn (least, most)")
    for column in ("system", *(f"b = {beam_size}" for beam_size in comparison.beam_sizes)):
        table.add_column(column, justify="left" if column == "system" else "right")
    for name in running:
        cells = [spent[name, beam_size] for beam_size in comparison.beam_sizes]
        table.add_row(
            name, *(f"{statistics.median(each):.2f} ({min(each):.2f}, {max(each):.2f})" for each in cells)
        )
    console.print(table)
    table = Table(title="How many times as fast, and how many outputs are the same")
    for column in ("ours", "peer", "b", "ratio", "bar", "same outputs"):
        table.add_column(column, justify="left" if column in ("ours", "peer") else "right")
    for (mine, peer), bars in comparison.bars.items():
        for beam_size in comparison.beam_sizes:
            ratio = medians[peer, beam_size] / medians[mine, beam_size]
            pairs = zip(outputs[mine, beam_size], outputs[peer, beam_size], strict=True)
            same = f"{sum(one == two for one, two in pairs)} of {comparison.lines}"
            bar = f"{bars[beam_size]:g}" if beam_size in bars else ""
            table.add_row(mine, peer, str(beam_size), f"{ratio:.2f}", bar, same)
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


def profiled(shared: SharedInput, rounds: int, console: Console) -> None:
    """Print the share of the time that is spent outside the model."""
    table = Table(
        title=f"int8, {len(shared.lines)} sentences, batch {BATCH}: time in the engine, medians of {rounds}"
    )
    for column in ("", "b = 5", "b = 20"):
        table.add_column(column, justify="right" if column else "left")
    table.add_row("bar", "10 %", "5 %")
    model = TimedModel(load_model(ModelOptions(str(shared.folder), dtype="int8")).model)
    sentences = [
        Sentence(tuple(source), MAX_LENGTH, expected_length=1.2 * len(source)) for source in shared.sources
    ]
    for name, like_for_like in (("like for like", True), ("default", False)):
        cells = []
        for beam_size in (5, 20):
            decoding = Decoding(beam_size, "f1-norm") if not like_for_like else decoding_of(beam_size, True)
            shares = []
            for _ in range(rounds):
                model.seconds, start = 0.0, time.perf_counter()
                beam_search(model, sentences, decoding, batch_size=BATCH)
                shares.append(1.0 - model.seconds / (time.perf_counter() - start))
            cells.append(f"{statistics.median(shares):.1%}")
        table.add_row(name, *cells)
    console.print(table)


def _peak(source: Path, count: int, system: str, beam_size: int, answer: Any) -> None:  # noqa: ANN401
    shared = read_input(source, count)
    run = LOADERS[system](shared, BATCH)
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--reference", action="append", default=[], type=Path, metavar="FILE")
    names = [each.name for each in COMPARISONS]
    parser.add_argument("--only", choices=names, help="one of the comparisons")
    parser.add_argument(
        "--profile", action="store_true", help="the engine's share of the time, and memory at b = 50"
    )
    options = parser.parse_args()
    for path in (options.source, *options.reference):
        if not path.exists():
            sys.exit(f"{path} does not exist: give a file of Chinese sentences, and translations of them")
    torch.set_num_threads(options.threads)
    console = Console(width=140)
    shared = read_input(options.source, max(each.lines for each in COMPARISONS), options.reference)
    console.print(f"{describe()}; {options.threads} threads", highlight=False)
    if options.profile:
        profiled(shared, options.rounds, console)
        memory(options.source, BATCH, 50, console)
        return
    for comparison in COMPARISONS:
        if options.only in (None, comparison.name):
            compare(shared, comparison, options.rounds, console)


if __name__ == "__main__":
    main()
