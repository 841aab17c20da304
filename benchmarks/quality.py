"""Every score at several widths on a test set: `python benchmarks/quality.py MODEL SOURCE REFERENCE… [options]`.

One exhaustive search per width is recorded, kept in the folder of --traces, and judged by every score. Stopping is
`first-finished` for the raw score, `beam-full` for length-norm and GNMT, `optimal` for the rest, and for the raw
score and length-norm too. The last table compares the first and the last width by a paired bootstrap.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import torch
from rich.console import Console
from rich.table import Table

from uncurse import RULES, SCORES, Result, Trace, judge_all
from uncurse.evaluation.bleu import quality
from uncurse.evaluation.bootstrap import bleu_statistics, paired_bootstrap
from uncurse.lengths.limits import parse_max_length
from uncurse.scoring.decoding import Sentence
from uncurse.study.trace_store import Recording, Store
from uncurse.text.lines import read_lines
from uncurse.translation.translator import TranslationOptions, Translator, load

WAYS = (
    ("log-prob", "first-finished"),
    ("log-prob", "optimal"),
    ("length-norm", "beam-full"),
    ("length-norm", "optimal"),
    ("gnmt:alpha=0.6,beta=0.2", "beam-full"),
    ("word-reward:reward=0.5", "optimal"),
    ("bounded-word-reward:reward=0.5", "optimal"),
    ("adaptive-reward", "optimal"),
    ("bp-norm", "optimal"),
    ("f1-norm", "optimal"),
)


def recorded(translator: Translator, sentences: Sequence[Sentence], beam_size: int, folder: Path) -> list[Trace]:
    """One trace for each sentence, from the folder if they were recorded before."""
    recording = Recording(translator.model.signature, tuple(sentences), beam_size, threads=torch.get_num_threads())
    store = Store(folder)
    for shard in store.record(translator.model, recording):
        print(f"width {beam_size}: shard {shard + 1} of {len(recording.shards)}", file=sys.stderr)
    print(f"width {beam_size}: {store.seconds(recording):.0f} s", file=sys.stderr)
    return store.load(recording)


def sample(lines: Sequence[str], count: int | None) -> list[str]:
    """So many lines, evenly spread over the whole: the head of a news test is a few articles only."""
    count = min(count or len(lines), len(lines))
    return [lines[index * len(lines) // count] for index in range(count)]


def text_of(translator: Translator, result: Result) -> str:
    """The best translation."""
    return translator.text(result.hypotheses[0].tokens) if result.hypotheses else ""


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("source", type=Path)
    parser.add_argument("references", type=Path, nargs="+")
    parser.add_argument("--widths", default="1,5,10")
    parser.add_argument("--lines", type=int, default=None, help="a sample of so many, evenly spread")
    parser.add_argument("--limits", default="q0.95", help="one or more; the first must be the longest")
    parser.add_argument("--traces", type=Path, default=Path("runs/traces"))
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    translator = load(options.model, dtype=options.dtype)
    lines = sample(read_lines(options.source), options.lines)
    references = [sample(read_lines(path), options.lines) for path in options.references]
    limits = options.limits.split(",")
    sentences = {
        max_length: [
            translator.sentence(line, TranslationOptions(max_length=parse_max_length(max_length)))
            for line in lines
        ]
        for max_length in limits
    }
    longest = sentences[limits[0]]
    ways = [(SCORES.parse(score), RULES.parse(rule)) for score, rule in WAYS]
    table = Table(title=f"{len(lines)} lines of {options.source.name}, {len(references)} references")
    for column in (
        "beam",
        "limit",
        "score",
        "stop",
        "BLEU",
        "BP",
        "ratio",
        "empty",
        "repeating",
        "steps",
        "proved",
    ):
        table.add_column(column, justify="left" if column in ("limit", "score", "stop") else "right")
    outputs: dict[tuple[int, str, int], list[str]] = {}
    widths = [int(beam_size) for beam_size in options.widths.split(",")]
    for beam_size in widths:
        traces = recorded(translator, longest, beam_size, options.traces)
        for max_length in limits:
            verdicts = [
                judge_all(trace, ways, length=sentence.expected_length, max_length=sentence.max_length)
                for trace, sentence in zip(traces, sentences[max_length], strict=True)
            ]
            for way, (score, rule) in enumerate(WAYS):
                results = [verdict[way] for verdict in verdicts]
                texts = outputs[beam_size, max_length, way] = [text_of(translator, result) for result in results]
                found = quality(texts, references, lowercase=True)
                table.caption = found.signature
                table.add_row(
                    str(beam_size), max_length, score, rule, f"{found.bleu:.2f}", f"{found.brevity_penalty:.3f}",
                    f"{found.ratio:.3f}", f"{found.empty:.1%}", f"{found.repeating:.1%}",
                    f"{fmean(each.steps for each in results):.1f}",
                    f"{fmean(each.certificate.proved for each in results):.0%}",
                )  # fmt: skip
            table.add_section()
    console = Console(beam_size=140)
    console.print(table)
    table = Table(title=f"From beam {widths[0]} to {widths[-1]}, limit {limits[0]}")
    for column in ("score", "stop", "BLEU", "95 % interval", "p"):
        table.add_column(column, justify="left" if column in ("score", "stop") else "right")
    for way, (score, rule) in enumerate(WAYS):
        before, after = (
            bleu_statistics(outputs[beam_size, limits[0], way], references, lowercase=True)
            for beam_size in (widths[0], widths[-1])
        )
        difference = paired_bootstrap([before], [after])
        interval = f"{difference.low:+.2f} to {difference.high:+.2f}"
        table.add_row(score, rule, f"{difference.bleu:+.2f}", interval, f"{difference.p:.3f}")
    console.print(table)


if __name__ == "__main__":
    main()
