"""How much memory a corpus takes that is translated: `python benchmarks/streaming.py [--lines 1000000]`.

The corpus is generated and the model made of tables, so that what is held of lines is nearly all that grows. Input
and output are files, as for `uncurse translate --out`.
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
from uncurse.corpus import Work, translate_corpus
from uncurse.decoding import Decoding
from uncurse.engines.local import Local
from uncurse.length import FixedRatio, parse_limit
from uncurse.parts import Parts
from uncurse.records import Style
from uncurse.shards import Shard, shards_of
from uncurse.testing import RandomModel
from uncurse.text.corpora import Form, sentences_of
from uncurse.translator import Task, Translator


class Letters:
    """Pieces are the letters a to f; `</s>` is 6."""

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """The pieces of each line."""
        return [[ord(letter) - ord("a") for letter in line] for line in lines]

    def decode(self, pieces: Sequence[int]) -> str:
        """The line that pieces spell."""
        return "".join(chr(ord("a") + piece) for piece in pieces if piece != 6)


class Tables(RandomModel):  # type: ignore[misc]
    """A model of tables."""

    longest_source: int | None = None
    longest_output: int | None = None

    def features(self, sources: Sequence[Sequence[int]]) -> Floats:
        """Nothing."""
        return np.zeros((len(sources), 1))


def memory() -> float:
    """MB that are in use now."""
    return int(re.findall(r"VmRSS:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="ascii"))[0]) / 1024


def main() -> None:
    """Print memory as the corpus goes by."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=1_000_000)
    count = parser.parse_args().lines
    translator = Translator(Tables(seed=1, vocabulary=7, ending=2.0), Letters(), Letters(), FixedRatio(1.0))
    task = Task(Decoding.of(2), parse_limit("3"))
    done, shown, start = 0, 1000, time.perf_counter()
    print("| lines done | MB in use | lines / s |\n|--:|--:|--:|")

    def report(shard: Shard) -> None:
        nonlocal done, shown
        done += len(shard.lines)
        if done >= shown:
            print(f"| {done} | {memory():.0f} | {done / (time.perf_counter() - start):.0f} |", flush=True)
            shown *= 10 if shown < 100_000 else 2

    with tempfile.TemporaryDirectory() as scratch:
        corpus, out = Path(scratch) / "corpus", Path(scratch) / "out"
        with corpus.open("w", encoding="ascii") as file:
            for number in range(count):
                file.write("".join("abcdef"[number // 6**place % 6] for place in range(1 + number % 3)) + "\n")
        works = (
            Work(shard, task, Style.TEXT, translator.signature) for shard in shards_of(sentences_of([corpus]))
        )
        failures = translate_corpus(
            Local(), lambda: translator, works, Parts(out, "a benchmark", resume=False), Form.TEXT, report
        )
        with out.open("rb") as file_:
            lines = sum(1 for _ in file_)
    print(f"| {lines} | {memory():.0f} | {lines / (time.perf_counter() - start):.0f} |")
    if failures or lines != count:
        raise SystemExit(f"{lines} lines of {count} came out")


if __name__ == "__main__":
    main()
