"""What a study will cost, before anything is decoded."""

from __future__ import annotations

import time

from rich.table import Table as Grid

from uncurse.decoding import Slots
from uncurse.search import record
from uncurse.study.findings import Findings
from uncurse.study.opened import SETS, Study

TRIED = 4  # sentences of middling length that are searched to find out how fast the model is


def forecast(study: Study) -> Grid:
    """Every search with its size, what of it is there, and the time that the rest will take."""
    rates = _rates(study)
    grid = Grid(title=f"{study.plan.title}: what will be decoded")
    for column in ("set", "width", "sentences", "rows", "there", "time left"):
        grid.add_column(column, justify="left" if column == "set" else "right")
    total = 0.0
    for name, recording in study.recordings():
        missing = study.store.missing(recording)
        rows = sum(recording.rows(shard) for shard in range(len(recording.shards)))
        left = sum(recording.rows(shard) for shard in missing) / _rate(rates, recording.width)
        total += left
        there = 1 - len(missing) / len(recording.shards)
        grid.add_row(
            name,
            str(recording.width),
            str(len(recording.sentences)),
            f"{rows:,}",
            f"{there:.0%}",
            _minutes(left),
        )
    grid.add_section()
    grid.add_row("all", "", "", "", "", _minutes(total))
    grid.caption = (
        f"{study.probes.missing(tuple(study.materials.values()))} questions beside the searches are open."
    )
    return grid


def saved(findings: Findings, judging: float) -> str:
    """What recording has saved, in time; `judging` is how many seconds the report took."""
    study = findings.study
    seconds = sum(
        study.store.seconds(study.recording(name, width)) for name in SETS for width in findings.at[name]
    )
    every = seconds * findings.rows_one_by_one / findings.rows_recorded
    return (
        f"decoded once in {_minutes(seconds)} and judged in {_minutes(judging)}; to decode every method at every"
        f" width would have taken about {_minutes(every)}"
    )


def _rates(study: Study) -> dict[int, float]:
    """Rows a second at the narrowest and the widest beam."""
    sentences = sorted(study.materials["dev"].sentences, key=lambda each: len(each.source))
    middle = len(sentences) // 2
    tried = sentences[middle : middle + TRIED]
    rates = {}
    for width in (study.plan.all_widths[0], study.plan.all_widths[-1]):
        start = time.perf_counter()
        record(study.model, tried, width, Slots(study.plan.slots))
        rates[width] = sum(each.limit for each in tried) * width / (time.perf_counter() - start)
    return rates


def _rate(rates: dict[int, float], width: int) -> float:
    """A straight line between the two that were measured."""
    (narrow, slow), (wide, fast) = min(rates.items()), max(rates.items())
    return slow if wide == narrow else slow + (fast - slow) * (width - narrow) / (wide - narrow)


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
