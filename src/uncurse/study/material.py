"""The sentences of a test set as a study sees them: text, references, expected lengths and limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import final

import numpy as np

from uncurse.arrays import Ints
from uncurse.decoding import Sentence
from uncurse.length import parse_limit
from uncurse.study.plan import Plan, SetPlan
from uncurse.text.lines import read_lines
from uncurse.trace import Trace
from uncurse.translator import Translator, recorded_in_vain


@final
@dataclass(frozen=True, eq=False)
class Material:
    """One test set, prepared for one model."""

    name: str  # dev or test
    lines: tuple[str, ...]
    references: tuple[tuple[str, ...], ...]  # [references][lines]
    targets: tuple[tuple[tuple[int, ...], ...], ...]  # [references][lines] their pieces
    sentences: tuple[Sentence, ...]  # with the limit that is judged
    recorded: tuple[Sentence, ...]  # with that of the recorded searches
    limits: dict[str, tuple[int, ...]]  # R of each sentence, by the name of a limit
    again: tuple[int, ...] | None = None  # R of each sentence if it is searched in vain

    @cached_property
    def predicted(self) -> tuple[float | None, ...]:
        """The expected length of each translation."""
        return tuple(sentence.predicted for sentence in self.sentences)

    @cached_property
    def reference_lengths(self) -> Ints:
        """How long the references are, `</s>` counted, [lines, references]."""
        return np.array([[len(pieces) + 1 for pieces in reference] for reference in self.targets]).T

    @cached_property
    def source_lengths(self) -> Ints:
        """How many pieces each source has, [lines]."""
        return np.array([len(sentence.source) for sentence in self.sentences])

    @cached_property
    def longest(self) -> tuple[Sentence, ...]:
        """The same sentences with the longest of all limits."""
        return tuple(
            replace(sentence, limit=max(limits[index] for limits in self.limits.values()))
            for index, sentence in enumerate(self.sentences)
        )

    def limits_in(self, traces: Sequence[Trace], limits: Sequence[int] | None = None) -> list[int]:
        """R of each sentence in a recorded search; that of another try where nothing ends within it."""
        if limits is None:
            limits = [sentence.limit for sentence in self.sentences]
        if self.again is None:
            return list(limits)
        return [
            max(limit, more) if recorded_in_vain(trace, limit) else limit
            for trace, limit, more in zip(traces, limits, self.again, strict=True)
        ]

    def references_of(self, index: int) -> list[str]:
        """The translations of one line by people."""
        return [reference[index] for reference in self.references]


def prepare(name: str, plan: Plan, files: SetPlan, data: Path, translator: Translator) -> Material:
    """Read a test set; its files must have as many lines as each other, and no line may be empty."""
    source = data / files.source
    read = read_lines(source)
    references = []
    for path in files.references:
        references.append(read_lines(data / path))
        if len(references[-1]) != len(read):
            raise ValueError(f"{source} has {len(read)} lines and {data / path} has {len(references[-1])}")
    if not read:
        raise ValueError(f"{source} is empty")
    lines = sample(read, files.lines)
    if any(not line.strip() for line in lines):
        raise ValueError(f"{source} has an empty line")
    names = plan.all_limits
    found = translator.sentences(lines, [parse_limit(name) for name in names])
    limits = {
        name: tuple(sentence.limit for sentence in sentences) for name, sentences in zip(names, found, strict=True)
    }
    longest = limits[plan.record_limit or plan.limit]
    chosen = tuple(tuple(sample(reference, files.lines)) for reference in references)
    return Material(
        name,
        tuple(lines),
        chosen,
        tuple(tuple(tuple(translator.target_pieces(line)) for line in reference) for reference in chosen),
        tuple(found[0]),
        tuple(
            replace(sentence, limit=max(sentence.limit, most))
            for sentence, most in zip(found[0], longest, strict=True)
        ),
        limits,
        None if plan.again is None else limits[plan.again],
    )


def sample(lines: Sequence[str], count: int | None) -> list[str]:
    """So many lines, evenly spread over the whole: the head of a news test is a few articles only."""
    count = min(count or len(lines), len(lines))
    return [lines[index * len(lines) // count] for index in range(count)]
