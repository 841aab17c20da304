"""The memory that translating a corpus takes: `python benchmarks/streaming.py [--lines 1000000]`.

The corpus is generated and the model is random, so that little but the lines could make memory grow. Input and
output are files, as for `uncurse translate --out`.
"""

from __future__ import annotations

import argparse
import re
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from uncurse.arrays import Floats
from uncurse.executors.local import LocalExecutor
from uncurse.lengths.limits import parse_max_length
from uncurse.lengths.predictors import FixedRatio
from uncurse.scoring.decoding import Decoding
from uncurse.testing import RandomModel
from uncurse.text.corpus_formats import CorpusFormat, read_sentences
from uncurse.translation.options import TranslationOptions
from uncurse.translation.records import Style
from uncurse.translation.resumable_output import ResumableOutput
from uncurse.translation.shards import shards_of
from uncurse.translation.translate_corpus import ShardJob, translate_corpus
from uncurse.translation.translator import Translator


class LetterTokenizer:
    """The tokens are the letters a to f; `</s>` is 6."""

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """The tokens of each line."""
        return [[ord(letter) - ord("a") for letter in line] for line in lines]

    def decode(self, tokens: Sequence[int]) -> str:
        """The line that tokens spell."""
        return "".join(chr(ord("a") + token) for token in tokens if token != 6)


class RandomTranslationModel(RandomModel):  # type: ignore[misc]
    """A random model with features."""

    max_source_length: int | None = None
    max_target_length: int | None = None

    def features(self, sources: Sequence[Sequence[int]]) -> Floats:
        """Nothing."""
        return np.zeros((len(sources), 1))


def memory() -> float:
    """The resident memory in MB."""
    return int(re.findall(r"VmRSS:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="ascii"))[0]) / 1024


def main() -> None:
    """Print memory as the corpus goes by."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=1_000_000)
    count = parser.parse_args().lines
    model = RandomTranslationModel(seed=1, vocab_size=7, ending=2.0)
    translator = Translator(model, LetterTokenizer(), LetterTokenizer(), FixedRatio(1.0))
    options = TranslationOptions(Decoding(2), parse_max_length("3"))
    done, shown, start = 0, 1000, time.perf_counter()
    print("| lines done | MB in use | lines / s |\n|--:|--:|--:|")

    def report(lines: int) -> None:
        nonlocal done, shown
        done += lines
        if done >= shown:
            print(f"| {done} | {memory():.0f} | {done / (time.perf_counter() - start):.0f} |", flush=True)
            shown *= 10 if shown < 100_000 else 2

    with tempfile.TemporaryDirectory() as scratch:
        corpus, out = Path(scratch) / "corpus", Path(scratch) / "out"
        with corpus.open("w", encoding="ascii") as file:
            for number in range(count):
                file.write("".join("abcdef"[number // 6**place % 6] for place in range(1 + number % 3)) + "\n")
        jobs = (
            ShardJob(shard, options, Style.TEXT, translator.signature)
            for shard in shards_of(read_sentences([corpus]))
        )
        with ResumableOutput(out, {}, resume=False) as output:
            failures = translate_corpus(
                LocalExecutor(), lambda: translator, jobs, output, CorpusFormat.TEXT, report
            )
        with out.open("rb") as file_:
            lines = sum(1 for _ in file_)
    print(f"| {lines} | {memory():.0f} | {lines / (time.perf_counter() - start):.0f} |")
    if failures or lines != count:
        raise SystemExit(f"{lines} lines of {count} came out")


if __name__ == "__main__":
    main()
