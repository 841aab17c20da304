"""Lines per second of Firefox's model here and of OPUS-MT in CTranslate2: `python benchmarks/bergamot.py DATA`.

Both translate the same sentences of FLORES into English, one from Portuguese and the other from Chinese, with
length norm and beam-full stopping; the models differ in size (17M and 77M parameters) and in quality, so this is a
choice that a user has, not a comparison of runtimes. Systems take turns; the medians are reported.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import ctranslate2
import torch
from rich.console import Console
from rich.table import Table

import uncurse
from uncurse.evaluation.bleu import corpus_quality
from uncurse.models.download import download
from uncurse.models.transformer.ctranslate2_file import read_vocabulary
from uncurse.text.marian_tokenizer import MarianTokenizer

Run = Callable[[list[str], int], list[str]]


def bergamot(dtype: str) -> Run:
    """Firefox's model in the runtime here."""
    translator = uncurse.load(download("bergamot-tiny-pt-en"), dtype=dtype)

    def run(lines: list[str], beam_size: int) -> list[str]:
        found = translator.translate(
            lines, beam_size=beam_size, score="length-norm", stop="beam-full", slots="refill", max_length="2x+10"
        )
        return [each.text for each in found]

    return run


def opus(compute_type: str, threads: int) -> Run:
    """OPUS-MT in CTranslate2."""
    folder = download("opus-mt-zh-en")
    vocabulary = read_vocabulary(folder / "model")
    tokenizer = MarianTokenizer((folder / "sentencepiece.model").read_bytes(), vocabulary)
    translator = ctranslate2.Translator(
        str(folder / "model"), compute_type=compute_type, inter_threads=1, intra_threads=threads
    )

    def run(lines: list[str], beam_size: int) -> list[str]:
        sources = [[vocabulary.tokens[token] for token in each] for each in tokenizer.encode(lines)]
        found = translator.translate_batch(sources, beam_size=beam_size, max_batch_size=32)
        return ["".join(each.hypotheses[0]).replace("▁", " ").strip() for each in found]

    return run


def main() -> None:
    """Time the systems in turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, help="the folder with pt-en/flores-dev and wmt/flores-dev")
    parser.add_argument("--lines", type=int, default=200)
    parser.add_argument("--beam-sizes", default="1,5,20")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    text = {
        name: (asked.data / name).read_text(encoding="utf-8").splitlines()[: asked.lines]
        for name in ("pt-en/flores-dev.pt", "pt-en/flores-dev.en.0", "wmt/flores-dev.zh")
    }
    systems: dict[str, tuple[Run, str]] = {
        "Bergamot tiny, float32, here": (bergamot("float32"), "pt-en/flores-dev.pt"),
        "Bergamot tiny, int8, here": (bergamot("int8"), "pt-en/flores-dev.pt"),
        "OPUS-MT, int8, CTranslate2": (opus("int8", asked.threads), "wmt/flores-dev.zh"),
    }
    table = Table(title=f"lines per second, {asked.lines} lines, {asked.threads} threads (BLEU)")
    table.add_column("")
    sizes = [int(size) for size in asked.beam_sizes.split(",")]
    rows: dict[str, list[str]] = {name: [] for name in systems}
    for size in sizes:
        table.add_column(f"b = {size}", justify="right")
        seconds: dict[str, list[float]] = {name: [] for name in systems}
        outputs: dict[str, list[str]] = {}
        for _ in range(asked.repeats):
            for name, (run, source) in systems.items():
                start = time.perf_counter()
                outputs[name] = run(text[source], size)
                seconds[name].append(time.perf_counter() - start)
        for name, found in outputs.items():
            bleu = corpus_quality(found, [text["pt-en/flores-dev.en.0"]], lowercase=False).bleu
            rows[name].append(f"{asked.lines / statistics.median(seconds[name]):.1f} ({bleu:.1f})")
    for name, cells in rows.items():
        table.add_row(name, *cells)
    Console().print(table)


if __name__ == "__main__":
    main()
