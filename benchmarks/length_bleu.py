"""F1-Norm beside length norm on development sets, under several maximum lengths, in BLEU.

python benchmarks/length_bleu.py DATA [--beam-size 5] [--kinds captions,UN]

Each set is searched once, to the longest maximum length of each sentence, and judged by length norm (beam-full)
and by F1-Norm (optimal). A sentence for which nothing ends within a maximum length is judged at the longest.
Intervals hold 95 % of the differences when sentences are resampled (paired bootstrap).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import torch
from lengths import KINDS
from quality import recorded, text_of, with_longest

from uncurse import Decoding, Trace, judge, load
from uncurse.arrays import Floats, Ints
from uncurse.evaluation.bleu import bleu_of_samples, bleu_statistics
from uncurse.lengths.limits import parse_max_length
from uncurse.lengths.policy import hit_max_length
from uncurse.text.lines import read_lines, sample
from uncurse.translation.translator import Translator

SAMPLED: Final[Mapping[str, int]] = {"news": 600, "UN": 600}  # evenly spread lines of large sets; others are whole
SAMPLES: Final = 1000
NORM: Final = "length norm"
F1: Final = "F1-Norm"
Method = tuple[str, str]  # a score and a maximum length
Statistics = Mapping[Method, Ints]  # of BLEU, [lines, 10]


def statistics_of(
    translator: Translator,
    lines: Sequence[str],
    references: Sequence[Sequence[str]],
    beam_size: int,
    limits: Sequence[str],
    folder: Path,
) -> dict[Method, Ints]:
    """What BLEU adds up, for every method on one set."""
    limited = translator.sentences_at(lines, [parse_max_length(each) for each in limits])
    traces = recorded(translator, with_longest(limited), beam_size, folder)
    decodings = [Decoding(beam_size, "length-norm", "beam-full"), Decoding(beam_size, "f1-norm", "optimal")]
    found: dict[Method, Ints] = {}
    for limit, sentences in zip(limits, limited, strict=True):
        judged = [
            judge(
                trace,
                decodings,
                expected_length=sentence.expected_length,
                max_length=longest_of(trace, sentence.max_length),
            )
            for trace, sentence in zip(traces, sentences, strict=True)
        ]
        for score, results in zip((NORM, F1), zip(*judged, strict=True), strict=True):
            texts = [text_of(translator, result) for result in results]
            found[score, limit] = bleu_statistics(texts, references, lowercase=True)
    return found


def longest_of(trace: Trace, max_length: int) -> int:
    """The maximum length that a sentence is judged at."""
    return trace.max_length if hit_max_length(trace, max_length) else max_length


def gain(sets: Sequence[Statistics], before: Method, after: Method) -> str:
    """The mean gain in BLEU over sets, and between which values 95 % of it lie when sentences are resampled."""
    random = np.random.default_rng(1)
    seen, resampled = [], []
    for each in sets:
        count = len(each[before])
        drawn = (random.integers(count, size=count) for _ in range(SAMPLES))
        times = np.stack([np.bincount(rows, minlength=count) for rows in drawn]).astype(np.float64)
        seen.append(_difference(each, before, after, np.ones((1, count)))[0])
        resampled.append(_difference(each, before, after, times))
    low, high = np.quantile(np.mean(resampled, axis=0), (0.025, 0.975))
    return f"{np.mean(seen):+.2f} ({low:+.2f} … {high:+.2f})"


def _difference(statistics: Statistics, before: Method, after: Method, times: Floats) -> Floats:
    return bleu_of_samples(times @ statistics[after]) - bleu_of_samples(times @ statistics[before])


def bleu(statistics: Ints) -> float:
    """BLEU of a whole set."""
    return float(bleu_of_samples(statistics.sum(axis=0, keepdims=True).astype(np.float64))[0])


def print_tables(sets: Mapping[str, Statistics], limits: Sequence[str]) -> None:
    """Every set and the mean over sets: F1-Norm beside length norm, and what a longer maximum length changes."""
    first, *others = limits
    changes = [(score, limit) for score in (NORM, F1) for limit in others]
    heads = [f"{score}, {first}" for score in (NORM, F1)]
    heads += [f"{F1} − {NORM}, {limit}" for limit in limits]
    heads += [f"{score}, {limit} − {first}" for score, limit in changes]
    print(f"| | lines | {' | '.join(heads)} |\n|---|--:|{'--:|' * len(heads)}")
    for name, group in {**{name: [each] for name, each in sets.items()}, "**mean**": list(sets.values())}.items():
        cells = [f"{sum(len(each[NORM, first]) for each in group):,}"]
        cells += [f"{np.mean([bleu(each[score, first]) for each in group]):.2f}" for score in (NORM, F1)]
        cells += [gain(group, (NORM, limit), (F1, limit)) for limit in limits]
        cells += [gain(group, (score, first), (score, limit)) for score, limit in changes]
        print(f"| {name} | {' | '.join(cells)} |")


def main() -> None:
    """Search, judge and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--model", default="opus-mt-zh-en")
    parser.add_argument("--beam-size", type=int, default=5)
    parser.add_argument("--max-lengths", default="q0.8,q0.9,q0.95")
    parser.add_argument("--kinds", default=",".join(KINDS), help="of text")
    parser.add_argument("--traces", type=Path, default=Path("runs/traces"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    translator = load(given.model, dtype="int8")
    limits = given.max_lengths.split(",")
    sets: dict[str, Statistics] = {}
    for kind in given.kinds.split(","):
        print(kind, file=sys.stderr)
        name, most = KINDS[kind][1], SAMPLED.get(kind)
        lines = sample(read_lines(given.data / f"{name}.zh"), most)
        references = [sample(read_lines(path), most) for path in sorted(given.data.glob(f"{name}.en.*"))]
        sets[kind] = statistics_of(translator, lines, references, given.beam_size, limits, given.traces)
    print_tables(sets, limits)


if __name__ == "__main__":
    main()
