"""Every score at several widths on a test set: `python benchmarks/quality.py MODEL SOURCE REFERENCE… [options]`.

One exhaustive search per width is recorded and judged by every rule. Stopping is `first-finished` for the raw
score, `beam-full` for length-norm and GNMT, `optimal` for the rest, and `optimal` for length-norm too.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from statistics import fmean

from rich.console import Console
from rich.table import Table

from uncurse import RULES, SCORES, judge_all, record
from uncurse.evaluation.quality import quality
from uncurse.length import parse_limit
from uncurse.loading import load
from uncurse.training.data import read_lines
from uncurse.translator import Task

WAYS = (
    ("log-prob", "first-finished"),
    ("length-norm", "beam-full"),
    ("length-norm", "optimal"),
    ("gnmt:alpha=0.2,beta=0.2", "beam-full"),
    ("bounded-word-reward:reward=0.5", "optimal"),
    ("adaptive-reward", "optimal"),
    ("bp-norm", "optimal"),
)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("source", type=Path)
    parser.add_argument("references", type=Path, nargs="+")
    parser.add_argument("--widths", default="1,5,10")
    parser.add_argument("--lines", type=int, default=None, help="only the first so many")
    parser.add_argument("--max-length", default=None)
    options = parser.parse_args()
    translator = load(options.model)
    lines = read_lines(options.source)[: options.lines]
    references = [read_lines(path)[: options.lines] for path in options.references]
    task = Task(limit=None if options.max_length is None else parse_limit(options.max_length))
    sentences = [translator.sentence(line, task) for line in lines]
    order = sorted(range(len(lines)), key=lambda index: len(sentences[index].source))
    ways = [(SCORES.parse(score), RULES.parse(rule)) for score, rule in WAYS]
    table = Table(title=f"{len(lines)} lines of {options.source.name}, {len(references)} references")
    for column in ("beam", "score", "stop", "BLEU", "BP", "ratio", "empty", "repeating", "steps"):
        table.add_column(column, justify="left" if column in ("score", "stop") else "right")
    signature = ""
    for width in map(int, options.widths.split(",")):
        start = time.perf_counter()
        recorded = record(translator.model, [sentences[index] for index in order], width)
        traces = dict(zip(order, recorded, strict=True))
        seconds = time.perf_counter() - start
        verdicts = [
            judge_all(traces[index], ways, length=sentences[index].predicted) for index in range(len(lines))
        ]
        for way, (score, rule) in enumerate(WAYS):
            results = [verdict[way] for verdict in verdicts]
            outputs = [translator.text(each.hypotheses[0].tokens) if each.hypotheses else "" for each in results]
            found = quality(outputs, references, lowercase=True)
            signature = found.signature
            table.add_row(
                str(width), score, rule, f"{found.bleu:.2f}", f"{found.brevity_penalty:.3f}", f"{found.ratio:.3f}",
                f"{found.empty:.1%}", f"{found.repeating:.1%}", f"{fmean(each.steps for each in results):.1f}",
            )  # fmt: skip
        table.add_section()
        table.caption = f"the last width took {seconds:.0f} s to record · {signature}"
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
