"""What a study will cost, before anything is decoded, and what it has saved afterwards."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Final

from rich.table import Table as Grid

from uncurse.scoring.decoding import Sentence
from uncurse.search.record import record
from uncurse.study.findings import Findings
from uncurse.study.reference_scores import FindOptimum
from uncurse.study.run import ANSWERS
from uncurse.study.study import Study

TRIED: Final = 4  # sentences of middling length that are searched to find out how fast the model is


def forecast(study: Study) -> Grid:
    """Every search with its size, how much of it is done, and the time that the rest will take."""
    sizes = study.plan.all_beam_sizes
    tried = _middling(study)
    rates = {size: _rows_per_second(study, tried, size) for size in (sizes[0], sizes[-1])}
    grid = Grid(title=f"{study.plan.title}: what will be decoded")
    for column in ("set", "beam size", "sentences", "rows", "done", "time left"):
        grid.add_column(column, justify="left" if column == "set" else "right")
    total = 0.0
    for name, recording in study.recordings():
        missing = study.traces.missing(recording)
        rows = sum(recording.rows(shard) for shard in range(len(recording.shards)))
        left = sum(recording.rows(shard) for shard in missing) / _rate(rates, recording.beam_size)
        total += left
        cells = (recording.beam_size, len(recording.sentences), f"{rows:,}")
        done = 1 - len(missing) / len(recording.shards)
        grid.add_row(name, *map(str, cells), f"{done:.0%}", _duration(left))
    jobs = [job for _, job in study.reference_scores.jobs(tuple(study.test_sets.values()))]
    calls = sum(job.budget for job in jobs if isinstance(job, FindOptimum))
    left = calls / _rows_per_second(study, tried[:1], 1) if calls else 0.0
    grid.add_row(ANSWERS, "", str(len(jobs)), f"≤ {calls:,}", "", f"≤ {_duration(left)}")
    grid.add_section()
    grid.add_row("all", "", "", "", "", f"≤ {_duration(total + left)}")
    return grid


def time_saved(findings: Findings, judging: float) -> str:
    """What recording has saved, in time; `judging` is how many seconds the report took."""
    study = findings.study
    searching = sum(
        study.traces.seconds(study.recording(name, size)) for name, sizes in findings.at.items() for size in sizes
    )
    longest = study.traces.seconds(study.long_recording) if study.compares_max_lengths else 0.0
    asking = study.reference_scores.seconds(tuple(study.test_sets.values()))
    every = searching * findings.rows_one_by_one / findings.rows_recorded
    return (
        f"recorded in {_duration(searching + longest)}, references and exact optima scored in"
        f" {_duration(asking)}, judged in {_duration(judging)}; to decode every method at every beam size would"
        f" have taken about {_duration(every)}"
    )


def _middling(study: Study) -> list[Sentence]:
    sentences = sorted(study.test_sets["dev"].sentences, key=lambda each: len(each.source))
    middle = len(sentences) // 2
    return sentences[middle : middle + TRIED]


def _rows_per_second(study: Study, sentences: Sequence[Sentence], beam_size: int) -> float:
    start = time.perf_counter()
    record(study.model, sentences, beam_size, study.plan.slots)
    return sum(each.max_length for each in sentences) * beam_size / (time.perf_counter() - start)


def _rate(rates: Mapping[int, float], beam_size: int) -> float:
    """A straight line between the two that were measured."""
    (narrow, slow), (wide, fast) = min(rates.items()), max(rates.items())
    return slow if wide == narrow else slow + (fast - slow) * (beam_size - narrow) / (wide - narrow)


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
