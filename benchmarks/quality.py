"""Every score at several beam sizes: `python benchmarks/quality.py MODEL SOURCE REFERENCE… [options]`.

One exhaustive search per beam size is recorded, kept in the folder of --traces, and judged by every score with
each of its usual stopping rules; nothing is tuned. The other tables compare every score with length norm as
toolkits stop it (beam-full, the first maximum length), and the first beam size with the last (paired bootstrap).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import torch
from rich.console import Console
from rich.table import Table

from uncurse import RULES, SCORES, Decoding, Result, Sentence, Trace, judge, load
from uncurse.evaluation.bleu import bleu_statistics, corpus_quality
from uncurse.evaluation.bootstrap import paired_bootstrap
from uncurse.lengths.limits import parse_max_length
from uncurse.search.explain import standard_scores
from uncurse.study.trace_store import Recording, TraceStore
from uncurse.text.lines import read_lines, sample
from uncurse.translation.translator import Translator


def recorded(translator: Translator, sentences: Sequence[Sentence], beam_size: int, folder: Path) -> list[Trace]:
    """One trace for each sentence, from the folder if they were recorded before."""
    recording = Recording(translator.model.signature, tuple(sentences), beam_size, threads=torch.get_num_threads())
    store = TraceStore(folder)
    for shard in store.record(translator.model, recording):
        print(f"beam size {beam_size}: shard {shard + 1} of {len(recording.shards)}", file=sys.stderr)
    print(f"beam size {beam_size}: {store.seconds(recording):.0f} s", file=sys.stderr)
    return store.load(recording)


def with_longest(limited: Sequence[Sequence[Sentence]]) -> list[Sentence]:
    """Sentences, given under several maximum lengths, [max_lengths][sentences]; each with its longest."""
    return [
        replace(each[0], max_length=max(sentence.max_length for sentence in each))
        for each in zip(*limited, strict=True)
    ]


def decodings_at(beam_size: int, translator: Translator, reward: float) -> list[Decoding]:
    """Every score that the model can be judged by, with each of its usual stopping rules."""
    scores = standard_scores(reward, translator.model.attends, translator.predictor is not None)
    return [
        Decoding(beam_size, score, stop)
        for score in scores
        for stop in SCORES[SCORES.name(score)].stops or ("optimal",)
    ]


def text_of(translator: Translator, result: Result) -> str:
    """The best translation."""
    return translator.decode(result.hypotheses[0].tokens) if result.hypotheses else ""


def named(decoding: Decoding) -> tuple[str, str]:
    """Score and stopping rule."""
    return SCORES.spec(decoding.rescorer), RULES.spec(decoding.stop)


def compared(before: Sequence[str], after: Sequence[str], references: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """The difference in BLEU, its interval and p."""
    first, second = (bleu_statistics(texts, references, lowercase=True) for texts in (before, after))
    difference = paired_bootstrap([first], [second])
    return f"{difference.bleu:+.2f}", f"{difference.low:+.2f} to {difference.high:+.2f}", f"{difference.p:.3f}"


def table_of(title: str, columns: str) -> Table:
    """An empty table; words are on the left and numbers on the right."""
    table = Table(title=title)
    for column in columns.split(","):
        table.add_column(column, justify="left" if column in ("max_length", "score", "stop") else "right")
    return table


def options() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("source", type=Path)
    parser.add_argument("references", type=Path, nargs="+")
    parser.add_argument("--beam-sizes", default="1,5,10")
    parser.add_argument("--lines", type=int, default=None, help="a sample of so many, evenly spread")
    parser.add_argument("--max-lengths", default="q0.95", help="one or more")
    parser.add_argument("--reward", type=float, default=0.5, help="r of the scores that need one")
    parser.add_argument("--traces", type=Path, default=Path("runs/traces"))
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--length-predictor", default=None, help="a file; default: that of the model")
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args()


def main() -> None:
    """Print the tables."""
    asked = options()
    torch.set_num_threads(asked.threads)
    translator = load(asked.model, dtype=asked.dtype, length_predictor=asked.length_predictor)
    lines = sample(read_lines(asked.source), asked.lines)
    references = [sample(read_lines(path), asked.lines) for path in asked.references]
    names = asked.max_lengths.split(",")
    found = translator.sentences_at(lines, [parse_max_length(name) for name in names])
    sentences = dict(zip(names, found, strict=True))
    title = f"{len(lines)} lines of {asked.source.name}, {len(references)} references"
    table = table_of(title, "beam size,max_length,score,stop,BLEU,BP,ratio,empty,repeating,steps,proved")
    outputs: dict[tuple[int, str, tuple[str, str]], list[str]] = {}
    sizes = [int(size) for size in asked.beam_sizes.split(",")]
    for size in sizes:
        traces = recorded(translator, with_longest(found), size, asked.traces)
        decodings = decodings_at(size, translator, asked.reward)
        for name in names:
            judged = [
                judge(trace, decodings, expected_length=each.expected_length, max_length=each.max_length)
                for trace, each in zip(traces, sentences[name], strict=True)
            ]
            for decoding, results in zip(decodings, zip(*judged, strict=True), strict=True):
                method = named(decoding)
                texts = outputs[size, name, method] = [text_of(translator, result) for result in results]
                measured = corpus_quality(texts, references, lowercase=True)
                table.caption = measured.signature
                table.add_row(
                    str(size), name, *method, f"{measured.bleu:.2f}", f"{measured.brevity_penalty:.3f}",
                    f"{measured.ratio:.3f}", f"{measured.empty:.1%}", f"{measured.repeating:.1%}",
                    f"{fmean(each.steps for each in results):.1f}",
                    f"{fmean(each.certificate.proved for each in results):.0%}",
                )  # fmt: skip
            table.add_section()
    console = Console(width=140)
    console.print(table)
    norm = named(Decoding(sizes[0], "length-norm", "beam-full"))
    table = table_of(
        f"Minus {' '.join(norm)}, max_length {names[0]}", "beam size,max_length,score,stop,BLEU,95 % interval,p"
    )
    for (size, name, method), texts in outputs.items():
        cells = compared(outputs[size, names[0], norm], texts, references)
        table.add_row(str(size), name, *method, *cells)
    console.print(table)
    table = table_of(
        f"From beam size {sizes[0]} to {sizes[-1]}, max_length {names[0]}", "score,stop,BLEU,95 % interval,p"
    )
    for decoding in decodings_at(sizes[0], translator, asked.reward):
        method = named(decoding)
        before, after = (outputs[size, names[0], method] for size in (sizes[0], sizes[-1]))
        table.add_row(*method, *compared(before, after, references))
    console.print(table)


if __name__ == "__main__":
    main()
