"""The sentences of a test set as a study sees them: text, references, expected and maximum lengths."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Final, final

import numpy as np

from uncurse.arrays import Ints
from uncurse.errors import UncurseError
from uncurse.lengths.limits import parse_max_length
from uncurse.lengths.policy import hit_max_length
from uncurse.scoring.decoding import Sentence
from uncurse.search.trace import Trace
from uncurse.study.plan import Plan, SetPlan
from uncurse.text.lines import read_lines, sample
from uncurse.translation.translator import Translator

SETS: Final = ("dev", "test")


@final
@dataclass(frozen=True, eq=False)
class TestSet:
    """One test set, prepared for one model."""

    __test__ = False  # its name makes pytest look for tests in it

    name: str  # dev or test
    lines: tuple[str, ...]
    references: tuple[tuple[str, ...], ...]  # [references][lines]
    targets: tuple[tuple[tuple[int, ...], ...], ...]  # [references][lines] their tokens
    sentences: tuple[Sentence, ...]  # with the maximum length that is judged
    recorded: tuple[Sentence, ...]  # with that of the recorded searches
    max_lengths: Mapping[str, tuple[int, ...]]  # R of each sentence, by the name of a maximum length
    retry_max_lengths: tuple[int, ...] | None = None  # R of each sentence if it is searched again

    @cached_property
    def expected_lengths(self) -> tuple[float | None, ...]:
        """The expected length of each translation."""
        return tuple(sentence.expected_length for sentence in self.sentences)

    @cached_property
    def reference_lengths(self) -> Ints:
        """How long the references are, `</s>` counted, [lines, references]."""
        return np.array([[len(tokens) + 1 for tokens in reference] for reference in self.targets]).T

    @cached_property
    def source_lengths(self) -> Ints:
        """How many tokens each source has, [lines]."""
        return np.array([len(sentence.source) for sentence in self.sentences])

    @cached_property
    def longest(self) -> tuple[Sentence, ...]:
        """The same sentences with the longest of all maximum lengths."""
        return tuple(
            replace(sentence, max_length=max(each[index] for each in self.max_lengths.values()))
            for index, sentence in enumerate(self.sentences)
        )

    def judged_max_lengths(self, traces: Sequence[Trace], max_lengths: Sequence[int] | None = None) -> list[int]:
        """R of each sentence of a recorded search; that of the second search where there was one."""
        if max_lengths is None:
            max_lengths = [sentence.max_length for sentence in self.sentences]
        if self.retry_max_lengths is None:
            return list(max_lengths)
        return [
            max(first, second) if hit_max_length(trace, first) else first
            for trace, first, second in zip(traces, max_lengths, self.retry_max_lengths, strict=True)
        ]

    def paper_max_lengths(self, traces: Sequence[Trace]) -> list[int]:
        """R = ⌈L⌉ for each sentence, as in the paper's own runs, but no more than was recorded."""
        pairs = zip(traces, self.expected_lengths, strict=True)
        return [min(trace.max_length, math.ceil(length)) for trace, length in pairs if length is not None]

    def references_of(self, index: int) -> list[str]:
        """The references of one line."""
        return [reference[index] for reference in self.references]


def read_test_set(name: str, plan: Plan, files: SetPlan, data: Path, translator: Translator) -> TestSet:
    """Read a test set; its files must have as many lines as each other, and no line may be empty."""
    source = data / files.source
    read = read_lines(source)
    references = []
    for path in files.references:
        references.append(read_lines(data / path))
        if len(references[-1]) != len(read):
            raise UncurseError(f"{source} has {len(read)} lines and {data / path} has {len(references[-1])}")
    if not read:
        raise UncurseError(f"{source} is empty")
    lines = sample(read, files.lines)
    if any(not line.strip() for line in lines):
        raise UncurseError(f"{source} has an empty line")
    names = plan.all_max_lengths
    found = translator.sentences_at(lines, [parse_max_length(each) for each in names])
    max_lengths = {
        each: tuple(sentence.max_length for sentence in sentences)
        for each, sentences in zip(names, found, strict=True)
    }
    recorded = max_lengths[plan.record_max_length or plan.max_length]
    chosen = tuple(tuple(sample(reference, files.lines)) for reference in references)
    return TestSet(
        name=name,
        lines=tuple(lines),
        references=chosen,
        targets=tuple(tuple(tuple(translator.encode_target(line)) for line in reference) for reference in chosen),
        sentences=tuple(found[0]),
        recorded=tuple(
            replace(sentence, max_length=max(sentence.max_length, most))
            for sentence, most in zip(found[0], recorded, strict=True)
        ),
        max_lengths=max_lengths,
        retry_max_lengths=None if plan.retry_max_length is None else max_lengths[plan.retry_max_length],
    )
